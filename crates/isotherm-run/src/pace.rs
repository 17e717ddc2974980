//! Keeps a run within its budget: measures what it costs, and chooses intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::survey::SurveySettings;
use isotherm_core::{Attributes, Budget, Controller, IntervalTuner, IntervalsGoal, Pace, Snapshot, StepWork};
use isotherm_kernel::monitor_cpu_time;

/// How a run on a probe of our own is paced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaceOptions {
    pub(crate) budget: Budget,
    /// Whether the run has a budget. The one above is otherwise no bound on samples.
    pub(crate) has_budget: bool,
    /// Whether samples may be left out to keep the budget.
    pub(crate) spares: bool,
    /// How often to survey. `None` without surveys.
    pub(crate) survey: Option<SurveyInterval>,
    /// How the sampling interval follows from what is observed. `None` if it is fixed.
    pub(crate) goal: Option<IntervalsGoal>,
}

/// The time from a survey to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SurveyInterval {
    /// As short as the budget allows.
    Auto,
    /// Always the same.
    Fixed(Duration),
}

/// The CPU time of the threads that help a run, in nanoseconds, since it was taken last.
#[derive(Clone, Debug, Default)]
pub(crate) struct HelperCpu(Arc<AtomicU64>);

impl HelperCpu {
    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }

    /// Measures the calling thread from now on.
    pub(crate) fn thread(&self) -> HelperThread {
        HelperThread { sum: self.clone(), counted: monitor_cpu_time() }
    }
}

/// Measures one thread that helps a run.
#[derive(Debug)]
pub(crate) struct HelperThread {
    sum: HelperCpu,
    counted: Duration,
}

