//! Reads the pages of a process: one copy of each page table.

use isotherm_core::AddrRange;
use isotherm_core::survey::{BlockPages, PageBits, Rest, SurveyPart};

use super::block_frames::FramesOf;
use super::folios::Zeros;
use super::masks::{Mask, Masks};
use crate::bpf::BpfError;
use crate::bpf::find::{Finder, HugeEntry, MappedBy, Place};
use crate::bpf::leaf::{Extent, Leaf};
use crate::bpf::program::{MAX_TABLES, PageTables, Program, Walked};
use crate::bpf::swap::Witnesses;
use crate::bpf::target::BpfTarget;
use crate::bpf::words::words;
use crate::mapping::is_memory;

/// The buffers of a read, kept between surveys.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) finder: Finder,
    pub(super) places: Vec<Place>,
    /// The blocks that have a page table: their addresses and their indices among the blocks read.
    pub(super) starts: Vec<u64>,
    indices: Vec<usize>,
    suspects: Vec<Suspects>,
    swapped: Witnesses,
    /// The blocks with pages in swap.
    in_swap: Vec<(u64, PageBits)>,
    /// The present pages in locked mappings, by block.
    locked: Vec<(u64, PageBits)>,
    /// The present pages of private anonymous memory whose entries are clean, by block.
    clean: Vec<(u64, PageBits)>,
}

/// Pages of a block that other processes may map: those of files and shared memory, and those that are copied when the
/// process writes to them, as after a fork.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspects {
    /// The first address of the block.
    pub(super) start: u64,
    pub(super) pages: PageBits,
    /// The pages that were accessed too.
    pub(super) accessed: PageBits,
}

