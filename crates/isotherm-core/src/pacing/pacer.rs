//! Paces a monitor: takes the cost of its steps, and returns the intervals and settings that keep it within the budget.
//!
//! The driver of a monitor measures the CPU time of each step and hands it in. It then sets the answers in the monitor:
//! the survey settings, which rounds have samples, the gap between readings of the mappings, and the attributes.

use std::time::Duration;

use super::budget::START;
use super::intervals::Affordable;
use super::recent::RecentShare;
use crate::survey::{LONGEST_WAIT, SurveySettings};
use crate::{
    Attributes, Budget, Controller, IntervalTuner, IntervalsGoal, MOST_JOIN, Pace, Shares, Snapshot, Start, StepWork,
};

/// How a monitor is paced.
#[derive(Clone, Copy, Debug)]
pub struct PaceOptions {
    /// The bounds on what the run costs.
    pub budget: Budget,
    /// What the start may cost the targets.
    pub start: Start,
    /// Whether the budget bounds samples too. If not, all rounds have samples.
    pub bounds_samples: bool,
    /// Whether the budget bounds readings of the mappings, and is reported.
    pub has_budget: bool,
    /// Whether pages are sampled.
    pub samples: bool,
    /// How often to survey. `None` without surveys.
    pub survey: Option<SurveyInterval>,
    /// How the sampling interval follows from what is observed. `None` if it is fixed.
    pub goal: Option<IntervalsGoal>,
    /// If the sampling interval is fixed, the length that an aggregation may have for the sake of the budget. It is
    /// longer if one round with samples in each is more than the budget allows. `None` if the aggregation interval is
    /// fixed, too.
    pub longest_aggregation: Option<Duration>,
}

/// The time from a survey to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyInterval {
    /// As short as the budget allows.
    Auto,
    /// Always the same.
    Fixed(Duration),
}

/// Work is accounted for after this many rounds with samples, and after this time.
const ACCOUNTED: u32 = 10;
const ACCOUNTED_AFTER: Duration = Duration::from_secs(1);

/// The part of the budget that reading the mappings between surveys may take, if no target joins.
const UPDATES: f64 = 0.1;

/// The further part if as many targets join at a time as may.
const JOINS: f64 = 0.5;

/// A reading of the mappings in which as many targets join as may takes so many seconds of the budget, about: less than
/// a part of a survey, as both can fall into the same ten seconds.
const READING: f64 = 1.2;

/// How many targets may join at a time at first, for each percent of the budget: one takes about 0.3 ms.
const FIRST_JOIN: f64 = 40.0;

/// At least so many targets may join at a time, whatever they cost.
const LEAST_JOIN: f64 = 8.0;

/// The bounds on the change of how many may join.
const LEAST_CHANGE: f64 = 0.5;
const MOST_CHANGE: f64 = 1.5;

/// The part of the budget that helpers may take before snapshots come less often. Most of what they do is to write
/// snapshots.
const HELPERS: f64 = 0.3;

/// The least number of rounds with samples in an aggregation.
const FEW: u32 = 3;

/// Aggregations are this many times as long as the least number of rounds with samples asks for.
const SPARE: f64 = 1.1;

/// An aggregation interval that would change by less than this share stays as it is.
const LEAST_STRETCH: f64 = 0.25;

/// Shares a budget between surveys, samples and the rest.
#[derive(Clone, Debug)]
pub struct Pacer {
    controller: Controller,
    tuner: Option<IntervalTuner>,
    /// The shortest and the longest aggregation interval, if the sampling interval is fixed. The shortest is that of
    /// the first aggregation.
    stretch: Option<(Option<Duration>, Duration)>,
    /// The longest aggregation interval that was asked for at first.
    longest_aggregation: Duration,
    bounds_samples: bool,
    has_budget: bool,
    /// The share of one CPU that all may take.
    cpu: f64,
    /// CPU time of sampling, the rounds with samples that took it, and the accessed bits that they cleared.
    sampling: (Duration, u32, u64),
    /// CPU time of steps without samples and without a survey.
    other: Duration,
    /// CPU time of helpers, and the share of one CPU that they took recently.
    helped: Duration,
    helpers: RecentShare,
    /// When work was accounted for last.
    accounted: Duration,
    /// When the mappings were read last, and the CPU time of that, on the mean.
    updated: Duration,
    update: Duration,
    /// How many targets joined, on the mean.
    joined: f64,
    /// How many may join at a time.
    most_join: f64,
}

