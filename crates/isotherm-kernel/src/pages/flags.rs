//! Reads `/proc/kpageflags`, which gives the use of each page frame.

use std::ops::Range;
use std::path::Path;

use super::table::{PageBuffer, Table, TableError};

// The bits of an entry are described in Linux Documentation/admin-guide/mm/pagemap.rst. Their numbers are in
// include/uapi/linux/kernel-page-flags.h.
const UPTODATE: u64 = 1 << 3;
const DIRTY: u64 = 1 << 4;
const LRU: u64 = 1 << 5;
const ACTIVE: u64 = 1 << 6;
const SLAB: u64 = 1 << 7;
const WRITEBACK: u64 = 1 << 8;
const BUDDY: u64 = 1 << 10;
const MMAP: u64 = 1 << 11;
const ANON: u64 = 1 << 12;
const SWAP_CACHE: u64 = 1 << 13;
const SWAP_BACKED: u64 = 1 << 14;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;
const UNEVICTABLE: u64 = 1 << 18;
const NO_PAGE: u64 = 1 << 20;
const ZERO_PAGE: u64 = 1 << 24;
const IDLE: u64 = 1 << 25;
const MLOCKED: u64 = 1 << 33;

/// Frames that are at most this many frames apart are read with one call.
const REACH: u64 = 32;

/// A folio on an LRU list has at most 2¹⁰ frames. A huge page has 2⁹ frames.
const MOST_ORDER: u32 = 10;
const HUGE_ORDER: u32 = 9;

/// The flags of one page frame. They are 0 for a frame that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// Whether the frame is on an LRU list. For a compound page, only the flag of the head is valid.
    pub fn is_listed(self) -> bool {
        self.0 & LRU != 0
    }

    /// Whether the frame is on the list of active pages. For a compound page, only the flag of the head is valid.
    pub fn is_active(self) -> bool {
        self.0 & (LRU | ACTIVE) == LRU | ACTIVE
    }

    /// Whether the frame has the idle flag. The frame may have been accessed nevertheless: the kernel checks the
    /// accessed bits only when the idle bitmap is read.
    pub fn is_marked_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// Whether the frame is a part of a compound page other than its first frame.
    pub fn is_tail(self) -> bool {
        self.0 & TAIL != 0
    }

    /// Whether the frame is user memory: it is on an LRU list, or it is anonymous memory that is isolated from the list
    /// or not yet on it.
    pub fn is_of_a_user(self) -> bool {
        self.is_listed() || self.0 & ANON != 0 && self.0 & (HUGETLB | ZERO_PAGE) == 0
    }

    /// Whether the frame is anonymous memory that needs no swap, because the process has freed it lazily (`MADV_FREE`).
    /// It may have been written since: then its page-table entry is dirty. For a compound page, only the flag of the
    /// head is valid.
    pub fn is_freed_lazily(self) -> bool {
        self.0 & (ANON | SWAP_BACKED | ZERO_PAGE | HUGETLB) == ANON
    }

    /// Whether the frame holds memory that is freed only by writing it to swap: anonymous memory that was not [freed
    /// lazily](Self::is_freed_lazily), or shared memory without a file on a disk. For a compound page, only the flag of
    /// the head is valid.
    pub fn needs_swap(self) -> bool {
        self.0 & SWAP_BACKED != 0
    }

    /// Whether the frame holds a page of a file or of shared memory that no process maps, and that has no copy in swap.
    pub fn is_cached_only(self) -> bool {
        let others = SLAB | BUDDY | MMAP | ANON | SWAP_CACHE | HUGETLB | NO_PAGE | ZERO_PAGE;
        self.0 & (UPTODATE | LRU) != 0 && self.0 & others == 0
    }

    /// Whether the frame was changed and its file was not, or is being written. For a compound page, only the flag of
    /// the head is valid.
    pub fn is_dirty(self) -> bool {
        self.0 & (DIRTY | WRITEBACK) != 0
    }

    /// Whether the frame is unevictable, so that it is never reclaimed. One that a process has locked a short time ago
    /// may not have that flag yet.
    pub fn is_unevictable(self) -> bool {
        self.0 & (UNEVICTABLE | MLOCKED) != 0
    }

    /// Whether the frame is the first one of a compound page.
    pub fn is_head(self) -> bool {
        self.0 & HEAD != 0
    }

    /// Whether the frame is a part of a compound page.
    pub fn is_compound(self) -> bool {
        self.is_head() || self.is_tail()
    }

    /// Whether the frame cannot belong to one process: it has no page, or it is the shared zero page.
    pub fn is_no_page(self) -> bool {
        self.0 & (NO_PAGE | ZERO_PAGE) != 0
    }

    /// Whether the frame is the shared zero page, small or huge.
    pub fn is_zero_page(self) -> bool {
        self.0 & ZERO_PAGE != 0
    }

    /// Whether the frame belongs to hugetlbfs. Such frames are on no LRU list.
    pub fn is_hugetlb(self) -> bool {
        self.0 & HUGETLB != 0
    }
}

