//! Windows of time before a survey, and the pages whose last access lies in each window.

use std::time::Duration;

use super::PageHistory;

/// The windows by which bytes are counted.
pub const WINDOWS: [Duration; 11] = [
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
    Duration::from_secs(3600),
];

/// The longest window.
pub(crate) const LONGEST_WINDOW: Duration = WINDOWS[COUNT - 1];

/// The number of windows.
pub(super) const COUNT: usize = WINDOWS.len();

/// How much of what was accessed some surveys ago each window holds.
///
/// If a window begins between two surveys, it holds a part of the pages that were accessed last between them (see
/// [`of_begun`](Self::of_begun)). What was accessed before the first survey, at a time that is not known, is in no
/// window. Numbers of surveys with the same parts are one *class*; the classes are in the order of time, the most
/// recent first.
pub(crate) struct Windows {
    /// The class of each number of surveys since the last access. Longer times are in no window.
    classes: Vec<u8>,
    /// For each class, the part of its pages that each window holds, 0 to 1, if the time of the last access is evenly
    /// distributed.
    parts: Vec<[f64; COUNT]>,
    /// The interval in which each window begins, if it is not the last one.
    begins: [Option<Begins>; COUNT],
    /// The last interval.
    interval: Duration,
    /// The interval before it. Zero if there was none.
    before: Duration,
}

/// The interval between two surveys in which a window begins.
#[derive(Clone, Copy, Debug)]
struct Begins {
    /// How many surveys ago it ended.
    surveys: u16,
    /// The part of it that the window holds, between 0 and 1.
    part: f64,
    /// Its length in seconds, and that of the interval before it. The latter is 0 if it is not known.
    length: f64,
    before: f64,
}

/// Pages that were accessed last in the interval in which each window begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    pub(super) pages: [f64; COUNT],
    /// Pages that were accessed last in the interval before that.
    pub(super) before: [f64; COUNT],
    /// The part of `pages` that the window holds.
    pub(super) parts: [f64; COUNT],
}

impl Begun {
    /// Adds pages with the same shares in the windows.
    pub(super) fn add(&mut self, other: &Self) {
        self.pages.iter_mut().zip(other.pages).for_each(|(sum, pages)| *sum += pages);
        self.before.iter_mut().zip(other.before).for_each(|(sum, pages)| *sum += pages);
    }

    /// The part of its pages that the window holds. `None` if there are none.
    pub(super) fn part(&self, window: usize) -> Option<f64> {
        (self.pages[window] > 0.0).then_some(self.parts[window])
    }

    /// Adds pages of another target. The parts are the mean of both.
    pub(crate) fn add_target(&mut self, other: &Self) {
        for nth in 0..COUNT {
            let pages = self.pages[nth] + other.pages[nth];
            let within = self.pages[nth] * self.parts[nth] + other.pages[nth] * other.parts[nth];
            self.parts[nth] = if pages > 0.0 { within / pages } else { 0.0 };
        }
        self.add(other);
    }
}

/// At the beginning of an interval, at most 4 times fewer pages are taken to be accessed last than at its end. If no
/// page was accessed last in the interval before, that is in the middle: all of them may be accessed every so often, a
/// little more rarely than surveys come, or all of them once.
const MOST_DECAY: f64 = 2.0 * std::f64::consts::LN_2;

/// With fewer pages, the numbers that were accessed last in each interval are not significant.
const FEW: f64 = 64.0;

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
        let length = |surveys: u16| {
            history.idle_time(surveys.saturating_add(1)).saturating_sub(history.idle_time(surveys)).as_secs_f64()
        };
        let begins = std::array::from_fn(|window| {
            let of = |surveys: u16| parts.get(usize::from(*classes.get(usize::from(surveys))?)).map(|of| of[window]);
            let surveys = (1..classes.len() as u16).find(|&surveys| of(surveys).is_some_and(|part| part < 1.0))?;
            let part = of(surveys).filter(|&part| part > 0.0)?;
            // In the first interval of all, it may not be known of pages when they were accessed.
            let before = if surveys + 2 < history.surveys() as u16 { length(surveys + 1) } else { 0.0 };
            Some(Begins { surveys, part, length: length(surveys), before })
        });
        Self { classes, parts, begins, interval, before }
    }

    /// The windows that begin in the interval that ended this many surveys ago.
    pub(super) fn begun_in(&self, surveys: u16) -> impl Iterator<Item = usize> {
        self.begins
            .iter()
            .enumerate()
            .filter_map(move |(window, begins)| begins.filter(|begins| begins.surveys == surveys).map(|_| window))
    }

    /// The part that each window holds of the pages that were accessed last in the interval in which it begins.
    ///
    /// The longer ago a time is, the fewer pages were accessed last at it: the working set is a concave function of its
    /// window (Denning and Schwartz, "Properties of the working-set model", 1972). Of pages that are accessed every 4 s
    /// and surveyed every 3 s, a quarter was not accessed since the last survey. All of these were accessed within 5 s,
    /// and not two thirds of them. The number of pages is taken to fall exponentially, so fast as it falls from this
    /// interval to the one before it.
    pub(super) fn of_begun(&self, begun: &Begun) -> [f64; COUNT] {
        std::array::from_fn(|window| {
            let Some(Begins { part, length, before, .. }) = self.begins[window] else { return 0.0 };
            if before <= 0.0 {
                return part;
            }
            let few = FEW / (length + before);
            let (later, earlier) = (begun.pages[window] / length + few, begun.before[window] / before + few);
            let rate = (later / earlier).ln() * 2.0 / (length + before);
            let decay = (rate * length).clamp(0.0, MOST_DECAY);
            if decay < 1e-3 { part } else { f64::exp_m1(-decay * part) / f64::exp_m1(-decay) }
        })
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