impl HelperThread {
    /// Counts what the thread, which is the calling one, has spent since the last count.
    pub(crate) fn count(&mut self) {
        let now = monitor_cpu_time();
        let spent = now.saturating_sub(std::mem::replace(&mut self.counted, now));
        self.sum.0.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Work is accounted for after this many rounds with samples, and after this time.
const ACCOUNTED: u32 = 10;
const ACCOUNTED_AFTER: Duration = Duration::from_secs(1);

/// The part of the budget that reading the mappings between surveys may take.
const UPDATES: f64 = 0.1;

/// The part of the budget that work besides surveys and samples may take before snapshots come less often.
const OTHERS: f64 = 0.3;

/// A pace is told if an interval has changed by at least this part.
const TOLD: f64 = 0.2;

/// Measures the thread that it is used on, which is that of the monitor.
pub(crate) struct Pacer {
    controller: Controller,
    tuner: Option<IntervalTuner>,
    spares: bool,
    has_budget: bool,
    helpers: HelperCpu,
    /// The share of one CPU that all may take.
    budget: f64,
    /// The CPU time of the helper threads since the last snapshot.
    helped: Duration,
    /// The CPU time of the thread that is accounted for.
    counted: Duration,
    /// CPU time of sampling, and the rounds with samples that took it.
    sampling: (Duration, u32),
    /// CPU time of steps without samples and without a survey.
    other: Duration,
    /// When work was accounted for last.
    accounted: Duration,
    /// CPU time of the survey under way.
    survey: Duration,
    told: Option<Pace>,
    /// The CPU time of reading the mappings, on the mean.
    update: Duration,
}

impl Pacer {
    pub(crate) fn new(options: PaceOptions, samples: bool, helpers: HelperCpu) -> Self {
        let fixed = match options.survey {
            Some(SurveyInterval::Fixed(interval)) => Some(interval),
            Some(SurveyInterval::Auto) | None => None,
        };
        let controller = Controller::new(options.budget, options.survey.is_some(), samples, fixed);
        Self {
            controller: if options.spares { controller } else { controller.with_all_samples() },
            tuner: options.goal.filter(|_| samples).map(IntervalTuner::new),
            spares: options.spares,
            has_budget: options.has_budget,
            helpers,
            budget: options.budget.cpu,
            helped: Duration::ZERO,
            counted: monitor_cpu_time(),
            sampling: (Duration::ZERO, 0),
            other: Duration::ZERO,
            accounted: Duration::ZERO,
            survey: Duration::ZERO,
            told: None,
            update: Duration::ZERO,
        }
    }

    /// Takes in what a step at `now` did. Returns the CPU time of a survey that has ended with it.
    pub(crate) fn stepped(&mut self, now: Duration, work: StepWork) -> Option<Duration> {
        let cpu = monitor_cpu_time();
        let spent = cpu.saturating_sub(std::mem::replace(&mut self.counted, cpu));
        // A round beside other work took what a round takes.
        let round = match (work.rounds(), work.updated || work.blocks.is_some()) {
            (0.0, _) => Duration::ZERO,
            (_, false) => spent,
            (rounds, true) => self.controller.round().mul_f64(rounds).min(spent),
        };
        let rest = spent - round;
        self.sampling = (self.sampling.0 + round, self.sampling.1 + u32::from(work.samples > 0));
        let Some(blocks) = work.blocks else {
            if work.updated {
                self.update = (self.update + rest) / 2;
            }
            self.other += rest;
            if self.sampling.1 >= ACCOUNTED || now >= self.accounted + ACCOUNTED_AFTER {
                self.account(now);
            }
            return None;
        };
        self.account(now);
        self.survey += rest;
        self.controller.surveyed(now, rest, blocks, work.is_last_part);
        work.is_last_part.then(|| std::mem::take(&mut self.survey))
    }

    fn account(&mut self, now: Duration) {
        let (cpu, rounds) = std::mem::take(&mut self.sampling);
        self.controller.sampled(now, cpu, rounds);
        let helped = self.helpers.take();
        self.helped += helped;
        self.controller.worked(now, std::mem::take(&mut self.other) + helped);
        self.accounted = now;
    }

    /// The CPU time of the helper threads since the last call, as far as it is accounted for.
    pub(crate) fn take_helped(&mut self) -> Duration {
        std::mem::take(&mut self.helped)
    }

    /// Takes in a snapshot that was made with `attributes`. Returns the attributes to go on with, if they are others.
    pub(crate) fn aggregated(&mut self, snapshot: &Snapshot, attributes: Attributes) -> Option<Attributes> {
        self.account(snapshot.time);
        let sampling = attributes.sampling();
        // An aggregation has a few rounds with samples, with a little to spare so that their number stays the same.
        let affordable = self.controller.least_sampling(sampling).mul_f64(SPARE) / (attributes.samples() / FEW).max(1);
        // Each snapshot is work for the threads that help, whatever is in it.
        let snapshots = sampling.mul_f64(self.controller.other() / (self.budget * OTHERS));
        self.tuner.as_mut()?.aggregated(snapshot, attributes, affordable.max(snapshots))
    }

    /// Leaves the sampling interval as it is from now on.
    pub(crate) fn keep_intervals(&mut self) {
        self.tuner = None;
    }

    /// How to survey from now on.
    pub(crate) fn survey_settings(&self, attributes: Attributes) -> SurveySettings {
        self.controller.survey_settings(attributes.sampling())
    }

    /// The least time from one reading of the mappings to the next: so much that it takes a part of the budget only.
    pub(crate) fn update_gap(&self) -> Duration {
        if self.has_budget { self.update.div_f64(self.budget * UPDATES) } else { Duration::ZERO }
    }

    /// Of how many rounds one has samples from now on.
    pub(crate) fn every(&mut self, attributes: Attributes) -> u32 {
        if self.spares { self.controller.every(attributes.sampling(), attributes.samples()) } else { 1 }
    }

    /// Whether the budget does not suffice for the shortest intervals. `None` if there is no budget.
    pub(crate) fn is_limited(&self, attributes: Attributes) -> Option<bool> {
        self.has_budget.then(|| self.controller.pace(attributes.sampling(), attributes.samples()).is_limited)
    }

    /// What the run has settled on, if that is worth telling.
    pub(crate) fn news(&mut self, attributes: Attributes) -> Option<Pace> {
        let mut pace = self.controller.pace(attributes.sampling(), attributes.samples());
        let every = self.every(attributes);
        pace.sampling_interval = pace.sampling_interval.map(|_| attributes.sampling() * every);
        let has_changed = |one: Option<Duration>, other: Option<Duration>| match (one, other) {
            (Some(one), Some(other)) => (one.as_secs_f64() - other.as_secs_f64()).abs() > other.as_secs_f64() * TOLD,
            (one, other) => one.is_some() != other.is_some(),
        };
        let is_news = self.told.is_none_or(|told| {
            pace.is_limited != told.is_limited
                || has_changed(pace.survey_interval, told.survey_interval)
                || has_changed(pace.sampling_interval, told.sampling_interval)
        });
        is_news.then(|| {
            self.told = Some(pace);
            pace
        })
    }
}

/// The least number of rounds with samples in an aggregation.
const FEW: u32 = 3;

/// Aggregations are this many times as long as the least number of rounds with samples asks for.
const SPARE: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_helper_threads_is_added_up() {
        let helpers = HelperCpu::default();
        let work = |helpers: HelperCpu| {
            let mut thread = helpers.thread();
            while thread.counted + Duration::from_millis(2) > monitor_cpu_time() {}
            thread.count();
        };
        std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(|| work(helpers.clone()))));
        assert!(helpers.take() >= Duration::from_millis(4));
        assert_eq!(helpers.take(), Duration::ZERO);
    }
}
