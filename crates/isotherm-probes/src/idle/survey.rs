//! Reads and marks all pages of a process, or of physical memory.

use std::collections::HashMap;

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockFrames, BlockPages, ClearPages, PageBits, Rest, SurveyPart};
use isotherm_core::{FrameSet, Mapping, TargetId};
use isotherm_kernel::pages::{PageBuffer, PagemapEntry, TableError};

use super::accesses::Accesses;
use super::explore::{Explored, blocks_of};
use super::frames::{Frames, Page, State, heads};
use super::target::{BlockEntries, IdleTarget, PagePlace};
use crate::elsewhere::AccessedElsewhere;
use crate::mapping::{is_memory, is_of_a_file};
use crate::page_nodes::PageNodes;

/// This many blocks of physical memory, 128 MiB, are looked up together. No folio of user memory crosses a multiple.
const PHYSICAL_BLOCKS: usize = 64;

/// What surveys keep.
#[derive(Debug, Default)]
pub(super) struct IdleSurvey {
    pub(super) explored: HashMap<TargetId, Explored>,
    /// The pages of the target that was read last that other processes may have too.
    pub(super) suspects: Vec<Suspects>,
    /// The frames of the target that is being read which others may have too.
    seen: FrameSet,
    /// The pages of each target, by block, whose frame it maps at a lower address too.
    pub(super) second_views: HashMap<TargetId, Vec<(u64, PageBits)>>,
    /// The memory nodes of the pages that were read last. Those of physical memory are known by its mappings.
    pub(super) nodes: PageNodes,
    starts: Vec<u64>,
    pages: Vec<Page>,
    pub(super) buffer: PageBuffer,
}

/// The pages of one block that other processes may have too: those in memory that others may map, and those in swap.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    start: u64,
    pages: PageBits,
    swapped: PageBits,
    /// Where each of them is, if there is one.
    frames: Option<Box<[u64; BLOCK_PAGES]>>,
}

impl Suspects {
    fn frame(&mut self, page: usize) -> &mut u64 {
        &mut self.frames.get_or_insert_with(|| Box::new([0; BLOCK_PAGES]))[page]
    }

    /// Where the pages are.
    pub(super) fn frames(&self) -> Option<BlockFrames<'_>> {
        let Self { start, pages, swapped, frames } = self;
        frames.as_deref().map(|frames| BlockFrames { start: *start, pages: *pages, swapped: *swapped, frames })
    }
}

