//! The budget: what isotherm may cost, and how surveys and samples share it.
//!
//! A [`Controller`] takes in the CPU time that was spent, and says how often to survey and to sample. It knows no
//! clock: its driver measures. Two things keep the budget:
//!
//! - *Shares.* Surveys and samples get what they need if that fits the budget. Otherwise each gets half of it, and the
//!   other may use the part that one does not need. Surveys get more than half if they would come rarely, because only
//!   they show how much memory is in use. Intervals follow from the share and from the mean cost of the work.
//! - *The balance.* The cost of a round, or of a part of a survey, is spent at once, and compensated by the time until
//!   the next one. CPU time spent beyond that is saved again within seconds, in proportion, so that intervals change
//!   smoothly.
//! - *The window.* A part of a survey, or a reading of the mappings, waits if it would make the last ten seconds exceed
//!   the budget, and fewer targets join at a time. So several expensive pieces of work do not fall into the same ten
//!   seconds.
//!
//! - *The start.* Much is unknown then, so the first three seconds may take a credit: thirty seconds of the budget, but
//!   300 ms of CPU time at most. The ten seconds are counted from then on.

use std::time::Duration;

use super::recent::{MEAN_TIME, RecentShare, WINDOW, Window};
use super::survey_cost::SurveyCost;
use crate::SurveyWork;
use crate::panel;
use crate::survey::{BLOCK_PAGES, CLEAR_PAGE, SurveySettings};

/// What isotherm may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The share of one CPU, above 0, for all that isotherm does while it watches.
    pub cpu: f64,
    /// The share of one CPU, above 0, that the targets may lose to setting accessed bits again.
    pub targets: f64,
    /// How long it takes a target to set the accessed bit of a page again.
    pub set_again: Duration,
    /// How long it takes isotherm to clear the accessed bit of a page, of many in a row.
    pub clear: Duration,
}

impl Default for Budget {
    /// 1 % of a CPU for isotherm, half a percent for the targets.
    fn default() -> Self {
        let SurveySettings { target_share, set_again, .. } = SurveySettings::default();
        Self { cpu: 0.01, targets: target_share, set_again, clear: CLEAR }
    }
}

/// Shares of one CPU: what several runs may share of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// As [`Budget::cpu`].
    pub cpu: f64,
    /// As [`Budget::targets`].
    pub targets: f64,
}

impl Budget {
    /// The shares of it.
    pub const fn shares(&self) -> Shares {
        Shares { cpu: self.cpu, targets: self.targets }
    }

    /// Changes the shares of it.
    pub const fn set_shares(&mut self, Shares { cpu, targets }: Shares) {
        (self.cpu, self.targets) = (cpu, targets);
    }
}

/// What a run may take of the time of its targets at its start, when all accessed bits have to be cleared once. It sets
/// no bound on the CPU time of isotherm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Up to 3 % of one CPU for three seconds, so that memory is known soon.
    #[default]
    Quick,
    /// No more than later.
    Gentle,
}

/// The share of one CPU that targets may lose in the first seconds of [`Start::Quick`].
const QUICK: f64 = 0.03;

/// The CPU time to clear a page: 65 to 95 ns (November 2026, on a virtual machine).
const CLEAR: Duration = Duration::from_nanos(88);

/// The intervals that a run has settled on, and its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// The time from a survey to the next. `None` without surveys.
    pub survey_interval: Option<Duration>,
    /// The time from a round with samples to the next. `None` without samples.
    pub sampling_interval: Option<Duration>,
    /// The share of one CPU that was spent recently: over about the last ten seconds.
    pub cpu: f64,
    /// Whether the budget does not suffice for the shortest intervals.
    pub is_limited: bool,
}

/// The share of the budget that is planned for. The rest is for what is not foreseen.
const PLANNED: f64 = 0.91;

/// The start of a run, in which the credit may be spent.
pub(super) const START: Duration = Duration::from_secs(3);

/// The credit: so many seconds of the budget, but at most so much CPU time, in seconds.
const CREDIT: f64 = 30.0;
const MOST_CREDIT: f64 = 0.3;

/// The credit lasts for this part of [`START`] if it is spent as fast as surveys may.
const SPENT_IN: f64 = 0.5;

