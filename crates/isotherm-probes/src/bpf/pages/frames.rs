//! Reads the page frames of a process from its page tables: of all pages, or of those that other processes may map.

use isotherm_core::PAGE_SIZE;
use isotherm_core::survey::{BLOCK_PAGES, BlockFrames, PageBits};

use super::folios::Zeros;
use super::read::Reader;
use crate::bpf::entries::frame;
use crate::bpf::find::MappedBy;
use crate::bpf::program::{MAX_TABLES, PageTables, Program, Walked};
use crate::bpf::swap::place;
use crate::bpf::target::BpfTarget;
use crate::bpf::words::{is_special, words};
use crate::bpf::{BpfError, NO_FRAME};
use crate::mapping::is_memory;

/// The frame of each page of a block. [`NO_FRAME`] if no page of memory is mapped that the kernel manages.
pub(crate) type FrameTable = [u64; BLOCK_PAGES];

impl Reader {
    /// Calls `found` with the frames of each block of `target` that has page-table entries, in no particular order.
    pub(super) fn frames(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &BpfTarget,
        zeros: &Zeros,
        mut found: impl FnMut(u64, &FrameTable),
    ) -> Result<(), BpfError> {
        let Some(space) = target.space() else { return Ok(()) };
        let memory = target.mappings().iter().filter(|mapping| is_memory(mapping)).map(|mapping| mapping.range);
        self.finder.find(program, tables, space.pgd(), memory, &mut self.places)?;
        self.starts.clear();
        for place in &self.places {
            let first = match place.by {
                MappedBy::Table => {
                    self.starts.push(place.start);
                    None
                }
                MappedBy::Huge(entry) => Some(entry.frame).filter(|&frame| !entry.special && !zeros.contains(frame)),
                MappedBy::Gigantic(first) => first,
            };
            if let Some(first) = first {
                found(place.start, &std::array::from_fn(|page| first + page as u64));
            }
        }
        for starts in self.starts.chunks(MAX_TABLES) {
            program.copy_tables(tables, space.pgd(), 1, starts, |i, copied| {
                // If the table has become a huge page since, the next scan finds it.
                if let Walked::Table(table) = copied {
                    let of = |entry: u64| match frame(entry, tables.address_mask) {
                        Some(frame) if !is_special(entry) => frame,
                        _ => NO_FRAME,
                    };
                    found(starts[i], &table.map(of));
                }
            })?;
        }
        Ok(())
    }

    /// Calls `found` with the frames of the pages of `target` that other processes may map, and with the places of its
    /// pages in swap, in the part that was read last.
    pub(super) fn shared_frames(
        &self,
        program: &mut Program,
        tables: &PageTables,
        target: &BpfTarget,
        found: &mut dyn FnMut(BlockFrames<'_>),
    ) -> Result<(), BpfError> {
        let Some(space) = target.space() else { return Ok(()) };
        let suspects = self.suspects().iter().map(|block| (block.start, block.pages)).collect::<Vec<_>>();
        frames_of(program, tables, target, &suspects, found)?;
        let mut frames = [NO_FRAME; BLOCK_PAGES];
        for blocks in self.in_swap().chunks(MAX_TABLES) {
            let starts: Vec<u64> = blocks.iter().map(|(start, _)| *start).collect();
            program.copy_tables(tables, space.pgd(), 1, &starts, |i, copied| {
                let Walked::Table(table) = copied else { return };
                // A page may be back in memory by now.
                let swapped = words(table).swapped & blocks[i].1;
                swapped.iter().for_each(|page| frames[page] = place(table[page]).number());
                found(BlockFrames { start: starts[i], pages: PageBits::NONE, swapped, frames: &frames });
            })?;
        }
        Ok(())
    }
}

/// Calls `found` with the frames of these pages of `target`, by block.
pub(in crate::bpf) fn frames_of(
    program: &mut Program,
    tables: &PageTables,
    target: &BpfTarget,
    blocks: &[(u64, PageBits)],
    found: &mut dyn FnMut(BlockFrames<'_>),
) -> Result<(), BpfError> {
    let Some(space) = target.space() else { return Ok(()) };
    let mut frames = [NO_FRAME; BLOCK_PAGES];
    for blocks in blocks.chunks(MAX_TABLES) {
        let starts: Vec<u64> = blocks.iter().map(|(start, _)| *start).collect();
        program.copy_tables(tables, space.pgd(), 1, &starts, |i, copied| {
            let mut pages = PageBits::NONE;
            for page in blocks[i].1.iter() {
                let of_page = match copied {
                    Walked::Table(table) => frame(table[page], tables.address_mask),
                    Walked::Leaf(leaf) => leaf.frame(starts[i] + page as u64 * PAGE_SIZE),
                };
                if let Some(frame) = of_page {
                    frames[page] = frame;
                    pages.insert(page);
                }
            }
            found(BlockFrames { start: starts[i], pages, swapped: PageBits::NONE, frames: &frames });
        })?;
    }
    Ok(())
}
