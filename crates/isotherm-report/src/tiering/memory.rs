//! The memory of all targets at one time of a recording, as its snapshots and surveys tell.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use isotherm_core::survey::{BLOCK_SIZE, TargetSurvey};
use isotherm_core::{AddrRange, PAGE_SIZE, TargetId};
use isotherm_record::Row;

use super::place::{Part, Size};
use super::tiers::{Look, Looked, look};
use super::units::{Unit, UnitState, parts, push};
use crate::source::{Selection, pieces};
use crate::surveys;

/// The memory of one target.
#[derive(Default)]
struct TargetMemory {
    /// In the order of addresses.
    units: Vec<Unit>,
    /// The number of blocks of 2 MiB in which it has memory.
    blocks: u64,
    /// Without surveys, the addresses that its regions cover.
    covered: Vec<AddrRange>,
    /// When a row or a survey told of it last, and the time of its last row.
    seen: Duration,
    row: Option<Duration>,
    /// The aggregation interval of its last row.
    aggregation: Duration,
}

/// The memory of all targets, and the sizes of the fast tier that are tried on it.
pub(super) struct Memory {
    targets: BTreeMap<TargetId, TargetMemory>,
    pub(super) sizes: Vec<Size>,
    /// The size of a unit: a multiple of [`BLOCK_SIZE`].
    unit: u64,
    pub(super) totals: Totals,
}

/// Sums over the looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// The most bytes in memory at the end of a look.
    pub(super) peak: u64,
    /// The most blocks of 2 MiB with memory.
    pub(super) blocks: u64,
    pub(super) looks: u64,
    /// Bytes in memory in the first look. In which order they were touched is not known.
    pub(super) early: u64,
    /// Bytes in memory, and unknown bytes, times seconds.
    pub(super) resident: f64,
    pub(super) unknown: f64,
    pub(super) accesses: f64,
    pub(super) late_accesses: f64,
}

impl Memory {
    pub(super) fn new(unit: u64, sizes: &[u64]) -> Self {
        let sizes = sizes.iter().map(|&bytes| Size { bytes, ..Size::default() }).collect();
        Self { targets: BTreeMap::new(), sizes, unit, totals: Totals::default() }
    }

