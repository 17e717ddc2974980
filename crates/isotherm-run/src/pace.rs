//! How often all pages are surveyed.

use std::time::Duration;

/// The share of one CPU that surveys take: half of the budget of the monitor. Sampling has the other half.
const SHARE: f64 = 0.005;

/// The shortest interval that is chosen.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest interval that is chosen.
const LONGEST: Duration = Duration::from_secs(60);

/// The survey interval, which follows from what surveys cost unless it is fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyPace {
    interval: Duration,
    follows_cost: bool,
}

impl SurveyPace {
    /// The same interval always.
    pub(crate) const fn fixed(interval: Duration) -> Self {
        Self { interval, follows_cost: false }
    }

    /// As often as the budget allows.
    pub(crate) const fn automatic() -> Self {
        Self { interval: SHORTEST, follows_cost: true }
    }

    /// The interval from the last survey to the next.
    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes in the CPU time of a survey. The interval moves half of the way to what the budget allows, so that one
    /// expensive survey does not change it much.
    pub(crate) fn cost(&mut self, cpu: Duration) {
        if self.follows_cost {
            let allowed = cpu.div_f64(SHARE).clamp(SHORTEST, LONGEST);
            self.interval = (self.interval + allowed) / 2;
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
        assert_eq!([after(1), after(50), after(10_000), after(0)], [1.0, 10.0, 60.0, 1.0]);
    }

    #[test]
    fn a_fixed_interval_stays() {
        let mut pace = SurveyPace::fixed(Duration::from_secs(3));
        pace.cost(Duration::from_secs(1));
        assert_eq!(pace.interval(), Duration::from_secs(3));
    }
}
