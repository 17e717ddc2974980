//! How much memory is in use, by the surveys where they know all memory, and by the panel where they do not.

use std::time::Duration;

use isotherm_core::survey::{PageSums, SurveySnapshot, WINDOWS};
use isotherm_core::{Estimate, PanelSnapshot};

use super::{Percentiles, is_lower_bound};
use crate::surveys::Reach;

/// A survey knows a target if it is not known of at most one part of so many of its memory whether it was accessed.
pub(crate) const KNOWN: u64 = 100;

/// With more unknown memory than one part of so many, a survey alone does not tell the working set.
pub(super) const MUCH_UNKNOWN: u64 = 10;

/// The windows of readings of the panel where the survey interval is no time to go by: the longest that was observed.
const DEFAULTS: [usize; 3] = [2, 1, 0];

/// Whether a survey has found so much of this memory that its figures hold, and not those of the panel.
pub const fn is_known(sums: &PageSums) -> bool {
    knows(sums, KNOWN)
}

/// Whether of at most one part of `parts` of some memory it is not known whether it was accessed.
pub(crate) const fn knows(sums: &PageSums, parts: u64) -> bool {
    sums.figures.unknown.saturating_mul(parts) <= sums.figures.present
}

/// Whether a reading tells the window: the panel was watched for as long, and is read as often.
pub(super) fn is_observed(panel: &PanelSnapshot, window: Duration) -> bool {
    // Readings are not exact to the millisecond.
    panel.observed + window / 10 >= window && panel.interval <= window + window / 2
}

/// Whether a reading at `time` is so long after a survey that this does not tell the window any longer. Surveys of
/// memory that grows, or of a busy machine, can be far apart.
pub fn is_after(time: Duration, survey: Duration, window: Duration) -> bool {
    time > survey + 2 * window
}

/// Whether the panel tells a window better than surveys of this interval that know all memory. These tell exactly what
/// was accessed in their interval, and that of other windows only about: the parts of a survey are read at different
/// times, and which part of an interval an access was in is not known.
pub fn is_better(found: Estimate, interval: Duration, window: Duration) -> bool {
    interval * 2 > window && found.high - found.low <= found.value / 4
}

/// Whether an estimate tells something: its bounds are no further apart than it is large, or than a twentieth of what
/// is present.
pub(super) fn is_figure(Estimate { low, value, high }: Estimate, present: Option<u64>) -> bool {
    high - low <= value.max(present.unwrap_or_default() / 20)
}

/// The window of a report for which none was asked.
#[derive(Debug, Default)]
pub(super) struct DefaultWindow {
    /// Surveys that tell what was accessed since the one before, and those of them that do not know all memory.
    surveys: u64,
    incomplete: u64,
    /// Readings of the panel, and how many tell each of [`DEFAULTS`].
    readings: u64,
    tell: [u64; DEFAULTS.len()],
}

impl DefaultWindow {
    pub(super) fn survey(&mut self, interval: Duration, is_known: bool) {
        if !interval.is_zero() {
            self.surveys += 1;
            self.incomplete += u64::from(!is_known);
        }
    }

    pub(super) fn panel(&mut self, panel: &PanelSnapshot) {
        self.readings += 1;
        for (count, place) in self.tell.iter_mut().zip(DEFAULTS) {
            *count += u64::from(is_observed(panel, WINDOWS[place]));
        }
    }

    /// The place of the longest window that at least half of the readings tell. `None` if the survey interval is the
    /// window: the surveys know all memory, or there are no readings.
    pub(super) fn place(&self) -> Option<usize> {
        if self.readings == 0 || (self.surveys > 0 && self.incomplete == 0) {
            return None;
        }
        let mut tell = DEFAULTS.into_iter().zip(self.tell);
        tell.find(|(_, count)| count * 2 > self.readings).map(|(place, _)| place).or(Some(0))
    }
}