/// A part of a survey takes this long, about: so many seconds of the budget. With smaller parts, more surveys would be
/// cut. The pages of a survey that is cut are read at different times, which blurs what was accessed when. With greater
/// parts, ten seconds could hold one part more than the budget allows.
const PART: f64 = 2.0;

/// A survey that takes as long as so many parts at most is done at once: its parts would be seconds apart.
const MOST_PARTS: f64 = 1.5;

/// The number of blocks of a part stays the same, so that surveys are cut at the same places, unless it would change by
/// a factor outside of these bounds. Parts may be smaller than [`PART`], but hardly greater.
const LEAST_CHANGE: f64 = 0.83;
const MOST_CHANGE: f64 = 2.0;

/// A part that takes longer than planned ends after so many times the time that was planned for it. Below that, it goes
/// on to its number of blocks.
const LONGER: f64 = 1.25;

/// A part of a survey takes this part of the credit, and drawing pages of the panel takes at most so much of what is
/// left of it at once.
const START_PART: f64 = 1.0 / 15.0;
const START_DRAW: f64 = 0.8;

/// The part of the credit that the readings of the panel in the start take, if it has as many pages as it may.
const KEPT: f64 = 0.15;

/// A survey takes at most this part of what is left of the credit.
const START_SURVEY: f64 = 0.5;

/// What was spent beyond the budget and what is paid for by the time until the next part and round, in seconds of the
/// budget, after which next to nothing is spent.
const REPAYMENT: f64 = 5.0;

/// The least part of the budget that samples may take, and that samples and surveys may take together, however much
/// was spent before.
const LEAST: f64 = 0.1;

/// Surveys that would come less often than this get up to [`MOST_SURVEYS`] of what they share with samples. A survey
/// has to fit the window of 5 s of a working set, with some time to spare.
const RARE_INTERVAL: Duration = Duration::from_secs(3);
const MOST_SURVEYS: f64 = 0.75;

/// The cost of reading a block is known only together with the other work of a survey. So the cost of a page, in
/// blocks, is at most twice the usual cost, and at least the usual cost divided by this number.
const MOST_RATIO: f64 = 50.0;

/// Surveys limit their clears so that they can come this often, unless reading alone takes two thirds of that time.
const CLEARING_INTERVAL: Duration = Duration::from_secs(2);

/// The part of what the targets may lose that samples may take.
const MOST_SAMPLES: f64 = 0.5;

/// The least part of the budget that surveys may take, if other work takes most of it. Surveys that come within
/// [`SOON`] by that, but less often than each [`RARE_INTERVAL`], may take more, because they know more than the panel.
const LEAST_SURVEYS: f64 = 0.25;
const MOST_BESIDE: f64 = 0.32;
const SOON: Duration = Duration::from_secs(10);

/// The part of the budget that the panel may take after the start.
const PANEL: f64 = 0.25;

/// A reading of the panel takes at most this part of what is left of the credit: there are six within the start.
const START_READING: f64 = 1.0 / 12.0;

/// Drawing pages of the panel takes so many seconds of the budget at once at most.
const DRAW: f64 = 1.0;

/// The least time from a survey to the next.
const SHORTEST: Duration = Duration::from_secs(1);

/// The number of blocks that the first part of a survey reads: 1 GiB.
const FIRST_BLOCKS: f64 = 512.0;

/// The least number of blocks of a part.
const LEAST_BLOCKS: f64 = 8.0;

/// The interval between rounds with samples, in rounds, until the cost of a round is known.
const FIRST_EVERY: f64 = 10.0;

/// An aggregation has more rounds with samples than before if this many times as many are affordable. It has fewer at
/// once.
const MORE: f64 = 1.1;

/// The weight of the parts of surveys before the last one in the cost of a block.
const RECENT_PARTS: f64 = 0.75;

/// Shares the budget out. See the documentation of the module.
#[derive(Clone, Debug)]
pub struct Controller {
    budget: Budget,
    start: Start,
    /// The survey interval, if it is fixed.
    fixed: Option<Duration>,
    surveys: bool,
    samples: bool,
    /// Whether the budget bounds samples.
    bounds_samples: bool,
    now: Duration,
    /// CPU time that was spent beyond the budget and not saved again, in seconds: at most 0. What was saved before does
    /// not count.
    balance: f64,
    /// What was spent of the credit for the start, in seconds.
    started: f64,
    window: Window,
    survey: SurveyCost,
    /// The CPU time of a round with samples on the mean, in seconds.
    round: Option<f64>,
    /// How many accessed bits a round with samples clears on the mean.
    round_clears: f64,
    /// The number of rounds with samples in an aggregation, at least 1.
    rounds: u32,
    /// The shares of one CPU that were spent recently, on all work and on work other than surveys and sampling.
    recent_share: f64,
    other: RecentShare,
}