    /// Takes in what a survey found in all targets.
    pub(super) fn survey(&mut self, found: &[TargetSurvey], time: Duration, interval: Duration, selection: &Selection) {
        let in_it: HashSet<TargetId> = found.iter().map(|target| target.id).collect();
        let gone: Vec<TargetId> =
            self.targets.iter().filter(|(id, of)| of.row.is_none() && !in_it.contains(id)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        for target in found.iter().filter(|target| selection.holds_target(target.id)) {
            let (units, blocks) = self.surveyed(target, interval, selection.address);
            self.update(target.id, &units, blocks, time);
        }
    }

    fn surveyed(&self, target: &TargetSurvey, interval: Duration, address: Option<AddrRange>) -> (Vec<UnitState>, u64) {
        let unknown: BTreeMap<u64, f64> = target
            .surveyed()
            .map(|(mapping, sums)| {
                let of = sums.figures;
                let share = of.unknown.saturating_add(of.unobservable) as f64 / of.present.max(1) as f64;
                (mapping.range.start(), share.min(1.0))
            })
            .collect();
        let (mut units, mut blocks, mut last) = (vec![], 0, None);
        for piece in surveys::pieces(target, address).filter(|piece| piece.shares.present > 0.0) {
            let unknown = unknown.get(&piece.mapping.range.start()).copied().unwrap_or_default();
            // What was touched is known.
            let of = piece.shares;
            let unknown = of.present * unknown.min(1.0 - (of.touched / of.present).min(1.0));
            for (index, bytes) in parts(piece.range, self.unit) {
                let bytes = bytes as f64;
                let present = bytes * of.present;
                let touched = if interval.is_zero() { 0.0 } else { bytes * of.touched };
                let surveyed = touched / PAGE_SIZE as f64 / interval.as_secs_f64().max(1e-9);
                let (touched, unknown) = (Some(touched), bytes * unknown);
                push(&mut units, UnitState { index, present, touched, surveyed, unknown });
            }
            blocks += new_blocks(piece.range, &mut last);
        }
        (units, blocks)
    }

    /// Frees the memory of targets that had rows and have none any more, at the time of a row of any target. Their
    /// accesses since the start of the look do not count: with them the look would hold memory of two times.
    pub(super) fn free_ended(&mut self, next: &Row<'_>) {
        // An aggregation interval that has become longer delays the next row.
        let longest = |of: &TargetMemory| of.aggregation.max(next.aggregation).saturating_mul(2);
        let ended = |of: &TargetMemory| of.row.is_some_and(|row| next.time.saturating_sub(row) > longest(of));
        let gone: Vec<TargetId> = self.targets.iter().filter(|(_, of)| ended(of)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// Takes in a row. Only a target without surveys has its memory from there.
    pub(super) fn row(&mut self, row: &Row<'_>, surveyed: bool, selection: &Selection) {
        let id = row.target.id;
        if !surveyed {
            self.cover(row, selection.address);
        }
        let Some(target) = self.targets.get_mut(&id) else { return };
        let usual = row.aggregation;
        let since = target.row.map_or(usual, |before| row.time.saturating_sub(before));
        let span = if since > usual.saturating_mul(2) { usual } else { since }.as_secs_f64();
        (target.seen, target.row) = (row.time, Some(row.time));
        target.aggregation = usual;
        for piece in pieces(row, selection.address) {
            let region = piece.region;
            if region.nr_accesses > 0 {
                let pages = region.access_hz(row.aggregation) * span / PAGE_SIZE as f64;
                let size = piece.range.size() as f64;
                let of_region = size / piece.whole.max(1) as f64;
                let present = region.pages.map_or(size, |pages| pages.present as f64 * of_region);
                target.access(piece.range, self.unit, pages, present);
            } else if !surveyed && (region.nr_samples == 0 || region.unobservable_share(row.samples) > 0.5) {
                for (index, bytes) in parts(piece.range, self.unit) {
                    if let Some(unit) = target.unit(index) {
                        unit.sampled().unknown += bytes as f64 * span;
                    }
                }
            }
        }
    }

    /// Takes all memory that the regions of a row cover as memory that is there.
    fn cover(&mut self, row: &Row<'_>, address: Option<AddrRange>) {
        let mut covered: Vec<AddrRange> = vec![];
        for piece in pieces(row, address) {
            match covered.last_mut() {
                Some(last) if last.end() == piece.range.start() => {
                    *last = AddrRange::new(last.start(), piece.range.end()).unwrap_or(*last);
                }
                _ => covered.push(piece.range),
            }
        }
        if self.targets.get(&row.target.id).is_some_and(|target| target.covered == covered) {
            return;
        }
        let (mut units, mut blocks, mut last) = (vec![], 0, None);
        for &range in &covered {
            for (index, bytes) in parts(range, self.unit) {
                push(&mut units, UnitState { index, present: bytes as f64, ..UnitState::default() });
            }
            blocks += new_blocks(range, &mut last);
        }
        self.update(row.target.id, &units, blocks, row.time);
        if let Some(target) = self.targets.get_mut(&row.target.id) {
            target.covered = covered;
        }
    }

    /// Gives a target the memory that was found. Units that stay keep what is known of them and where they lie.
    fn update(&mut self, id: TargetId, found: &[UnitState], blocks: u64, time: Duration) {
        let target = self.targets.entry(id).or_default();
        (target.seen, target.blocks) = (time, blocks);
        let mut old = std::mem::take(&mut target.units).into_iter().peekable();
        let mut units = Vec::with_capacity(found.len());
        for found in found {
            while let Some(mut gone) = old.next_if(|unit| unit.index < found.index) {
                gone.free(&mut self.sizes);
            }
            let new = || Unit::new(found.index, self.sizes.len());
            let mut unit = old.next_if(|unit| unit.index == found.index).unwrap_or_else(new);
            unit.take(*found, time, &mut self.sizes);
            units.push(unit);
        }
        old.for_each(|mut gone| gone.free(&mut self.sizes));
        target.units = units;
    }

    fn remove(&mut self, id: TargetId) {
        let gone = self.targets.remove(&id).into_iter().flat_map(|target| target.units);
        gone.for_each(|mut unit| unit.free(&mut self.sizes));
    }

    /// Ends a look that lasted from `start` to `end`, and covers `length` seconds of recorded time. `rate` is in bytes
    /// a second. `surveyed` says which targets have surveys.
    pub(super) fn look(
        &mut self,
        (start, end): (Duration, Duration),
        (length, late, rate): (f64, bool, u64),
        surveyed: &HashSet<TargetId>,
    ) {
        let over = |of: &TargetMemory| of.row.is_some() && of.seen <= start;
        let gone: Vec<TargetId> = self.targets.iter().filter(|(_, of)| over(of)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        let totals = &mut self.totals;
        let mut looked: Vec<Looked<'_>> = vec![];
        let (mut present, mut blocks) = (0, 0);
        for (id, target) in &mut self.targets {
            blocks += target.blocks;
            let by_rows = !surveyed.contains(id);
            for part in target.parts() {
                let accesses = std::mem::take(&mut part.sampled).max(part.surveyed * length);
                if by_rows {
                    part.unknown /= length.max(1e-9);
                }
                present += part.present;
                if accesses == 0.0 {
                    totals.unknown += part.unknown.min(part.present as f64) * length;
                }
                totals.accesses += accesses;
                totals.late_accesses += if late { accesses } else { 0.0 };
                // The accesses of a row come at its end. With surveys, isotherm goes by these, as they come more often.
                let accessed = if by_rows { accesses > 0.0 } else { part.surveyed > 0.0 };
                looked.push(Looked { part, accesses, accessed });
            }
        }
        totals.looks += 1;
        let nth = totals.looks;
        if nth == 1 {
            totals.early = present;
        }
        totals.resident += present as f64 * length;
        (totals.peak, totals.blocks) = (totals.peak.max(present), totals.blocks.max(blocks));
        if !self.sizes.is_empty() {
            look(&mut looked, &mut self.sizes, Look { nth, length, end: end.as_secs_f64(), late, rate });
        }
        for (_, target) in self.targets.iter_mut().filter(|(id, _)| !surveyed.contains(id)) {
            target.parts().for_each(|part| part.unknown = 0.0);
        }
    }
}

impl TargetMemory {
    /// The parts of its units that have memory.
    fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        self.units.iter_mut().flat_map(|unit| [&mut unit.used, &mut unit.rest]).filter(|part| part.present > 0)
    }

    fn unit(&mut self, index: u64) -> Option<&mut Unit> {
        let at = self.units.binary_search_by_key(&index, |unit| unit.index).ok()?;
        self.units.get_mut(at)
    }

    /// Adds accesses to the units in a range: `pages` for each of its `present` bytes in memory, by the share of these
    /// that each unit has.
    fn access(&mut self, range: AddrRange, unit: u64, pages: f64, present: f64) {
        let from = self.units.partition_point(|of| of.index < range.start() / unit);
        let to = self.units.partition_point(|of| of.index <= (range.end() - 1) / unit);
        let overlap = |of: &Unit| {
            let start = of.index * unit;
            let inside = (start.saturating_add(unit)).min(range.end()) - start.max(range.start());
            of.present() as f64 * inside as f64 / unit as f64
        };
        let sum: f64 = self.units[from..to].iter().map(overlap).sum();
        // A survey may have found the region with less or more than its units show.
        let scale = present / sum.max(1.0);
        for of in &mut self.units[from..to] {
            let accesses = overlap(of) * scale * pages;
            of.sampled().sampled += accesses;
        }
    }
}

/// How many blocks of 2 MiB a range has that the range before it does not end in.
fn new_blocks(range: AddrRange, last: &mut Option<u64>) -> u64 {
    let (first, end) = (range.start() / BLOCK_SIZE, (range.end() - 1) / BLOCK_SIZE);
    let known = u64::from(last.replace(end) == Some(first));
    end - first + 1 - known
}