impl Pacer {
    /// A pacer for a monitor that has not started.
    pub fn new(options: PaceOptions) -> Self {
        let fixed = match options.survey {
            Some(SurveyInterval::Fixed(interval)) => Some(interval),
            Some(SurveyInterval::Auto) | None => None,
        };
        let longest = options.goal.map(|goal| goal.most_aggregation).or(options.longest_aggregation);
        let controller = Controller::new(options.budget, options.survey.is_some(), options.samples, fixed);
        let controller = controller.starting(options.start);
        Self {
            controller: if options.bounds_samples { controller } else { controller.with_all_samples() },
            tuner: options.goal.filter(|_| options.samples).map(IntervalTuner::new),
            stretch: options.longest_aggregation.filter(|_| options.samples).map(|longest| (None, longest)),
            longest_aggregation: longest.unwrap_or(Duration::MAX),
            bounds_samples: options.bounds_samples,
            has_budget: options.has_budget,
            cpu: options.budget.cpu,
            sampling: (Duration::ZERO, 0, 0),
            other: Duration::ZERO,
            helped: Duration::ZERO,
            helpers: RecentShare::default(),
            accounted: Duration::ZERO,
            updated: Duration::ZERO,
            update: Duration::ZERO,
            joined: 0.0,
            most_join: (FIRST_JOIN * options.budget.cpu * 100.0).clamp(LEAST_JOIN, MOST_JOIN as f64),
        }
    }

    /// Takes in that a step, which ended at `now`, did `work` for `cpu`. Returns how much of that a survey took.
    pub fn stepped(&mut self, now: Duration, work: StepWork, cpu: Duration) -> Duration {
        if work.updated {
            self.updated = now;
        }
        let rest = self.without_rounds(work, cpu);
        let round = cpu - rest;
        let (spent, rounds, clears) = self.sampling;
        self.sampling = (spent + round, rounds + u32::from(work.samples > 0), clears + work.cleared);
        let Some(part) = work.survey else {
            if work.updated && now > START {
                self.take_in_update(rest, work.joined as f64);
            }
            self.other += rest;
            if self.sampling.1 >= ACCOUNTED || now >= self.accounted + ACCOUNTED_AFTER {
                self.account(now);
            }
            return Duration::ZERO;
        };
        self.account(now);
        self.controller.surveyed(now, rest, part);
        rest
    }

    /// How much of `cpu`, which a step took that did `work`, was not spent on rounds.
    pub fn without_rounds(&self, work: StepWork, cpu: Duration) -> Duration {
        // A round beside other work took what a round takes.
        let does_more = work.updated || work.joined > 0 || work.survey.is_some() || work.panel;
        match (work.rounds(), does_more) {
            (0.0, false) if work.length => Duration::ZERO,
            (0.0, _) => cpu,
            (_, false) => Duration::ZERO,
            (rounds, true) => cpu.saturating_sub(self.controller.round().mul_f64(rounds)),
        }
    }

    /// Takes in what a reading of the mappings cost, and how many targets joined.
    fn take_in_update(&mut self, cost: Duration, joined: f64) {
        self.update = (self.update + cost) / 2;
        self.joined = f64::midpoint(self.joined, joined);
        let change = READING * self.cpu / cost.as_secs_f64().max(1e-9);
        if change < 1.0 || joined >= self.most_join.floor() {
            let most = self.most_join * change.clamp(LEAST_CHANGE, MOST_CHANGE);
            self.most_join = most.clamp(LEAST_JOIN, MOST_JOIN as f64);
        }
    }

    /// Takes in CPU time of threads that help the run.
    pub fn helped(&mut self, cpu: Duration) {
        self.helped += cpu;
    }

    fn account(&mut self, now: Duration) {
        let (cpu, rounds, clears) = std::mem::take(&mut self.sampling);
        self.controller.sampled(now, cpu, rounds, clears);
        let helped = std::mem::take(&mut self.helped);
        self.helpers.spend(now, helped);
        self.controller.worked(now, std::mem::take(&mut self.other) + helped);
        self.accounted = now;
    }

    /// Takes a snapshot that was made with `attributes`. Returns the attributes to continue with, if they differ.
    pub fn aggregated(&mut self, snapshot: &Snapshot, attributes: Attributes) -> Option<Attributes> {
        self.account(snapshot.time);
        let sampling = attributes.sampling();
        // An aggregation has a few rounds with samples, with a little to spare so that their number stays the same.
        let affordable = self.controller.least_sampling(sampling).mul_f64(SPARE) / (attributes.samples() / FEW).max(1);
        // Each snapshot is work for the threads that help, whatever is in it.
        let snapshots = sampling.mul_f64(self.helpers.mean() / (self.cpu * HELPERS));
        match &mut self.tuner {
            Some(tuner) => {
                let aggregation = self.controller.least_aggregation();
                tuner.aggregated(snapshot, attributes, Affordable { sampling: affordable.max(snapshots), aggregation })
            }
            None => self.stretched(attributes),
        }
    }

