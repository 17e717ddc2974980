//! A run without a kernel: rounds and surveys cost made-up CPU time, and the pacer of real runs paces them.

use std::time::Duration;

use isotherm_core::survey::SurveySettings;
use isotherm_core::{
    AddrRange, Attributes, Budget, Figures, IntervalsGoal, PaceOptions, Pacer, RegionSnapshot, Shares, Snapshot, Start,
    StepWork, SurveyInterval, SurveyWork, TargetId, TargetSnapshot,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What work costs, in seconds of CPU time.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A round with samples.
    pub round: f64,
    /// How many accessed bits a round with samples clears.
    pub sampled: u64,
    /// A wake-up.
    pub wake: f64,
    /// Reading a block in a survey.
    pub block: f64,
    /// How many pages of each block a survey clears. The first survey clears all 512.
    pub clears: f64,
    /// Clearing a page.
    pub clear: f64,
    /// Reading the mappings, at most five times a second.
    pub update: f64,
    /// The helper threads, in a second.
    pub helpers: f64,
    /// Each piece of work costs from `1 / noise.0` times to `noise.1` times as much.
    pub noise: (f64, f64),
}

impl Costs {
    /// All costs but the noise, multiplied by `factor`.
    pub fn times(self, factor: f64) -> Self {
        let Self { round, sampled, wake, block, clears, clear, update, helpers, noise } = self;
        let [round, wake, block, clear, update, helpers] =
            [round, wake, block, clear, update, helpers].map(|cost| cost * factor);
        Self { round, sampled, wake, block, clears, clear, update, helpers, noise }
    }
}

/// CPU time that was spent in one piece, which the controller cannot divide.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// When the piece began, in seconds.
    pub at: f64,
    /// Of sampling, in seconds.
    pub sampling: f64,
    /// Of a survey, in seconds.
    pub survey: f64,
}

impl Spent {
    pub fn cpu(&self) -> f64 {
        self.sampling + self.survey
    }
}

/// The intervals in force at a time, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub at: f64,
    pub survey: f64,
    pub sampling: f64,
}

/// A run with a pacer. The memory has `blocks` blocks.
pub struct World {
    pub costs: Costs,
    pub blocks: u64,
    pub spent: Vec<Spent>,
    pub intervals: Vec<Intervals>,
    rng: Pcg64Mcg,
    pacer: Pacer,
    attributes: Attributes,
    every: u32,
    survey: SurveySettings,
    now: Duration,
    /// The round that is under way: when it is over, whether it has samples, and rounds of the aggregation so far.
    due: Duration,
    has_samples: bool,
    rounds: u32,
    /// Up to when the helper threads were charged.
    helped: Duration,
    updated: Duration,
    update_due: Duration,
    /// When the last part of a survey was done.
    part_at: Option<Duration>,
    survey_began: Duration,
    /// When each survey has ended, in seconds.
    pub surveys: Vec<f64>,
    /// What is left to do of the survey under way, in blocks.
    left: u64,
}

/// The update interval.
const UPDATE: Duration = Duration::from_millis(200);

/// How many blocks the monitor counts for clearing a page.
const CLEARING: f64 = 0.018;

/// What is due this long before the end of a round waits for it.
const SHORTLY: Duration = Duration::from_millis(50);

impl World {
    /// A run that begins, with the default attributes and this budget.
    pub fn new(costs: Costs, blocks: u64, cpu: f64, seed: u64) -> Self {
        Self::adapting(costs, blocks, cpu, seed, (Some(IntervalsGoal::default()), None))
    }

    /// The same with a fixed sampling interval. Aggregations may have this length.
    pub fn with_fixed_sampling(costs: Costs, blocks: u64, cpu: f64, longest: Duration) -> Self {
        Self::adapting(costs, blocks, cpu, 1, (None, Some(longest)))
    }

    fn adapting(
        costs: Costs,
        blocks: u64,
        cpu: f64,
        seed: u64,
        (goal, longest_aggregation): (Option<IntervalsGoal>, Option<Duration>),
    ) -> Self {
        let pacer = Pacer::new(PaceOptions {
            budget: Budget { cpu, ..Budget::default() },
            start: Start::default(),
            bounds_samples: true,
            has_budget: true,
            samples: true,
            survey: Some(SurveyInterval::Auto),
            goal,
            longest_aggregation,
        });
        let attributes = Attributes::default();
        Self {
            costs,
            blocks,
            spent: Vec::new(),
            intervals: Vec::new(),
            rng: Pcg64Mcg::seed_from_u64(seed),
            survey: pacer.survey_settings(attributes),
            every: 1,
            pacer,
            attributes,
            now: Duration::ZERO,
            due: attributes.sampling(),
            has_samples: true,
            rounds: 0,
            helped: Duration::ZERO,
            updated: Duration::ZERO,
            update_due: UPDATE,
            part_at: None,
            survey_began: Duration::ZERO,
            surveys: Vec::new(),
            left: 0,
        }
    }

    /// The attributes in force.
    pub const fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Gives the run another share of one CPU.
    pub fn set_cpu(&mut self, cpu: f64) {
        self.pacer.set_shares(Shares { cpu, ..Budget::default().shares() });
    }

    /// The share that the run would take at its shortest intervals.
    pub fn need(&self) -> f64 {
        self.pacer.need(self.attributes(), 0.0).cpu
    }

