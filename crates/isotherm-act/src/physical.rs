//! From page frames to the processes that map them.
//!
//! Physical memory has no advice of its own: a process has to be named that maps it. Which processes map a frame is
//! known only from the page tables of all of them, so these are read together, and again when the result is old. What
//! was found is checked before it is used: a page counts only if the process still has the same frame there.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::scheme::Action;
use isotherm_core::{AddrRange, Mapping, PAGE_SIZE};
use isotherm_kernel::pages::{PageBuffer, Pagemap};
use isotherm_kernel::{Process, process_ids};
use rustix::io::Errno;

use super::call_method::Row;
use super::error::ActError;
use super::frames::Frames;

/// What was read is used for this time at least.
const VALID: Duration = Duration::from_secs(2);

/// Reading takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// So much address space of a process is read at most, the smallest mappings first. Some programs reserve terabytes.
const MOST_SPACE: u64 = 64 << 30;

/// So many bits of a key are the number of the process.
const PROCESS_BITS: u32 = 24;

/// The number of this process, which is never acted on.
const OWN: u64 = (1 << PROCESS_BITS) - 1;

/// The pages of one process in some frames.
#[derive(Debug)]
pub(super) struct OfProcess {
    pub(super) process: Arc<Process>,
    /// Sorted by address.
    pub(super) pages: Vec<OwnedPage>,
}

/// A page of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedPage {
    pub(super) at: AddrRange,
    pub(super) frame: u64,
    /// The index of the range that the frame lies in.
    pub(super) index: usize,
}

/// The pages of ranges of frames, by process, and what has none.
#[derive(Debug, Default)]
pub(super) struct PagesOfFrames {
    pub(super) by_process: Vec<OfProcess>,
    /// For each range, the bytes in frames that several processes map, or one process at several addresses.
    pub(super) shared: Vec<u64>,
    /// For each range, the bytes in frames that no process is known to map.
    pub(super) unmapped: Vec<u64>,
    /// These frames, both kinds, sorted: their physical addresses, and the index of the range that they lie in. Those
    /// of this process are not among them.
    pub(super) unowned: Vec<(AddrRange, usize)>,
}

impl PagesOfFrames {
    /// Notes frames that no process maps.
    fn has_none(&mut self, frames: Range<u64>, index: usize) {
        let range = AddrRange::new(frames.start * PAGE_SIZE, frames.end * PAGE_SIZE);
        self.unmapped[index] += range.map_or(0, |range| range.size());
        self.unowned.extend(range.map(|range| (range, index)));
    }

    /// Notes a frame that several processes map.
    fn has_several(&mut self, frame: u64, index: usize) {
        let range = AddrRange::new(frame * PAGE_SIZE, (frame + 1) * PAGE_SIZE);
        self.shared[index] += PAGE_SIZE;
        self.unowned.extend(range.map(|range| (range, index)));
    }
}

/// Finds the processes that map page frames. Clones share what was read.
#[derive(Clone, Debug, Default)]
pub struct FrameOwners(Arc<Mutex<Owners>>);

#[derive(Debug, Default)]
struct Owners {
    root: PathBuf,
    /// When reading ended, and how long it took.
    read: Option<(Instant, Duration)>,
    processes: Vec<Arc<Process>>,
    /// The frame and the number of the process as a key, and the address: sorted.
    places: Vec<(u64, u64)>,
    buffer: PageBuffer,
}

impl FrameOwners {
    /// The owners of all page frames of this machine, but for this process, which is never acted on.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Owners { root: "/".into(), ..Owners::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        // What a panic has left is read again when it is old.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages of processes in `ranges` of physical addresses.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub(super) fn find(&self, ranges: &[AddrRange]) -> Result<PagesOfFrames, Errno> {
        let mut owners = self.lock();
        owners.refresh()?;
        Ok(owners.find(ranges))
    }
}

impl Owners {
    /// Reads the page tables of all processes if that was not done a short time ago.
    fn refresh(&mut self) -> Result<(), Errno> {
        if self.read.is_some_and(|(at, took)| at.elapsed() < (took * SHARE).max(VALID)) {
            return Ok(());
        }
        let began = Instant::now();
        self.processes.clear();
        self.places.clear();
        let own = std::process::id();
        let pids = process_ids(&self.root);
        let pids = pids.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        for pid in pids {
            // Kernel threads have no memory, and those that refuse access are left alone.
            let Ok(process) = Process::open(pid) else { continue };
            let number = if pid == own { OWN } else { self.processes.len() as u64 };
            if self.processes.len() as u64 == OWN {
                break;
            }
            if self.read_process(&process, number).is_some() && number != OWN {
                self.processes.push(Arc::new(process));
            }
        }
        self.places.sort_unstable();
        self.places.shrink_to(self.places.len() * 2);
        self.read = Some((Instant::now(), began.elapsed()));
        Ok(())
    }

