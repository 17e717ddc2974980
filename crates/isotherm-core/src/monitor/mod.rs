//! The monitor: samples pages, aggregates the samples, adjusts the regions and follows the mappings.

mod aggregations;
mod mapping_survey;
mod panel;
mod parties;
mod rounds;
mod survey;
mod views;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rand::Rng;
use thiserror::Error;

use crate::panel::Panel;
use crate::region_set::RegionSet;
use crate::survey::{MappingHistories, SurveyPlan, SurveySettings};
use crate::{
    AccessProbe, AddressSpace, AtRest, Attributes, BoxError, Observation, Region, Sample, Sink, Snapshot, TargetId,
    TargetSpace,
};
use panel::PanelBuffers;
use parties::FramesSeen;
use rounds::OpenRound;
use survey::{Blocks, Pass};
use views::ViewSamples;

/// The reason why a run cannot continue.
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

/// Tells how much CPU time was taken so far.
type CpuClock = Box<dyn FnMut() -> Duration + Send>;

/// What the driver of a monitor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait, then call [`Monitor::step`].
    Step {
        /// How long to wait, from the time that was given to the last step on: until a round is over, or a survey or an
        /// update is due. It follows changes of the attributes.
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
    /// Sampling intervals since the aggregation began.
    rounds: u32,
    /// How many aggregations have ended.
    aggregations: u32,
    /// When the aggregation began.
    aggregation_began: Duration,
    /// Whether the aggregation ends with its next round, because much memory is new.
    ends_early: bool,
    /// The round that was begun last.
    round: OpenRound,
    /// When the mappings were read last.
    updated: Duration,
    /// The least time from one reading of the mappings to the next.
    update_gap: Duration,
    update_asked: bool,
    /// How new targets are looked for. `None` if they are found by readings alone.
    looks: Option<Looks>,
    /// When new targets were looked for last.
    looked: Duration,
    /// The clears of the probe up to the last aggregation.
    clears: u64,
    /// When to survey. `None` if there is no survey.
    survey: Option<SurveyPlan>,
    /// The survey that is under way.
    pass: Option<Pass>,
    /// The targets that were at rest at the start.
    at_start: HashMap<TargetId, AtRest>,
    panel: Panel,
    /// Whether there is a panel.
    has_panel: bool,
    /// What earlier surveys have found, if they are by mapping.
    mapping_histories: MappingHistories,
    /// When the last survey of pages ended.
    surveyed: Option<Duration>,
    /// What the last step did.
    work: StepWork,
    /// Whether pages are sampled.
    sampling: bool,
    /// One of this many rounds has samples.
    every: u32,
    /// Whether samples are also read before their round is over.
    by_lengths: bool,
    /// Since when processes that are started belong to the run, and when the run started, both counted from the boot of
    /// the machine.
    started: Option<(Duration, Duration)>,
    /// Tells the CPU time that the monitor has taken.
    cpu_clock: Option<CpuClock>,
    // These buffers are used again in each round, so that a round allocates no memory.
    samples: Vec<Sample>,
    views: ViewSamples,
    answers: Vec<Observation>,
    blocks: Blocks,
    panel_buffers: PanelBuffers,
    frames_seen: FramesSeen,
    snapshot: Snapshot,
}

/// How new targets are looked for, apart from readings of the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The time from one look to the next.
    pub gap: Duration,
    /// How many targets may join at a look.
    pub most: usize,
}

/// What a step did, for a driver that measures what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    /// How many pages were sampled: the end of a round.
    pub samples: usize,
    /// How many pages were chosen and cleared: the beginning of a round. It may come a few steps before the end.
    pub chosen: usize,
    /// How many of these pages were accessed, so that their accessed bits were cleared: the targets set them again.
    pub cleared: u64,
    /// Whether pages were read before their round was over.
    pub length: bool,
    /// The part of a survey that it did.
    pub survey: Option<SurveyWork>,
    /// Whether the mappings were read.
    pub updated: bool,
    /// Whether new targets were looked for, without a reading of the mappings of the others.
    pub looked: bool,
    /// How many targets joined in that reading or look.
    pub joined: usize,
    /// Whether the panel was read.
    pub panel: bool,
}

/// What a part of a survey did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurveyWork {
    /// How many blocks were read, and some more for each target.
    pub read: u64,
    /// How many blocks could have been read in the time in which pages were cleared, about.
    pub cleared: u64,
    /// Whether the survey is at its end.
    pub is_last_part: bool,
}

