//! How many bytes something has over time: the mean over its life, and the peak.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// When something lived, and its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Life {
    /// When it appeared in the selected time: the start of what its first snapshot or survey covers.
    pub first_ns: u64,
    /// The time of its last snapshot or survey in the selection.
    pub last_ns: u64,
    /// The time for which it existed, without gaps.
    pub lived_ns: u64,
    /// Its most bytes in a single snapshot or survey.
    pub peak_bytes: u64,
    /// The time of that snapshot or survey; of several, the first.
    pub peak_ns: u64,
}

/// The bytes of one or several targets over time. Those of one time add up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Course {
    /// What was added of the last time.
    now: Moment,
    /// The start of the first time.
    first: Option<Duration>,
    /// The time up to `now` for which something was there, and for which it is known how much.
    lived: Duration,
    known: Duration,
    /// Bytes × seconds.
    sum: f64,
    peak: (u64, Duration),
    overlaps: bool,
}

/// What is known of one time.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    time: Duration,
    /// The time before for which it holds.
    span: Duration,
    /// The same, of what is known.
    known: Duration,
    bytes: u64,
    members: u32,
}

impl Course {
    /// Adds a target with `bytes` at `time`, which hold for the time `span` before. `None` if it was there, but it is
    /// not known with how many bytes.
    pub(crate) fn add(&mut self, time: Duration, span: Duration, bytes: Option<u64>) {
        if self.first.is_none() || self.now.time != time {
            self.lived += self.now.span;
            self.known += self.now.known;
            self.now = Moment { time, ..Moment::default() };
        }
        let since = time.saturating_sub(span);
        // Of one time, targets may have different spans.
        self.first = Some(self.first.map_or(since, |first| first.min(since)));
        let now = &mut self.now;
        now.span = now.span.max(span);
        let Some(bytes) = bytes else { return };
        now.known = now.known.max(span);
        now.bytes = now.bytes.saturating_add(bytes);
        now.members += 1;
        self.sum += bytes as f64 * span.as_secs_f64();
        self.overlaps |= now.members > 1;
        if now.bytes > self.peak.0 {
            self.peak = (now.bytes, time);
        }
    }

    /// Forgets the bytes, and keeps the life.
    pub(crate) fn forget_bytes(&mut self) {
        (self.known, self.sum, self.peak, self.overlaps) = Default::default();
        (self.now.known, self.now.bytes, self.now.members) = Default::default();
    }

    /// When it lived, and the peak.
    pub(crate) fn life(&self) -> Life {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        Life {
            first_ns: nanoseconds(self.first.unwrap_or_default()),
            last_ns: nanoseconds(self.now.time),
            lived_ns: nanoseconds(self.lived + self.now.span),
            peak_bytes: self.peak.0,
            peak_ns: nanoseconds(self.peak.1),
        }
    }

    /// The time for which it is known how many bytes there were.
    pub(crate) fn known(&self) -> Duration {
        self.known + self.now.known
    }

    /// The mean over that time.
    pub(crate) fn mean(&self) -> u64 {
        let known = self.known().as_secs_f64();
        if known > 0.0 { (self.sum / known).round() as u64 } else { self.peak.0 }
    }

    /// Whether there was more than one target at one time, so that bytes which they share count for each.
    pub(crate) fn overlaps(&self) -> bool {
        self.overlaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn targets_one_after_another_are_a_mean_over_their_lives_and_those_at_once_a_sum() {
        let mut course = Course::default();
        for (at, bytes) in [(10, 80), (11, 80), (11, 60), (40, 20)] {
            course.add(SECOND * at, SECOND, Some(bytes));
        }
        let life = Life {
            first_ns: 9_000_000_000,
            last_ns: 40_000_000_000,
            lived_ns: 3_000_000_000,
            peak_bytes: 140,
            peak_ns: 11_000_000_000,
        };
        assert_eq!((course.life(), course.mean(), course.overlaps()), (life, 80, true));
    }

    #[test]
    fn what_is_not_known_counts_for_the_life_and_not_for_the_mean() {
        let mut course = Course::default();
        for (at, bytes) in [(1, None), (2, Some(7)), (3, None)] {
            course.add(SECOND * at, SECOND, bytes);
        }
        assert_eq!((course.life().lived_ns, course.known(), course.mean()), (3_000_000_000, SECOND, 7));
        assert!(!course.overlaps());
    }
}
