//! Clears the accessed bits of pages, in ranges, and checks which of them the kernel has cleared.

use isotherm_core::survey::{ClearPages, PageBits};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_kernel::madvise::{Advice, RANGES_A_CALL, advise};
use isotherm_kernel::pages::{Flags, PagemapEntry};
use rustix::io::Errno;

use super::folios::{LargeFolios, Layout, Zeros};
use super::masks::Masks;
use super::shared::SharedPages;
use super::spans::Spans;
use crate::bpf::BpfError;
use crate::bpf::entries::{Entries, PAGES};
use crate::bpf::folio::Folios;
use crate::bpf::program::{MAX_TABLES, PageTables, Program};
use crate::bpf::shared_memory::SharedMemory;
use crate::bpf::target::{BpfTarget, Clearing};
use crate::mapping::{is_memory, is_of_a_file};

/// The number of blocks that are read, cleared and read again together.
const WINDOW: usize = MAX_TABLES;

/// The parts of the probe that a clear uses.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) program: &'a mut Program,
    pub(super) tables: &'a PageTables,
    pub(super) folios: &'a Folios,
    pub(super) large: &'a mut LargeFolios,
    pub(super) zeros: &'a mut Zeros,
    pub(super) shared: &'a mut SharedPages,
}

/// The pages of a block that are in ranges to be cleared.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// The pages that were accessed and whose ranges were given to the kernel.
    young: PageBits,
    /// The pages that the survey wanted and that were clear already.
    clear: PageBits,
    /// Pages in ranges that the kernel refused.
    refused: PageBits,
    /// Pages in ranges that the kernel refused because they are locked.
    locked: PageBits,
}

/// The buffers of a clear, kept between surveys.
#[derive(Debug)]
pub(super) struct Clearer {
    before: Vec<Entries>,
    after: Vec<Entries>,
    asked: Vec<Asked>,
    spans: Spans,
    layout: Layout,
    starts: Vec<u64>,
    pagemap: Box<[u8; PAGES * PagemapEntry::BYTES]>,
}

impl Default for Clearer {
    fn default() -> Self {
        Self {
            before: Vec::new(),
            after: Vec::new(),
            asked: Vec::new(),
            spans: Spans::default(),
            layout: Layout::default(),
            starts: Vec::new(),
            pagemap: Box::new([0; PAGES * PagemapEntry::BYTES]),
        }
    }
}

impl Clearer {
    /// Clears pages of `target`, as [`isotherm_core::survey::Survey::clear`] does. Returns the number of accessed bits
    /// that were cleared.
    pub(super) fn clear(
        &mut self,
        tools: &mut Tools<'_>,
        target: &mut BpfTarget,
        blocks: &mut [ClearPages],
    ) -> Result<u64, BpfError> {
        let mut cleared = 0;
        for window in blocks.chunks_mut(WINDOW) {
            if target.space().is_none() {
                nothing(target, window);
                continue;
            }
            self.starts.clear();
            self.starts.extend(window.iter().map(|block| block.start));
            read(tools, target, &self.starts, &mut self.before)?;
            self.plan(tools, target, window)?;
            self.carry_out(tools.folios, target, window);
            read(tools, target, &self.starts, &mut self.after)?;
            for (index, block) in window.iter_mut().enumerate() {
                cleared += self.verify(tools, target, index, block)?;
            }
        }
        Ok(cleared)
    }

    /// Chooses the ranges.
    fn plan(&mut self, tools: &mut Tools<'_>, target: &BpfTarget, blocks: &mut [ClearPages]) -> Result<(), BpfError> {
        self.spans.clear();
        self.asked.clear();
        let mut masks = Masks::new(target.mappings(), target.clearing());
        for (entries, block) in self.before.iter_mut().zip(blocks) {
            let words = entries.words();
            // Others access them, as was found out since they were read.
            let elsewhere = block.pages & target.elsewhere().pages(block.start);
            block.unobservable |= elsewhere & words.present;
            block.pages &= !elsewhere;
            let mut asked = Asked { clear: block.pages & words.present & !words.accessed, ..Asked::default() };
            let shared = tools.shared.at(target.id, block.start);
            for index in masks.mappings_at(block.start) {
                let mapping = &target.mappings()[index];
                entries.narrow(mapping.range);
                let within = PageBits::of(entries.pages());
                let young = words.accessed & within & !words.special;
                let mut pages = block.pages & young & !shared;
                match target.clearing()[index] {
                    Clearing::Single if is_memory(mapping) => {}
                    // It is cleared from the next survey on, as shared pages are.
                    Clearing::Locked if is_memory(mapping) && tools.shared.mode != SharedMemory::Never => continue,
                    Clearing::Single | Clearing::Locked | Clearing::Never(_) => {
                        block.unobservable |= pages;
                        continue;
                    }
                }
                let mut stop = young & !block.pages;
                if entries.is_huge() && !pages.is_empty() {
                    if !entries.is_whole() || is_zero(tools, entries) {
                        block.unobservable |= pages;
                        continue;
                    }
                    pages = PageBits::ALL;
                } else if !pages.is_empty() {
                    tools.large.look(tools.folios, entries, is_of_a_file(mapping), &mut self.layout)?;
                    block.unobservable |= pages & self.layout.barred;
                    pages &= !self.layout.barred;
                    for folio in self.layout.whole.iter().map(|folio| PageBits::of(folio.clone())) {
                        if !(folio & pages).is_empty() {
                            pages |= folio;
                        }
                    }
                    stop = (stop | self.layout.barred) & !pages;
                } else {
                    // Without a look at its folios, no range may pass over this part.
                    continue;
                }
                asked.young |= pages & words.accessed;
                self.spans.add(block.start, index, entries.pages(), pages, words.present, stop);
            }
            self.asked.push(asked);
        }
        Ok(())
    }