    /// Goes on until this many seconds after the start.
    pub fn run(&mut self, until: f64) {
        let until = Duration::from_secs_f64(until);
        while self.now < until {
            self.step();
            let shortly = SHORTLY.min(self.attributes.sampling());
            let others = [self.survey_due(), self.update_due].into_iter().filter(|&other| other + shortly < self.due);
            self.now = self.now.max(others.min().unwrap_or(self.due));
        }
    }

    fn step(&mut self) {
        let began = self.now;
        let mut cost = self.cost(self.costs.wake);
        let is_over = began >= self.due;
        let samples = is_over && self.has_samples;
        if samples {
            cost += self.cost(self.costs.round);
        }
        let updates = began >= self.update_due;
        if updates {
            cost += self.cost(self.costs.update);
        }
        let is_aggregated = is_over && self.rounds >= self.attributes.samples();
        if is_aggregated {
            self.rounds = 0;
        }
        let part = (began >= self.survey_due()).then(|| self.survey_part());
        if is_over {
            self.begin_round();
        }
        let (of_part, blocks) = part.unwrap_or_default();
        let all = cost + of_part;
        self.spent.push(Spent { at: began.as_secs_f64(), sampling: cost, survey: of_part });
        self.now += Duration::from_secs_f64(all);
        let work = StepWork {
            samples: usize::from(samples),
            chosen: usize::from(is_over && self.has_samples),
            survey: part.map(|_| SurveyWork { read: blocks, cleared: 0, is_last_part: self.left == 0 }),
            cleared: if samples { self.costs.sampled } else { 0 },
            length: false,
            updated: updates,
            joined: 0,
            looked: false,
            panel: false,
        };
        self.account(Duration::from_secs_f64(all), work);
        if updates {
            self.updated = began;
        }
        self.update_due = self.updated + UPDATE.max(self.pacer.update_gap(self.attributes));
        if is_aggregated {
            self.aggregate();
        }
        if part.is_some() || is_aggregated {
            self.survey = self.pacer.survey_settings(self.attributes);
            self.every = self.pacer.every(self.attributes);
        }
        self.intervals.push(Intervals {
            at: began.as_secs_f64(),
            survey: self.survey.interval.as_secs_f64(),
            sampling: self.attributes.sampling().as_secs_f64() * f64::from(self.every),
        });
    }

    /// Does the next part of a survey: reads blocks, and clears pages of them. Returns what that costs, and how many
    /// blocks it counts as.
    fn survey_part(&mut self) -> (f64, u64) {
        let clears = if self.surveys.is_empty() { 512.0 } else { self.costs.clears };
        let work = 1.0 + clears * CLEARING;
        if self.left == 0 {
            self.left = (self.blocks as f64 * work) as u64;
            self.survey_began = self.now;
        }
        let blocks = self.left.min(self.survey.part_blocks.max(1) as u64);
        self.left -= blocks;
        let cost = self.cost(blocks as f64 / work * (self.costs.block + clears * self.costs.clear));
        self.part_at = Some(self.now);
        if self.left == 0 {
            self.surveys.push(self.now.as_secs_f64());
        }
        (cost, blocks)
    }

    /// When the next part of a survey is due. As in a monitor, it follows from the settings in force.
    fn survey_due(&self) -> Duration {
        let Some(part_at) = self.part_at else { return Duration::ZERO };
        let next_part = part_at + self.survey.part_gap;
        let next = self.survey_began + self.survey.interval;
        let due = match (self.left > 0, part_at > self.survey_began) {
            (true, _) => next_part,
            (false, true) => next.max(next_part),
            (false, false) => next,
        };
        self.survey.postpone(due)
    }

    fn begin_round(&mut self) {
        let to_sample = |rounds: u32| (self.every - rounds % self.every) % self.every;
        let wait = to_sample(self.rounds).min(self.attributes.samples() - self.rounds);
        self.has_samples = wait == 0;
        let length = wait.max(1);
        self.rounds += length;
        self.due = self.due.max(self.now.saturating_sub(self.attributes.sampling() / 2));
        self.due += self.attributes.sampling() * length;
    }

    /// Takes in the CPU time of a step, and that of the helper threads since the step before.
    fn account(&mut self, cpu: Duration, work: StepWork) {
        let time = self.now - std::mem::replace(&mut self.helped, self.now);
        let helpers = time.mul_f64(self.costs.helpers);
        if !helpers.is_zero() {
            let sampling = helpers.as_secs_f64();
            self.spent.push(Spent { at: self.now.as_secs_f64(), sampling, survey: 0.0 });
        }
        self.pacer.helped(helpers);
        self.pacer.stepped(self.now, work, cpu);
    }

    fn aggregate(&mut self) {
        let snapshot = Snapshot { time: self.now, ..all_hot() };
        if let Some(attributes) = self.pacer.aggregated(&snapshot, self.attributes) {
            self.attributes = attributes;
        }
    }

    fn cost(&mut self, mean: f64) -> f64 {
        let (least, most) = self.costs.noise;
        mean * (least.ln() + self.rng.random::<f64>() * (most.ln() - least.ln())).exp()
    }
}

/// Memory that is accessed all the time, so that only the budget holds the sampling interval up.
fn all_hot() -> Snapshot {
    let size = 1 << 30;
    let pages = Some(Figures { present: size, touched: size, ..Figures::default() });
    let range = AddrRange::new(0, size).expect("a range");
    let region = RegionSnapshot { nr_accesses: 20, nr_samples: 20, pages, ..RegionSnapshot::new(range) };
    let target =
        TargetSnapshot { id: TargetId::process(1, Duration::ZERO), regions: vec![region], mappings: [].into() };
    Snapshot { samples: 20, targets: vec![target], ..Snapshot::default() }
}