    /// The attributes with aggregations so long that the budget suffices for a few rounds with samples in each, and for
    /// what each snapshot costs. The sampling interval stays as it is, so that access rates keep their meaning.
    fn stretched(&mut self, attributes: Attributes) -> Option<Attributes> {
        let (first, longest) = self.stretch.as_mut()?;
        let (longest, now) = (*longest, attributes.aggregation());
        let shortest = *first.get_or_insert(now);
        let sampling = attributes.sampling();
        let rounds = self.controller.least_sampling(sampling).mul_f64(SPARE) * FEW;
        let snapshots = now.mul_f64(self.helpers.mean() / (self.cpu * HELPERS));
        let longest = longest.max(self.controller.least_aggregation());
        let wanted = rounds.max(snapshots).min(longest).max(shortest);
        let change = wanted.as_secs_f64() / now.as_secs_f64() - 1.0;
        if change.abs() < LEAST_STRETCH {
            return None;
        }
        let samples = wanted.as_nanos().div_ceil(sampling.as_nanos().max(1)) as u32;
        attributes.with_intervals(sampling, sampling * samples).ok()
    }

    /// Changes what all may take from now on, for runs that share a budget.
    pub fn set_shares(&mut self, shares: Shares) {
        self.cpu = shares.cpu;
        self.controller.set_shares(shares);
    }

    /// The shares that the run would take at its shortest intervals, where the targets lose this to surveys
    /// ([`Monitor::lost_to_surveys`](crate::Monitor::lost_to_surveys)). Infinite as long as they are not known.
    pub fn need(&self, attributes: Attributes, lost_to_surveys: f64) -> Shares {
        self.controller.need(attributes.sampling(), lost_to_surveys)
    }

    /// Bounds the aggregation interval from now on, if it may change. It never becomes longer than was asked for at
    /// first, unless one round with samples in each is more than the budget allows.
    pub fn set_longest_aggregation(&mut self, longest: Duration) {
        let longest = longest.min(self.longest_aggregation);
        if let Some(tuner) = &mut self.tuner {
            tuner.set_most_aggregation(longest);
        }
        if let Some((_, most)) = &mut self.stretch {
            *most = longest;
        }
    }

    /// Leaves the intervals as they are from now on.
    pub fn keep_intervals(&mut self) {
        (self.tuner, self.stretch) = (None, None);
    }

    /// Whether the budget is reported.
    pub fn has_budget(&self) -> bool {
        self.has_budget
    }

    /// How to survey from now on.
    pub fn survey_settings(&self, attributes: Attributes) -> SurveySettings {
        self.controller.survey_settings(attributes.sampling())
    }

    /// The least time from one reading of the mappings to the next: so much that readings take a part of the budget
    /// only, and do not fall into ten seconds that have cost enough.
    pub fn update_gap(&self, attributes: Attributes) -> Duration {
        if !self.has_budget {
            return Duration::ZERO;
        }
        let share = UPDATES + JOINS * (self.joined / self.most_join).min(1.0);
        let least = self.update.div_f64(self.cpu * share);
        let earliest = self.controller.earliest(self.update, attributes.sampling()).saturating_sub(self.updated);
        least.max(earliest.min(least.max(attributes.update()) + LONGEST_WAIT))
    }

    /// How many targets may join at a time.
    pub fn most_join(&self) -> usize {
        if self.has_budget { self.most_join as usize } else { MOST_JOIN }
    }

    /// The CPU time that may be spent at once on targets that join, without exceeding the budget over ten seconds.
    pub fn left(&self) -> Duration {
        if self.has_budget { self.controller.left().saturating_sub(self.other) } else { Duration::MAX }
    }

    /// The interval between rounds with samples from now on, in rounds.
    pub fn every(&mut self, attributes: Attributes) -> u32 {
        if self.bounds_samples { self.controller.every(attributes.sampling(), attributes.samples()) } else { 1 }
    }

    /// The intervals that the run has settled on.
    pub fn pace(&mut self, attributes: Attributes) -> Pace {
        let pace = self.controller.pace(attributes.sampling(), attributes.samples());
        let every = self.every(attributes);
        Pace { sampling_interval: pace.sampling_interval.map(|_| attributes.sampling() * every), ..pace }
    }
}