impl IdleSurvey {
    /// Reads the pages in a part of a target, and appends the blocks that have some, or swapped ones, to `blocks`.
    pub(super) fn read(
        &mut self,
        (frames, accesses): (&mut Frames<'_>, &Accesses),
        (target, elsewhere): (&IdleTarget, Option<&AccessedElsewhere>),
        mappings: &[Mapping],
        part: SurveyPart,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<Rest, TableError> {
        self.suspects.clear();
        self.nodes.begin_part();
        if part.from == 0 {
            self.seen = FrameSet::default();
            self.second_views.remove(&target.id);
            if let Some(blocks) = target.blocks() {
                self.starts = blocks;
            } else if target.is_physical() {
                self.starts.clear();
                self.starts.extend(mappings.iter().flat_map(|mapping| blocks_of(mapping.range)));
                self.starts.dedup();
            } else {
                self.explored.entry(target.id).or_default().plan(mappings, &mut self.starts);
            }
        }
        let starts = std::mem::take(&mut self.starts);
        let left = &starts[starts.partition_point(|start| *start < part.from)..];
        let (now, later) = left.split_at(part.most.min(left.len()));
        let mut usable = Usable { mappings, elsewhere, is_physical: target.is_physical(), next: 0 };
        let mut result = Ok(Rest { from: later.first().copied(), blocks: later.len() });
        for now in now.chunks(at_once(target)) {
            match self.read_blocks(frames, accesses, target, &mut usable, now, blocks) {
                Ok(true) => {}
                Ok(false) => {
                    result = Ok(Rest::default());
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.starts = starts;
        result
    }

    /// Reads the blocks that begin at `starts`. Returns whether the target is still there.
    fn read_blocks(
        &mut self,
        frames: &mut Frames<'_>,
        accesses: &Accesses,
        target: &IdleTarget,
        usable: &mut Usable<'_>,
        starts: &[u64],
        blocks: &mut Vec<BlockPages>,
    ) -> Result<bool, TableError> {
        self.pages.clear();
        let first = blocks.len();
        let mut buffer: Box<BlockEntries> = Box::new([0; BLOCK_PAGES * PagemapEntry::BYTES]);
        let mut is_there = true;
        let places = self.nodes.are_several() && !target.is_physical();
        let mut frames_of = [0; BLOCK_PAGES];
        for &start in starts {
            let elsewhere = usable.elsewhere.map_or(PageBits::NONE, |elsewhere| elsewhere.pages(start));
            let (usable, of_files) = usable.at(start);
            let mut second = PageBits::NONE;
            let mut block = BlockPages { start, unobservable: elsewhere, ..BlockPages::default() };
            let mut suspects = Suspects { start, ..Suspects::default() };
            is_there = target.block(start, &mut buffer, |page, found| {
                if !usable.contains(page) {
                    return;
                }
                let (frame, is_exclusive) = match found {
                    PagePlace::Frame { frame, is_exclusive } => (frame, is_exclusive),
                    PagePlace::Swapped(place) => {
                        block.swapped.insert(page);
                        suspects.swapped.insert(page);
                        *suspects.frame(page) = place.number();
                        return;
                    }
                };
                if !is_exclusive && of_files.contains(page) && !self.seen.insert(frame) {
                    second.insert(page);
                    return;
                }
                block.present.insert(page);
                self.pages.push(Page::new(frame, blocks.len(), page));
                frames_of[page] = frame;
                if !is_exclusive {
                    suspects.pages.insert(page);
                    *suspects.frame(page) = frame;
                }
            });
            // A target that has ended, or has called exec, has no pages.
            if !is_there {
                break;
            }
            if !second.is_empty() {
                self.second_views.entry(target.id).or_default().push((start, second));
                self.explored.entry(target.id).or_default().note(start);
            }
            if places {
                self.nodes.add(start, block.present, |page| Some(frames_of[page]));
            }
            if !(block.present | block.swapped).is_empty() {
                if target.id.pid().is_some() {
                    self.explored.entry(target.id).or_default().note(start);
                }
                blocks.push(block);
            }
            if suspects.frames.is_some() {
                self.suspects.push(suspects);
            }
        }
        frames.read(&mut self.pages)?;
        let accesses = accesses.lock();
        // A block is huge if all its pages are of one folio.
        let mut heads = vec![(0, 0); blocks.len() - first];
        for page in &self.pages {
            let (index, at) = (page.block as usize, usize::from(page.page));
            let (block, one) = (&mut blocks[index], PageBits::of(at..at + 1));
            let (head, count) = &mut heads[index - first];
            if page.head == *head {
                *count += 1;
            } else {
                (*head, *count) = (page.head, 1);
            }
            match page.state {
                State::Idle if !accesses.contain(page.head) => {}
                State::Idle | State::Accessed => block.accessed |= one,
                State::Other if target.is_physical() => block.present &= !one,
                State::Unobservable | State::Other => {
                    (block.accessed, block.unobservable) = (block.accessed | one, block.unobservable | one)
                }
                State::Zero => block.present &= !one,
            }
        }
        drop(accesses);
        for (block, (_, count)) in blocks[first..].iter_mut().zip(heads) {
            block.huge = count == BLOCK_PAGES;
            block.unobservable &= block.present;
        }
        let mut kept = first;
        for index in first..blocks.len() {
            blocks[kept] = blocks[index];
            kept += usize::from(!(blocks[index].present | blocks[index].swapped).is_empty());
        }
        blocks.truncate(kept);
        Ok(is_there)
    }

    /// Marks pages of a target. Returns how many frames were marked.
    pub(super) fn clear(
        &mut self,
        (frames, accesses): (&mut Frames<'_>, &Accesses),
        target: &IdleTarget,
        blocks: &mut [ClearPages],
    ) -> Result<u64, TableError> {
        let mut marked = 0;
        for blocks in blocks.chunks_mut(at_once(target)) {
            marked += self.clear_blocks(frames, accesses, target, blocks)?;
        }
        Ok(marked)
    }

    fn clear_blocks(
        &mut self,
        frames: &mut Frames<'_>,
        accesses: &Accesses,
        target: &IdleTarget,
        blocks: &mut [ClearPages],
    ) -> Result<u64, TableError> {
        self.pages.clear();
        let mut buffer: Box<BlockEntries> = Box::new([0; BLOCK_PAGES * PagemapEntry::BYTES]);
        let mut others = Vec::new();
        for (index, block) in blocks.iter_mut().enumerate() {
            let wanted = std::mem::take(&mut block.pages);
            target.block(block.start, &mut buffer, |page, found| {
                let PagePlace::Frame { frame, .. } = found else { return };
                let of = if wanted.contains(page) { &mut self.pages } else { &mut others };
                of.push(Page::new(frame, index, page));
            });
        }
        self.pages.sort_unstable_by_key(|page| page.frame);
        frames.look(&mut self.pages, false)?;
        let heads = heads(&self.pages);
        {
            let mut accesses = accesses.lock();
            heads.iter().for_each(|&head| accesses.in_this_survey(head));
        }
        frames.mark(&heads)?;
        for page in &self.pages {
            let (block, at) = (&mut blocks[page.block as usize], usize::from(page.page));
            match page.state {
                State::Accessed | State::Idle => block.pages.insert(at),
                State::Other if target.is_physical() => {}
                State::Unobservable | State::Other => block.unobservable.insert(at),
                State::Zero => {}
            }
        }
        // The other pages of a folio are marked with it.
        if self.pages.iter().any(|page| page.folio && page.state == State::Accessed) {
            others.sort_unstable_by_key(|page| page.frame);
            frames.look(&mut others, false)?;
            for page in others.iter().filter(|page| heads.binary_search(&page.head).is_ok()) {
                blocks[page.block as usize].pages.insert(page.page.into());
            }
        }
        Ok(heads.len() as u64)
    }
}

/// How many blocks are looked up together. The frames of a process lie anywhere, so that all of them are. Physical
/// memory has its frames in order, and files may have far more pages than a process.
fn at_once(target: &IdleTarget) -> usize {
    if target.id.pid().is_some() { usize::MAX } else { PHYSICAL_BLOCKS }
}

/// The pages of blocks that are memory of the target.
#[derive(Debug)]
struct Usable<'a> {
    mappings: &'a [Mapping],
    elsewhere: Option<&'a AccessedElsewhere>,
    is_physical: bool,
    next: usize,
}

impl Usable<'_> {
    /// The pages of the block that begins at `start`, and those of files and shared memory among them. No earlier call
    /// had a higher address.
    fn at(&mut self, start: u64) -> (PageBits, PageBits) {
        let rest = &self.mappings[self.next..];
        self.next += rest.iter().take_while(|mapping| mapping.range.end() <= start).count();
        let end = start.saturating_add(BLOCK_SIZE);
        let inside = self.mappings[self.next..].iter().take_while(|mapping| mapping.range.start() < end);
        let memory = inside.filter(|mapping| self.is_physical || is_memory(mapping));
        memory.fold((PageBits::NONE, PageBits::NONE), |(all, of_files), mapping| {
            let pages = PageBits::within(start, mapping.range);
            let is_file = !self.is_physical && is_of_a_file(mapping);
            (all | pages, if is_file { of_files | pages } else { of_files })
        })
    }
}
