//! The CPU time of all that is not the watching of groups: requests, streams, metrics, overviews, and the order of the
//! history. It is a part of the budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_kernel::monitor_cpu_time;

/// The time over which the mean goes. A report that takes 0.3 s of CPU at once takes half a percent of a CPU off the
/// budget for a minute, so that the groups are watched less often for a while, and not hardly at all for a second.
const MEAN: Duration = Duration::from_secs(60);

/// The CPU time so far, of all threads that serve.
#[derive(Debug, Default)]
pub struct Serving(AtomicU64);

impl Serving {
    /// Does some work on the calling thread, and counts the CPU time that it takes.
    pub fn counted<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let began = monitor_cpu_time();
        let done = work();
        let took = monitor_cpu_time().saturating_sub(began);
        self.add(took);
        (done, took)
    }

    /// Counts CPU time that was taken.
    pub fn add(&self, took: Duration) {
        // 500 years fit in.
        self.0.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// All of it.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The share of one CPU that serving takes on the mean of the last minute or so.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    share: f64,
    /// When it was taken, and the CPU time by then.
    last: (Instant, Duration),
}

impl Mean {
    /// Nothing yet.
    pub fn new(now: Instant, cpu: Duration) -> Self {
        Self { share: 0.0, last: (now, cpu) }
    }

    /// Takes in the CPU time by now. Returns the mean.
    pub fn take(&mut self, now: Instant, cpu: Duration) -> f64 {
        let (time, before) = self.last;
        let passed = now.saturating_duration_since(time).as_secs_f64();
        if passed > 0.0 {
            let share = cpu.saturating_sub(before).as_secs_f64() / passed;
            self.share += (share - self.share) * (1.0 - (-passed / MEAN.as_secs_f64()).exp());
            self.last = (now, cpu);
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_work_is_counted() {
        let serving = Serving::default();
        let (sum, took) = serving.counted(|| (0..2_000_000_u64).fold(0, |sum, n| sum ^ std::hint::black_box(n)));
        assert!(sum < 1 << 21 && took > Duration::ZERO && serving.cpu() == took);
        serving.add(took);
        assert_eq!(serving.cpu(), took * 2);
    }

    #[test]
    fn what_is_taken_at_once_is_kept_back_bit_by_bit() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut mean = Mean::new(begin, Duration::ZERO);
        // 300 ms in the first second, and nothing after that.
        let seconds = (1..=600).map(|nth| mean.take(begin + ms(1000 * nth), ms(300)));
        let shares: Vec<f64> = seconds.collect();
        assert!(shares[0] < 0.006 && shares[0] > 0.004, "{}", shares[0]);
        assert!(shares.windows(2).all(|pair| pair[1] < pair[0]));
        let all: f64 = shares.iter().sum();
        assert!((all - 0.3).abs() < 0.01, "{all} s are kept back");
        assert_eq!(mean.take(begin, ms(900)), shares[599], "no time has passed");
    }
}
