//! Windows of time before a survey, and what each holds of the pages by their last access.

use std::time::Duration;

use super::PageHistory;

/// The windows by which bytes are counted.
pub const WINDOWS: [Duration; 10] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(600),
    Duration::from_secs(1800),
];

/// The longest window.
pub(super) const LONGEST_WINDOW: Duration = WINDOWS[COUNT - 1];

/// The number of windows.
pub(super) const COUNT: usize = WINDOWS.len();

/// How much of what was accessed some surveys ago each window holds.
///
/// A page that was accessed between two surveys was so at any time between them, with the same probability. A window
/// that ends between both surveys therefore holds a part of such pages. What was accessed before the first survey, at a
/// time that is not known, is in no window. Numbers of surveys with the same parts are one *class*; the classes are in
/// the order of time, the most recent first.
pub(crate) struct Windows {
    /// The class of each number of surveys since the last access. Longer times are in no window.
    classes: Vec<u8>,
    /// For each class, the part of its pages that each window holds, 0 to 1.
    parts: Vec<[f64; COUNT]>,
    /// The last interval.
    interval: Duration,
    /// The interval before it. Zero if there was none.
    before: Duration,
}

impl Windows {
    /// The most classes: each window ends within one of them, and there is one before each of these.
    pub(crate) const MAX_CLASSES: usize = 2 * COUNT + 1;

    pub(crate) fn new(history: &PageHistory) -> Self {
        let (mut classes, mut parts) = (Vec::new(), Vec::new());
        for surveys in 0..history.surveys() as u16 {
            let (to, from) = (history.idle_time(surveys), history.idle_time(surveys.saturating_add(1)));
            let part = |window: Duration| match (surveys, from.saturating_sub(to)) {
                // Of a shorter window, see `of_last`.
                (0, _) => 1.0,
                // Before the first survey: at what time is not known.
                (_, Duration::ZERO) => 0.0,
                (_, length) => (window.saturating_sub(to).as_secs_f64() / length.as_secs_f64()).min(1.0),
            };
            let of = WINDOWS.map(part);
            if of.iter().all(|&part| part == 0.0) {
                break;
            }
            if parts.last() != Some(&of) {
                parts.push(of);
            }
            classes.push(parts.len() as u8 - 1);
        }
        let interval = history.interval();
        let before = history.idle_time(2).saturating_sub(interval);
        Self { classes, parts, interval, before }
    }

    /// The part that each window holds of the pages that were accessed in the last interval. `again` is the share of
    /// them that was accessed in the interval before, too.
    ///
    /// If accesses to a page come at random (a Poisson process) with the rate `r`, it is accessed in a time `t` with
    /// the probability `1 - exp(-r t)`. The interval before tells the rate.
    pub(super) fn of_last(&self, again: f64) -> [f64; COUNT] {
        let rate = -(1.0 - again).max(0.0).ln() / self.before.as_secs_f64();
        let within = |time: Duration| -f64::exp_m1(-rate * time.as_secs_f64());
        WINDOWS.map(|window| {
            if window >= self.interval || self.before.is_zero() || !rate.is_finite() {
                return 1.0;
            }
            let part = window.as_secs_f64() / self.interval.as_secs_f64();
            // The limit for rare accesses.
            if again < 1e-3 { part } else { within(window) / within(self.interval) }
        })
    }

    /// The class of an access this many surveys ago; [`MAX_CLASSES`](Self::MAX_CLASSES) if no window holds it.
    pub(crate) fn class(&self, surveys: u16) -> usize {
        self.classes.get(usize::from(surveys)).map_or(Self::MAX_CLASSES, |&class| class.into())
    }

    /// For each class, the part of its pages that each window holds.
    pub(crate) fn parts(&self) -> &[[f64; COUNT]] {
        &self.parts
    }

    /// The index of the shortest window that holds at least half of what was accessed this many surveys ago; the number
    /// of windows if none does.
    pub(super) fn first_with(&self, surveys: u16) -> usize {
        let parts = self.parts.get(self.class(surveys));
        parts.map_or(COUNT, |parts| parts.partition_point(|&part| part < 0.5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::{BlockPages, ClearPages, PageBits};

    /// The parts that the windows of 1 s and 2 s hold of pages that the first survey, at 1 s, has found accessed, and
    /// that are idle in the second one, at 2 s.
    fn parts_of_first(began: Option<Duration>) -> [f64; 2] {
        let all = PageBits::ALL;
        let block = |accessed| BlockPages { present: all, accessed, ..BlockPages::default() };
        let mut history = PageHistory::since(began);
        history.take(&[block(all)], Duration::from_secs(1));
        history.cleared(&[ClearPages { pages: all, ..ClearPages::default() }]);
        history.take(&[block(PageBits::NONE)], Duration::from_secs(2));
        let windows = Windows::new(&history);
        let parts = windows.parts().get(windows.class(1)).copied().unwrap_or_default();
        [parts[0], parts[1]]
    }

    #[test]
    fn what_was_accessed_before_the_first_survey_is_in_a_window_only_if_it_is_known_since_when() {
        assert_eq!(parts_of_first(None), [0.0, 0.0]);
        assert_eq!(parts_of_first(Some(Duration::ZERO)), [0.0, 1.0]);
    }
}