    /// Clears the ranges.
    fn carry_out(&mut self, folios: &Folios, target: &mut BpfTarget, blocks: &[ClearPages]) {
        let spans = std::mem::take(&mut self.spans);
        let mut rest = spans.list();
        while let ([first, others @ ..], Some(space)) = (rest, target.space()) {
            rest = match advise(space.pidfd(), rest.iter().take(RANGES_A_CALL).copied(), Advice::Cold) {
                Ok(done) if done > 0 => &rest[done..],
                Err(Errno::SRCH | Errno::PERM) => {
                    target.refuse();
                    break;
                }
                // The memory was unmapped in the meantime.
                Err(Errno::NOMEM) => others,
                // The whole mapping is locked, of hugetlbfs, or of a device.
                Err(Errno::INVAL) => {
                    let clearing = Clearing::of_refused(
                        self.frame_at(first.start(), blocks).and_then(|frame| folios.flags(frame)),
                    );
                    target.set_clearing(first.start(), clearing);
                    self.note_left(*first, blocks, clearing);
                    others
                }
                Ok(_) | Err(_) => {
                    self.note_left(*first, blocks, Clearing::Single);
                    others
                }
            };
        }
        self.spans = spans;
    }

    /// The frame of the page at `addr`, which lies in one of `blocks`.
    fn frame_at(&self, addr: u64, blocks: &[ClearPages]) -> Option<u64> {
        let index = blocks.partition_point(|block| block.start <= addr).checked_sub(1)?;
        let entries = &self.before[index];
        entries.huge_frame().or_else(|| entries.frame(((addr - blocks[index].start) / PAGE_SIZE) as usize))
    }

    /// Notes that the kernel has left `range`.
    fn note_left(&mut self, range: AddrRange, blocks: &[ClearPages], why: Clearing) {
        for (asked, block) in self.asked.iter_mut().zip(blocks) {
            let pages = PageBits::within(block.start, range);
            match why {
                Clearing::Locked => asked.locked |= pages,
                Clearing::Single | Clearing::Never(_) => asked.refused |= pages,
            }
        }
    }

    /// Finds the pages of a block that the kernel does not clear among those that are accessed directly after the
    /// clear. Returns how many accessed bits were cleared.
    fn verify(
        &mut self,
        tools: &mut Tools<'_>,
        target: &BpfTarget,
        index: usize,
        block: &mut ClearPages,
    ) -> Result<u64, BpfError> {
        let Some(space) = target.space() else {
            nothing(target, std::slice::from_mut(block));
            return Ok(0);
        };
        let (asked, after) = (self.asked[index], &self.after[index]);
        let words = after.words();
        let still = asked.young & words.accessed;
        let locked = asked.young & asked.locked;
        tools.shared.note(target.id, block.start, locked);
        let still = still & !locked;
        let mut uncleared = asked.young & asked.refused;
        if tools.shared.mode == SharedMemory::Never {
            uncleared |= locked;
        }
        if let (Some(first), Some(last)) = (still.first(), still.last()) {
            let (mut alone, mut shared) = (PageBits::NONE, PageBits::NONE);
            let addr = block.start + first as u64 * PAGE_SIZE;
            let buffer = &mut self.pagemap[..(last - first + 1) * PagemapEntry::BYTES];
            // If the pagemap cannot be read, or the address space is gone, no page counts as exclusive.
            for (page, entry) in (first..).zip(space.pagemap().entries(addr, buffer).into_iter().flatten()) {
                if entry.is_exclusive() {
                    alone.insert(page);
                } else if entry.frame().is_some() {
                    shared.insert(page);
                }
            }
            uncleared |= still & !alone;
            tools.shared.note(target.id, block.start, still & shared & !asked.refused);
            // The kernel does not clear a page that is on no reclaim list. A tail of a folio has no such flag.
            if !after.is_huge() {
                let is_left = |flags: Flags| !flags.is_listed() && !flags.is_tail();
                tools.large.flags(tools.folios, after, still & alone, |page, flags| {
                    if is_left(flags) {
                        uncleared.insert(page);
                    }
                })?;
            }
        }
        let cleared = asked.young & !uncleared & !locked;
        block.unobservable |= uncleared;
        block.pages = (cleared | asked.clear) & !block.unobservable;
        let bits = cleared.count() as u64;
        Ok(if self.before[index].is_huge() { bits.min(1) } else { bits })
    }
}

/// Reads the page-table entries of the blocks that begin at `starts`, at most [`WINDOW`] of them.
fn read(tools: &mut Tools<'_>, target: &BpfTarget, starts: &[u64], into: &mut Vec<Entries>) -> Result<(), BpfError> {
    into.clear();
    let pgd = target.space().map_or(0, |space| space.pgd());
    let mask = tools.tables.address_mask;
    tools.program.copy_tables(tools.tables, pgd, 1, starts, |i, found| {
        into.push(Entries::new(starts[i], found, mask));
    })
}

/// Whether the huge page is the huge zero page. If so, the next survey knows.
fn is_zero(tools: &mut Tools<'_>, entries: &Entries) -> bool {
    let Some(frame) = entries.huge_frame() else { return false };
    let is_zero = tools.folios.table().flags(frame).ok().flatten().is_some_and(Flags::is_no_page);
    if is_zero {
        tools.zeros.note(frame);
    }
    is_zero
}

/// Nothing of `blocks` was cleared, because the target has ended, or refuses access.
fn nothing(target: &BpfTarget, blocks: &mut [ClearPages]) {
    for block in blocks {
        if target.is_refused() {
            block.unobservable |= block.pages;
        }
        block.pages = PageBits::NONE;
    }
}