/// How much memory of all targets was in use over the time of a run, without more of its events than that takes. It is
/// what [`Wss`](super::Wss) tells of the recording.
#[derive(Debug, Default)]
pub struct InUse {
    window: DefaultWindow,
    reach: Reach,
    /// By the survey interval: the bytes, and the seconds for which they hold.
    by_interval: Vec<(u64, f64)>,
    intervals: Vec<(Duration, f64)>,
    /// The bytes that surveys could not observe.
    unobservable: Vec<(u64, f64)>,
    present: Vec<(u64, f64)>,
    /// By each of [`DEFAULTS`], where it is known: figures, and the seconds for which they hold.
    by_window: [Vec<(Estimate, f64)>; DEFAULTS.len()],
    /// Whether the last survey knows all memory.
    is_known: bool,
    survey: Option<LastSurvey>,
    /// Up to when each of [`DEFAULTS`] has a figure.
    until: [Duration; DEFAULTS.len()],
    /// The last reading of the panel, without its targets.
    panel: Option<PanelSnapshot>,
}

/// The last survey.
#[derive(Clone, Copy, Debug)]
struct LastSurvey {
    sums: PageSums,
    /// The time from the first survey to it.
    covered: Duration,
    time: Duration,
    interval: Duration,
}

/// How much memory was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The window: bytes count that were accessed within this time.
    pub window: Duration,
    /// The median over time.
    pub median: Estimate,
    /// The most.
    pub most: u64,
    /// Whether these are lower bounds, as [`Wss::is_lower_bound`](super::Wss::is_lower_bound).
    pub lower_bound: bool,
}

impl InUse {
    /// Takes in what a survey has found.
    pub fn survey(&mut self, survey: &SurveySnapshot) {
        let sums = survey.sums();
        let (covered, seconds) = (self.reach.of(survey), survey.interval.as_secs_f64());
        // The first survey does not tell when memory was accessed.
        self.is_known = !survey.interval.is_zero() && is_known(&sums);
        self.survey = Some(LastSurvey { sums, covered, time: survey.time, interval: survey.interval });
        self.window.survey(survey.interval, self.is_known);
        if survey.interval.is_zero() {
            return;
        }
        self.by_interval.push((sums.figures.touched, seconds));
        self.intervals.push((survey.interval, seconds));
        self.unobservable.push((sums.figures.unobservable, seconds));
        self.present.push((sums.figures.present, seconds));
        for (nth, place) in DEFAULTS.into_iter().enumerate() {
            if self.is_exact(WINDOWS[place], place) {
                self.holds(nth, Estimate::exact(sums.within[place]), survey.time, survey.interval);
            }
        }
    }

    /// Takes in a figure of one of [`DEFAULTS`], for at most so long before `time`.
    fn holds(&mut self, nth: usize, figure: Estimate, time: Duration, most: Duration) {
        let since = std::mem::replace(&mut self.until[nth], time);
        self.by_window[nth].push((figure, time.saturating_sub(since).min(most).as_secs_f64()));
    }

    /// Takes in a reading of the panel. One that meets the end of all targets finds no memory, and tells nothing of the
    /// time before.
    pub fn panel(&mut self, panel: &PanelSnapshot) {
        let was_used = self.survey.is_some_and(|last| last.sums.figures.touched > 0);
        if was_used && panel.total.iter().all(|found| found.high == 0) {
            return;
        }
        self.window.panel(panel);
        self.panel = Some(PanelSnapshot { targets: vec![], ..panel.clone() });
        for (nth, place) in DEFAULTS.into_iter().enumerate() {
            let window = WINDOWS[place];
            if self.is_exact(window, place) {
                continue;
            }
            match self.estimate(panel, window, place) {
                Some(figure) => self.holds(nth, figure, panel.time, Duration::MAX),
                None => self.until[nth] = panel.time,
            }
        }
    }

    /// The bytes that were accessed within a window, at the last survey or reading. `None` if it is not known.
    pub fn within(&self, window: Duration) -> Option<Estimate> {
        let place = WINDOWS.iter().position(|&known| known == window)?;
        let survey = self.survey.filter(|_| self.is_exact(window, place));
        match survey {
            Some(last) => Some(Estimate::exact(last.sums.within[place])),
            None => self.estimate(self.panel.as_ref()?, window, place),
        }
    }