    /// Adds the pages of a process. `None` if it cannot be read.
    fn read_process(&mut self, process: &Process, number: u64) -> Option<()> {
        let mappings = process.mappings().ok()?;
        let pagemap = Pagemap::open(&self.root, &process.pid().to_string()).ok()?;
        let mut memory: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.permissions.any()).collect();
        memory.sort_unstable_by_key(|mapping| mapping.range.size());
        let mut left = MOST_SPACE;
        for mapping in memory {
            let Some(rest) = left.checked_sub(mapping.range.size()) else { break };
            left = rest;
            let mut addresses = mapping.range.page_addresses();
            let Self { places, buffer, .. } = self;
            let read = pagemap.frames(mapping.range.page_addresses(), buffer, |frame| {
                let addr = addresses.next();
                // The kernel shows 0 to those who may not see frames.
                if let (Some(addr), Some(frame)) = (addr, frame.filter(|frame| *frame != 0)) {
                    places.push((frame << PROCESS_BITS | number, addr));
                }
            });
            // The process may have ended. What was read is checked later.
            if read.is_err() {
                break;
            }
        }
        Some(())
    }

    /// The pages in `ranges`, as far as the processes still have them there and nobody else has.
    fn find(&mut self, ranges: &[AddrRange]) -> PagesOfFrames {
        let none = || vec![0; ranges.len()];
        let mut found = PagesOfFrames { shared: none(), unmapped: none(), ..PagesOfFrames::default() };
        let mut wanted: Vec<Wanted> = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let (first, end) = (range.start() / PAGE_SIZE, range.end().div_ceil(PAGE_SIZE));
            let at = self.places.partition_point(|(key, _)| key >> PROCESS_BITS < first);
            let until = self.places.partition_point(|(key, _)| key >> PROCESS_BITS < end);
            let mut next = first;
            for of_frame in self.places[at..until].chunk_by(|(a, _), (b, _)| a >> PROCESS_BITS == b >> PROCESS_BITS) {
                let frame = of_frame[0].0 >> PROCESS_BITS;
                found.has_none(next..frame, index);
                next = frame + 1;
                match of_frame {
                    [(key, addr)] => {
                        let process = key & ((1 << PROCESS_BITS) - 1);
                        if process == OWN {
                            found.unmapped[index] += PAGE_SIZE;
                        } else {
                            wanted.push(Wanted { process, addr: *addr, frame, index });
                        }
                    }
                    _ => found.has_several(frame, index),
                }
            }
            found.has_none(next..end, index);
        }
        wanted.sort_unstable_by_key(|page| (page.process, page.addr));
        for of_one in wanted.chunk_by(|a, b| a.process == b.process) {
            let process = &self.processes[of_one[0].process as usize];
            let mut pages = Vec::new();
            let mut next = of_one.iter();
            if let Ok(pagemap) = Pagemap::open(&self.root, &process.pid().to_string()) {
                let addresses = of_one.iter().map(|page| page.addr);
                // What cannot be read is left alone.
                let _ = pagemap.each(addresses, &mut self.buffer, |entry| {
                    let Some(&Wanted { addr, frame, index, .. }) = next.next() else { return };
                    match (entry.filter(|entry| entry.frame() == Some(frame)), AddrRange::new(addr, addr + PAGE_SIZE)) {
                        (Some(entry), Some(page)) if entry.is_exclusive() => {
                            pages.push(OwnedPage { at: page, frame, index });
                        }
                        // Another process maps it since.
                        (Some(_), _) => found.has_several(frame, index),
                        (None, _) => found.unmapped[index] += PAGE_SIZE,
                    }
                });
            }
            // If the process has ended, another one may have its number.
            if !process.has_ended() {
                found.by_process.push(OfProcess { process: Arc::clone(process), pages });
            }
        }
        found.unowned.sort_unstable();
        found.unowned.dedup_by(|(next, index), (range, of)| {
            let touches = range.end() == next.start() && index == of;
            if let Some(both) = AddrRange::new(range.start(), next.end()).filter(|_| touches) {
                *range = both;
            }
            touches
        });
        found
    }
}

/// A page that a process had in a frame.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    process: u64,
    addr: u64,
    frame: u64,
    /// The range that the frame lies in.
    index: usize,
}

/// Joins pages that touch and belong to the same range of frames.
pub(super) fn joined(pages: &[OwnedPage]) -> Vec<(usize, AddrRange)> {
    let mut parts: Vec<(usize, AddrRange)> = Vec::new();
    for &OwnedPage { at: page, index, .. } in pages {
        match parts.last_mut() {
            Some((of, part)) if *of == index && part.end() == page.start() => {
                *part = AddrRange::new(part.start(), page.end()).unwrap_or(page);
            }
            _ => parts.push((index, page)),
        }
    }
    parts
}

/// Checks that an action can be carried out on page frames, and that the kernel shows them.
///
/// # Errors
/// If it is one that no process does to its pages, or if frames cannot be seen.
pub(super) fn check(root: &Path, action: Action) -> Result<(), ActError> {
    if !Row::of(action, false).on_frames {
        return Err(ActError::NotOnFrames(action));
    }
    if !action.changes_memory() {
        return Ok(());
    }
    Frames::open(root).map(drop).map_err(|source| ActError::Frames { action, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_touch_are_joined_within_a_range_of_frames() {
        let range = |from: u64, to: u64| AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE).unwrap();
        let page = |index, at| OwnedPage { at: range(at, at + 1), frame: 100 - at, index };
        let pages = [page(0, 1), page(0, 2), page(1, 3), page(1, 5), page(1, 6)];
        assert_eq!(joined(&pages), [(0, range(1, 3)), (1, range(3, 4)), (1, range(5, 7))]);
    }

    #[test]
    fn frames_of_several_processes_and_of_none_are_listed_by_range() {
        let range = |from: u64, to: u64| AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE).unwrap();
        let place = |frame: u64, process: u64| (frame << PROCESS_BITS | process, 0x1000);
        let places = vec![place(5, 0), place(5, 1), place(7, 0), place(7, 2), place(20, 0), place(31, OWN)];
        let mut owners = Owners { places, ..Owners::default() };
        let found = owners.find(&[range(4, 6), range(6, 9), range(30, 32)]);
        assert_eq!(found.shared, [PAGE_SIZE, PAGE_SIZE, 0]);
        assert_eq!(found.unmapped, [1, 2, 2].map(|pages| pages * PAGE_SIZE));
        assert_eq!(found.unowned, [(range(4, 6), 0), (range(6, 9), 1), (range(30, 31), 2)], "not what is its own");
    }
}
