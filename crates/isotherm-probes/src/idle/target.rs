//! A target of the `idle` probe.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;

use isotherm_core::survey::BLOCK_PAGES;
use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, TargetId, TargetSpace, mapping_at};
use isotherm_kernel::page_cache::{FileReader, FileTable};
use rustix::io::Errno;

use super::IdleError;
use isotherm_kernel::pages::{PageBuffer, Pagemap, PagemapEntry, SwapPlace};

/// The pagemap entries of one block.
pub(super) type BlockEntries = [u8; BLOCK_PAGES * PagemapEntry::BYTES];

/// Where a page is.
#[derive(Clone, Copy, Debug)]
pub(super) enum PagePlace {
    /// In memory. `is_exclusive` says whether nobody else maps the frame.
    Frame { frame: u64, is_exclusive: bool },
    /// In swap.
    Swapped(SwapPlace),
}

/// A target, and the method by which the frames of its pages are found.
#[derive(Debug)]
pub(super) struct IdleTarget {
    pub(super) id: TargetId,
    /// Sorted and disjoint.
    mappings: Arc<[Mapping]>,
    method: Method,
}

/// How the frame of a page is found.
#[derive(Debug)]
enum Method {
    /// The address is physical: it contains the frame number.
    Physical,
    /// From the pagemap of the process.
    Process(Pagemap),
    /// The address is one of a file of this table.
    Files { table: FileTable, reader: RefCell<FileReader> },
    /// The process has ended: it has no pages.
    Gone,
    /// Access to the target's memory is not permitted, or not possible at the moment.
    Refused,
}

impl IdleTarget {
    /// Opens a target. `files` are those of the page cache. The second value is the error if access to the target's
    /// memory is not permitted.
    pub(super) fn open(
        root: &Path,
        files: &FileTable,
        space: &TargetSpace,
    ) -> Result<(Self, Option<io::Error>), IdleError> {
        let (method, refusal) = match space.id {
            TargetId::PhysicalMemory => (Method::Physical, None),
            TargetId::Cgroup(_) => (Method::Refused, Some(io::ErrorKind::Unsupported.into())),
            TargetId::PageCache => {
                let reader = FileReader::new(files.clone()).into();
                (Method::Files { table: files.clone(), reader }, None)
            }
            // The pagemap is opened again at each update: exec gives the process another address space.
            TargetId::Process(process) => match Pagemap::open(root, &process.pid.to_string()) {
                Ok(pagemap) => (Method::Process(pagemap), None),
                Err(error) => match error.errno() {
                    Errno::NOENT | Errno::SRCH => (Method::Gone, None),
                    // The next update opens it again.
                    _ => (Method::Refused, Some(error.source)),
                },
            },
        };
        Ok((Self { id: space.id, mappings: Arc::clone(&space.mappings), method }, refusal))
    }

    /// Whether `addr` lies in a mapping of the target.
    pub(super) fn maps(&self, addr: u64) -> bool {
        mapping_at(&self.mappings, addr).is_some()
    }

    /// Whether the frame of an address never changes.
    pub(super) fn is_physical(&self) -> bool {
        matches!(self.method, Method::Physical)
    }

    /// The addresses of the blocks that have pages, if they are known without the mappings.
    pub(super) fn blocks(&self) -> Option<Vec<u64>> {
        match &self.method {
            Method::Files { table, .. } => Some(table.blocks()),
            Method::Physical | Method::Process(_) | Method::Gone | Method::Refused => None,
        }
    }

    /// Calls `found` with each page of a block that may be in memory or in swap, and with its number in the block.
    /// Returns whether the block could be read: a process that has ended has none.
    pub(super) fn block(&self, start: u64, buffer: &mut BlockEntries, mut found: impl FnMut(usize, PagePlace)) -> bool {
        match &self.method {
            Method::Physical => {
                let frame = |page: usize| start / PAGE_SIZE + page as u64;
                (0..BLOCK_PAGES)
                    .for_each(|page| found(page, PagePlace::Frame { frame: frame(page), is_exclusive: true }));
            }
            Method::Process(pagemap) => {
                let Ok(entries) = pagemap.entries(start, &mut buffer[..]) else { return false };
                for (page, entry) in entries.enumerate() {
                    if let Some(frame) = entry.frame() {
                        found(page, PagePlace::Frame { frame, is_exclusive: entry.is_exclusive() });
                    } else if let Some(place) = entry.swapped() {
                        found(page, PagePlace::Swapped(place));
                    }
                }
            }
            Method::Files { reader, .. } => {
                let block = AddrRange::new(start, start.saturating_add(BLOCK_SIZE));
                // A page is listed once, and counts once, whoever maps it.
                let read = block.map_or(Ok(()), |block| {
                    reader.borrow_mut().frames(block, |addr, frame| {
                        let page = ((addr - start) / PAGE_SIZE) as usize;
                        found(page, PagePlace::Frame { frame, is_exclusive: true });
                    })
                });
                return read.is_ok();
            }
            Method::Gone | Method::Refused => return false,
        }
        true
    }

    /// Calls `found` with the frame of the page at each of `addresses`, which are sorted. The frame is `None` if there
    /// is no page, and 0 if it cannot be read.
    pub(super) fn frames(
        &self,
        addresses: impl ExactSizeIterator<Item = u64>,
        buffer: &mut PageBuffer,
        mut found: impl FnMut(Option<u64>),
    ) {
        let mut left = addresses.len();
        match &self.method {
            Method::Physical => {
                left = 0;
                addresses.for_each(|addr| found(Some(addr / PAGE_SIZE)));
            }
            Method::Process(pagemap) => {
                let read = pagemap.frames(addresses, buffer, |frame| {
                    left -= 1;
                    found(frame);
                });
                if read.is_ok() {
                    debug_assert_eq!(left, 0);
                }
            }
            Method::Files { reader, .. } => {
                frames_of_files(&mut reader.borrow_mut(), addresses, |frame| {
                    left -= 1;
                    found(frame);
                });
            }
            Method::Gone => {
                left = 0;
                addresses.for_each(|_| found(None));
            }
            Method::Refused => {}
        }
        // The addresses that could not be read: access is not permitted, or reading failed.
        (0..left).for_each(|_| found(Some(0)));
    }
}

/// Calls `found` with the frame of the page of a file at each of `addresses`, which are sorted. The frame is `None` if
/// there is no page, and 0 if it cannot be read.
fn frames_of_files(reader: &mut FileReader, addresses: impl Iterator<Item = u64>, mut found: impl FnMut(Option<u64>)) {
    let block_of = |addr: u64| addr - addr % BLOCK_SIZE;
    let mut frames: Vec<(u64, u64)> = Vec::new();
    let mut last: Option<(u64, bool)> = None;
    for addr in addresses {
        let start = block_of(addr);
        let is_read = match last {
            Some((block, is_read)) if block == start => is_read,
            _ => {
                frames.clear();
                let block = AddrRange::new(start, start.saturating_add(BLOCK_SIZE));
                let read = block.map_or(Ok(()), |block| reader.frames(block, |addr, frame| frames.push((addr, frame))));
                last = Some((start, read.is_ok()));
                read.is_ok()
            }
        };
        let frame = frames.binary_search_by_key(&addr, |(addr, _)| *addr).ok().map(|at| frames[at].1);
        found(if is_read { frame } else { Some(0) });
    }
}