impl StepWork {
    /// The rounds of samples that the step has done: the beginning and the end count half each.
    pub fn rounds(&self) -> f64 {
        (f64::from(u8::from(self.samples > 0)) + f64::from(u8::from(self.chosen > 0))) / 2.0
    }
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
            aggregations: 0,
            aggregation_began: Duration::ZERO,
            ends_early: false,
            round: OpenRound::default(),
            updated: Duration::ZERO,
            update_gap: Duration::ZERO,
            update_asked: false,
            looks: None,
            looked: Duration::ZERO,
            clears: 0,
            survey: None,
            pass: None,
            at_start: HashMap::new(),
            panel: Panel::default(),
            has_panel: false,
            mapping_histories: MappingHistories::default(),
            surveyed: None,
            work: StepWork::default(),
            sampling: true,
            every: 1,
            by_lengths: false,
            started: None,
            cpu_clock: None,
            samples: Vec::new(),
            views: ViewSamples::default(),
            answers: Vec::new(),
            blocks: Vec::new(),
            panel_buffers: PanelBuffers::default(),
            frames_seen: FramesSeen::default(),
            snapshot: Snapshot::default(),
        }
    }

    /// The attributes in force.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Changes the attributes at the end of the current aggregation. Ages stay the same in time. They continue if an
    /// unchanged access pattern can explain the samples over the new interval. [`Next`] follows the new sampling
    /// interval.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.next_attributes = Some(attributes);
    }

    /// Surveys all pages, at the start of the run first. Without effect if the probe has no survey. Regions get new
    /// borders in surveys, and not at the update interval. While a target is growing, or much of it is unknown, it is
    /// surveyed up to three times as often.
    ///
    /// Call it before [`start`](Self::start), or at any time to change the settings.
    pub fn set_survey(&mut self, settings: SurveySettings) {
        if self.probe.survey().is_some() || self.probe.mapping_survey().is_some() {
            match &mut self.survey {
                Some(plan) => plan.settings = settings,
                None => self.survey = Some(SurveyPlan::new(settings)),
            }
        }
    }

    /// Samples no pages. Regions then have no access frequencies, and all that is known comes from the surveys.
    pub fn without_samples(&mut self) {
        self.sampling = false;
    }

    /// Reads the mappings no sooner than this after the last time, also when it is asked for. The default is zero.
    pub fn set_update_gap(&mut self, gap: Duration) {
        self.update_gap = gap;
    }

    /// Looks for new targets, apart from readings of the mappings, which cost more if there are many targets. By
    /// default, targets join when the mappings are read.
    pub fn set_looks(&mut self, looks: Looks) {
        self.looks = Some(looks);
    }

    /// Lets at most this many targets join at a reading, if the address space finds them by itself.
    pub fn set_most_join(&mut self, most: usize) {
        self.space.set_most_join(most);
    }

    /// Samples in one of `every` rounds only, at least once an aggregation, to save CPU time. The samples that are left
    /// out count as in the aggregation before, as those of steady regions do, so that rates stay unbiased and follow
    /// changes later. The default is 1.
    pub fn set_sampling_stride(&mut self, every: u32) {
        self.every = every.max(1);
    }

    /// Reads samples several times before their round is over, so that frequencies are known although the sampling
    /// interval is long. The pages are cleared once a round all the same.
    pub fn read_by_lengths(&mut self) {
        self.by_lengths = true;
    }

    /// Tells when the run starts, counted from the boot of the machine, and since when processes that are started
    /// belong to it, such as its command. All memory of such a process is new to its first survey: what is accessed was
    /// accessed since the process started. Otherwise nothing is known of the time before the first survey.
    pub fn set_start(&mut self, since: Duration, start: Duration) {
        self.started = Some((since, start));
    }

    /// Lets a part of a survey end when it has taken [`SurveySettings::part_time`] by this clock, which returns the CPU
    /// time that the monitor has taken so far. Without it, a part ends by the number of its blocks alone.
    pub fn set_cpu_clock(&mut self, clock: impl FnMut() -> Duration + Send + 'static) {
        self.cpu_clock = Some(Box::new(clock));
    }

    /// What the last step did.
    pub fn work(&self) -> StepWork {
        self.work
    }

    /// The survey interval. `None` if there is no survey.
    pub fn survey_interval(&self) -> Option<Duration> {
        self.survey.map(|plan| plan.settings.interval)
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

    /// The address space of the targets.
    pub fn space_mut(&mut self) -> &mut S {
        &mut self.space
    }

    /// The probe that finds which pages were accessed.
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
        let now = Duration::ZERO;
        let mut first = None;
        match self.survey {
            Some(_) => first = self.survey(now)?,
            None => self.update(now)?,
        }
        let spaces: Vec<_> = self.regions.targets().iter().map(|target| target.space.clone()).collect();
        self.sink.start(&spaces).map_err(MonitorError::Sink)?;
        if self.survey.is_some() {
            self.find_rests()?;
            self.at_start = self.panel.at_rest().collect();
        }
        if let Some(first) = first {
            self.sink.surveyed(&first).map_err(MonitorError::Sink)?;
        }
        self.read_panel(now)?;
        self.begin_round(now)?;
        Ok(self.next(now))
    }

    /// Does what is due: ends the round that was waited for, aggregates, surveys, reads the mappings, and begins the
    /// next round. `now` is the time since the start of the run.
    ///
    /// Where there is a survey, an aggregation ends early if a reading of the mappings or a survey finds much new
    /// memory, at least a twentieth of what was in memory, so that it is in a snapshot soon. The snapshot has the real
    /// length.
    ///
    /// # Errors
    /// If the address space, the probe or the sink fails.
    pub fn step(&mut self, now: Duration) -> Result<Next, MonitorError> {
        self.work = StepWork::default();
        let round_is_over = now >= self.round.due;
        if !round_is_over && self.length_due().is_some_and(|due| now >= due) {
            self.read_length(now)?;
        }
        if round_is_over {
            self.check_accesses(now)?;
            if self.rounds >= self.attributes.samples() || (self.ends_early && self.rounds > 0) {
                self.aggregate(now)?;
                self.reset();
                self.regions.split(&self.attributes, self.probe.granularity(), &mut self.rng);
            }
        }
        let is_update_due = now >= self.update_due();
        // The next round begins below, and the samples of one that was counted may go on.
        let may_go_on = !round_is_over || self.round.counted;
        let joined = if is_update_due { Vec::new() } else { self.look_for_new(now)? };
        match &self.survey {
            Some(plan) if now >= plan.due() => {
                if may_go_on {
                    self.look_at_samples()?;
                }
                // A survey that begins reads all mappings.
                if self.pass.is_some() {
                    if is_update_due { self.refresh(now)? } else { self.join(joined, now)? }
                }
                if let Some(found) = self.survey(now)? {
                    self.sink.surveyed(&found).map_err(MonitorError::Sink)?;
                }
            }
            None if is_update_due => self.update(now)?,
            Some(_) if is_update_due => self.refresh(now)?,
            _ => self.join(joined, now)?,
        }
        if self.panel_due().is_some_and(|due| now >= due) {
            if may_go_on {
                self.look_at_samples()?;
            }
            self.read_panel(now)?;
        }
        if round_is_over {
            self.begin_round(now)?;
        }
        Ok(self.next(now))
    }

    /// Whether at least half of the aggregation under way is over at `now`.
    pub fn is_half_aggregated(&self, now: Duration) -> bool {
        self.rounds.max(self.rounds_until(now)) >= self.attributes.samples().div_ceil(2)
    }

    /// Ends the aggregation at `now`, as if the aggregation interval were as long as the time so far. Does nothing
    /// before the first sampling interval is over. So a run that is shorter than an aggregation has a snapshot, if this
    /// is called at its end.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn cut_short(&mut self, now: Duration) -> Result<(), MonitorError> {
        self.work = StepWork::default();
        self.rounds = self.rounds.max(self.rounds_until(now));
        if self.rounds == 0 {
            return Ok(());
        }
        self.aggregate(now)?;
        self.reset();
        Ok(())
    }

    /// Goes on at `now`, after a time in which no step was made because nothing was to be monitored. Earlier results
    /// say nothing about the present, so that all regions begin without statistics.
    ///
    /// # Errors
    /// If the address space or the probe fails.
    pub fn resume(&mut self, now: Duration) -> Result<Next, MonitorError> {
        self.regions.clear();
        self.rounds = 0;
        self.aggregation_began = now;
        self.ends_early = false;
        self.snapshot.sampled_rounds = 0;
        self.snapshot.reads = 0;
        self.snapshot.max_reads = 0;
        self.pass = None;
        self.panel = Panel::default();
        self.mapping_histories = MappingHistories::default();
        self.surveyed = None;
        match &mut self.survey {
            Some(plan) => {
                // The next step begins with a survey.
                plan.restart();
                let spaces = self.read_targets(now)?;
                self.regions.replace_spaces(&spaces);
            }
            None => self.update(now)?,
        }
        self.find_rests()?;
        self.begin_round(now)?;
        Ok(self.next(now))
    }

    /// Ends the run.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn end(&mut self) -> Result<(), MonitorError> {
        self.sink.end().map_err(MonitorError::Sink)
    }

    /// What the driver does after a step at `now`.
    fn next(&self, now: Duration) -> Next {
        if self.regions.targets().is_empty() && !self.space.awaits_targets() {
            return Next::End;
        }
        let mut due = self.round.due;
        let survey = self.survey.as_ref().map(SurveyPlan::due);
        for other in survey.into_iter().chain([self.update_due()]).chain(self.look_due()).chain(self.panel_due()) {
            // What is due shortly before a round is over waits for it, to save a wake-up.
            if other + SHORTLY.min(self.attributes.sampling()) < due {
                due = other;
            }
        }
        if let Some(length) = self.length_due() {
            due = due.min(length);
        }
        Next::Step { after: due.saturating_sub(now).max(SHORTEST_WAIT) }
    }

    /// When the mappings are read again.
    fn update_due(&self) -> Duration {
        let interval = if self.update_asked { Duration::ZERO } else { self.attributes.update() };
        self.updated + interval.max(self.update_gap)
    }

    /// When new targets are looked for again.
    fn look_due(&self) -> Option<Duration> {
        self.looks.map(|looks| self.looked + looks.gap)
    }

    /// Looks for new targets if that is due. The probe takes in those that have appeared.
    fn look_for_new(&mut self, now: Duration) -> Result<Vec<TargetSpace>, MonitorError> {
        let Some(looks) = self.looks.filter(|looks| now >= self.looked + looks.gap) else { return Ok(Vec::new()) };
        (self.looked, self.work.looked) = (now, true);
        let mut joined = self.space.look_for_new(looks.most).map_err(MonitorError::Space)?;
        joined.retain(|space| !space.mappings.is_empty());
        self.work.joined = joined.len();
        if !joined.is_empty() {
            self.probe.join(&joined).map_err(MonitorError::Probe)?;
        }
        Ok(joined)
    }

    /// Gives regions to targets that a look has found. The other targets stay as they are.
    fn join(&mut self, joined: Vec<TargetSpace>, now: Duration) -> Result<(), MonitorError> {
        if joined.is_empty() {
            return Ok(());
        }
        if self.survey.is_some() {
            return self.join_surveyed(joined, now);
        }
        let known = self.regions.targets().iter().map(|target| target.space.clone());
        let mut spaces: Vec<TargetSpace> = known.chain(joined).collect();
        spaces.sort_by_key(|space| space.id);
        self.regions.update(spaces, &self.attributes, self.probe.granularity());
        Ok(())
    }

    /// Reads the mappings again. Targets join and leave, and regions follow the mappings.
    fn update(&mut self, now: Duration) -> Result<(), MonitorError> {
        let spaces = self.read_targets(now)?;
        self.regions.update(spaces, &self.attributes, self.probe.granularity());
        Ok(())
    }

    /// Those of `spaces` whose target has no regions yet.
    fn unknown<'a>(&self, spaces: &'a [TargetSpace]) -> impl Iterator<Item = &'a TargetSpace> + use<'a, S, P, K, R> {
        let known: HashSet<TargetId> = self.regions.targets().iter().map(|target| target.space.id).collect();
        spaces.iter().filter(move |space| !known.contains(&space.id))
    }

    /// The targets and their mappings as they are at `now`. The probe takes them in.
    fn read_targets(&mut self, now: Duration) -> Result<Vec<TargetSpace>, MonitorError> {
        self.updated = now;
        self.update_asked = false;
        let mut spaces = self.space.read_targets().map_err(MonitorError::Space)?;
        spaces.retain(|space| !space.mappings.is_empty());
        self.work.joined = self.unknown(&spaces).count();
        self.probe.update(&spaces).map_err(MonitorError::Probe)?;
        self.work.updated = true;
        Ok(spaces)
    }
}

/// Work that is due at most this long before the next round waits for that round.
const SHORTLY: Duration = Duration::from_millis(50);

/// A driver waits at least this long. It wakes up in time within about as much.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);
