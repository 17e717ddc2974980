//! Counts the memory of a process that is resident, to find what a reclaim has really freed.

use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use isotherm_kernel::pages::{FlagTable, PageBuffer, Pagemap, TableError};

/// The resident pages of a range.
#[derive(Debug, Default)]
pub(super) struct Resident {
    /// The bytes of private anonymous memory.
    pub private: u64,
    /// The addresses of the other pages, those of files and of shared memory, and their page frames.
    files: Vec<(u64, u64)>,
}

impl Resident {
    /// The bytes of all pages.
    pub(super) fn bytes(&self) -> u64 {
        self.private + self.files.len() as u64 * PAGE_SIZE
    }
}

/// What of each of `ranges`, which are sorted, is resident in process `pid`.
///
/// # Errors
/// Returns the error of open(2) or read(2) on the pagemap of the process. `root` is the directory that stands for `/`.
pub(super) fn resident(root: &Path, pid: u32, ranges: &[AddrRange]) -> Result<Vec<Resident>, Errno> {
    let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| error.errno())?;
    let mut buffer = PageBuffer::default();
    let of = |range: &AddrRange| {
        let mut resident = Resident::default();
        let mut addresses = range.page_addresses();
        pagemap
            .each(range.page_addresses(), &mut buffer, |entry| {
                let (addr, frame) = (addresses.next(), entry.and_then(|entry| entry.frame()));
                match (addr, frame, entry) {
                    (Some(addr), Some(frame), Some(entry)) if entry.is_of_a_file() => {
                        resident.files.push((addr, frame))
                    }
                    (_, Some(_), _) => resident.private += PAGE_SIZE,
                    (_, None, _) => {}
                }
            })
            .map_err(|error| error.errno())?;
        Ok(resident)
    };
    ranges.iter().map(of).collect()
}

/// Tells pages that were freed from those that were only unmapped.
#[derive(Debug)]
pub(super) struct Cached {
    /// `None` if the user may not read it.
    flags: Option<FlagTable>,
    buffer: PageBuffer,
}

impl Cached {
    /// Opens `/proc/kpageflags`. `root` is the directory that stands for `/`.
    pub(super) fn new(root: &Path) -> Self {
        Self { flags: FlagTable::open(root).ok(), buffer: PageBuffer::default() }
    }

    /// The bytes that were resident `before` and are not resident any more, and that are in memory nevertheless:
    /// changed pages of files, and shared memory for which there is no swap. If the user may not see page frames, all
    /// pages of files and of shared memory count as such.
    pub(super) fn bytes(&mut self, before: &Resident, after: &Resident) -> u64 {
        let has_gone = |&(addr, _): &&(u64, u64)| after.files.binary_search_by_key(addr, |(at, _)| *at).is_err();
        let mut frames: Vec<u64> = before.files.iter().filter(has_gone).map(|&(_, frame)| frame).collect();
        frames.sort_unstable();
        let hidden = frames.partition_point(|&frame| frame == 0);
        let all = frames.len() as u64 * PAGE_SIZE;
        match &self.flags {
            Some(flags) if hidden == 0 => count(flags, &frames, &mut self.buffer).unwrap_or(all),
            _ => all,
        }
    }
}

/// The bytes of `frames`, which are sorted, that hold pages in memory that no process maps.
fn count(flags: &FlagTable, frames: &[u64], buffer: &mut PageBuffer) -> Result<u64, TableError> {
    let mut found = 0;
    let mut tails = Vec::new();
    let mut at = frames.iter();
    flags.each(frames.iter().copied(), buffer, |of_frame| match at.next() {
        Some(&frame) if of_frame.is_tail() => tails.push(frame),
        _ => found += u64::from(of_frame.is_cached_only()),
    })?;
    let mut folio = 0..0;
    for frame in tails {
        if !folio.contains(&frame) {
            folio = flags.folio(frame)?.unwrap_or(frame..frame + 1);
        }
        found += u64::from(flags.flags(folio.start)?.unwrap_or_default().is_cached_only());
    }
    Ok(found * PAGE_SIZE)
}
