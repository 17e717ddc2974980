//! What must be cleared along with a page so that nothing is split.
//!
//! The kernel manages memory in folios, which may be many pages that are mapped by an entry each. `MADV_COLD` on a part of
//! one splits it, and before Linux 6.10 also on the whole. So a page of a large folio is cleared together with
//! the rest of it, or left alone.
//!
//! What remains are moments: a folio made, or a mapping cut in two, between the look at it and the clear.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use super::BpfError;
use super::leaf::{Extent, Leaf};
use super::program::{PageTables, Place, Program, SYS_NICE, missing_capabilities};
use super::space::{PagemapEntry, Space};
use super::target::Target;
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::{HUGE, Scratch};

const KPAGEFLAGS: &str = "/proc/kpageflags";

// Bits of an entry of /proc/kpageflags: include/uapi/linux/kernel-page-flags.h.
const LRU: u64 = 1 << 5;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;
const NO_PAGE: u64 = 1 << 20;
const ZERO_PAGE: u64 = 1 << 24;

/// No folio of a process's memory is larger than a huge page: 2⁹ frames.
const MOST_ORDER: u32 = 9;

/// Knows of every page frame what it is part of.
#[derive(Debug)]
pub(super) struct Folios {
    flags: File,
    /// Whether this kernel clears a large folio without splitting it.
    stay_whole: bool,
    /// Room for what pagemap says of a folio, lent out again and again.
    pagemap: Box<[u8; 8 << MOST_ORDER]>,
}

/// What is to be cleared as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) range: AddrRange,
    /// Whether it is on a list of reclaimable pages. If not, the kernel will most probably not clear it: just after it
    /// was made, a page may wait on another processor to be listed.
    pub(super) listed: bool,
}

impl Folios {
    /// Opens the table of page frames, and tries on own memory what this kernel does to large folios.
    pub(super) fn open(program: &mut Program, tables: &PageTables, own: &Space) -> Result<Self, BpfError> {
        let flags = File::open(KPAGEFLAGS).map_err(|source| BpfError::File {
            path: KPAGEFLAGS.into(),
            source,
            mend: "run isotherm as root, on a kernel with CONFIG_PROC_PAGE_MONITOR",
        })?;
        let mut folios = Self { flags, stay_whole: false, pagemap: Box::new([0; 8 << MOST_ORDER]) };
        folios.stay_whole = folios.try_large(program, tables, own)?;
        Ok(folios)
    }

    /// Whether this kernel clears a large folio without splitting it.
    pub(super) fn stay_whole(&self) -> bool {
        self.stay_whole
    }

    /// What to clear so that the page at `addr`, which is `frame`, is cleared and nothing is split. Nothing if the page
    /// can only be left alone.
    pub(super) fn whole_around(&mut self, target: &Target, addr: u64, frame: u64) -> Option<Whole> {
        let flags = self.flags(frame)?;
        if flags & (HUGETLB | ZERO_PAGE | NO_PAGE) != 0 {
            return None;
        }
        if flags & (HEAD | TAIL) == 0 {
            let range = AddrRange::new(addr, addr.checked_add(PAGE_SIZE)?)?;
            return Some(Whole { range, listed: flags & LRU != 0 });
        }
        if !self.stay_whole {
            return None;
        }
        let frames = self.folio_of(frame)?;
        let start = addr.checked_sub((frame - frames.start) * PAGE_SIZE)?;
        let range = AddrRange::new(start, start.checked_add((frames.end - frames.start) * PAGE_SIZE)?)?;
        let whole = target.maps_as_one(range) && self.are_mapped_at(target.space()?, start, frames);
        // The kernel lists large folios as soon as they are made.
        whole.then_some(Whole { range, listed: true })
    }

    /// Whether the page is part of a large folio.
    pub(super) fn is_large(&self, frame: u64) -> bool {
        self.flags(frame).is_some_and(|flags| flags & (HEAD | TAIL) != 0)
    }

    /// Whether the page is on a list of reclaimable pages, without which it is never cleared.
    pub(super) fn on_a_list(&self, frame: u64) -> bool {
        // A part of a folio goes by its head.
        let head = self.folio_of(frame).map_or(frame, |frames| frames.start);
        self.flags(head).is_some_and(|flags| flags & LRU != 0)
    }

    /// The frames of the large folio that `frame` is part of.
    fn folio_of(&self, frame: u64) -> Option<Range<u64>> {
        extent(frame, |frame| self.flags(frame))
    }

    /// Whether the pages from `start` on are these frames, one after the other.
    fn are_mapped_at(&mut self, space: &Space, start: u64, frames: Range<u64>) -> bool {
        let count = frames.end - frames.start;
        let told = space.pagemap(start, &mut self.pagemap[..count as usize * 8]);
        told.len() as u64 == count && told.map(PagemapEntry::frame).eq(frames.map(Some))
    }

