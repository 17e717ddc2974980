//! Counts the page faults of a process: whether they are so rare that hardly any meets a clear.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::TargetId;
use isotherm_kernel::page_faults;

/// Page faults are rare if at most this part of the clears meets one.
const MET: f64 = 0.05;

/// The least time between two counts. Faults of less time do not tell how many there are.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// The page faults of a process.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// When they were counted, and how many there had been.
    last: Option<(Instant, u64)>,
    /// How many there were in each second of the time between the last two counts.
    per_second: Option<f64>,
}

impl Faults {
    /// Counts the page faults of `target` until now, unless that was done a moment ago. A process that maps memory has
    /// page faults there soon.
    pub(super) fn count(&mut self, target: TargetId) {
        if self.last.is_some_and(|(then, _)| then.elapsed() < LEAST_TIME) {
            return;
        }
        let faults = target.pid().and_then(|pid| page_faults(Path::new("/"), pid).ok());
        match faults {
            Some(faults) => self.counted(Instant::now(), faults),
            None => *self = Self::default(),
        }
    }

    /// Takes in how many page faults there had been at a time.
    pub(super) fn counted(&mut self, now: Instant, faults: u64) {
        let Some((then, before)) = self.last.replace((now, faults)) else { return };
        let time = now.saturating_duration_since(then).max(Duration::from_nanos(1));
        self.per_second = Some(faults.saturating_sub(before) as f64 / time.as_secs_f64());
    }

    /// Whether hardly any page fault would wait for a clear that takes this long.
    pub(super) fn are_rare(&self, hold: Duration) -> bool {
        self.per_second.is_some_and(|per_second| per_second * hold.as_secs_f64() <= MET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the page faults are rare, that were counted after these seconds, for a clear of 20 ms.
    fn are_rare(counts: &[(u64, u64)]) -> bool {
        let (mut faults, began) = (Faults::default(), Instant::now());
        counts.iter().for_each(|&(second, count)| faults.counted(began + Duration::from_secs(second), count));
        faults.are_rare(Duration::from_millis(20))
    }

    #[test]
    fn page_faults_are_rare_if_one_clear_in_twenty_meets_one() {
        assert!(are_rare(&[(0, 7000), (4, 7010)]));
        assert!(!are_rare(&[(0, 7000), (4, 7011)]));
        // Those of the start do not count later.
        assert!(are_rare(&[(0, 0), (4, 7000), (8, 7000)]));
    }

    #[test]
    fn page_faults_that_were_counted_once_say_nothing() {
        assert!(!are_rare(&[]));
        assert!(!are_rare(&[(5, 7)]));
    }
}
