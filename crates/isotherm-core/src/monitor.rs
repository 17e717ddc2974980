//! The monitor: samples, aggregates, adjusts, and follows the mappings.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt};
use thiserror::Error;

use crate::adjust::{self, Merging};
use crate::{
    AccessProbe, AddrRange, AddressSpace, Attributes, BoxError, Granularity, Layout, Observation, PAGE_SIZE, Region,
    Round, Sample, Sink, Snapshot, TargetSnapshot, TargetSpace, areas,
};

/// Why a run cannot go on.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// The probe gave up.
    #[error("the probe failed: {0}")]
    Probe(#[source] BoxError),
    /// What is mapped can no longer be found out.
    #[error("the mappings cannot be read: {0}")]
    Space(#[source] BoxError),
    /// A sink gave up.
    #[error("{0}")]
    Sink(#[source] BoxError),
}

/// When a monitor is to be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After this time, a whole number of sampling intervals: between them there is nothing to clear and nothing to read.
    Step {
        /// The time to wait.
        after: Duration,
    },
    /// Not at all: the last target has ended.
    End,
}

/// Watches the targets of `space` through `probe` and hands what it finds to `sink`.
///
/// Whoever owns a monitor calls [`start`](Self::start) once, then [`step`](Self::step) whenever the last call has said
/// that it is time for, until the last target has ended, then [`end`](Self::end). The same seed of `rng` and the same
/// answers of `space` and `probe` make the same regions.
pub struct Monitor<S, P, K, R> {
    space: S,
    probe: P,
    sink: K,
    rng: R,
    attributes: Attributes,
    next_attributes: Option<Attributes>,
    targets: Vec<Watched>,
    /// Rounds since the last aggregation and the last update.
    rounds: u32,
    rounds_since_update: u32,
    /// What the next step stands for: one round, or several with nothing to do but in the last.
    rounds_to_next: u32,
    update_asked: bool,
    /// The number of regions before the last split.
    regions_before_split: usize,
    /// The probe's clears up to the last aggregation.
    clears: u64,
    // Everything below is lent out again and again, so that a round allocates nothing.
    samples: Vec<Sample>,
    answers: Vec<Observation>,
    spare: Vec<Region>,
    snapshot: Snapshot,
}

/// One target and its regions, sorted and disjoint.
struct Watched {
    space: TargetSpace,
    regions: Vec<Region>,
}

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// A monitor that has not started yet.
    pub fn new(attributes: Attributes, rng: R, space: S, probe: P, sink: K) -> Self {
        Self {
            space,
            probe,
            sink,
            rng,
            attributes,
            next_attributes: None,
            targets: Vec::new(),
            rounds: 0,
            rounds_since_update: 0,
            rounds_to_next: 0,
            update_asked: false,
            regions_before_split: 0,
            clears: 0,
            samples: Vec::new(),
            answers: Vec::new(),
            spare: Vec::new(),
            snapshot: Snapshot::default(),
        }
    }

    /// The attributes in force.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Changes the attributes at the end of the current aggregation. Counts and ages are carried over, so that a rate
    /// stays the rate and an age the time that it was.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.next_attributes = Some(attributes);
    }

    /// Reads the mappings at the next step, without waiting for the update interval: a target may have ended.
    pub fn ask_for_update(&mut self) {
        self.update_asked = true;
    }

    /// The sink, to which everything goes.
    pub fn sink(&self) -> &K {
        &self.sink
    }

    /// The sink, for whoever has a word to say to it between two steps.
    pub fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// The probe, to which all questions go.
    pub fn probe(&self) -> &P {
        &self.probe
    }

    /// The regions of all targets as they are now.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.targets.iter().flat_map(|target| &target.regions)
    }

    /// Reads the mappings, lays out the first regions and begins the first round.
    ///
    /// # Errors
    /// If the probe, the address space or the sink gives up.
    pub fn start(&mut self) -> Result<Next, MonitorError> {
        self.update()?;
        let spaces: Vec<_> = self.targets.iter().map(|t| t.space.clone()).collect();
        self.sink.start(&spaces).map_err(MonitorError::Sink)?;
        self.prepare_access_checks()?;
        Ok(self.next())
    }

    /// The sampling intervals that were asked for have passed, and the run has lasted for `now`.
    ///
    /// # Errors
    /// If the probe, the address space or the sink gives up.
    pub fn step(&mut self, now: Duration) -> Result<Next, MonitorError> {
        self.check_accesses()?;
        if self.rounds >= self.attributes.samples() {
            self.grow_older();
            self.merge();
            self.take_snapshot(now)?;
            self.reset();
            self.split();
        }
        if self.rounds_since_update >= self.attributes.rounds_per_update() || self.update_asked {
            self.update()?;
        }
        self.prepare_access_checks()?;
        Ok(self.next())
    }

    /// Goes on after a time in which no step was made, because nothing was to be monitored. What was found before it says nothing
    /// of now: all memory is as if it was seen for the first time.
    ///
    /// # Errors
    /// If the probe or the address space gives up.
    pub fn resume(&mut self) -> Result<Next, MonitorError> {
        for target in &mut self.targets {
            target.regions.clear();
        }
        self.rounds = 0;
        self.regions_before_split = 0;
        self.snapshot.reads = 0;
        self.snapshot.max_reads = 0;
        self.update()?;
        self.prepare_access_checks()?;
        Ok(self.next())
    }

    /// Ends the run.
    ///
    /// # Errors
    /// If the sink fails to end well.
    pub fn end(&mut self) -> Result<(), MonitorError> {
        self.sink.end().map_err(MonitorError::Sink)
    }

    /// In each region, one page chosen uniformly at random is made *not accessed*; a steady region is left out of most rounds.
    fn prepare_access_checks(&mut self) -> Result<(), MonitorError> {
        self.samples.clear();
        for target in &mut self.targets {
            for region in &mut target.regions {
                if !region.choose(self.rounds, &self.attributes) {
                    continue;
                }
                let range = region.range();
                let page = self.rng.random_range(0..range.pages());
                self.samples.push(Sample { target: target.space.id, addr: range.start() + page * PAGE_SIZE });
            }
        }
        if self.samples.is_empty() {
            return Ok(());
        }
        self.probe.clear(&self.samples).map_err(MonitorError::Probe)
    }

    /// After the next round there is something to do again: pages to be read, or pages to be chosen, or the end of an interval.
    fn next(&mut self) -> Next {
        if self.targets.is_empty() {
            return Next::End;
        }
        self.rounds_to_next = if self.samples.is_empty() {
            // All regions are steady.
            let strides = self.regions().map(|region| region.stride(&self.attributes));
            let to_choose = strides.map(|stride| stride - self.rounds % stride).min().unwrap_or(u32::MAX);
            let to_aggregate = self.attributes.samples().saturating_sub(self.rounds);
            let to_update = self.attributes.rounds_per_update().saturating_sub(self.rounds_since_update);
            to_choose.min(to_aggregate).min(to_update).max(1)
        } else {
            1
        };
        Next::Step { after: self.attributes.sampling().saturating_mul(self.rounds_to_next) }
    }

    /// The page of each region is read; if it was accessed, the region's count goes up by one.
    fn check_accesses(&mut self) -> Result<(), MonitorError> {
        self.rounds += self.rounds_to_next;
        self.rounds_since_update = self.rounds_since_update.saturating_add(self.rounds_to_next);
        if self.samples.is_empty() {
            return Ok(());
        }
        self.answers.clear();
        self.answers.resize(self.samples.len(), Observation::Idle);
        self.probe.read(&self.samples, &mut self.answers).map_err(MonitorError::Probe)?;

        let chosen = self.targets.iter_mut().flat_map(|t| &mut t.regions).filter(|region| region.was_chosen());
        for (region, &answer) in chosen.zip(&self.answers) {
            region.count(answer);
        }

        let round = Round {
            reads: self.samples.len(),
            accessed: (self.answers.iter()).filter(|&&answer| answer == Observation::Accessed).count(),
        };
        self.snapshot.reads += round.reads as u64;
        self.snapshot.max_reads = self.snapshot.max_reads.max(round.reads as u32);
        self.sink.sampled(round).map_err(MonitorError::Sink)
    }

    /// A region whose count moved by more than the merge threshold is of age 0, every other is one older.
    fn grow_older(&mut self) {
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.settle(&self.attributes);
        }
    }

    /// Neighbours of one temperature become one region.
    fn merge(&mut self) {
        if self.probe.granularity() == Granularity::Page {
            let merging = self.merging();
            for target in &mut self.targets {
                adjust::merge(&mut target.regions, merging);
            }
        }
        self.keep_the_maximum();
    }

    /// While the regions are more than the maximum, merges with a rising threshold, then with a rising size.
    ///
    /// At the end of both, each area would be one region, and there are no more areas than the maximum.
    fn keep_the_maximum(&mut self) {
        let mut merging = self.merging();
        while self.nr_regions() > self.attributes.max_regions() {
            if merging.threshold < self.attributes.samples() {
                merging.threshold = merging.threshold.saturating_mul(2);
            } else {
                merging.size_limit = merging.size_limit.saturating_mul(2);
            }
            for target in &mut self.targets {
                adjust::merge(&mut target.regions, merging);
            }
        }
    }

    /// Merging as the attributes have it: no region grows past its share of the minimum number of regions, and being
    /// observable or not matters down to a share of the maximum.
    fn merging(&self) -> Merging {
        let total: u64 = self.regions().map(|region| region.range().size()).sum();
        Merging {
            threshold: self.attributes.merge_threshold(),
            size_limit: (total / self.attributes.min_regions() as u64).max(PAGE_SIZE),
            resolution: total / self.attributes.max_regions() as u64,
        }
    }

    fn take_snapshot(&mut self, now: Duration) -> Result<(), MonitorError> {
        let clears = self.probe.clears();
        let snapshot = &mut self.snapshot;
        snapshot.time = now;
        snapshot.aggregation = self.attributes.aggregation();
        snapshot.samples = self.attributes.samples();
        snapshot.rounds = self.rounds;
        snapshot.clears = clears - self.clears;
        snapshot.targets.truncate(self.targets.len());
        for (i, target) in self.targets.iter().enumerate() {
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
            taken.regions.extend(target.regions.iter().map(Region::snapshot));
        }
        self.sink.aggregated(snapshot).map_err(MonitorError::Sink)?;
        self.rounds = 0;
        self.clears = clears;
        snapshot.reads = 0;
        snapshot.max_reads = 0;
        Ok(())
    }

    /// Begins the next aggregation, with new attributes if they were changed.
    fn reset(&mut self) {
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.reset();
        }
        let Some(new) = self.next_attributes.take() else {
            return;
        };
        let old = std::mem::replace(&mut self.attributes, new);
        let age_factor = old.aggregation().as_secs_f64() / new.aggregation().as_secs_f64();
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.rescale(old.samples(), new.samples(), age_factor);
        }
        // The new maximum may ask for fewer areas, too.
        self.update_asked = true;
    }

    /// Every region is split at random if there is room for twice as many, in three if the last split changed nothing
    /// and there is room for that.
    fn split(&mut self) {
        let now = self.nr_regions();
        let max = self.attributes.max_regions();
        let before = std::mem::replace(&mut self.regions_before_split, now);
        if self.probe.granularity() == Granularity::Mapping || now > max / 2 {
            return;
        }
        let pieces = if now == before && now <= max / 3 { 3 } else { 2 };
        for target in &mut self.targets {
            adjust::split(&mut target.regions, pieces, &mut self.rng, &mut self.spare);
        }
    }

    /// The mappings are read again: regions that still lie in an area keep their statistics, new space gets new
    /// regions, vanished space goes. Targets join and leave.
    fn update(&mut self) -> Result<(), MonitorError> {
        let mut spaces = self.space.read_targets().map_err(MonitorError::Space)?;
        spaces.retain(|space| !space.mappings.is_empty());
        self.probe.update(&spaces).map_err(MonitorError::Probe)?;

        // Each target needs a region, so that no more than the maximum can be watched.
        let max_regions = self.attributes.max_regions();
        spaces.truncate(max_regions);
        let most_areas = max_regions / spaces.len().max(1);
        let ranges = match self.probe.granularity() {
            Granularity::Page => cut(&spaces, None, most_areas),
            Granularity::Mapping if spaces.iter().map(|s| s.mappings.len()).sum::<usize>() <= max_regions => {
                spaces.iter().map(|s| s.mappings.iter().map(|m| m.range).collect()).collect()
            }
            Granularity::Mapping => cut(&spaces, Some(Layout::Ranges), most_areas),
        };
        let total: u64 = ranges.iter().flatten().map(|range| range.size()).sum();
        let piece = (total / self.attributes.min_regions() as u64).max(PAGE_SIZE);

        let mut old = std::mem::take(&mut self.targets);
        for (space, ranges) in spaces.into_iter().zip(&ranges) {
            let known = old.iter().position(|target| target.space.id == space.id);
            let known = known.map(|i| old.swap_remove(i).regions).unwrap_or_default();
            let regions = match self.probe.granularity() {
                Granularity::Page => adjust::carry_over(&known, ranges, |new| adjust::split_evenly(new, piece)),
                Granularity::Mapping => adjust::one_for_each(&known, ranges),
            };
            self.targets.push(Watched { space, regions });
        }
        self.keep_the_maximum();
        self.rounds_since_update = 0;
        self.update_asked = false;
        Ok(())
    }

    fn nr_regions(&self) -> usize {
        self.targets.iter().map(|target| target.regions.len()).sum()
    }
}

/// The areas of each target, by `layout` or the target's own.
fn cut(spaces: &[TargetSpace], layout: Option<Layout>, most: usize) -> Vec<Vec<AddrRange>> {
    spaces.iter().map(|space| areas(&space.mappings, layout.unwrap_or(space.layout), most)).collect()
}
