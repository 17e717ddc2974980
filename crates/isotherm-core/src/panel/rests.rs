//! Which targets have run, so that the pages of the others need not be read.

use std::collections::BTreeMap;

use super::member::Tick;
use crate::{AtRest, TargetId};

/// Up to this many targets are all drawn from at the first reading. If there are more, those are that have run.
const FEW_TARGETS: usize = 64;

/// As long as all targets run, two of so many readings in a row look at them, after the first readings.
const RARELY: Tick = 8;

/// When each target has run last.
#[derive(Debug, Default)]
pub(super) struct Rests {
    targets: BTreeMap<TargetId, Ran>,
}

#[derive(Clone, Copy, Debug)]
struct Ran {
    /// What the last look has found.
    found: Option<AtRest>,
    /// The last reading that has found that the target may have run since the one before.
    last: Tick,
}

impl Rests {
    /// Whether the reading `tick` is to look at the targets. If not, each may have run.
    pub(super) fn is_due(&self, tick: Tick) -> bool {
        tick < RARELY || tick % RARELY < 2 || self.targets.values().any(|ran| ran.found.is_some() && ran.last < tick)
    }

    /// Takes in what a look just before the reading `tick` has found of all targets.
    pub(super) fn look(&mut self, tick: Tick, targets: impl ExactSizeIterator<Item = (TargetId, Option<AtRest>)>) {
        // A target that is new may have run. Of many, those that are there at the start are looked at twice.
        let of_new = if tick == 0 && targets.len() <= FEW_TARGETS { 1 } else { tick };
        let before = std::mem::take(&mut self.targets);
        self.targets.extend(targets.map(|(id, found)| {
            let last = match before.get(&id) {
                Some(ran) if found.is_some() && (ran.found == found || ran.last > tick) => ran.last,
                Some(_) => tick,
                None => of_new,
            };
            (id, Ran { found, last })
        }));
    }

    /// The targets that were at rest at the last look, and what it has found of each.
    pub(super) fn found(&self) -> impl Iterator<Item = (TargetId, AtRest)> {
        self.targets.iter().filter_map(|(id, ran)| Some((*id, ran.found?)))
    }

    /// Whether a target may have run between the reading `tick` and the one before. True if nothing is known of it.
    pub(super) fn has_run(&self, target: TargetId, tick: Tick) -> bool {
        self.targets.get(&target).is_none_or(|ran| ran.last >= tick)
    }

    /// Some of the targets that have not run since the reading before `tick`, in their order: as many as are all drawn
    /// from at the first reading.
    pub(super) fn some_at_rest(&self, tick: Tick, is_drawn: impl Fn(TargetId) -> bool) -> Vec<TargetId> {
        let at_rest = self.targets.iter().filter(|(id, ran)| ran.last < tick && !is_drawn(**id));
        at_rest.map(|(id, _)| *id).take(FEW_TARGETS).collect()
    }

    /// For each window, whether a target has not run in it. A window begins after a reading.
    pub(super) fn windows<const N: usize>(&self, target: TargetId, begin: &[Tick; N]) -> [bool; N] {
        let ran = self.targets.get(&target).map_or(Tick::MAX, |ran| ran.last);
        begin.map(|begin| ran <= begin)
    }
}
