//! The survey of processes: every page of a mapping is visited, and cleared if it was accessed.
//!
//! Whole page tables of 512 entries are copied, which costs little more than reading one entry. Accessed pages are
//! cleared with `MADV_COLD` and read again. If such a page is accessed again at once, there are two cases. A page that
//! only this process maps and that is on a reclaim list is in use. Any other page is one that the kernel does not
//! clear, so it cannot be observed.

use std::collections::HashMap;
use std::io;

use isotherm_core::{AddrRange, IdleTally, Mapping};
use rustix::io::Errno;

use super::BpfError;
use super::direct_map::{memory_end, prove};
use super::entries::{Entries, HUGE_SIZE, PAGES};
use super::folio::Folios;
use super::leaf::Extent;
use super::look::Look;
use super::plan::plan;
use super::program::{Found, MAX_TABLES, PageTables, Program};
use super::space::{Opened, PagemapKind, SpaceHandle};
use crate::mark::Mark;
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::pages::{PageBuffer, PagemapEntry};

/// The amount of memory that one table of the second level maps, in bytes.
const GIB: u64 = 1 << 30;

/// The number of blocks of 2 MiB that are read, cleared and read again together. The kernel locks the target's address
/// space for about a millisecond while it clears them.
const WINDOW: usize = 32;

/// Surveys all pages of processes.
#[derive(Debug)]
pub(crate) struct PageSurvey {
    program: Program,
    tables: PageTables,
    folios: Folios,
    pagemap_kind: PagemapKind,
    // The buffers below are kept between surveys.
    buffer: PageBuffer,
    blocks: Vec<Entries>,
    again: Vec<Entries>,
    spans: Vec<AddrRange>,
    pagemap: Box<[u8; PAGES * PagemapEntry::BYTES]>,
}

/// A process, and the marks of its pages.
#[derive(Debug)]
pub(crate) struct Surveyed {
    space: SpaceHandle,
    /// The marks by block: the key is the address divided by 2 MiB.
    marks: HashMap<u64, Box<[Mark; PAGES]>>,
    /// The marks of the survey before. Those of blocks that are still mapped are moved to `marks`.
    before: HashMap<u64, Box<[Mark; PAGES]>>,
    gone: bool,
}

/// The result of opening a process for a survey.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The process is open.
    Held(Surveyed),
    /// There is no such process, or it has no memory.
    Gone,
    /// Access to its memory is not permitted.
    Refused(io::Error),
}

impl PageSurvey {
    /// Loads the program, finds the direct map, and tests on this process's own memory how large folios are cleared.
    pub(crate) fn open() -> Result<Self, BpfError> {
        let mut program = Program::load()?;
        let (own, pagemap_kind) = SpaceHandle::open_own(&mut program)?;
        let tables = prove(&mut program, &own)?;
        let folios = Folios::open(&mut program, &tables, &own)?;
        Ok(Self {
            program,
            tables,
            folios,
            pagemap_kind,
            buffer: PageBuffer::default(),
            blocks: Vec::new(),
            again: Vec::new(),
            spans: Vec::new(),
            pagemap: Box::new([0; PAGES * 8]),
        })
    }

    /// Begins a survey. Memory may have been hot-plugged since the last one.
    pub(crate) fn begin(&mut self) -> Result<(), BpfError> {
        self.tables.memory_end = memory_end()?;
        Ok(())
    }

    /// Opens a process for a survey. `before` is its state after the last survey.
    pub(crate) fn take(&mut self, pid: u32, before: Option<Surveyed>) -> Result<Taken, BpfError> {
        let space = match SpaceHandle::open(pid, &mut self.program, self.pagemap_kind)? {
            Opened::Held(space) => space,
            Opened::Gone => return Ok(Taken::Gone),
            Opened::Refused(e) => return Ok(Taken::Refused(e)),
        };
        // After an exec, the marks are no longer valid.
        let known = before.filter(|before| before.space.same_as(&space));
        let before = known.map(|known| known.marks).unwrap_or_default();
        Ok(Taken::Held(Surveyed { space, marks: HashMap::new(), before, gone: false }))
    }

    /// Visits all pages of a mapping and clears those that were accessed. Adds their states to `tally`, unless `look`
    /// is [`Look::First`]. `pace` is called with the number of bytes that were visited; its error ends the survey.
    pub(crate) fn visit<E: From<BpfError>>(
        &mut self,
        of: &mut Surveyed,
        mapping: &Mapping,
        look: Look,
        tally: &mut IdleTally,
        pace: &mut dyn FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = mapping.range.start() / GIB * GIB;
        let mut mapped = Vec::new();
        let mut left = Vec::new();
        while from < mapping.range.end() && !of.gone {
            let tops: Vec<u64> =
                (0..MAX_TABLES as u64).map(|i| from + i * GIB).take_while(|&addr| addr < mapping.range.end()).collect();
            from = tops.last().map_or(u64::MAX, |last| last.saturating_add(GIB));
            mapped.clear();
            self.program.copy_tables(&self.tables, of.space.pgd(), 2, &tops, |i, found| match found {
                Found::Table(table) => mapped.extend(
                    (tops[i]..)
                        .step_by(HUGE_SIZE as usize)
                        .zip(table)
                        .filter(|(_, entry)| **entry != 0)
                        .map(|(addr, _)| addr),
                ),
                // Memory of hugetlbfs or a device, which MADV_COLD does not clear.
                Found::Leaf(leaf) if leaf.extent() == Some(Extent::Gigantic) => left.push(tops[i]),
                Found::Leaf(_) => {}
            })?;
            mapped.retain(|&start| within(start, HUGE_SIZE, mapping.range).is_some());
            for window in mapped.chunks(WINDOW) {
                self.window(of, mapping, window, look, tally)?;
                pace(window.len() as u64 * HUGE_SIZE)?;
            }
        }
        if look != Look::First {
            let bytes = left.iter().filter_map(|&start| within(start, GIB, mapping.range)).map(AddrRange::size).sum();
            tally.add(isotherm_core::PageState::Unobservable, bytes);
        }
        Ok(())
    }

