//! Finds the range to clear together with a page, so that no folio is split.
//!
//! The kernel manages memory in folios. A large folio has many pages, each of which may be mapped by an entry of its
//! own. `MADV_COLD` on a part of such a folio splits it; before Linux 6.10, so does `MADV_COLD` on the whole folio. A
//! page of a large folio is therefore cleared together with the rest of the folio, or not at all.
//!
//! A race remains: a folio may be made, or a mapping split, between the check and the clear.

use std::ops::Range;
use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use super::BpfError;
use super::leaf::{Extent, Leaf};
use super::program::{Lookup, PageTables, Program, SYS_NICE, missing_capabilities};
use super::space::SpaceHandle;
use super::target::BpfTarget;
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::pages::{FlagTable, Flags, PagemapEntry};
use isotherm_kernel::{HUGE, Scratch};

/// The largest order of a folio in a process's memory: 2⁹ frames, which is a huge page.
const MOST_ORDER: u32 = 9;

/// The table of page flags, by which the folio of a page frame is found.
#[derive(Debug)]
pub(super) struct Folios {
    table: FlagTable,
    /// Whether this kernel clears a large folio without splitting it.
    stay_whole: bool,
    /// A buffer for the pagemap entries of a folio, kept between rounds.
    pagemap: Box<[u8; PagemapEntry::BYTES << MOST_ORDER]>,
}

/// A range that is cleared by one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) range: AddrRange,
    /// Whether the pages are on a reclaim list. If not, the kernel probably does not clear them. A new page may wait on
    /// a processor before it is put on a list.
    pub(super) listed: bool,
}

impl Folios {
    /// Opens the table of page flags, and tests on this process's own memory what this kernel does to large folios.
    pub(super) fn open(program: &mut Program, tables: &PageTables, own: &SpaceHandle) -> Result<Self, BpfError> {
        let table = FlagTable::open(Path::new("/")).map_err(|error| BpfError::File {
            path: error.path.display().to_string(),
            source: error.source,
            fix: "run isotherm as root, on a kernel with CONFIG_PROC_PAGE_MONITOR",
        })?;
        let mut folios = Self { table, stay_whole: false, pagemap: Box::new([0; PagemapEntry::BYTES << MOST_ORDER]) };
        folios.stay_whole = folios.try_large(program, tables, own)?;
        Ok(folios)
    }

    /// The table of page flags.
    pub(super) fn table(&self) -> &FlagTable {
        &self.table
    }

    /// Whether this kernel clears a large folio without splitting it.
    pub(super) fn stay_whole(&self) -> bool {
        self.stay_whole
    }

    /// The range to clear so that the page at `addr`, which is in `frame`, is cleared and no folio is split. `None` if
    /// there is no such range.
    pub(super) fn whole_around(&mut self, target: &BpfTarget, addr: u64, frame: u64) -> Option<Whole> {
        let flags = self.flags(frame)?;
        if flags.is_hugetlb() || flags.is_no_page() {
            return None;
        }
        if !flags.is_compound() {
            let range = AddrRange::new(addr, addr.checked_add(PAGE_SIZE)?)?;
            return Some(Whole { range, listed: flags.is_listed() });
        }
        if !self.stay_whole {
            return None;
        }
        let frames = self.folio_of(frame)?;
        let start = addr.checked_sub((frame - frames.start) * PAGE_SIZE)?;
        let range = AddrRange::new(start, start.checked_add((frames.end - frames.start) * PAGE_SIZE)?)?;
        let whole = target.maps_as_one(range) && self.are_mapped_at(target.space()?, start, frames);
        // The kernel puts a large folio on a list as soon as it is made.
        whole.then_some(Whole { range, listed: true })
    }

    /// Whether the page is part of a large folio.
    pub(super) fn is_large(&self, frame: u64) -> bool {
        self.flags(frame).is_some_and(Flags::is_compound)
    }

    /// Whether the page is on a reclaim list. The kernel never clears a page that is not.
    pub(super) fn on_a_list(&self, frame: u64) -> bool {
        // Only the head of a folio has the flag.
        let head = self.folio_of(frame).map_or(frame, |frames| frames.start);
        self.flags(head).is_some_and(Flags::is_listed)
    }

    /// The frames of the large folio that contains `frame`.
    fn folio_of(&self, frame: u64) -> Option<Range<u64>> {
        self.table.folio(frame).ok().flatten().filter(|folio| folio.end - folio.start <= 1 << MOST_ORDER)
    }

    /// Whether the pages from `start` on are mapped to `frames`, in order.
    fn are_mapped_at(&mut self, space: &SpaceHandle, start: u64, frames: Range<u64>) -> bool {
        let count = (frames.end - frames.start) as usize;
        let entries = space.pagemap().entries(start, &mut self.pagemap[..count * PagemapEntry::BYTES]);
        entries.is_ok_and(|entries| entries.len() == count && entries.map(PagemapEntry::frame).eq(frames.map(Some)))
    }

    pub(super) fn flags(&self, frame: u64) -> Option<Flags> {
        self.table.flags(frame).ok().flatten()
    }

    /// Tests whether this kernel clears a large folio without splitting it: makes a huge page that is mapped by small
    /// entries, clears it, and checks whether it is still whole. The result is also false if no huge page is available.
    fn try_large(&self, program: &mut Program, tables: &PageTables, own: &SpaceHandle) -> Result<bool, BpfError> {
        let scratch = Scratch::new(HUGE)?;
        let lookup = Lookup { pgd: own.pgd(), addr: scratch.start() };
        let mut leaves = Vec::new();
        let mut leaf = || -> Result<Leaf, BpfError> {
            program.walk(tables, std::iter::once(lookup), &mut leaves)?;
            Ok(leaves.first().copied().unwrap_or(Leaf(0)))
        };

        let huge = scratch.huge(true).is_ok();
        scratch.touch(0);
        let huge = huge && leaf()?.extent() == Some(Extent::Huge) && scratch.break_up(PAGE_SIZE).is_ok();
        scratch.touch(0);

        let all = AddrRange::new(lookup.addr, lookup.addr + if huge { HUGE } else { PAGE_SIZE });
        let all = all.ok_or(BpfError::Trial("the test memory has no address".into()))?;
        let failed = |what: &str, e: Errno| BpfError::Advise { what: what.into(), source: e.into(), fix: fix(e) };
        advise(own.pidfd(), [all], Advice::Cold).map_err(|e| failed("this process's own memory", e))?;
        // Recent kernels need no privilege for this process's own memory, so check for it explicitly.
        if missing_capabilities().contains(&SYS_NICE) {
            return Err(failed("another process's memory", Errno::PERM));
        }

        let after = leaf()?;
        let frame = after.frame(lookup.addr).unwrap_or(0);
        Ok(huge && !after.young() && self.flags(frame).is_some_and(Flags::is_head))
    }
}

fn fix(e: Errno) -> &'static str {
    match e {
        Errno::PERM => {
            "run isotherm as root, or with CAP_SYS_NICE; in a container, the seccomp filter must allow \
             process_madvise()"
        }
        Errno::NOSYS => "use Linux 5.17 or later; a seccomp filter must not hide process_madvise()",
        _ => "use another probe",
    }
}