impl Controller {
    /// A controller for a run. `surveys` and `samples` say what there is; `fixed` is the survey interval if the user
    /// has chosen one.
    pub fn new(budget: Budget, surveys: bool, samples: bool, fixed: Option<Duration>) -> Self {
        Self {
            budget,
            start: Start::default(),
            fixed,
            surveys,
            samples,
            bounds_samples: true,
            now: Duration::ZERO,
            balance: 0.0,
            started: 0.0,
            window: Window::default(),
            survey: SurveyCost::default(),
            round: None,
            round_clears: 0.0,
            rounds: 1,
            recent_share: 0.0,
            other: RecentShare::default(),
        }
    }

    /// A controller that leaves samples out of the budget, which is then for all other work. Samples are taken as often
    /// as the user has asked for.
    #[must_use]
    pub fn with_all_samples(self) -> Self {
        Self { bounds_samples: false, ..self }
    }

    /// A controller that takes so much of the targets' time at the start.
    #[must_use]
    pub fn starting(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// Changes the budget from now on, for runs that share one.
    pub(crate) fn set_shares(&mut self, shares: Shares) {
        self.budget.set_shares(shares);
    }

    /// The shares that the run would take at its shortest intervals, where the targets lose this to surveys. Infinite
    /// as long as they are not known.
    pub(crate) fn need(&self, sampling: Duration, lost_to_surveys: f64) -> Shares {
        let cpu = (self.survey_need() + self.sampling_need(sampling) + self.other.mean()) / PLANNED;
        let lost = self.lost_in_round() / sampling.as_secs_f64().max(1e-6);
        Shares { cpu, targets: lost_to_surveys.max(lost / MOST_SAMPLES) }
    }

    /// Takes in that a part of a survey did `work` for `cpu` until `now`.
    pub fn surveyed(&mut self, now: Duration, cpu: Duration, work: SurveyWork) {
        let (counts, most) = (!self.is_start(), self.planned_part());
        self.spend(now, cpu);
        let cpu = cpu.as_secs_f64();
        let part = PART * self.budget.cpu;
        let cost = &mut self.survey;
        // The first part opens the targets, which takes long, and may have few blocks. It stands for others only until
        // there is one.
        let (before, blocks) = if cost.count > 1 { cost.parts } else { Default::default() };
        cost.count += 1;
        cost.parts = (before * RECENT_PARTS + cpu, blocks * RECENT_PARTS + (work.read + work.cleared).max(1) as f64);
        cost.block = Some(cost.parts.0 / cost.parts.1);
        cost.last_part = if counts { cpu } else { cpu.min(most) };
        cost.so_far += cpu;
        cost.blocks_so_far += work.read;
        let part_blocks = (part / cost.block.unwrap_or(0.0).max(1e-9)).max(LEAST_BLOCKS);
        let change = part_blocks / cost.part_blocks.max(1e-9);
        if !(LEAST_CHANGE..=MOST_CHANGE).contains(&change) {
            cost.part_blocks = part_blocks;
        }
        if work.is_last_part {
            cost.end(now <= START);
        }
    }

    /// Takes in that `rounds` rounds with samples took `cpu` until `now`, and cleared so many accessed bits.
    pub fn sampled(&mut self, now: Duration, cpu: Duration, rounds: u32, clears: u64) {
        let bounded = if self.bounds_samples { cpu } else { Duration::ZERO };
        self.spend(now, bounded);
        self.recent_share += (cpu - bounded).as_secs_f64() / MEAN_TIME;
        if rounds > 0 {
            let round = cpu.as_secs_f64() / f64::from(rounds);
            // The mean of about ten rounds.
            let weight = (f64::from(rounds) / 10.0).min(0.5);
            self.round = Some(self.round.map_or(round, |mean| mean + (round - mean) * weight));
            self.round_clears += (clears as f64 / f64::from(rounds) - self.round_clears) * weight;
        }
    }

    /// Takes in that other work took `cpu` until `now`, since it was taken in last.
    pub fn worked(&mut self, now: Duration, cpu: Duration) {
        self.spend(now, cpu);
        self.other.spend(now, cpu);
    }

    fn spend(&mut self, now: Duration, cpu: Duration) {
        let passed = now.saturating_sub(self.now).as_secs_f64();
        // What was begun at the start is paid for by the credit.
        let counts = self.now > START;
        self.now = self.now.max(now);
        let cpu = cpu.as_secs_f64();
        self.recent_share = (self.recent_share + cpu / MEAN_TIME) * (-passed / MEAN_TIME).exp();
        if counts {
            self.balance = (self.balance + passed * self.budget.cpu - cpu).min(0.0);
            self.window.spend(now, cpu);
        } else {
            self.started += cpu;
        }
    }

    /// What is planned for the start, in seconds of CPU time.
    fn credit(&self) -> f64 {
        let Budget { cpu, .. } = self.budget;
        PLANNED * (CREDIT * cpu).min(MOST_CREDIT).max(cpu * START.as_secs_f64())
    }

    /// The part of the credit that is left, without what is kept for readings of the panel until the end of the start.
    fn credit_left(&self) -> f64 {
        let kept = KEPT * START.saturating_sub(self.now).as_secs_f64() / START.as_secs_f64();
        ((1.0 - kept) * self.credit() - self.started).max(0.0)
    }

    /// Whether there is credit for a part of a survey.
    fn is_start(&self) -> bool {
        self.now < START && self.credit_left() >= self.credit() * START_PART
    }

    /// The earliest time at which a piece of work that costs `cpu` keeps the last ten seconds within the budget. If
    /// there is too much other work, that time moves on with the clock, so that work that is due does not wait for it
    /// for ever: see [`SurveySettings::postpone`].
    pub(crate) fn earliest(&self, cpu: Duration, sampling: Duration) -> Duration {
        let most = WINDOW.as_secs_f64() * self.budget.cpu - cpu.as_secs_f64();
        // What is done meanwhile.
        let rate = self.shares(sampling).1.min(self.sampling_need(sampling)) + self.other.mean();
        self.window.below(self.now, most, rate)
    }

    /// How much may be spent at once, so that with the next part of a survey the last ten seconds keep the budget.
    pub(crate) fn left(&self) -> Duration {
        let left = WINDOW.as_secs_f64() * self.budget.cpu - self.window.sum() - self.expected_part();
        Duration::from_secs_f64(left.max(0.0))
    }

    /// The shares of one CPU for surveys and for samples.
    fn shares(&self, sampling: Duration) -> (f64, f64) {
        let saved = (1.0 + (self.balance + self.piece()) / (REPAYMENT * self.budget.cpu)).clamp(LEAST, 1.0);
        let share = ((self.budget.cpu * PLANNED - self.other.mean()) * saved).max(self.budget.cpu * LEAST);
        let (surveys, samples) = (self.survey_need(), self.sampling_need(sampling));
        if surveys + samples <= share {
            return (share - samples, share - surveys);
        }
        let beside = self.budget.cpu * MOST_BESIDE;
        let not_rare = surveys * (self.shortest().as_secs_f64() / RARE_INTERVAL.as_secs_f64());
        // Where other work or samples that the user has asked for take most of the budget, surveys still have a part.
        let is_soon = self.survey.whole().is_some_and(|whole| whole <= beside * SOON.as_secs_f64());
        let least = if is_soon { beside.min(not_rare) } else { 0.0 }.max(self.budget.cpu * LEAST_SURVEYS);
        let not_rare = not_rare.min(share * MOST_SURVEYS);
        let surveys = surveys.min((share / 2.0).max(not_rare).max(share - samples).max(least));
        (surveys, (share - surveys).max(self.budget.cpu * LEAST))
    }

    /// The cost of a part of a survey and a round with samples together. It is spent at once, and compensated by the
    /// time until the next.
    fn piece(&self) -> f64 {
        self.expected_part() + if self.bounds_samples { self.round.unwrap_or(0.0) } else { 0.0 }
    }

    /// The expected cost of the next part of a survey.
    fn expected_part(&self) -> f64 {
        let block = self.survey.block.unwrap_or(0.0);
        (self.part_blocks() * block).min(self.survey.whole().unwrap_or(f64::INFINITY))
    }

    /// The CPU time that is planned for a part of a survey, in seconds.
    fn planned_part(&self) -> f64 {
        match self.in_one_part() {
            _ if self.is_start() => START_PART * self.credit(),
            Some(whole) => whole,
            None => PART * self.budget.cpu,
        }
    }

    /// What a survey costs, if it is done at once although it takes longer than a part.
    fn in_one_part(&self) -> Option<f64> {
        let part = PART * self.budget.cpu;
        self.survey.whole().filter(|whole| part < *whole && *whole <= MOST_PARTS * part)
    }

    /// How many blocks the next part of a survey reads.
    fn part_blocks(&self) -> f64 {
        match self.survey.block {
            None => FIRST_BLOCKS,
            Some(block) if self.is_start() => (self.planned_part() / block.max(1e-9)).max(LEAST_BLOCKS),
            Some(_) if self.in_one_part().is_some() => LONGER * self.survey.blocks as f64,
            Some(_) => self.survey.part_blocks,
        }
    }

    /// The share of one CPU that surveys at the shortest interval take. Infinite as long as it is not known, because no
    /// survey has ended.
    fn survey_need(&self) -> f64 {
        if self.surveys { self.survey.whole().unwrap_or(f64::INFINITY) / self.shortest().as_secs_f64() } else { 0.0 }
    }

    /// The shortest survey interval.
    fn shortest(&self) -> Duration {
        self.fixed.unwrap_or(SHORTEST)
    }

    /// The share of one CPU that samples in each round take, if the budget bounds it.
    fn sampling_need(&self, sampling: Duration) -> f64 {
        let is_bounded = self.samples && self.bounds_samples;
        if is_bounded { self.round.unwrap_or(0.0) / sampling.as_secs_f64().max(1e-6) } else { 0.0 }
    }

    /// How to survey from now on. `sampling` is the sampling interval in force.
    pub fn survey_settings(&self, sampling: Duration) -> SurveySettings {
        let is_start = self.is_start();
        let at_start = self.credit() / (START.as_secs_f64() * SPENT_IN);
        let share = self.shares(sampling).0.max(if is_start { at_start } else { 0.0 });
        let whole = self.survey.whole().unwrap_or(self.survey.so_far);
        let of_part = self.expected_part();
        let time = |cpu: f64| Duration::from_secs_f64((cpu / share).min(1e6));
        let (interval, part_gap) = match self.fixed {
            // The parts have to fit the interval.
            Some(fixed) => (fixed, fixed.mul_f64((of_part / whole.max(1e-9)).min(1.0) * PLANNED)),
            // What was spent at once is paid for before the next part.
            None => (time(whole).max(SHORTEST), time(self.survey.last_part)),
        };
        SurveySettings {
            interval,
            longest_to_learn: if self.fixed.is_some() { Duration::MAX } else { RARE_INTERVAL },
            part_blocks: self.part_blocks() as usize,
            part_time: Duration::from_secs_f64(LONGER * self.planned_part()),
            part_gap,
            early_gap: if is_start { Duration::ZERO } else { time((of_part - self.balance).max(0.0)) },
            earliest: match self.fixed {
                Some(_) => Duration::ZERO,
                None => self.earliest(Duration::from_secs_f64(of_part), sampling),
            },
            target_share: self.target_share(),
            set_again: self.budget.set_again,
            clears: self.clears(share),
            clear_page: self.clear_page(),
            panel: match is_start {
                true => START_READING * self.credit_left() / panel::LONGEST.as_secs_f64(),
                false => PANEL * self.budget.cpu,
            },
            draw: Duration::from_secs_f64(match is_start {
                true => START_DRAW * self.credit_left(),
                false => DRAW * self.budget.cpu,
            }),
            page: Duration::from_secs_f64(self.survey.block.unwrap_or(0.0) / BLOCK_PAGES as f64) + self.budget.clear,
        }
    }

    /// The share of one CPU that targets may lose now. The first survey may use what a second allows at once.
    fn target_share(&self) -> f64 {
        let Budget { targets, .. } = self.budget;
        match self.start {
            Start::Quick if self.now + SHORTEST < START => targets.max(QUICK),
            Start::Quick | Start::Gentle => targets,
        }
    }

    /// How many blocks are read in the time in which a page is cleared.
    fn clear_page(&self) -> f64 {
        let block = self.survey.block.unwrap_or(0.0).max(1e-9);
        (self.budget.clear.as_secs_f64() / block).clamp(CLEAR_PAGE / MOST_RATIO, CLEAR_PAGE * 2.0)
    }

    /// The most pages that a survey may clear with this share of one CPU: clearing takes half as long as reading, or
    /// what is left if surveys come each [`CLEARING_INTERVAL`], or at the start a part of the credit, if that is more.
    fn clears(&self, share: f64) -> f64 {
        let Some(block) = self.survey.block.filter(|_| self.fixed.is_none()) else { return f64::INFINITY };
        let reading = self.survey.blocks as f64 * block;
        let time = match self.is_start() {
            true => START_SURVEY * self.credit_left() - reading,
            false => share * CLEARING_INTERVAL.as_secs_f64() - reading,
        };
        time.max(reading / 2.0) / self.budget.clear.as_secs_f64().max(1e-9)
    }

    /// The interval between rounds with samples from now on, in rounds. `sampling` is the sampling interval in force,
    /// and `samples` the number of rounds of an aggregation. The first round of each aggregation has samples, so that
    /// an aggregation has a whole number of them, at least one.
    pub fn every(&mut self, sampling: Duration, samples: u32) -> u32 {
        let every = match self.round {
            None => FIRST_EVERY,
            Some(_) => self.least_sampling(sampling).as_secs_f64() / sampling.as_secs_f64().max(1e-6),
        };
        let affordable = f64::from(samples) / every.max(1e-9);
        if affordable < f64::from(self.rounds) {
            self.rounds = (affordable as u32).max(1);
        } else {
            self.rounds = self.rounds.max((affordable / MORE) as u32).min(samples).max(1);
        }
        self.every_in_force(samples)
    }

    fn every_in_force(&self, samples: u32) -> u32 {
        samples.div_ceil(self.rounds).max(1)
    }

    /// The shortest time from a round with samples to the next that the budget allows. Zero as long as it is not known.
    pub fn least_sampling(&self, sampling: Duration) -> Duration {
        let time = self.round.unwrap_or(0.0) / self.shares(sampling).1.max(1e-9);
        Duration::from_secs_f64(time.max(self.least_for_targets()).min(1e6))
    }

    /// The time in which half of the budget pays for a round with samples. An aggregation has one at least, and so
    /// takes as long. Zero as long as it is not known, and if the budget does not bound samples.
    pub(crate) fn least_aggregation(&self) -> Duration {
        let round = self.round.filter(|_| self.bounds_samples).unwrap_or(0.0);
        Duration::from_secs_f64((round / (self.budget.cpu * PLANNED / 2.0)).min(1e6))
    }

    /// The shortest time, in seconds, from a round with samples to the next by what these may cost the targets.
    fn least_for_targets(&self) -> f64 {
        self.lost_in_round() / (self.budget.targets * MOST_SAMPLES).max(1e-9)
    }

    /// The time, in seconds, that targets lose to what a round with samples clears.
    fn lost_in_round(&self) -> f64 {
        self.round_clears * self.budget.set_again.as_secs_f64()
    }

    /// The CPU time of a round with samples on the mean. Zero as long as it is not known.
    pub fn round(&self) -> Duration {
        Duration::from_secs_f64(self.round.unwrap_or(0.0))
    }

    /// What the run has settled on.
    pub fn pace(&self, sampling: Duration, samples: u32) -> Pace {
        let settings = self.survey_settings(sampling);
        let surveys = if self.survey.whole().is_some() { self.survey_need() } else { 0.0 };
        let need = surveys + self.sampling_need(sampling);
        Pace {
            survey_interval: self.surveys.then_some(settings.interval),
            sampling_interval: self.samples.then(|| sampling * self.every_in_force(samples)),
            cpu: self.recent_share,
            is_limited: need + self.other.mean() > self.budget.cpu * PLANNED
                || self.samples && self.bounds_samples && self.least_for_targets() > sampling.as_secs_f64(),
        }
    }
}