/// The open file `/proc/kpageflags`.
#[derive(Debug)]
pub struct FlagTable(Table);

impl FlagTable {
    /// Opens the file below `root`, which stands for `/`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(root: &Path) -> Result<Self, TableError> {
        Table::open(root, "proc/kpageflags", false).map(Self)
    }

    /// Calls `tell` with the flags of each of `frames`, which must be sorted.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn each(
        &self,
        frames: impl Iterator<Item = u64>,
        buffer: &mut PageBuffer,
        mut tell: impl FnMut(Flags),
    ) -> Result<(), TableError> {
        self.0.entries(frames, REACH, buffer, |entry| tell(Flags(entry.unwrap_or(0))))
    }

    /// The flags of one frame, or `None` if the machine has no such frame.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn flags(&self, frame: u64) -> Result<Option<Flags>, TableError> {
        Ok(self.0.entry(frame)?.map(Flags))
    }

    /// The first frame of the compound page that `tail` belongs to, and its flags. Returns `None` if there is no head,
    /// or if the pages change meanwhile.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn head(&self, tail: u64) -> Result<Option<(u64, Flags)>, TableError> {
        head(tail, |frame| self.flags_or_zero(frame))
    }

    /// The frames of the compound page that `frame` belongs to. Only a few of them are read.
    ///
    /// Returns `None` if the frame belongs to no compound page, if the compound page has more than 2¹⁰ frames, or if
    /// the pages change meanwhile.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn folio(&self, frame: u64) -> Result<Option<Range<u64>>, TableError> {
        folio(frame, |frame| self.flags_or_zero(frame))
    }

    /// Whether a huge page starts at frame `first`, which must be a multiple of 512.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn is_huge_page(&self, first: u64) -> Result<bool, TableError> {
        is_huge_page(first, self.flags_or_zero(first)?, &|frame| self.flags_or_zero(frame))
    }

    /// The flags of one frame, or 0 if it does not exist.
    fn flags_or_zero(&self, frame: u64) -> Result<Flags, TableError> {
        Ok(self.flags(frame)?.unwrap_or_default())
    }
}

/// Finds the head of the compound page that `tail` belongs to. Only a few frames are read.
///
/// The number of frames of a compound page is a power of two, and the page is aligned to its size. So the number of its
/// head is `tail` with some of the lowest bits cleared. From the smallest order to the largest, the first such frame
/// that is not a tail is the head. The order of a huge page is tried first, because it is the most common one.
fn head<E>(tail: u64, look: impl Fn(u64) -> Result<Flags, E>) -> Result<Option<(u64, Flags)>, E> {
    let at_order = |order: u32| tail & !((1 << order) - 1);
    let huge = at_order(HUGE_ORDER);
    let flags = look(huge)?;
    if is_huge_page(huge, flags, &look)? {
        return Ok(Some((huge, flags)));
    }
    let mut before = tail;
    for candidate in (1..=MOST_ORDER).map(at_order) {
        if candidate == before {
            continue;
        }
        before = candidate;
        let flags = look(candidate)?;
        if !flags.is_tail() {
            return Ok(flags.is_head().then_some((candidate, flags)));
        }
    }
    Ok(None)
}

/// Whether a huge page starts at `first`, which has these flags: the first frame is a head and the middle frame is a
/// tail. If the compound page were smaller, the middle frame would not be a tail, because compound pages are aligned.
fn is_huge_page<E>(first: u64, flags: Flags, look: &impl Fn(u64) -> Result<Flags, E>) -> Result<bool, E> {
    Ok(flags.is_head() && look(first + (1 << (HUGE_ORDER - 1)))?.is_tail())
}

