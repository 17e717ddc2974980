//! `/proc/kpageflags`: what each page frame is used for.

use std::ops::Range;
use std::path::Path;

use super::table::{Room, Table, TableError};

// Bits of an entry: Documentation/admin-guide/mm/pagemap.rst, numbers in include/uapi/linux/kernel-page-flags.h.
const LRU: u64 = 1 << 5;
const ANON: u64 = 1 << 12;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;
const UNEVICTABLE: u64 = 1 << 18;
const NO_PAGE: u64 = 1 << 20;
const ZERO_PAGE: u64 = 1 << 24;
const IDLE: u64 = 1 << 25;

/// Frames no more than this far apart are looked up with one call.
const REACH: u64 = 32;

/// Folios of memory on a list for reclaim have at most 2¹⁰ frames; a huge page is 2⁹.
const MOST_ORDER: u32 = 10;
const HUGE_ORDER: u32 = 9;

/// What the kernel says of one frame; nothing is known of a frame that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// Whether it is user memory on a list for reclaim; of a compound page, the head says it for all.
    pub fn is_listed(self) -> bool {
        self.0 & LRU != 0
    }

    /// Whether it is marked as idle. It may have been accessed all the same: only a look into the idle bitmap makes sure.
    pub fn is_marked_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// Whether it is a part of a compound page, but not its first frame.
    pub fn is_tail(self) -> bool {
        self.0 & TAIL != 0
    }

    /// Whether it is user memory: on a list for reclaim, or anonymous memory that is taken off it, or waits to be put there.
    pub fn is_of_a_user(self) -> bool {
        self.is_listed() || self.0 & ANON != 0 && self.0 & (HUGETLB | ZERO_PAGE) == 0
    }

    /// Whether it is locked in memory, so that it is never reclaimed.
    pub fn is_unevictable(self) -> bool {
        self.0 & UNEVICTABLE != 0
    }

    /// Whether it is the first frame of a compound page.
    pub fn is_head(self) -> bool {
        self.0 & HEAD != 0
    }

    /// Whether it is a part of a compound page, the first frame or a later one.
    pub fn is_compound(self) -> bool {
        self.is_head() || self.is_tail()
    }

    /// Whether it is memory that no process can have to itself: none at all, or the page of zeros that all share.
    pub fn is_no_page(self) -> bool {
        self.0 & (NO_PAGE | ZERO_PAGE) != 0
    }

    /// Whether it is of hugetlbfs, on no list for reclaim.
    pub fn is_hugetlb(self) -> bool {
        self.0 & HUGETLB != 0
    }
}

/// The open table of all frames.
#[derive(Debug)]
pub struct FlagTable(Table);

impl FlagTable {
    /// Opens it.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(root: &Path) -> Result<Self, TableError> {
        Table::open(root, "proc/kpageflags", false).map(Self)
    }

    /// Tells the flags of each of `frames`, which are sorted.
    pub fn each(
        &self,
        frames: impl Iterator<Item = u64>,
        room: &mut Room,
        mut tell: impl FnMut(Flags),
    ) -> Result<(), TableError> {
        self.0.entries(frames, REACH, room, |entry| tell(Flags(entry.unwrap_or(0))))
    }

    /// The flags of one frame; nothing if the machine has no such frame.
    ///
    /// # Errors
    /// If the table cannot be read any more.
    pub fn flags(&self, frame: u64) -> Result<Option<Flags>, TableError> {
        Ok(self.0.entry(frame)?.map(Flags))
    }

    /// The first frame of the compound page that `tail` is a part of, and what is said of it; nothing if there is none, or things
    /// change meanwhile.
    ///
    /// # Errors
    /// If the table cannot be read any more.
    pub fn head(&self, tail: u64) -> Result<Option<(u64, Flags)>, TableError> {
        head(tail, |frame| self.look(frame))
    }

    /// The frames of the compound page that `frame` is a part of, found by looking at few of them; nothing if it is part of none, or
    /// of one that is larger than memory on a list for reclaim can be, or things change meanwhile.
    ///
    /// # Errors
    /// If the table cannot be read any more.
    pub fn folio(&self, frame: u64) -> Result<Option<Range<u64>>, TableError> {
        folio(frame, |frame| self.look(frame))
    }

    /// Whether the frames from `first` on, a multiple of a huge page's, are one huge page.
    ///
    /// # Errors
    /// If the table cannot be read any more.
    pub fn is_huge_page(&self, first: u64) -> Result<bool, TableError> {
        is_huge_page(first, self.look(first)?, &|frame| self.look(frame))
    }

    /// The flags of one frame. Nothing is known of one that is not there.
    fn look(&self, frame: u64) -> Result<Flags, TableError> {
        Ok(self.flags(frame)?.unwrap_or_default())
    }
}

/// Finds the head of the compound page that `tail` is a part of by looking at few frames.
///
/// A compound page has a power of two of frames and lies at a multiple of its size. So its head is `tail` with some of the lowest
/// bits cleared, and on the way from small to large the first such frame that is no tail. A huge page is tried first.
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

/// Whether a huge page's worth of frames is one compound page: it begins with a head, and its middle is a tail, which it could be
/// of no smaller compound page.
fn is_huge_page<E>(first: u64, flags: Flags, look: &impl Fn(u64) -> Result<Flags, E>) -> Result<bool, E> {
    Ok(flags.is_head() && look(first + (1 << (HUGE_ORDER - 1)))?.is_tail())
}

/// Finds the frames of the compound page that `frame` is a part of. The frame that is its size behind its head is not of it any more.
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

    /// Memory from frame 0x1000 on, in which compound pages of these orders follow one another, each at a multiple of its size.
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
    fn what_is_larger_than_any_folio_or_without_a_head_is_none() {
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
    fn a_huge_page_takes_two_looks() {
        let memory = memory(&[9, 9]);
        let looks = std::cell::Cell::new(0);
        let look = |frame: u64| {
            looks.set(looks.get() + 1);
            Ok::<_, Infallible>(Flags(memory[(frame - START) as usize].1))
        };
        assert_eq!(head(START + 0x3f1, look), Ok(Some((START + 0x200, Flags(LRU | HEAD)))));
        assert_eq!(looks.get(), 2);
    }

    #[test]
    fn tails_without_a_head_have_none() {
        let look = |flags| move |_| Ok::<_, Infallible>(Flags(flags));
        assert_eq!(head(START + 3, look(TAIL)), Ok(None));
        assert_eq!(head(START + 3, look(0)), Ok(None));
        assert_eq!(head(START + 3, look(LRU)), Ok(None));
    }
}