impl Reader {
    /// Appends the blocks in a part of `target` that have present or swapped pages to `blocks`, in the order of
    /// addresses.
    pub(super) fn read(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        part: SurveyPart,
        zeros: &Zeros,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<Rest, BpfError> {
        self.read_with_frames((program, tables), target, part, zeros, blocks, &mut |_, _| {})
    }

    /// Like [`read`](Self::read). It also calls `seen` with each of these blocks and its page frames, in no particular
    /// order.
    pub(super) fn read_with_frames(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        part: SurveyPart,
        zeros: &Zeros,
        blocks: &mut Vec<BlockPages>,
        seen: &mut dyn FnMut(&BlockPages, FramesOf<'_>),
    ) -> Result<Rest, BpfError> {
        let memory = target.mappings().iter().filter(|mapping| is_memory(mapping));
        let memory =
            memory.filter_map(|mapping| AddrRange::new(mapping.range.start().max(part.from), mapping.range.end()));
        self.read_ranges((program, tables), target, (memory, part.most), zeros, blocks, seen)
    }

    /// Appends at most so many of the blocks that have present pages in `ranges` to `blocks`.
    pub(super) fn look(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        (ranges, most): (&[AddrRange], usize),
        zeros: &Zeros,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BpfError> {
        let ranges = ranges.iter().copied();
        self.read_ranges((program, tables), target, (ranges, most), zeros, blocks, &mut |_, _| {}).map(drop)
    }

    /// Appends at most so many of the blocks that have present or swapped pages in `ranges` to `blocks`.
    fn read_ranges(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        (ranges, most): (impl Iterator<Item = AddrRange>, usize),
        zeros: &Zeros,
        blocks: &mut Vec<BlockPages>,
        seen: &mut dyn FnMut(&BlockPages, FramesOf<'_>),
    ) -> Result<Rest, BpfError> {
        let Some(space) = target.space() else { return Ok(Rest::default()) };
        self.finder.find(program, tables, space.pgd(), ranges, &mut self.places)?;
        let rest = Rest {
            from: self.places.get(most).map(|place| place.start),
            blocks: self.places.len().saturating_sub(most),
        };
        self.places.truncate(most);

        let first = blocks.len();
        let mut masks = Masks::new(target.mappings(), target.clearing()).with_elsewhere(target.elsewhere());
        self.starts.clear();
        self.indices.clear();
        self.suspects.clear();
        self.swapped.clear();
        self.in_swap.clear();
        self.locked.clear();
        self.clean.clear();
        for place in &self.places {
            let mut block = BlockPages { start: place.start, ..BlockPages::default() };
            match place.by {
                MappedBy::Table => {
                    self.starts.push(place.start);
                    self.indices.push(blocks.len());
                }
                MappedBy::Huge(entry) => {
                    let mask = masks.at(place.start);
                    huge(&mut block, entry, mask, zeros);
                    lock(&mut self.locked, &block, mask);
                    let dirty = if entry.dirty { PageBits::ALL } else { PageBits::NONE };
                    clean(&mut self.clean, &block, mask, dirty);
                    let writable = if entry.writable { PageBits::ALL } else { PageBits::NONE };
                    suspect(&mut self.suspects, &block, mask, writable);
                    see(seen, &block, FramesOf::from_first((!entry.special).then_some(entry.frame)));
                }
                MappedBy::Gigantic(first) => {
                    block.present = masks.at(place.start).usable;
                    (block.accessed, block.unobservable, block.huge) = (block.present, block.present, true);
                    see(seen, &block, FramesOf::from_first(first));
                }
            }
            blocks.push(block);
        }
        let mut masks = Masks::new(target.mappings(), target.clearing()).with_elsewhere(target.elsewhere());
        for (starts, indices) in self.starts.chunks(MAX_TABLES).zip(self.indices.chunks(MAX_TABLES)) {
            program.copy_tables(tables, space.pgd(), 1, starts, |i, found| {
                let block = &mut blocks[indices[i]];
                match found {
                    Walked::Table(table) => {
                        let (mask, words) = (masks.at(block.start), words(table));
                        // The zero page is no memory of the process. Memory of a device cannot be cleared.
                        let device = words.special & mask.file;
                        block.present = words.present & mask.usable & (!words.special | device);
                        block.accessed = words.accessed & block.present;
                        block.unobservable =
                            (device | mask.elsewhere) & block.present | block.accessed & mask.uncleared;
                        block.swapped = words.swapped & mask.usable;
                        self.swapped.add(block, table);
                        if !block.swapped.is_empty() {
                            self.in_swap.push((block.start, block.swapped));
                        }
                        suspect(&mut self.suspects, block, mask, words.writable);
                        lock(&mut self.locked, block, mask);
                        clean(&mut self.clean, block, mask, words.dirty);
                        see(seen, block, FramesOf::table(table, tables.address_mask));
                    }
                    Walked::Leaf(leaf) => {
                        if let Some(entry) = became_huge(leaf, block.start) {
                            huge(block, entry, masks.at(block.start), zeros);
                            see(seen, block, FramesOf::from_first(Some(entry.frame)));
                        }
                    }
                }
            })?;
        }
        let mut kept = first;
        for index in first..blocks.len() {
            if !(blocks[index].present | blocks[index].swapped).is_empty() {
                let mut block = blocks[index];
                block.accessed |= target.sampled.at(block.start) & block.present;
                blocks[kept] = block;
                kept += 1;
            }
        }
        blocks.truncate(kept);
        Ok(rest)
    }

    /// Some of the entries that seem to be of pages in swap, as they were read last.
    pub(super) fn swapped(&self) -> &Witnesses {
        &self.swapped
    }

    /// The pages whose entries seem to be of pages in swap, by block, as they were read last.
    pub(super) fn in_swap(&self) -> &[(u64, PageBits)] {
        &self.in_swap
    }

    /// The present pages in locked mappings, by block, as they were read last.
    pub(super) fn locked(&self) -> &[(u64, PageBits)] {
        &self.locked
    }

    /// The present pages of private anonymous memory whose entries are clean, by block, as they were read last.
    pub(super) fn clean(&mut self) -> &[(u64, PageBits)] {
        // Blocks with a page table are read after the others.
        self.clean.sort_unstable_by_key(|(start, _)| *start);
        &self.clean
    }

    /// The pages that other processes may map too, as they were read last.
    pub(super) fn suspects(&self) -> &[Suspects] {
        &self.suspects
    }
}

/// Calls `seen` with a block, if it has a present page.
fn see(seen: &mut dyn FnMut(&BlockPages, FramesOf<'_>), block: &BlockPages, frames: FramesOf<'_>) {
    if !block.present.is_empty() {
        seen(block, frames);
    }
}

/// Adds the pages of `block` that other processes may map.
fn suspect(suspects: &mut Vec<Suspects>, block: &BlockPages, mask: Mask, writable: PageBits) {
    let pages = block.present & !block.unobservable & (mask.file | mask.copied & !writable);
    if !pages.is_empty() {
        suspects.push(Suspects { start: block.start, pages, accessed: pages & block.accessed });
    }
}

/// Adds the pages of `block` that are locked.
fn lock(locked: &mut Vec<(u64, PageBits)>, block: &BlockPages, mask: Mask) {
    let pages = block.present & !block.unobservable & mask.locked;
    if !pages.is_empty() {
        locked.push((block.start, pages));
    }
}

/// Adds the pages of `block` that may have been freed lazily.
fn clean(clean: &mut Vec<(u64, PageBits)>, block: &BlockPages, mask: Mask, dirty: PageBits) {
    let pages = block.present & !block.unobservable & !dirty & !mask.file;
    if !pages.is_empty() {
        clean.push((block.start, pages));
    }
}

/// Fills in a block that one entry maps.
fn huge(block: &mut BlockPages, entry: HugeEntry, mask: Mask, zeros: &Zeros) {
    let device = entry.special && !mask.file.is_empty();
    if (entry.special && !device) || zeros.contains(entry.frame) {
        return;
    }
    block.huge = true;
    block.present = mask.usable;
    block.accessed = if entry.accessed { mask.usable } else { PageBits::NONE };
    block.unobservable = if device { mask.usable } else { mask.elsewhere | block.accessed & mask.uncleared };
}

/// The entry of a block that got a huge page during the read.
fn became_huge(leaf: Leaf, start: u64) -> Option<HugeEntry> {
    let frame = leaf.frame(start)?;
    (leaf.extent() == Some(Extent::Huge)).then(|| HugeEntry {
        frame,
        accessed: leaf.young(),
        writable: true,
        dirty: true,
        special: false,
    })
}