    /// Visits the blocks that begin at `starts`, limited to the mapping.
    fn window(
        &mut self,
        of: &mut Surveyed,
        mapping: &Mapping,
        starts: &[u64],
        look: Look,
        tally: &mut IdleTally,
    ) -> Result<(), BpfError> {
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut again = std::mem::take(&mut self.again);
        self.read(of, starts, &mut blocks)?;
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        for block in &mut blocks {
            block.narrow(mapping.range);
            let marks = of.marks_at(block.start());
            block.update_marks(marks, look, tally);
            if look != Look::Locked && block.any_young() {
                plan(block, &self.folios, &mut self.buffer, &mut spans)?;
            }
        }
        let refused = !clear(of, &spans);
        self.spans = spans;

        blocks.retain(|block| look != Look::Locked && block.any_young());
        let starts: Vec<u64> = blocks.iter().map(Entries::start).collect();
        self.read(of, &starts, &mut again)?;
        for (block, now) in blocks.iter().zip(&mut again) {
            now.narrow(mapping.range);
            self.mark_uncleared(of, block, now, refused);
        }
        (self.blocks, self.again) = (blocks, again);
        Ok(())
    }

    /// Reads the page-table entries of the blocks that begin at `starts`.
    fn read(&mut self, of: &Surveyed, starts: &[u64], into: &mut Vec<Entries>) -> Result<(), BpfError> {
        let mask = self.tables.address_mask;
        into.clear();
        for starts in starts.chunks(MAX_TABLES) {
            self.program.copy_tables(&self.tables, of.space.pgd(), 1, starts, |i, found| {
                into.push(Entries::new(starts[i], found, mask));
            })?;
        }
        Ok(())
    }

    /// Finds the pages that the kernel does not clear among those that are accessed directly after the clear. `block`
    /// holds the entries before the clear, and `now` those after it.
    fn mark_uncleared(&mut self, of: &mut Surveyed, block: &Entries, now: &Entries, refused: bool) {
        let mut alone = [false; PAGES];
        if now.any_young() {
            // If the pagemap cannot be read, or the address space is gone, no page counts as exclusive.
            let entries = of.space.pagemap().entries(block.start(), &mut self.pagemap[..]).into_iter().flatten();
            entries.zip(&mut alone).for_each(|(entry, alone)| *alone = entry.is_exclusive());
        }
        let marks = of.marks_at(block.start());
        // A page that could not be cleared before, but could be now, can be observed from the next interval on.
        for page in block.young() {
            if marks[page] == Mark::UNMARKED {
                marks[page] = Mark::UNKNOWN;
            }
        }
        for page in now.young() {
            if refused || block.is_left(page) || !alone[page] {
                marks[page] = Mark::UNMARKED;
            }
        }
    }
}

impl Surveyed {
    fn marks_at(&mut self, start: u64) -> &mut [Mark; PAGES] {
        let block = start / HUGE_SIZE;
        let before = &mut self.before;
        self.marks
            .entry(block)
            .or_insert_with(|| before.remove(&block).unwrap_or_else(|| Box::new([Mark::NOTHING; PAGES])))
    }

    /// Whether the process ended or called exec during the survey.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }
}

/// The part of the `size` bytes from `start` on that is in `range`.
fn within(start: u64, size: u64, range: AddrRange) -> Option<AddrRange> {
    AddrRange::new(start, start.saturating_add(size))?.intersection(range)
}

/// Clears `spans`, which are all in one mapping. Returns false if the kernel does not clear the mapping.
fn clear(of: &mut Surveyed, spans: &[AddrRange]) -> bool {
    let mut rest = spans;
    while let [_, others @ ..] = rest {
        match advise(of.space.pidfd(), rest.iter().copied(), Advice::Cold) {
            Ok(done) if done > 0 => rest = &rest[done..],
            Err(Errno::SRCH) => {
                of.gone = true;
                return true;
            }
            // The mapping is locked or not ordinary memory, or access is not permitted.
            Err(Errno::INVAL | Errno::PERM) => return false,
            // The span was unmapped in the meantime.
            _ => rest = others,
        }
    }
    true
}
