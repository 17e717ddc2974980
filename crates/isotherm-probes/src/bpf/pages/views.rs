//! Finds page frames that one process maps several times, so that each counts once and is as hot as its hottest
//! mapping.
//!
//! Runtimes map their heap several times (ZGC until JDK 20, .NET), and programs map ring buffers twice in a row. The
//! *first* view of a frame is the page at the lowest address; it is accessed if one of the views is. The others are
//! *second* views: they are left out of what a survey finds. Frames are compared where a process maps the same part of
//! a file or of shared memory at several addresses, in the first survey of a process, when there are other such
//! addresses, in one of [`CHECK`] surveys, and in each survey of a process that has second views.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use isotherm_core::survey::{BlockPages, PageBits};
use isotherm_core::{AddrRange, FrameMap, Mapping, TargetId, second_views};

use super::block_frames::FramesOf;
use super::folios::Zeros;
use super::masks::Masks;
use super::shared::{CHECK, SharedPages};
use crate::bpf::BpfError;
use crate::bpf::find::{Finder, MappedBy, Place};
use crate::bpf::program::{MAX_TABLES, PageTables, Program, Walked};
use crate::bpf::target::BpfTarget;
use crate::bpf::words::words;
use crate::mapping::is_memory;

/// The pages of a block whose frames are mapped several times.
#[derive(Clone, Copy, Debug, Default)]
struct Views {
    /// First views of frames that have a second one.
    first: PageBits,
    /// Of these, those that were accessed through another view.
    accessed: PageBits,
    second: PageBits,
}

/// What is known of a target.
#[derive(Debug, Default)]
struct TargetViews {
    blocks: BTreeMap<u64, Views>,
    /// The mappings when it was read, and where they may have views. `None` if it was not read yet.
    read: Option<(Arc<[Mapping]>, Vec<AddrRange>)>,
}

impl TargetViews {
    /// Where the target may have views now, as far as that is news.
    fn news(&self, target: &BpfTarget) -> Option<Vec<AddrRange>> {
        match &self.read {
            Some((mappings, _)) if Arc::ptr_eq(mappings, target.mappings()) => None,
            Some((_, before)) => Some(ranges(target)).filter(|now| now != before),
            None => Some(ranges(target)),
        }
    }
}

/// A reading of a target that is not at its end.
#[derive(Debug)]
struct Reading {
    target: TargetId,
    /// The place that is read next.
    next: usize,
}

/// Finds the second views of all targets.
#[derive(Debug, Default)]
pub(in crate::bpf) struct SecondViews {
    targets: HashMap<TargetId, TargetViews>,
    survey: u64,
    reading: Option<Reading>,
    finder: Finder,
    /// Where the target that is being read may have views, and the blocks there.
    ranges: Vec<AddrRange>,
    places: Vec<Place>,
    /// What was found in them.
    views: Vec<Views>,
    /// For each frame, one more than the index of its first view: that of the block, and of the page in the bits below.
    firsts: FrameMap<u32>,
}

/// The bits of an index that number the page in its block.
const PAGE_BITS: u32 = 9;

impl SecondViews {
    /// Begins a survey.
    pub(super) fn begin(&mut self) {
        self.survey += 1;
        self.reading = None;
    }

    /// Forgets all other targets.
    pub(super) fn keep(&mut self, is_target: impl Fn(&TargetId) -> bool) {
        self.targets.retain(|id, _| is_target(id));
    }

