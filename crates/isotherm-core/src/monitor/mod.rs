//! The monitor: samples pages, aggregates the samples, adjusts the regions and follows the mappings.

mod aggregations;
mod cpu_clock;
mod rounds;
mod surveyor;
mod views;
mod watched;

use std::time::Duration;

use rand::Rng;
use thiserror::Error;

use crate::region_set::RegionSet;
use crate::survey::SurveySettings;
use crate::{
    AccessProbe, AddressSpace, Attributes, BoxError, Observation, Region, Sample, Sink, Snapshot, TargetSpace,
};
use cpu_clock::CpuClock;
use rounds::OpenRound;
use surveyor::{EndedSurvey, Surveyor};
use views::ViewSamples;
use watched::{Readings, Watched};

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
    /// When the mappings were read.
    readings: Readings,
    /// The least time from one reading of the mappings to the next.
    update_gap: Duration,
    /// How new targets are looked for. `None` if they are found by readings alone.
    search: Option<TargetSearch>,
    /// When new targets were looked for last.
    looked: Duration,
    /// The clears of the probe up to the last aggregation.
    clears: u64,
    /// Surveys all pages. `None` if there is no survey.
    surveyor: Option<Surveyor>,
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
    cpu_clock: CpuClock,
    // These buffers are used again in each round, so that a round allocates no memory.
    samples: Vec<Sample>,
    views: ViewSamples,
    answers: Vec<Observation>,
    snapshot: Snapshot,
}

