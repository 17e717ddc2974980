//! What was spent recently.

use std::time::Duration;

use super::budget::START;

/// The time over which the recently spent share is a mean.
pub(super) const MEAN_TIME: f64 = 10.0;

/// The budget holds over each time of this length.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The length of the steps in which the spent CPU time is known.
const WINDOW_STEP: Duration = Duration::from_millis(200);

/// How many steps a window has, with the one that has begun.
const WINDOW_STEPS: usize = 51;

/// The share of one CPU that some work took recently. The work at the start, on memory that is seen for the first time,
/// does not come again, and does not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentShare {
    mean: f64,
    /// When it was taken in last.
    at: Duration,
}

impl RecentShare {
    /// Takes in what the work took until `now`, since it was taken in last.
    pub(crate) fn spend(&mut self, now: Duration, cpu: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.at, now)).as_secs_f64();
        let counted = now.saturating_sub(START).as_secs_f64();
        if passed > 0.0 && counted > 0.0 {
            let share = cpu.as_secs_f64() / passed;
            let weight = (1.0 - (-passed / MEAN_TIME).exp()).max(passed / counted).min(1.0);
            self.mean += (share - self.mean) * weight;
        }
    }

    /// The share, over about the last ten seconds.
    pub(crate) fn mean(self) -> f64 {
        self.mean
    }
}

/// The CPU time that was spent in the last ten seconds, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// By step. The step of a time is at the number of the step modulo the number of steps.
    spent: [f64; WINDOW_STEPS],
    /// The number of the step that has begun, since the start of the run.
    step: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { spent: [0.0; WINDOW_STEPS], step: 0 }
    }
}

impl Window {
    /// Takes in what was spent until `now`, which is not before the last time.
    pub(super) fn spend(&mut self, now: Duration, cpu: f64) {
        let step = (now.as_nanos() / WINDOW_STEP.as_nanos()) as usize;
        let passed = step.saturating_sub(self.step).min(WINDOW_STEPS);
        (1..=passed).for_each(|nth| self.spent[(step + nth - passed) % WINDOW_STEPS] = 0.0);
        self.step = self.step.max(step);
        self.spent[self.step % WINDOW_STEPS] += cpu;
    }

    /// What was spent in the last ten seconds.
    pub(super) fn sum(&self) -> f64 {
        self.spent.iter().sum()
    }

    /// The earliest time from `now` on at which no more than `most` was spent in the last ten seconds, if `rate` is the
    /// share of a CPU that is spent until then. At most ten seconds after `now`.
    pub(super) fn below(&self, now: Duration, most: f64, rate: f64) -> Duration {
        let mut spent = self.sum();
        for left in 0..WINDOW_STEPS {
            let at = if left == 0 { now } else { WINDOW_STEP * (self.step + left) as u32 };
            if spent + at.saturating_sub(now).as_secs_f64() * rate <= most {
                return at;
            }
            // The oldest step leaves the window when its end is as old as the window is long.
            spent -= self.spent[(self.step + 1 + left) % WINDOW_STEPS];
        }
        now + WINDOW
    }
}