    /// Whether the target has second views.
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|known| !known.blocks.is_empty())
    }

    /// Whether the target is known to have no second views.
    pub(super) fn has_none(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|known| known.read.is_some() && known.blocks.is_empty())
    }

    /// Whether the page of the target at `addr` is a view of a frame that it maps several times.
    pub(in crate::bpf) fn contains(&self, target: TargetId, addr: u64) -> bool {
        let start = addr - addr % isotherm_core::survey::BLOCK_SIZE;
        let page = ((addr - start) / isotherm_core::PAGE_SIZE) as usize;
        let views = self.targets.get(&target).and_then(|known| known.blocks.get(&start));
        views.is_some_and(|views| (views.first | views.second).contains(page))
    }

    /// Calls `found` with the second views of the target, by block.
    pub(in crate::bpf) fn second(&self, target: TargetId, found: &mut dyn FnMut(u64, PageBits)) {
        let blocks = self.targets.get(&target).into_iter().flat_map(|known| &known.blocks);
        blocks.filter(|(_, views)| !views.second.is_empty()).for_each(|(start, views)| found(*start, views.second));
    }

    /// Reads the views of `target`, if that is due in this survey, at most so many blocks. Returns how many are left.
    pub(super) fn read(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        zeros: &Zeros,
        most: usize,
        shared: &mut SharedPages,
    ) -> Result<usize, BpfError> {
        let known = self.targets.entry(target.id).or_default();
        if self.reading.as_ref().is_none_or(|reading| reading.target != target.id) {
            let news = known.news(target);
            let is_due = news.is_some() || !known.blocks.is_empty() || self.survey.is_multiple_of(CHECK);
            if !is_due {
                return Ok(0);
            }
            self.places.clear();
            self.ranges = news.unwrap_or_else(|| ranges(target));
            if let Some(space) = target.space().filter(|_| !self.ranges.is_empty()) {
                self.finder.find(program, tables, space.pgd(), self.ranges.iter().copied(), &mut self.places)?;
            }
            self.views.clear();
            self.views.resize(self.places.len(), Views::default());
            self.firsts = FrameMap::default();
            self.reading = Some(Reading { target: target.id, next: 0 });
        }
        let Some(Reading { next, .. }) = self.reading.take() else { return Ok(0) };
        let end = next.saturating_add(most).min(self.places.len());
        self.compare((program, tables), target, zeros, next..end)?;
        if end < self.places.len() {
            self.reading = Some(Reading { target: target.id, next: end });
            return Ok(self.places.len() - end);
        }
        // Most targets have few frames there, and the memory of those of a large one is not needed for them.
        self.firsts = FrameMap::default();
        // A reading that does not come to its end, because another survey begins, changes nothing.
        let known = self.targets.entry(target.id).or_default();
        known.read = Some((Arc::clone(target.mappings()), std::mem::take(&mut self.ranges)));
        known.blocks.clear();
        for (place, views) in self.places.iter().zip(&self.views) {
            if !(views.first | views.second).is_empty() {
                known.blocks.insert(place.start, *views);
                // The kernel clears no page alone that is mapped several times, wherever that is.
                shared.note(target.id, place.start, views.first);
                shared.note_second(target.id, place.start, views.second);
            }
        }
        Ok(0)
    }

    /// Compares the frames of these places.
    fn compare(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        zeros: &Zeros,
        part: std::ops::Range<usize>,
    ) -> Result<(), BpfError> {
        let Some(space) = target.space() else { return Ok(()) };
        let Self { places, views, firsts, .. } = self;
        let mut masks = Masks::new(target.mappings(), target.clearing());
        let mut starts = Vec::with_capacity(MAX_TABLES);
        let mut of_tables = Vec::with_capacity(MAX_TABLES);
        let mut at = part.start;
        while at < part.end {
            starts.clear();
            of_tables.clear();
            while at < part.end && starts.len() < MAX_TABLES {
                let place = places[at];
                let mask = masks.at(place.start).file;
                match place.by {
                    MappedBy::Table => {
                        starts.push(place.start);
                        of_tables.push((at, mask));
                    }
                    MappedBy::Huge(entry) if !entry.special && !zeros.contains(entry.frame) => {
                        let accessed = if entry.accessed { mask } else { PageBits::NONE };
                        see(views, firsts, at, (mask, accessed), FramesOf::from_first(Some(entry.frame)));
                    }
                    MappedBy::Huge(_) => {}
                    MappedBy::Gigantic(first) => {
                        see(views, firsts, at, (mask, PageBits::NONE), FramesOf::from_first(first));
                    }
                }
                at += 1;
            }
            program.copy_tables(tables, space.pgd(), 1, &starts, |i, found| {
                let Walked::Table(table) = found else { return };
                let (index, mask) = of_tables[i];
                let words = words(table);
                let pages = words.present & mask & !words.special;
                see(views, firsts, index, (pages, words.accessed), FramesOf::table(table, tables.address_mask));
            })?;
        }
        Ok(())
    }

    /// Leaves the second views out of `blocks`, and adds to the first ones what was accessed through the others. Blocks
    /// with nothing else are removed.
    pub(super) fn apply(&self, target: TargetId, blocks: &mut Vec<BlockPages>, from: usize) {
        let Some(known) = self.targets.get(&target).filter(|known| !known.blocks.is_empty()) else { return };
        for block in &mut blocks[from..] {
            let Some(views) = known.blocks.get(&block.start) else { continue };
            block.present &= !views.second;
            block.accessed = (block.accessed | views.accessed) & block.present;
            block.unobservable &= block.present;
        }
        let kept =
            blocks.drain(from..).filter(|block| !(block.present | block.swapped | block.lazily_freed).is_empty());
        let kept: Vec<_> = kept.collect();
        blocks.extend(kept);
    }
}

/// Takes in pages of the block with this index, of which some were accessed.
fn see(
    views: &mut [Views],
    firsts: &mut FrameMap<u32>,
    index: usize,
    (pages, accessed): (PageBits, PageBits),
    frames: FramesOf<'_>,
) {
    for page in pages.iter() {
        let Some(frame) = frames.frame(page) else { continue };
        let first = firsts.get_mut(frame);
        if *first == 0 {
            *first = ((index as u32) << PAGE_BITS | page as u32) + 1;
            continue;
        }
        let (block, of_block) = ((*first - 1) >> PAGE_BITS, (*first - 1) as usize % isotherm_core::survey::BLOCK_PAGES);
        let first = &mut views[block as usize];
        first.first.insert(of_block);
        if accessed.contains(page) {
            first.accessed.insert(of_block);
        }
        views[index].second.insert(page);
    }
}

/// Where frames may be mapped several times, sorted.
fn ranges(target: &BpfTarget) -> Vec<AddrRange> {
    let views = second_views(target.mappings().iter().filter(|mapping| is_memory(mapping)));
    let mut ranges: Vec<_> = views.iter().flat_map(|view| [Some(view.range), view.first_range()]).flatten().collect();
    ranges.sort_unstable();
    ranges
}
