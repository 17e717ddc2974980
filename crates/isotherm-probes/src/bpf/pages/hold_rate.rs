//! Estimates how long page faults of a process wait for a walk of its page tables, from the walks that were measured.

use std::collections::VecDeque;
use std::sync::OnceLock;

use isotherm_kernel::clear_refs::price;

/// The seconds that a walk takes for each byte where it cannot be measured: 20 ms for 1 GiB.
const SLOW: f64 = 20e-3 / (1 << 30) as f64;

/// The seconds that a walk takes for each mapping of the process, also for one whose pages it does not walk: 48 ms for
/// 60,000 (Linux 6.18, `bench/latency`).
const MAPPING: f64 = 1e-6;

/// How many walks the estimate rests on.
const WALKS: usize = 5;

/// Walks of less memory than this, in bytes, do not change the estimate: their fixed part outweighs the rest.
const LEAST_MEASURED: u64 = 16 << 20;

/// Up to this much memory, in bytes, the first walk is taken to be as slow as it is where it cannot be measured: 1.25
/// ms at most. To measure it would take longer than that.
const LITTLE: u64 = 64 << 20;

/// How often memory is left out before the price is measured again.
const AGAIN: u32 = 16;

/// How long a walk takes, for each byte.
///
/// The estimate is the longest of the last walks, so that few walks take longer than it. Before the first walk, it is
/// the [`price`] of memory of this process, unless there is [little](LITTLE) to walk. It is CPU time, so that it does
/// not contain the waits for a processor.
#[derive(Debug, Default)]
pub(super) struct HoldRate {
    /// The seconds for each byte of the last walks.
    last: VecDeque<f64>,
    /// The same of this process's own memory. It takes some milliseconds to measure.
    own: OnceLock<f64>,
    /// How often memory was left out.
    left_out: u32,
}

impl HoldRate {
    /// The seconds that a walk of `bytes` of a process with so many mappings is going to take.
    pub(super) fn seconds(&self, bytes: u64, mappings: usize) -> f64 {
        let longest = self.last.iter().copied().max_by(f64::total_cmp);
        let rate = longest.unwrap_or_else(|| match bytes {
            ..=LITTLE => SLOW,
            _ => *self.own.get_or_init(|| price().unwrap_or(SLOW)),
        });
        bytes as f64 * rate + mappings as f64 * MAPPING
    }

    /// Notes that a walk of `bytes` of a process with so many mappings took so many seconds.
    pub(super) fn measured(&mut self, bytes: u64, mappings: usize, seconds: f64) {
        if bytes >= LEAST_MEASURED {
            self.last.push_front((seconds - mappings as f64 * MAPPING).max(0.0) / bytes as f64);
            self.last.truncate(WALKS);
        }
    }

    /// Forgets the oldest walk. What is left out because of its estimate is not measured again, so this is called for
    /// each survey that leaves it out. It is tried again then, by the price of this process's own memory.
    pub(super) fn forget(&mut self) {
        self.last.pop_back();
        self.left_out += 1;
        if self.left_out.is_multiple_of(AGAIN) {
            self.own = OnceLock::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn usual() -> HoldRate {
        HoldRate { own: OnceLock::from(1e-3 / GIB as f64), ..HoldRate::default() }
    }

    #[test]
    fn the_estimate_is_the_longest_of_the_last_walks_and_before_the_first_that_of_own_memory() {
        let mut rate = usual();
        assert_eq!((rate.seconds(2 * GIB, 0), rate.seconds(GIB, 1000)), (2e-3, 2e-3));
        [5e-3, 9e-3, 6e-3].iter().for_each(|&walk| rate.measured(GIB, 0, walk));
        assert_eq!(rate.seconds(GIB, 0), 9e-3);
        (0..WALKS).for_each(|_| rate.measured(GIB, 0, 4e-3));
        assert_eq!(rate.seconds(GIB, 0), 4e-3);
    }

    #[test]
    fn slow_walks_are_forgotten_where_none_are_measured_and_own_memory_is_measured_again() {
        let mut rate = usual();
        (0..WALKS).for_each(|_| rate.measured(GIB, 0, 1.0));
        (0..WALKS - 1).for_each(|_| rate.forget());
        assert_eq!(rate.seconds(GIB, 0), 1.0);
        rate.forget();
        assert_eq!(rate.seconds(GIB, 0), 1e-3);
        (0..AGAIN).for_each(|_| rate.forget());
        assert!(rate.own.get().is_none() && rate.seconds(GIB, 0) > 0.0);
    }

    #[test]
    fn the_price_of_own_memory_is_not_measured_for_little_memory() {
        let rate = HoldRate::default();
        assert!(rate.seconds(LITTLE, 0) < 2e-3 && rate.own.get().is_none());
    }

    #[test]
    fn walks_of_little_memory_say_nothing() {
        let mut rate = usual();
        (0..WALKS).for_each(|_| rate.measured(PAGE, 0, 1.0));
        assert_eq!(rate.seconds(GIB, 0), 1e-3);
    }

    const PAGE: u64 = 4096;
}
