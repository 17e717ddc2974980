//! Counts the memory of a process that is resident, to find what a reclaim has really freed.

use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use super::advice_plan::AdvicePlan;
use isotherm_kernel::pages::{FlagTable, PageBuffer, Pagemap, TableError};

/// The resident pages of a range: their addresses, which are sorted, and their page frames; 0 if the user may not see
/// them.
#[derive(Debug, Default)]
pub(super) struct Resident {
    /// Private anonymous memory.
    private: Vec<(u64, u64)>,
    /// Other pages, those of files and of shared memory.
    files: Vec<(u64, u64)>,
}

/// What became of the pages of a range, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Became {
    /// They are where they were.
    pub stayed: u64,
    /// They have left their page frames. Without the page frames: they are not resident any more.
    pub gone: u64,
    /// Of these, what is resident again, in other page frames.
    pub returned: u64,
}

impl Resident {
    /// The bytes of all pages.
    pub(super) fn bytes(&self) -> u64 {
        (self.private.len() + self.files.len()) as u64 * PAGE_SIZE
    }

    /// Whether there is private anonymous memory.
    pub(super) fn has_private(&self) -> bool {
        !self.private.is_empty()
    }

    /// What became of these pages if `after` is what is resident now.
    pub(super) fn became(&self, after: &Self) -> Became {
        let mut became = Became::default();
        let kinds = [(&self.private, &after.private, &after.files), (&self.files, &after.files, &after.private)];
        for (before, same, other) in kinds {
            for &(addr, frame) in before {
                let now = frame_at(same, addr);
                if now == Some(frame) {
                    became.stayed += PAGE_SIZE;
                } else {
                    became.gone += PAGE_SIZE;
                    became.returned += if now.or_else(|| frame_at(other, addr)).is_some() { PAGE_SIZE } else { 0 };
                }
            }
        }
        became
    }
}

/// The page frame at an address.
fn frame_at(pages: &[(u64, u64)], addr: u64) -> Option<u64> {
    pages.binary_search_by_key(&addr, |(at, _)| *at).ok().map(|nth| pages[nth].1)
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
                let (Some(addr), Some(frame), Some(entry)) = (addr, frame, entry) else { return };
                let pages = if entry.is_of_a_file() { &mut resident.files } else { &mut resident.private };
                pages.push((addr, frame));
            })
            .map_err(|error| error.errno())?;
        Ok(resident)
    };
    ranges.iter().map(of).collect()
}

/// What page frames tell of resident pages: how to give advice on them, and which were freed and not only unmapped.
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

    /// How advice is given on the resident pages of sorted ranges. Without `has_swap`, what needs swap gets none. If
    /// the user may not see page frames, large folios are not known, and all private anonymous memory needs swap.
    pub(super) fn plan(&mut self, ranges: &[Resident], has_swap: bool) -> AdvicePlan {
        let files = ranges.iter().flat_map(|resident| &resident.files);
        let private = || ranges.iter().filter(|_| !has_swap).flat_map(|resident| &resident.private);
        let mut pages: Vec<(u64, u64)> = files.chain(private()).copied().collect();
        pages.sort_unstable();
        let flags = self.flags.as_ref().filter(|_| pages.iter().all(|(_, frame)| *frame != 0));
        let plan = flags.and_then(|flags| AdvicePlan::of(flags, &pages, has_swap, &mut self.buffer).ok());
        plan.unwrap_or_else(|| AdvicePlan::without(private().map(|(addr, _)| *addr)))
    }

    /// The bytes that were resident `before` and are not resident any more, and that are in memory nevertheless:
    /// changed pages of files, and shared memory for which there is no swap. If the user may not see page frames, all
    /// pages of files and of shared memory count as such.
    pub(super) fn bytes(&mut self, before: &Resident, after: &Resident) -> u64 {
        let has_gone = |&(addr, _): &&(u64, u64)| frame_at(&after.files, *addr).is_none();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Private pages and pages of files at the addresses of their numbers, in these frames.
    fn pages(private: &[(u64, u64)], files: &[(u64, u64)]) -> Resident {
        Resident { private: private.to_vec(), files: files.to_vec() }
    }

    #[test]
    fn pages_in_other_frames_have_gone_and_returned() {
        let before = pages(&[(1, 11), (2, 12), (3, 13)], &[(4, 14), (5, 15), (6, 16)]);
        // 2 and 5 are elsewhere, 3 and 6 have gone, 4 was written to by its process, and 9 is new.
        let after = pages(&[(1, 11), (2, 22), (4, 24), (9, 19)], &[(5, 25)]);
        let size = PAGE_SIZE;
        let became = Became { stayed: size, gone: 5 * size, returned: 3 * size };
        assert_eq!(before.became(&after), became);
    }

    #[test]
    fn without_page_frames_what_is_there_has_stayed() {
        let became = pages(&[(1, 0), (2, 0)], &[]).became(&pages(&[(1, 0)], &[]));
        assert_eq!((became.stayed, became.gone, became.returned), (PAGE_SIZE, PAGE_SIZE, 0));
    }
}