    /// Whether the last survey knows what was accessed within a window, and the last reading does not know it better.
    fn is_exact(&self, window: Duration, place: usize) -> bool {
        let Some(last) = self.survey.filter(|_| self.is_known) else { return false };
        let LastSurvey { covered, time, interval, .. } = last;
        covered >= window
            && self.panel.as_ref().is_none_or(|panel| {
                let found = self.estimate(panel, window, place);
                !is_after(panel.time, time, window) && !found.is_some_and(|found| is_better(found, interval, window))
            })
    }

    /// What a reading tells of a window.
    fn estimate(&self, panel: &PanelSnapshot, window: Duration, place: usize) -> Option<Estimate> {
        let (found, present) = (panel.total[place], self.survey.map(|last| last.sums.figures.present));
        (is_observed(panel, window) && is_figure(found, present)).then_some(found)
    }

    /// The longest window, up to 5 s, whose accesses are known now.
    pub fn latest(&self) -> Option<(Duration, Estimate)> {
        DEFAULTS.into_iter().find_map(|place| Some((WINDOWS[place], self.within(WINDOWS[place])?)))
    }

    /// How much memory was in use over the time so far. `None` if nothing tells.
    pub fn finish(&self) -> Option<Used> {
        let median = |of: &[(u64, f64)]| Percentiles::weighted(of.to_vec()).median();
        let lower_bound = is_lower_bound(median(&self.unobservable), median(&self.present));
        let Some(place) = self.window.place() else {
            let bytes = Percentiles::weighted(self.by_interval.clone());
            let window = Percentiles::weighted(self.intervals.clone()).median();
            let used = Used { window, median: Estimate::exact(bytes.median()), most: bytes.0[6], lower_bound };
            return (!self.by_interval.is_empty()).then_some(used);
        };
        let nth = DEFAULTS.iter().position(|&default| default == place)?;
        let known = &self.by_window[nth];
        let of = |part: fn(&Estimate) -> u64| {
            Percentiles::weighted(known.iter().map(|(estimate, seconds)| (part(estimate), *seconds)).collect())
        };
        let bytes = of(|estimate| estimate.value);
        let (low, high) = (of(|estimate| estimate.low).median(), of(|estimate| estimate.high).median());
        let median = Estimate { low, value: bytes.median(), high };
        (!known.is_empty()).then_some(Used { window: WINDOWS[place], median, most: bytes.0[6], lower_bound })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::Figures;
    use isotherm_core::survey::TotalSums;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn survey(in_use: &mut InUse, seconds: u64, touched: u64, unknown: u64) {
        let sums = PageSums {
            figures: Figures { present: 2560 * MIB, touched, unknown, ..Figures::default() },
            within: [touched; WINDOWS.len()],
            ..PageSums::default()
        };
        let interval = Duration::from_secs(seconds.min(2));
        let (time, total) = (Duration::from_secs(seconds), Some(TotalSums { sums, shared: 0 }));
        in_use.survey(&SurveySnapshot { time, interval, total, ..SurveySnapshot::default() });
    }

    fn panel(in_use: &mut InUse, seconds: u64) {
        let time = Duration::from_secs(seconds);
        let total = [Estimate { low: 240 * MIB, value: 256 * MIB, high: 270 * MIB }; WINDOWS.len()];
        let interval = Duration::from_secs(1);
        in_use.panel(&PanelSnapshot { time, interval, observed: time, total, ..PanelSnapshot::default() });
    }

    #[test]
    fn what_is_in_use_is_a_lower_bound_if_more_than_a_twentieth_could_not_be_observed() {
        let lower_bound = |unobservable: u64| {
            let mut in_use = InUse::default();
            for seconds in 1..4 {
                let sums = PageSums::of(Figures { present: 100 * MIB, unobservable, ..Figures::default() });
                let (time, total) = (Duration::from_secs(seconds), Some(TotalSums { sums, shared: 0 }));
                in_use.survey(&SurveySnapshot { time, interval: time, total, ..SurveySnapshot::default() });
            }
            in_use.finish().unwrap().lower_bound
        };
        assert_eq!([0, 5 * MIB, 6 * MIB].map(lower_bound), [false, false, true]);
    }

    #[test]
    fn surveys_that_do_not_know_all_memory_tell_nothing_and_the_panel_tells_it() {
        let mut in_use = InUse::default();
        assert_eq!(in_use.finish(), None);
        for second in 1..=20 {
            panel(&mut in_use, second);
            if second % 8 == 0 {
                survey(&mut in_use, second, 84 * MIB, 1200 * MIB);
            }
        }
        let used = in_use.finish().unwrap();
        assert_eq!(used.median, Estimate { low: 240 * MIB, value: 256 * MIB, high: 270 * MIB });
        assert_eq!((used.window, used.most), (Duration::from_secs(5), 256 * MIB));
    }

    #[test]
    fn surveys_tell_windows_of_twice_their_interval_and_the_panel_shorter_ones() {
        let mut in_use = InUse::default();
        for second in (0..20).step_by(2) {
            survey(&mut in_use, second, 200 * MIB, 0);
            panel(&mut in_use, second + 1);
        }
        let within = |seconds| in_use.within(Duration::from_secs(seconds)).unwrap();
        assert_eq!((within(2).value, within(5)), (256 * MIB, Estimate::exact(200 * MIB)));
        let found = |nth: usize| in_use.by_window[nth].iter().map(|(of, _)| of.value / MIB).collect::<Vec<_>>();
        assert!(found(1)[2..].iter().all(|of| *of == 256), "{:?}", found(1));
        assert!(found(0)[4..].iter().all(|of| *of == 200), "{:?}", found(0));
    }

    #[test]
    fn a_reading_that_meets_the_end_of_the_targets_tells_nothing_of_the_time_before() {
        let mut in_use = InUse::default();
        survey(&mut in_use, 1, 200 * MIB, 1000 * MIB);
        (1..20).for_each(|second| panel(&mut in_use, second));
        let time = Duration::from_secs(20);
        in_use.panel(&PanelSnapshot { time, interval: time / 20, observed: time, ..PanelSnapshot::default() });
        assert_eq!(in_use.within(Duration::from_secs(10)).unwrap().value, 256 * MIB);
    }

    #[test]
    fn the_panel_tells_it_long_after_the_last_survey() {
        let mut in_use = InUse::default();
        (0..10).for_each(|second| survey(&mut in_use, second, 20 * MIB, 0));
        (1..30).for_each(|second| panel(&mut in_use, second));
        assert_eq!(in_use.within(Duration::from_secs(5)).unwrap().value, 256 * MIB);
        // The reading at 20 s is the first one that is too late for the survey at 9 s.
        let found: Vec<(u64, f64)> = in_use.by_window[0].iter().map(|(of, held)| (of.value / MIB, *held)).collect();
        assert_eq!(found[found.len() - 11..][..3], [(20, 1.0), (256, 11.0), (256, 1.0)]);
    }

    #[test]
    fn the_panel_tells_it_before_any_two_surveys() {
        let mut in_use = InUse::default();
        survey(&mut in_use, 0, 2560 * MIB, 0);
        panel(&mut in_use, 1);
        assert_eq!(in_use.finish().unwrap().window, Duration::from_secs(1));
    }

    #[test]
    fn surveys_that_know_all_memory_tell_it_and_the_panel_nothing() {
        let mut in_use = InUse::default();
        survey(&mut in_use, 0, 2560 * MIB, 0);
        for second in 1..=20 {
            panel(&mut in_use, second);
            survey(&mut in_use, second, 260 * MIB, 0);
        }
        let used = in_use.finish().unwrap();
        assert_eq!((used.median, used.most), (Estimate::exact(260 * MIB), 260 * MIB));
    }
}
