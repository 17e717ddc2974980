//! The monitor: samples pages, aggregates the samples, adjusts the regions and follows the mappings.

mod survey;

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use thiserror::Error;

use crate::region_set::RegionSet;
use crate::survey::{SurveyLimits, SurveyPlan};
use crate::{
    AccessProbe, AddressSpace, Attributes, BoxError, Observation, Region, Round, Sample, Sink, Snapshot,
    TargetSnapshot, TargetSpace,
};

/// Why a run cannot go on.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// The probe failed.
    #[error("the probe failed")]
    Probe(#[source] BoxError),
    /// The address space failed.
    #[error("the mappings cannot be read")]
    Space(#[source] BoxError),
    /// The sink failed. Its message says what failed.
    #[error(transparent)]
    Sink(BoxError),
}

/// What the driver of a monitor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait, then call [`Monitor::step`].
    Step {
        /// How long to wait: a whole number of sampling intervals, at least one. It follows changes of the attributes.
        after: Duration,
    },
    /// Call [`Monitor::end`]: the last target has ended.
    End,
}

/// Monitors the targets of `space` through `probe` and hands the results to `sink`.
///
/// The driver of a monitor calls [`start`](Self::start) once, waits for as long as [`Next`] says before each call
/// of [`step`](Self::step), and calls [`end`](Self::end) once. The same seed of `rng` and the same answers of
/// `space` and `probe` give the same regions.
///
/// ```
/// use std::time::Duration;
/// use isotherm_core::{AccessProbe, AddressSpace, Monitor, MonitorError, Next, Sink};
/// use rand::Rng;
///
/// fn drive<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng>(
///     mut monitor: Monitor<S, P, K, R>,
///     wait: impl Fn(Duration),
/// ) -> Result<(), MonitorError> {
///     let mut now = Duration::ZERO;
///     let mut next = monitor.start()?;
///     while let Next::Step { after } = next {
///         wait(after);
///         now += after;
///         next = monitor.step(now)?;
///     }
///     monitor.end()
/// }
/// ```
pub struct Monitor<S, P, K, R> {
    space: S,
    probe: P,
    sink: K,
    rng: R,
    attributes: Attributes,
    /// The attributes that are in force from the next aggregation on.
    next_attributes: Option<Attributes>,
    regions: RegionSet,
    /// Rounds since the last aggregation.
    rounds: u32,
    rounds_since_update: u32,
    /// The rounds from the last step to the next. More than one if all but the last have nothing to do.
    rounds_to_next: u32,
    update_asked: bool,
    /// The clears of the probe up to the last aggregation.
    clears: u64,
    /// When to survey. `None` if there is no survey.
    survey: Option<SurveyPlan>,
    /// Whether pages are sampled.
    sampling: bool,
    /// Of this many rounds, one has samples.
    every: u32,
    /// When the run started, counted from the boot of the machine.
    started: Option<Duration>,
    // These buffers are used again in each round, so that a round allocates no memory.
    samples: Vec<Sample>,
    answers: Vec<Observation>,
    snapshot: Snapshot,
}

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// A monitor that has not started.
    pub fn new(attributes: Attributes, rng: R, space: S, probe: P, sink: K) -> Self {
        Self {
            space,
            probe,
            sink,
            rng,
            attributes,
            next_attributes: None,
            regions: RegionSet::default(),
            rounds: 0,
            rounds_since_update: 0,
            rounds_to_next: 0,
            update_asked: false,
            clears: 0,
            survey: None,
            sampling: true,
            every: 1,
            started: None,
            samples: Vec::new(),
            answers: Vec::new(),
            snapshot: Snapshot::default(),
        }
    }

    /// The attributes in force.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Changes the attributes at the end of the current aggregation. Rates stay the same, and ages stay the same in
    /// time. [`Next`] follows the new sampling interval.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.next_attributes = Some(attributes);
    }

    /// Surveys all pages once in each `interval`, at the start of the run first. Without effect if the probe has no
    /// survey. Regions get new borders in surveys, and not at the update interval. While a target is
    /// growing, or much of it is unknown, it is surveyed up to five times as often.
    ///
    /// Call it before [`start`](Self::start), or at any time to change the interval.
    pub fn set_survey(&mut self, interval: Duration, limits: SurveyLimits) {
        if self.probe.survey().is_some() {
            match &mut self.survey {
                Some(plan) => (plan.interval, plan.limits) = (interval, limits),
                None => self.survey = Some(SurveyPlan::new(interval, limits)),
            }
        }
    }

    /// Samples no pages. Regions then have no access frequencies, and all that is known comes from the surveys.
    pub fn without_samples(&mut self) {
        self.sampling = false;
    }

    /// Samples in one of `every` rounds only, at least once an aggregation, to save CPU time. The samples that are left
    /// out count as in the aggregation before, as those of steady regions do, so that rates stay unbiased and follow
    /// changes later. The default is 1.
    pub fn set_sparing(&mut self, every: u32) {
        self.every = every.max(1);
    }

    /// Tells when the run starts, counted from the boot of the machine. All memory of a process that starts later is
    /// new to its first survey: what is accessed was accessed since the process started. Otherwise nothing is known of
    /// the time before the first survey.
    pub fn set_start(&mut self, since_boot: Duration) {
        self.started = Some(since_boot);
    }

    /// Much memory that the last survey has left unobservable, and why: see [`Survey::left_out`].
    ///
    /// [`Survey::left_out`]: crate::survey::Survey::left_out
    pub fn left_out(&mut self) -> Option<String> {
        self.probe.survey().and_then(|survey| survey.left_out())
    }

    /// The survey interval. `None` if there is no survey.
    pub fn survey_interval(&self) -> Option<Duration> {
        self.survey.map(|plan| plan.interval)
    }

    /// Reads the mappings at the next step, without waiting for the update interval. Call it when a target may have
    /// ended.
    pub fn ask_for_update(&mut self) {
        self.update_asked = true;
    }

    /// The sink that takes the results.
    pub fn sink(&self) -> &K {
        &self.sink
    }

    /// The sink, to change its state between two steps.
    pub fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// The probe that tells which pages were accessed.
    pub fn probe(&self) -> &P {
        &self.probe
    }

    /// The regions of all targets as they are now.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter()
    }

    /// Reads the mappings, makes the first regions and begins the first round.
    ///
    /// # Errors
    /// If the address space, the probe or the sink fails.
    pub fn start(&mut self) -> Result<Next, MonitorError> {
        let first = if self.survey.is_some() { Some(self.survey(Duration::ZERO)?) } else { None };
        if first.is_none() {
            self.update()?;
        }
        let spaces: Vec<_> = self.regions.targets().iter().map(|target| target.space.clone()).collect();
        self.sink.start(&spaces).map_err(MonitorError::Sink)?;
        if let Some(first) = first {
            self.sink.surveyed(&first).map_err(MonitorError::Sink)?;
        }
        self.prepare_access_checks()?;
        Ok(self.next())
    }

    /// Ends the round that was waited for and begins the next one. `now` is the time since the start of the run.
    ///
    /// # Errors
    /// If the address space, the probe or the sink fails.
    pub fn step(&mut self, now: Duration) -> Result<Next, MonitorError> {
        self.check_accesses()?;
        if self.rounds >= self.attributes.samples() {
            self.settle();
            self.regions.merge(&self.attributes, self.probe.granularity());
            self.take_snapshot(now)?;
            self.reset();
            self.regions.split(&self.attributes, self.probe.granularity(), &mut self.rng);
        }
        let is_update_due = self.rounds_since_update >= self.attributes.rounds_per_update();
        match self.survey {
            Some(plan) if now >= plan.due || self.update_asked => {
                let found = self.survey(now)?;
                self.sink.surveyed(&found).map_err(MonitorError::Sink)?;
            }
            None if is_update_due || self.update_asked => self.update()?,
            Some(_) if is_update_due => self.refresh(now)?,
            _ => {}
        }
        self.prepare_access_checks()?;
        Ok(self.next())
    }

    /// Goes on after a time in which no step was made because nothing was to be monitored. Earlier results say
    /// nothing about the present, so that all regions begin without statistics.
    ///
    /// # Errors
    /// If the address space or the probe fails.
    pub fn resume(&mut self) -> Result<Next, MonitorError> {
        self.regions.clear();
        self.rounds = 0;
        self.snapshot.reads = 0;
        self.snapshot.max_reads = 0;
        match &mut self.survey {
            Some(plan) => {
                // The next step begins with a survey.
                plan.due = Duration::ZERO;
                let spaces = self.read_targets()?;
                self.regions.retain(|id| spaces.iter().any(|space| space.id == id));
            }
            None => self.update()?,
        }
        self.prepare_access_checks()?;
        Ok(self.next())
    }

    /// Ends the run.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn end(&mut self) -> Result<(), MonitorError> {
        self.sink.end().map_err(MonitorError::Sink)
    }

    /// Chooses one present page of each region, uniformly at random, and clears it. A steady region is left out of most
    /// rounds.
    fn prepare_access_checks(&mut self) -> Result<(), MonitorError> {
        self.samples.clear();
        if !self.sampling {
            return Ok(());
        }
        for target in self.regions.targets_mut() {
            for region in &mut target.regions {
                region.choose(self.rounds, &self.attributes, self.every);
            }
            for region in target.regions.iter().filter(|region| region.was_chosen()) {
                let addr = target.random_page(region, &mut self.rng);
                self.samples.push(Sample { target: target.space.id, addr });
            }
        }
        if self.samples.is_empty() {
            return Ok(());
        }
        self.probe.clear(&self.samples).map_err(MonitorError::Probe)
    }

    /// Finds the next round with something to do: pages to read, pages to choose, or the end of an interval.
    fn next(&mut self) -> Next {
        if self.regions.targets().is_empty() {
            return Next::End;
        }
        self.rounds_to_next = if self.samples.is_empty() {
            // All regions are steady.
            let strides = self.regions.iter().map(|region| region.stride(&self.attributes).saturating_mul(self.every));
            let to_choose = strides.map(|stride| stride - self.rounds % stride).min().unwrap_or(u32::MAX);
            let to_aggregate = self.attributes.samples().saturating_sub(self.rounds);
            let to_update = self.attributes.rounds_per_update().saturating_sub(self.rounds_since_update);
            to_choose.min(to_aggregate).min(to_update).max(1)
        } else {
            1
        };
        Next::Step { after: self.attributes.sampling().saturating_mul(self.rounds_to_next) }
    }

    /// Reads the pages that were chosen, and counts for each region whether its page was accessed.
    fn check_accesses(&mut self) -> Result<(), MonitorError> {
        // Who asks for an update may have cut the wait short.
        let passed = if self.update_asked { 1 } else { self.rounds_to_next };
        self.rounds += passed;
        self.rounds_since_update = self.rounds_since_update.saturating_add(passed);
        if self.samples.is_empty() {
            return Ok(());
        }
        self.answers.clear();
        self.answers.resize(self.samples.len(), Observation::Idle);
        self.probe.read(&self.samples, &mut self.answers).map_err(MonitorError::Probe)?;

        let chosen = self.regions.iter_mut().filter(|region| region.was_chosen());
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

    /// Turns the samples of the aggregation into frequencies and ages.
    fn settle(&mut self) {
        for region in self.regions.iter_mut() {
            region.settle(&self.attributes, self.every);
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
            taken.regions.extend(target.regions.iter().map(Region::snapshot));
        }
        snapshot.histories.clear();
        let histories =
            targets.iter().filter_map(|target| Some((target.space.id, Arc::clone(target.history.as_ref()?))));
        snapshot.histories.extend(histories);
        self.sink.aggregated(snapshot).map_err(MonitorError::Sink)?;
        self.rounds = 0;
        self.clears = clears;
        snapshot.reads = 0;
        snapshot.max_reads = 0;
        Ok(())
    }

    /// Begins the next aggregation, with new attributes if they were changed.
    fn reset(&mut self) {
        for region in self.regions.iter_mut() {
            region.reset();
        }
        let Some(new) = self.next_attributes.take() else {
            return;
        };
        let old = std::mem::replace(&mut self.attributes, new);
        let age_factor = old.aggregation().as_secs_f64() / new.aggregation().as_secs_f64();
        for region in self.regions.iter_mut() {
            region.rescale(old.samples(), new.samples(), age_factor);
        }
        // The new maximum may allow fewer areas.
        self.update_asked = true;
    }

    /// Reads the mappings again. Targets join and leave, and regions follow the mappings.
    fn update(&mut self) -> Result<(), MonitorError> {
        let spaces = self.read_targets()?;
        self.regions.update(spaces, &self.attributes, self.probe.granularity());
        Ok(())
    }

    /// The targets and their mappings as they are now. The probe takes them in.
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, MonitorError> {
        let mut spaces = self.space.read_targets().map_err(MonitorError::Space)?;
        spaces.retain(|space| !space.mappings.is_empty());
        self.probe.update(&spaces).map_err(MonitorError::Probe)?;
        self.rounds_since_update = 0;
        self.update_asked = false;
        Ok(spaces)
    }
}
