//! The places of pages: all views of a page, in whatever targets, have the same place, so that all of them are in the
//! panel, or none is. Pages that have nothing to do with each other have independent places.
//!
//! - *Files and shared memory*: the place of a page follows from its file and its offset.
//! - *Anonymous memory*: a process has a random start of its own, unless it shares pages since a fork. Then the pages
//!   lie at the same addresses, and the processes have the same start. Whether they share pages is found out by a look
//!   at the frames of a few pages of each, when a process appears.
//!
//! If all processes had the same start, 1,000 processes of one layout would have the pages of a few addresses in the
//! panel, 1,000 times each.

use std::collections::{BTreeMap, HashMap};

use crate::order::{GOLDEN, file_place, first_place};
use crate::survey::{BLOCK_SIZE, PageHistory};
use crate::{AddrRange, Mapping, PAGE_SIZE, PageLook, Sample, TargetId, TargetSpace, is_memory};

/// Of each target, this many mappings with the most anonymous memory are looked at, at this many addresses each, or
/// twice as many.
const MAPPINGS: usize = 4;
const PAGES: u64 = 8;

/// Up to this many targets that are known are looked at to find out whether new ones share pages with them, and of
/// those that share pages with each other this many.
const MOST_KNOWN: usize = 64;
const MOST_ALIKE: usize = 4;

/// The starts of targets. See the documentation of the module.
#[derive(Debug, Default)]
pub(super) struct Kin {
    starts: BTreeMap<TargetId, u64>,
}

impl Kin {
    /// The place that page 0 would have if it were a part of this mapping.
    pub(super) fn first_place(&self, target: TargetId, mapping: &Mapping) -> u64 {
        match mapping.file {
            // The shift may be negative.
            Some(file) => file_place(file.id)
                .wrapping_add((file.shift.cast_signed() / PAGE_SIZE as i64).cast_unsigned().wrapping_mul(GOLDEN)),
            None => self.starts.get(&target).copied().unwrap_or_else(|| first_place(target)),
        }
    }

    /// The pages to look at to find out which targets share pages, if any that has run is new. Forgets all other
    /// targets.
    pub(super) fn probes<'a>(
        &mut self,
        targets: impl Iterator<Item = (&'a TargetSpace, Option<&'a PageHistory>)>,
        has_run: impl Fn(TargetId) -> bool,
        probes: &mut Vec<Sample>,
    ) {
        probes.clear();
        let before = std::mem::take(&mut self.starts);
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for (space, history) in targets {
            match before.get(&space.id) {
                Some(&start) => {
                    self.starts.insert(space.id, start);
                    known.push((start, space, history));
                }
                None if has_run(space.id) => new.push((space, history)),
                None => {}
            }
        }
        if new.is_empty() || known.len() + new.len() < 2 {
            self.starts.extend(new.iter().map(|(space, _)| (space.id, first_place(space.id))));
            return;
        }
        let mut alike: HashMap<u64, usize> = HashMap::new();
        known.retain(|(start, ..)| {
            let count = alike.entry(*start).or_default();
            *count += 1;
            *count <= MOST_ALIKE
        });
        let known = known.into_iter().take(MOST_KNOWN).map(|(_, space, history)| (space, history));
        for (space, history) in known.chain(new) {
            let first = probes.len();
            probes.extend(addresses(&space.mappings, history).map(|addr| Sample { target: space.id, addr }));
            probes[first..].sort_unstable_by_key(|probe| probe.addr);
            // A target without anonymous memory shares none.
            self.starts.entry(space.id).or_insert_with(|| first_place(space.id));
        }
    }

    /// Takes in what a look at the [probes](Self::probes) has found. Those of the known targets come first.
    pub(super) fn relate(&mut self, probes: &[Sample], looks: &[PageLook]) {
        let mut by_frame: HashMap<u64, u64> = HashMap::new();
        let mut looks = looks.iter();
        for of_target in probes.chunk_by(|a, b| a.target == b.target) {
            let frames: Vec<u64> = looks.by_ref().take(of_target.len()).filter_map(|look| look.frame).collect();
            let own = self.starts.entry(of_target[0].target).or_insert_with(|| first_place(of_target[0].target));
            // With several, it shares most with the first one: its parent, or the eldest of its siblings.
            if let Some(&start) = frames.iter().find_map(|frame| by_frame.get(frame)) {
                *own = start;
            }
            by_frame.extend(frames.into_iter().map(|frame| (frame, *own)));
        }
    }
}

/// The addresses of some pages of the mappings with the most anonymous memory. They are the same ones for a process and
/// its child, also if one of the two has added memory to a mapping.
fn addresses<'a>(mappings: &'a [Mapping], history: Option<&'a PageHistory>) -> impl Iterator<Item = u64> + 'a {
    let history = history.filter(|history| history.present() > 0);
    let pages = |mapping: &Mapping| match history {
        Some(history) => history.present_in(mapping.range),
        None if is_memory(mappings, mapping) => mapping.range.pages(),
        None => 0,
    };
    let anonymous = mappings.iter().filter(|mapping| mapping.file.is_none());
    let mut largest: Vec<_> = anonymous.map(|mapping| (pages(mapping), mapping.range)).collect();
    largest.retain(|(pages, _)| *pages > 0);
    largest.sort_unstable_by_key(|(pages, range)| (std::cmp::Reverse(*pages), range.start()));
    largest.truncate(MAPPINGS);
    largest.into_iter().flat_map(move |(_, range)| grid(range).map(move |addr| present_from(history, range, addr)))
}

/// Addresses in a range that are as far apart as each other, by a power of two.
fn grid(range: AddrRange) -> impl Iterator<Item = u64> {
    let step = 1 << (range.pages() / PAGES).max(1).ilog2();
    let first = (range.start() / PAGE_SIZE).next_multiple_of(step);
    (first * PAGE_SIZE..range.end()).step_by((step * PAGE_SIZE) as usize)
}

/// The address of the first present page at or after `addr` in its block. `addr` itself if the block has none there, or
/// if the present pages are not known.
fn present_from(history: Option<&PageHistory>, range: AddrRange, addr: u64) -> u64 {
    let start = addr - addr % BLOCK_SIZE;
    let rest = AddrRange::new(addr, (start + BLOCK_SIZE).min(range.end()));
    let block = history.zip(rest).and_then(|(history, rest)| history.present_pages(rest).next());
    block.and_then(|(start, pages)| Some(start + pages.first()? as u64 * PAGE_SIZE)).unwrap_or(addr)
}