/// Finds the frames of the compound page that `frame` belongs to. The first frame after the page is not a tail.
fn folio<E>(frame: u64, look: impl Fn(u64) -> Result<Flags, E>) -> Result<Option<Range<u64>>, E> {
    let flags = look(frame)?;
    let head = match (flags.is_head(), flags.is_tail()) {
        (true, _) => Some(frame),
        (_, true) => head(frame, &look)?.map(|(head, _)| head),
        _ => None,
    };
    let Some(head) = head else { return Ok(None) };
    for order in 0..=MOST_ORDER {
        let end = head + (1 << order);
        if !look(end)?.is_tail() {
            return Ok((order > 0 && frame < end).then_some(head..end));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    const START: u64 = 0x1000;

    /// The head and the flags of each frame from 0x1000 on, where compound pages of these orders follow one another,
    /// each aligned to its size.
    fn memory(orders: &[u32]) -> Vec<(u64, u64)> {
        let mut memory: Vec<(u64, u64)> = Vec::new();
        for &order in orders {
            while !memory.len().is_multiple_of(1 << order) {
                memory.push((START + memory.len() as u64, LRU));
            }
            let head = START + memory.len() as u64;
            memory.push((head, if order == 0 { LRU } else { LRU | HEAD }));
            memory.extend(std::iter::repeat_n((head, TAIL), (1 << order) - 1));
        }
        memory
    }

    proptest! {
        #[test]
        fn the_head_is_found_from_every_tail(orders in prop::collection::vec(0_u32..=MOST_ORDER, 1..12)) {
            let memory = memory(&orders);
            let at = |frame: u64| memory.get(frame.checked_sub(START)? as usize).copied();
            let look = |frame| Ok::<_, Infallible>(Flags(at(frame).map_or(0, |(_, flags)| flags)));
            for (frame, &(expected, flags)) in (START..).zip(&memory) {
                if flags & TAIL != 0 {
                    let Ok(found) = head(frame, look);
                    prop_assert_eq!(found.map(|(head, _)| head), Some(expected));
                }
            }
        }
    }

    #[test]
    fn a_page_is_active_only_on_a_list() {
        assert_eq!([LRU | ACTIVE, LRU, ACTIVE].map(|flags| Flags(flags).is_active()), [true, false, false]);
    }

    #[test]
    fn a_folio_is_found_from_each_of_its_frames() {
        for orders in [&[9, 9][..], &[3, 3, 4, 2, 2, 0, 0, 0, 0, 2, 4, 5, 5, 7, 8, 9, 10], &[1, 0, 0, 2], &[0]] {
            let memory = memory(orders);
            let look = |frame: u64| {
                let at = frame.checked_sub(START).and_then(|index| memory.get(index as usize));
                Ok::<_, Infallible>(Flags(at.map_or(0, |(_, flags)| *flags)))
            };
            for (frame, &(head, flags)) in (START..).zip(&memory) {
                let size = memory.iter().filter(|(of, _)| *of == head).count() as u64;
                let expected = (flags & (HEAD | TAIL) != 0).then_some(head..head + size);
                assert_eq!(folio(frame, look), Ok(expected), "{orders:?} {frame:#x}");
            }
        }
    }

    #[test]
    fn no_folio_is_found_if_it_is_too_large_or_has_no_head() {
        let gigantic = memory(&[11]);
        let look = |frame: u64| {
            Ok::<_, Infallible>(Flags(gigantic.get((frame - START) as usize).map_or(0, |(_, flags)| *flags)))
        };
        assert_eq!(folio(START, look), Ok(None));
        assert_eq!(folio(START + 0x300, look), Ok(None));
        for flags in [TAIL, LRU, 0] {
            let look = |frame| Ok::<_, Infallible>(Flags(if frame == START + 3 { TAIL } else { flags }));
            assert_eq!(folio(START + 3, look), Ok(None));
        }
    }

    #[test]
    fn the_head_of_a_huge_page_is_found_with_two_reads() {
        let memory = memory(&[9, 9]);
        let reads = std::cell::Cell::new(0);
        let look = |frame: u64| {
            reads.set(reads.get() + 1);
            Ok::<_, Infallible>(Flags(memory[(frame - START) as usize].1))
        };
        assert_eq!(head(START + 0x3f1, look), Ok(Some((START + 0x200, Flags(LRU | HEAD)))));
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn no_head_is_found_where_there_is_none() {
        let look = |flags| move |_| Ok::<_, Infallible>(Flags(flags));
        assert_eq!(head(START + 3, look(TAIL)), Ok(None));
        assert_eq!(head(START + 3, look(0)), Ok(None));
        assert_eq!(head(START + 3, look(LRU)), Ok(None));
    }
}