/// How new targets are looked for, apart from readings of the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSearch {
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
            readings: Readings::default(),
            update_gap: Duration::ZERO,
            search: None,
            looked: Duration::ZERO,
            clears: 0,
            surveyor: None,
            work: StepWork::default(),
            sampling: true,
            every: 1,
            by_lengths: false,
            started: None,
            cpu_clock: CpuClock::default(),
            samples: Vec::new(),
            views: ViewSamples::default(),
            answers: Vec::new(),
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
            match &mut self.surveyor {
                Some(surveyor) => surveyor.set_settings(settings),
                None => self.surveyor = Some(Surveyor::new(settings)),
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
    pub fn set_target_search(&mut self, search: TargetSearch) {
        self.search = Some(search);
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
        self.cpu_clock = CpuClock(Some(Box::new(clock)));
    }

    /// What the last step did.
    pub fn work(&self) -> StepWork {
        self.work
    }

    /// The survey interval. `None` if there is no survey.
    pub fn survey_interval(&self) -> Option<Duration> {
        self.surveyor.as_ref().map(|surveyor| surveyor.settings().interval)
    }

    /// The share of one CPU that targets would lose to setting accessed bits again if nothing bounded what surveys
    /// clear. Infinite as long as it is not known; 0 without surveys.
    pub fn lost_to_surveys(&self) -> f64 {
        self.surveyor.as_ref().map_or(0.0, |surveyor| surveyor.need())
    }

    /// Reads the mappings at the next step, without waiting for the update interval. Call it when a target may have
    /// ended.
    pub fn ask_for_update(&mut self) {
        self.readings.asked = true;
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
        let (surveyor, mut watched) = self.parts();
        let first = match surveyor {
            Some(surveyor) => surveyor.survey(&mut watched, now)?,
            None => {
                watched.update(now)?;
                None
            }
        };
        let spaces: Vec<_> = self.regions.targets().iter().map(|target| target.space.clone()).collect();
        self.sink.start(&spaces).map_err(MonitorError::Sink)?;
        if let (Some(surveyor), mut watched) = self.parts() {
            surveyor.find_rests_at_start(&mut watched)?;
        }
        if let Some(EndedSurvey { found, .. }) = first {
            self.sink.surveyed(&found).map_err(MonitorError::Sink)?;
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
        // The next round begins below, and the samples of one that was counted may go on.
        let may_go_on = !round_is_over || self.round.counted;
        self.follow(now, may_go_on)?;
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

    /// Follows the mappings and the pages: surveys, reads the mappings, and looks for new targets, as far as that is
    /// due. A survey clears pages of samples, which are read before if they may go on.
    fn follow(&mut self, now: Duration, samples_may_go_on: bool) -> Result<(), MonitorError> {
        let is_update_due = now >= self.update_due();
        let joined = if is_update_due { Vec::new() } else { self.look_for_new(now)? };
        let is_survey_due = self.surveyor.as_ref().is_some_and(|surveyor| now >= surveyor.due());
        if is_survey_due && samples_may_go_on {
            self.look_at_samples()?;
        }
        let (surveyor, mut watched) = self.parts();
        let Some(surveyor) = surveyor else {
            if is_update_due {
                watched.update(now)?;
            } else {
                watched.join(joined);
            }
            return Ok(());
        };
        let mut grows = false;
        // A survey that begins reads all mappings.
        if !is_survey_due || surveyor.is_under_way() {
            grows = if is_update_due {
                surveyor.refresh(&mut watched, now)?
            } else {
                surveyor.join(&mut watched, joined, now)?
            };
        }
        let ended = if is_survey_due { surveyor.survey(&mut watched, now)? } else { None };
        if grows || ended.as_ref().is_some_and(|ended| ended.grows) {
            self.end_aggregation_soon(now);
        }
        match ended {
            Some(EndedSurvey { found, .. }) => self.sink.surveyed(&found).map_err(MonitorError::Sink),
            None => Ok(()),
        }
    }

    /// The time of the next reading of the panel. `None` without a panel.
    fn panel_due(&self) -> Option<Duration> {
        self.surveyor.as_ref().and_then(Surveyor::panel_due)
    }

    fn read_panel(&mut self, now: Duration) -> Result<(), MonitorError> {
        let (Some(surveyor), mut watched) = self.parts() else { return Ok(()) };
        match surveyor.read_panel(&mut watched, now)? {
            Some(found) => self.sink.panel_read(&found).map_err(MonitorError::Sink),
            None => Ok(()),
        }
    }

    /// The surveyor, and what it works on.
    fn parts(&mut self) -> (Option<&mut Surveyor>, Watched<'_>) {
        let watched = Watched {
            space: &mut self.space,
            probe: &mut self.probe,
            regions: &mut self.regions,
            rng: &mut self.rng,
            attributes: &self.attributes,
            readings: &mut self.readings,
            work: &mut self.work,
            cpu_clock: &mut self.cpu_clock,
            started: self.started,
        };
        (self.surveyor.as_mut(), watched)
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
        let (surveyor, mut watched) = self.parts();
        match surveyor {
            Some(surveyor) => {
                surveyor.restart();
                let spaces = watched.read_targets(now)?;
                watched.regions.replace_spaces(&spaces);
                surveyor.find_rests(&mut watched)?;
            }
            None => watched.update(now)?,
        }
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
        let survey = self.surveyor.as_ref().map(Surveyor::due);
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
        let interval = if self.readings.asked { Duration::ZERO } else { self.attributes.update() };
        self.readings.last + interval.max(self.update_gap)
    }

    /// When new targets are looked for again.
    fn look_due(&self) -> Option<Duration> {
        self.search.map(|search| self.looked + search.gap)
    }

    /// Looks for new targets if that is due. The probe takes in those that have appeared.
    fn look_for_new(&mut self, now: Duration) -> Result<Vec<TargetSpace>, MonitorError> {
        let Some(search) = self.search.filter(|search| now >= self.looked + search.gap) else { return Ok(Vec::new()) };
        (self.looked, self.work.looked) = (now, true);
        let mut joined = self.space.look_for_new(search.most).map_err(MonitorError::Space)?;
        joined.retain(|space| !space.mappings.is_empty());
        self.work.joined = joined.len();
        if !joined.is_empty() {
            self.probe.join(&joined).map_err(MonitorError::Probe)?;
        }
        Ok(joined)
    }
}

/// Work that is due at most this long before the next round waits for that round.
const SHORTLY: Duration = Duration::from_millis(50);

/// A driver waits at least this long. It wakes up in time within about as much.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);
