//! The pages of processes whose accessed bits are set, with their page frames.

use std::ops::Range;

use isotherm_core::TargetId;
use isotherm_core::survey::{BlockPages, ClearPages, PageBits};

use super::blocks::FrameBlocks;
use crate::bpf::FramesOf;

/// The accessed pages of all processes in a survey. Only these have to be cleared, so that the frames of the others are
/// not kept.
#[derive(Debug, Default)]
pub(super) struct AccessedPages {
    /// The processes, and the range of their blocks.
    processes: Vec<(TargetId, Range<usize>)>,
    blocks: Vec<AccessedBlock>,
    /// The frames of all blocks without a first frame.
    frames: Vec<u64>,
}

/// The accessed pages of a block of a process.
#[derive(Clone, Copy, Debug)]
struct AccessedBlock {
    start: u64,
    pages: PageBits,
    /// The pages among them that cannot be cleared.
    stuck: PageBits,
    frames: Frames,
}

/// The frames of the accessed pages of a block.
#[derive(Clone, Copy, Debug)]
enum Frames {
    /// Those of a huge page.
    First(u64),
    /// At this place in the list of frames.
    Listed(usize),
}

impl AccessedPages {
    /// Forgets all pages. Gives memory back if much less was needed than the most ever.
    pub(super) fn clear(&mut self) {
        self.frames.shrink_to(self.frames.len() * 2);
        self.processes.clear();
        self.blocks.clear();
        self.frames.clear();
    }

    /// Adds a block of the process whose pages are added now, in any order.
    pub(super) fn add(&mut self, block: &BlockPages, of: FramesOf<'_>, stuck: PageBits) {
        let pages = block.accessed & block.present;
        if pages.is_empty() {
            return;
        }
        let (mut kept, frames) = match of.first() {
            Some(first) => (pages, Frames::First(first)),
            None => (PageBits::NONE, Frames::Listed(self.frames.len())),
        };
        if of.first().is_none() {
            for page in pages.iter() {
                if let Some(frame) = of.frame(page) {
                    self.frames.push(frame);
                    kept.insert(page);
                }
            }
        }
        self.blocks.push(AccessedBlock { start: block.start, pages: kept, stuck, frames });
    }

    /// Ends the process whose pages were added.
    pub(super) fn end(&mut self, process: TargetId) {
        let first = self.processes.last().map_or(0, |(_, blocks)| blocks.end);
        self.blocks[first..].sort_unstable_by_key(|block| block.start);
        self.processes.push((process, first..self.blocks.len()));
    }

    /// The process that was added in this place, and the range of its blocks.
    pub(super) fn process(&self, place: usize) -> Option<(TargetId, Range<usize>)> {
        self.processes.get(place).cloned()
    }

    /// Calls `found` with the frames of these `pages` of a block of the last process, as far as they are accessed.
    pub(super) fn each_of_last(&self, start: u64, pages: PageBits, mut found: impl FnMut(u64)) {
        if pages.is_empty() {
            return;
        }
        let blocks = self.processes.last().map_or(&[][..], |(_, blocks)| &self.blocks[blocks.clone()]);
        if let Ok(index) = blocks.binary_search_by_key(&start, |block| block.start) {
            let of_block = self.frames_of(&blocks[index]).filter(|(page, _)| pages.contains(*page));
            of_block.for_each(|(_, frame)| found(frame));
        }
    }

    /// Appends the pages to clear of the process with these blocks, so that the chosen frames are cleared.
    pub(super) fn choose(&self, blocks: Range<usize>, frames: &FrameBlocks, chosen: &mut Vec<ClearPages>) {
        for block in &self.blocks[blocks] {
            let of_block = self.frames_of(block).filter(|(_, frame)| frames.is_chosen(*frame));
            let pages = of_block.map(|(page, _)| page).collect::<PageBits>() & !block.stuck;
            if !pages.is_empty() {
                chosen.push(ClearPages { start: block.start, pages, unobservable: PageBits::NONE });
            }
        }
    }

    /// Takes in what was cleared of the process with these blocks, sorted by address. Calls `stuck` with the pages of
    /// each block that cannot be cleared.
    pub(super) fn take_cleared(
        &self,
        blocks: Range<usize>,
        cleared: &[ClearPages],
        frames: &mut FrameBlocks,
        mut stuck: impl FnMut(u64, PageBits),
    ) {
        let mut rest = cleared.iter().peekable();
        for block in &self.blocks[blocks] {
            while rest.next_if(|done| done.start < block.start).is_some() {}
            let done = rest.next_if(|done| done.start == block.start).copied().unwrap_or_default();
            let cleared = done.pages & block.pages;
            let is_stuck = (block.stuck | done.unobservable) & block.pages & !cleared;
            for (page, frame) in self.frames_of(block) {
                frames.take_cleared(frame, cleared.contains(page), is_stuck.contains(page));
            }
            stuck(block.start, is_stuck);
        }
    }

    /// The accessed pages of a block, and their frames.
    fn frames_of(&self, block: &AccessedBlock) -> impl Iterator<Item = (usize, u64)> + use<'_> {
        let frames = block.frames;
        block.pages.iter().enumerate().map(move |(nth, page)| match frames {
            Frames::First(first) => (page, first + page as u64),
            Frames::Listed(at) => (page, self.frames[at + nth]),
        })
    }
}
