//! Estimates how long page faults of a process wait for a walk of its page tables, from the walks that were measured.

/// The seconds that a walk takes at first, for each byte: 8 ms for 1 GiB.
const FIRST: f64 = 8e-3 / (1 << 30) as f64;

/// How many walks the estimate rests on.
const WALKS: usize = 5;

/// Walks of less memory than this, in bytes, do not change the estimate: their fixed part outweighs the rest.
const LEAST_MEASURED: u64 = 16 << 20;

/// How long a walk takes, for each byte.
///
/// The estimate is the second shortest of the last walks. Other load of the machine makes walks longer and never
/// shorter, as it does all that the process does meanwhile. With the median, a busy machine on which walks took twice
/// as long left 336 MiB that a process and its child share unobservable for a whole recording. Walks that are slow for
/// another reason change the estimate after the fourth.
#[derive(Debug)]
pub(super) struct HoldRate {
    /// The seconds for each byte of the last walks.
    last: [f64; WALKS],
    /// Where the next walk goes.
    next: usize,
}

impl Default for HoldRate {
    fn default() -> Self {
        Self { last: [FIRST; WALKS], next: 0 }
    }
}

impl HoldRate {
    /// The seconds that a walk of `bytes` is going to take.
    pub(super) fn seconds(&self, bytes: u64) -> f64 {
        let mut sorted = self.last;
        sorted.sort_by(f64::total_cmp);
        bytes as f64 * sorted[1]
    }

    /// Notes that a walk of `bytes` took so many seconds.
    pub(super) fn measured(&mut self, bytes: u64, seconds: f64) {
        if bytes >= LEAST_MEASURED {
            self.push(seconds / bytes as f64);
        }
    }

    /// Forgets the oldest walk. What is left out because of its estimate is not measured again, so this is called for
    /// each survey that leaves it out. It is tried again then.
    pub(super) fn forget(&mut self) {
        self.push(FIRST);
    }

    fn push(&mut self, rate: f64) {
        self.last[self.next] = rate;
        self.next = (self.next + 1) % WALKS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn single_slow_walks_do_not_change_the_estimate_and_lasting_ones_do() {
        let mut rate = HoldRate::default();
        let usual = rate.seconds(GIB);
        for _ in 0..3 {
            rate.measured(GIB, usual * 30.0);
        }
        assert_eq!(rate.seconds(GIB), usual);
        rate.measured(GIB, usual * 20.0);
        assert!(rate.seconds(GIB) >= usual * 19.0);
    }

    #[test]
    fn slow_walks_are_forgotten_where_none_are_measured() {
        let mut rate = HoldRate::default();
        let usual = rate.seconds(GIB);
        (0..WALKS).for_each(|_| rate.measured(GIB, usual * 30.0));
        (0..WALKS).for_each(|_| rate.forget());
        assert_eq!(rate.seconds(GIB), usual);
    }

    #[test]
    fn walks_of_little_memory_say_nothing() {
        let mut rate = HoldRate::default();
        let usual = rate.seconds(GIB);
        (0..WALKS).for_each(|_| rate.measured(PAGE, 1.0));
        assert_eq!(rate.seconds(GIB), usual);
    }

    const PAGE: u64 = 4096;
}
