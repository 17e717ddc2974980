//! How often all pages are surveyed, and how often pages are sampled, within a budget of CPU time.

use std::time::Duration;

/// The share of one CPU that surveys take. Together with sampling, it leaves room within 1 % for the start of a run.
const SHARE: f64 = 0.004;

/// The shortest interval that is chosen.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest interval that is chosen.
const LONGEST: Duration = Duration::from_secs(60);

/// The survey interval, which follows from what surveys cost unless it is fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyPace {
    interval: Duration,
    follows_cost: bool,
    surveys: u32,
}

impl SurveyPace {
    /// The same interval always.
    pub(crate) const fn fixed(interval: Duration) -> Self {
        Self { interval, follows_cost: false, surveys: 0 }
    }

    /// As often as the budget allows.
    pub(crate) const fn automatic() -> Self {
        Self { interval: SHORTEST, follows_cost: true, surveys: 0 }
    }

    /// The interval from the last survey to the next.
    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes in the CPU time of a survey. The interval moves half of the way to what the budget allows, so that one
    /// expensive survey does not change it much. The first survey clears what was accessed since the targets began, so
    /// that it says nothing about the cost of the next ones.
    pub(crate) fn cost(&mut self, cpu: Duration) {
        self.surveys = self.surveys.saturating_add(1);
        if self.follows_cost && self.surveys > 1 {
            let allowed = cpu.div_f64(SHARE).clamp(SHORTEST, LONGEST);
            self.interval = (self.interval + allowed) / 2;
        }
    }
}

/// The share of one CPU that sampling takes.
const SAMPLING_SHARE: f64 = 0.004;

/// Of so many rounds, one has samples at the start, until it is known what samples cost.
const FIRST_SPARED: u32 = 10;

/// The most rounds of which one has samples: all rounds of an aggregation by default.
const MOST_SPARED: u32 = 20;

/// Of how many rounds one has samples, which follows from what samples cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplingPace {
    every: u32,
    /// The mean CPU time of sampling in proportion to the time that has passed.
    share: f64,
}

impl SamplingPace {
    pub(crate) const fn new() -> Self {
        Self { every: FIRST_SPARED, share: SAMPLING_SHARE }
    }

    /// Of how many rounds one has samples.
    pub(crate) const fn every(&self) -> u32 {
        self.every
    }

    /// Takes in the CPU time that sampling took in `time`. The mean is over about ten of these, so that one slow
    /// aggregation does not count much.
    pub(crate) fn cost(&mut self, cpu: Duration, time: Duration) {
        let share = cpu.as_secs_f64() / time.as_secs_f64().max(1e-6);
        self.share += (share - self.share) / 10.0;
        let excess = self.share / SAMPLING_SHARE;
        if excess > 1.2 && self.every < MOST_SPARED {
            self.every = (f64::from(self.every) * excess.min(2.0)).ceil().min(MOST_SPARED.into()) as u32;
            self.share = SAMPLING_SHARE;
        } else if excess < 0.5 && self.every > 1 {
            self.every -= 1;
            self.share = SAMPLING_SHARE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_the_cost_within_its_bounds() {
        let mut pace = SurveyPace::automatic();
        let mut after = |ms| {
            (0..20).for_each(|_| pace.cost(Duration::from_millis(ms)));
            pace.interval().as_secs_f64().round()
        };
        assert_eq!([after(1), after(40), after(10_000), after(0)], [1.0, 10.0, 60.0, 1.0]);
    }

    #[test]
    fn samples_are_spared_until_they_fit_the_budget() {
        let mut pace = SamplingPace::new();
        let second = Duration::from_secs(1);
        let settled = |pace: &mut SamplingPace, cpu: Duration| {
            (0..1000).for_each(|_| pace.cost(cpu / pace.every(), second));
            pace.every()
        };
        assert_eq!(settled(&mut pace, Duration::from_millis(3)), 1);
        let spared = settled(&mut pace, Duration::from_millis(40));
        assert!((7..=MOST_SPARED).contains(&spared), "{spared}");
        assert_eq!(settled(&mut pace, second), MOST_SPARED);
        assert_eq!(settled(&mut pace, Duration::from_millis(1)), 1);
    }

    #[test]
    fn a_fixed_interval_stays() {
        let mut pace = SurveyPace::fixed(Duration::from_secs(3));
        pace.cost(Duration::from_secs(1));
        assert_eq!(pace.interval(), Duration::from_secs(3));
    }
}