    fn flags(&self, frame: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.flags.read_exact_at(&mut bytes, frame.checked_mul(8)?).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Makes a huge page that is mapped by small entries, clears all of it, and looks whether it is still one. False
    /// also if no huge page is to be had: then it is not known, and large folios are left alone.
    fn try_large(&self, program: &mut Program, tables: &PageTables, own: &Space) -> Result<bool, BpfError> {
        let scratch = Scratch::new(HUGE)?;
        let place = Place { pgd: own.pgd(), addr: scratch.start() };
        let mut leaves = Vec::new();
        let mut leaf = || -> Result<Leaf, BpfError> {
            program.walk(tables, std::iter::once(place), &mut leaves)?;
            Ok(leaves.first().copied().unwrap_or(Leaf(0)))
        };

        let huge = scratch.huge(true).is_ok();
        scratch.touch(0);
        let huge = huge && leaf()?.extent() == Some(Extent::Huge) && scratch.break_up(PAGE_SIZE).is_ok();
        scratch.touch(0);

        let all = AddrRange::new(place.addr, place.addr + if huge { HUGE } else { PAGE_SIZE });
        let all = all.ok_or(BpfError::Trial("own memory has no address".into()))?;
        let failed = |what: &str, e: Errno| BpfError::Advise { what: what.into(), source: e.into(), mend: mend(e) };
        advise(own.pidfd(), &[all.into()], Advice::Cold).map_err(|e| failed("this process's own memory", e))?;
        // Newer kernels allow it for one's own memory to everyone.
        if missing_capabilities().contains(&SYS_NICE) {
            return Err(failed("another process's memory", Errno::PERM));
        }

        let after = leaf()?;
        let frame = after.frame(place.addr).unwrap_or(0);
        Ok(huge && !after.young() && self.flags(frame).is_some_and(|flags| flags & HEAD != 0))
    }
}

fn mend(e: Errno) -> &'static str {
    match e {
        Errno::PERM => {
            "run isotherm as root, or with CAP_SYS_NICE; in a container, its seccomp filter must allow process_madvise()"
        }
        Errno::NOSYS => "Linux 5.17 or later is needed, and a seccomp filter must not hide process_madvise()",
        _ => "use another probe",
    }
}

/// The frames of the large folio that `frame` is part of, found by looking at the flags of few of them. Nothing if it is
/// part of none, or things change meanwhile.
///
/// A folio has a power of two of frames and lies at a multiple of its size. So its head is `frame` with some of the
/// lowest bits cleared, and the frame that is a power of two after the head is of the same folio or not of any.
fn extent(frame: u64, flags: impl Fn(u64) -> Option<u64>) -> Option<Range<u64>> {
    let heads = (0..=MOST_ORDER).map(|order| frame & !((1 << order) - 1));
    let mut looked_at = None;
    let mut head = None;
    for candidate in heads {
        if looked_at.replace(candidate) == Some(candidate) {
            continue;
        }
        match flags(candidate)? & (HEAD | TAIL) {
            TAIL => {}
            HEAD => {
                head = Some(candidate);
                break;
            }
            _ => return None,
        }
    }
    let head = head?;
    let order = (0..=MOST_ORDER).find(|order| flags(head + (1 << order)).unwrap_or(0) & TAIL == 0)?;
    let folio = head..head + (1 << order);
    folio.contains(&frame).then_some(folio)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in which folios of these orders follow one another, from frame 0x1000 on.
    fn memory(orders: &[u32]) -> Vec<u64> {
        let mut flags = Vec::new();
        for &order in orders {
            flags.push(if order == 0 { LRU } else { HEAD | LRU });
            flags.extend(std::iter::repeat_n(TAIL, (1 << order) - 1));
        }
        flags
    }

    #[test]
    fn a_folio_is_found_from_each_of_its_frames() {
        for orders in [&[9, 9][..], &[3, 3, 4, 2, 2, 0, 0, 0, 0, 2, 4, 5, 5, 7, 8, 9], &[1, 0, 0, 2], &[0]] {
            let memory = memory(orders);
            let flags = |frame: u64| memory.get(frame.checked_sub(0x1000)? as usize).copied();
            let mut start = 0x1000;
            for &order in orders {
                // Only what lies at a multiple of its size is a folio.
                assert_eq!(start % (1 << order), 0);
                let folio = start..start + (1 << order);
                let expected = (order > 0).then_some(folio.clone());
                for frame in folio.clone() {
                    assert_eq!(extent(frame, flags), expected, "{orders:?} {frame:#x}");
                }
                start = folio.end;
            }
        }
    }

    #[test]
    fn what_is_larger_than_a_huge_page_or_without_a_head_is_no_folio() {
        let gigantic = memory(&[11]);
        let flags = |frame: u64| gigantic.get(frame.checked_sub(0x1000)? as usize).copied();
        assert_eq!(extent(0x1000, flags), None);
        assert_eq!(extent(0x1300, flags), None);
        assert_eq!(extent(0x1003, |_| Some(TAIL)), None);
        assert_eq!(extent(0x1003, |frame| Some(if frame == 0x1003 { TAIL } else { LRU })), None);
        assert_eq!(extent(0x1003, |_| None), None);
    }
}
