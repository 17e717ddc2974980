//! Aggregations: the combined result of the samples of many rounds.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use super::{Monitor, MonitorError};
use crate::{AccessProbe, AddressSpace, Sink, TargetSnapshot};

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// Ends the aggregation: merges regions, and hands them to the sink. With fewer rounds than usual, it is as long as
    /// these.
    pub(super) fn aggregate(&mut self, now: Duration) -> Result<(), MonitorError> {
        self.ends_early = false;
        let is_short = self.shorten();
        self.settle(is_short);
        self.regions.merge(&self.attributes, self.probe.granularity());
        self.take_snapshot(now)
    }

    /// Makes the aggregation interval as long as the rounds so far, until the next aggregation begins. Returns whether
    /// that is shorter.
    fn shorten(&mut self) -> bool {
        let whole = self.attributes;
        if self.rounds == 0 || self.rounds >= whole.samples() {
            return false;
        }
        let length = whole.sampling().saturating_mul(self.rounds);
        let Ok(short) = whole.with_intervals(whole.sampling(), length) else { return false };
        for region in self.regions.iter_mut() {
            region.rescale(&whole, &short);
        }
        self.attributes = short;
        self.next_attributes.get_or_insert(whole);
        true
    }

    /// Turns the samples of the aggregation into frequencies and ages.
    fn settle(&mut self, is_short: bool) {
        // In a short aggregation, as with few samples, chance moves the counts. That makes no region young.
        let every = if is_short { self.every.max(2) } else { self.every };
        for region in self.regions.iter_mut() {
            region.settle(&self.attributes, every);
        }
    }

    /// Hands all regions to the sink.
    fn take_snapshot(&mut self, now: Duration) -> Result<(), MonitorError> {
        let clears = self.probe.clears();
        let targets = self.regions.targets();
        let snapshot = &mut self.snapshot;
        snapshot.time = now;
        snapshot.aggregation = self.attributes.aggregation();
        snapshot.samples = self.attributes.samples();
        snapshot.rounds = self.rounds;
        snapshot.clears = clears - self.clears;
        snapshot.targets.truncate(targets.len());
        for (i, target) in targets.iter().enumerate() {
            if i == snapshot.targets.len() {
                snapshot.targets.push(TargetSnapshot {
                    id: target.space.id,
                    regions: Vec::new(),
                    mappings: Arc::clone(&target.space.mappings),
                });
            }
            let taken = &mut snapshot.targets[i];
            taken.id = target.space.id;
            taken.mappings.clone_from(&target.space.mappings);
            taken.regions.clear();
            taken.regions.extend(target.regions.iter().map(|region| region.snapshot(snapshot.aggregation)));
        }
        snapshot.histories.clear();
        let histories =
            targets.iter().filter_map(|target| Some((target.space.id, Arc::clone(target.history.as_ref()?))));
        snapshot.histories.extend(histories);
        self.sink.aggregated(snapshot).map_err(MonitorError::Sink)?;
        self.rounds = 0;
        self.aggregations = self.aggregations.wrapping_add(1);
        let due = self.aggregation_began + self.attributes.aggregation();
        self.aggregation_began = due.clamp(now.saturating_sub(self.attributes.sampling() / 2), now);
        self.clears = clears;
        snapshot.sampled_rounds = 0;
        snapshot.reads = 0;
        snapshot.max_reads = 0;
        Ok(())
    }

    /// Begins the next aggregation, with new attributes if they were changed.
    pub(super) fn reset(&mut self) {
        for region in self.regions.iter_mut() {
            region.reset();
        }
        let Some(new) = self.next_attributes.take() else {
            return;
        };
        let old = std::mem::replace(&mut self.attributes, new);
        for region in self.regions.iter_mut() {
            region.rescale(&old, &new);
        }
        // The new maximum may allow fewer areas.
        self.readings.asked |= old.max_regions() != new.max_regions();
    }
}
