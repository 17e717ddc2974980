//! The working set from surveys, and from the panel as long as surveys do not know all memory.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{PageSums, TargetSurvey, WINDOWS};
use isotherm_core::{Estimate, PanelSnapshot, TargetId, TargetPanel};
use isotherm_record::Needs;

use super::in_use::{self, DefaultWindow, KNOWN, MUCH_UNKNOWN, is_after, is_better, is_figure, is_observed};
use super::{Amount, Basis, Percentiles, Point, Total, Wss};
use crate::ReportError;
use crate::source::{Accumulator, Seen, Selection};
use crate::surveys::{Reach, selected};

/// What surveys and the panel say of a selection. The working set of any window follows from it.
#[derive(Debug, Default)]
pub(crate) struct Surveyed {
    selection: Selection,
    reach: Reach,
    surveys: Vec<Survey>,
    /// Those of a part of the addresses are not known.
    panels: Vec<PanelSnapshot>,
}

/// What a survey found in the selected memory.
#[derive(Debug)]
struct Survey {
    time: Duration,
    interval: Duration,
    /// The time from the first survey to this one.
    covered: Duration,
    /// Each target with its sums, and its mapped bytes.
    targets: Vec<(TargetId, PageSums, u64)>,
    /// All targets together, each page counted once. `None` if that is not known.
    total: Option<PageSums>,
}

impl Survey {
    /// Whether of at most one part of `parts` of the memory it is not known whether it was accessed.
    fn knows(&self, parts: u64) -> bool {
        in_use::knows(&self.targets.iter().map(|(_, found, _)| *found).sum(), parts)
    }

    /// Whether it tells what was accessed since the one before, and knows all memory.
    fn is_known(&self) -> bool {
        !self.interval.is_zero() && self.knows(KNOWN)
    }
}

impl Surveyed {
    /// That of a selection, before its walk.
    pub(crate) fn new(selection: &Selection) -> Self {
        Self { selection: selection.clone(), ..Self::default() }
    }

    /// The working set. `None` if the selection has no survey.
    pub(crate) fn wss(&self, window: Option<Duration>) -> Option<Wss> {
        let place = match window {
            None if self.panels.is_empty() => None,
            None => self.default_window(),
            Some(window) => WINDOWS.iter().position(|&known| known == window),
        };
        let window = place.map(|place| WINDOWS[place]).or(window);
        let mut wss = Wss { basis: Basis::Survey, by_interval: window.is_none(), ..Wss::default() };
        let mut intervals = vec![];
        let mut once = Some(vec![]);
        // The panel tells no interval of surveys.
        let mut panels = self.panels.iter().filter(|_| place.is_some()).peekable();
        let has_panels = panels.peek().is_some();
        let mut panel = FromPanel::default();
        // The time of the last survey if that knows all memory, and up to when there are points. So no two points hold
        // for the same time, whatever they are from.
        let (mut known_at, mut until) = (None, Duration::ZERO);
        let is_late = |found: &PanelSnapshot, known_at: Option<Duration>| {
            known_at.is_none_or(|at| is_after(found.time, at, window.unwrap_or(Duration::MAX / 4)))
        };
        for survey in &self.surveys {
            if !survey.interval.is_zero() {
                intervals.push((survey.interval, survey.interval.as_secs_f64()));
            }
            // The panel may know a window that goes back to before the first survey: of a program that has started
            // since.
            let covers = window.is_none_or(|window| survey.covered >= window);
            let is_known =
                covers && survey.is_known() && !place.is_some_and(|place| self.is_known_better(survey, place));
            // Two surveys that know all memory tell all of the time between them, unless they are far apart.
            let before = known_at.filter(|_| is_known);
            known_at = is_known.then_some(survey.time);
            while let Some(found) = panels.next_if(|found| found.time <= survey.time) {
                if is_late(found, before) {
                    let span = found.time.saturating_sub(std::mem::replace(&mut until, found.time));
                    panel.take((found, span), &self.selection, place.unwrap_or(0), &mut wss, &mut once);
                }
            }
            panel.surveyed(survey);
            if has_panels && !is_known {
                continue;
            }
            let span = survey.interval.min(survey.time.saturating_sub(std::mem::replace(&mut until, survey.time)));
            // A window that goes back to before the first survey counts what was accessed since that only.
            let warm_up = survey.interval.is_zero()
                || window.is_some_and(|window| survey.covered < window)
                || !survey.knows(MUCH_UNKNOWN);
            let mut all_mapped = 0;
            for (target, sums, mapped) in &survey.targets {
                all_mapped += mapped;
                let amount = amount(sums, place, *mapped);
                wss.points.push(Point { time: survey.time, target: *target, amount, warm_up, span });
            }
            match (&mut once, survey.total) {
                (Some(once), Some(total)) => {
                    let amount = amount(&total, place, all_mapped);
                    once.push(Total { time: survey.time, amount, warm_up, span });
                }
                _ => once = None,
            }
        }
        for found in panels.filter(|found| is_late(found, known_at)) {
            let span = found.time.saturating_sub(std::mem::replace(&mut until, found.time));
            panel.take((found, span), &self.selection, place.unwrap_or(0), &mut wss, &mut once);
        }
        wss.once = once;
        wss.window = window.unwrap_or_else(|| Percentiles::weighted(intervals).median());
        // Intervals are not exact to the millisecond.
        if wss.by_interval {
            wss.window = Duration::from_millis((wss.window.as_micros() as u64 + 500) / 1000);
        }
        (!wss.points.is_empty()).then_some(wss)
    }

    /// Whether the last reading of the panel before a survey tells a window better, also of each target by itself.
    fn is_known_better(&self, survey: &Survey, place: usize) -> bool {
        let before = self.panels.partition_point(|found| found.time <= survey.time);
        let found = before.checked_sub(1).and_then(|last| self.panels.get(last));
        found.is_some_and(|found| {
            let holds = |of: &&TargetPanel| self.selection.holds_target(of.id);
            let estimate = match found.targets.iter().all(|of| holds(&of)) {
                true => found.total[place],
                false => found.targets.iter().filter(holds).fold(Estimate::default(), |mut sum, of| {
                    sum += of.within[place];
                    sum
                }),
            };
            let is_better = |of: Estimate| is_better(of, survey.interval, WINDOWS[place]);
            // Bounds no further apart than a twentieth of all do not matter.
            let matters = |of: &&TargetPanel| of.within[place].high - of.within[place].low > estimate.value / 20;
            is_observed(found, WINDOWS[place])
                && !is_after(survey.time, found.time, WINDOWS[place])
                && is_better(estimate)
                && found.targets.iter().filter(holds).filter(matters).all(|of| is_better(of.within[place]))
        })
    }

    /// The place of the window for which none was asked.
    fn default_window(&self) -> Option<usize> {
        let mut window = DefaultWindow::default();
        self.panels.iter().for_each(|panel| window.panel(panel));
        self.surveys.iter().for_each(|survey| window.survey(survey.interval, survey.knows(KNOWN)));
        window.place()
    }
}

impl Accumulator for Surveyed {
    fn needs(&self) -> Needs {
        Needs { surveys: true, panels: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        match event {
            Seen::Survey(record) => {
                let survey = &record.survey;
                let covered = self.reach.of(survey);
                if self.selection.holds_time(survey.time) {
                    let targets = survey.targets.iter().filter(|target| self.selection.holds_target(target.id));
                    let of = |target: &TargetSurvey| {
                        let (sums, mapped) = selected(target, self.selection.address);
                        (target.id, sums, mapped)
                    };
                    self.surveys.push(Survey {
                        time: survey.time,
                        interval: survey.interval,
                        covered,
                        targets: targets.map(of).collect(),
                        total: survey.total.filter(|_| self.selection.holds_all(survey)).map(|total| total.sums),
                    });
                }
            }
            Seen::Panel(panel) if self.selection.address.is_none() && self.selection.holds_time(panel.time) => {
                let targets = panel.targets.iter().map(|of| TargetPanel { by_mapping: vec![], ..*of });
                self.panels.push(PanelSnapshot { targets: targets.collect(), by_party: vec![], ..**panel });
            }
            Seen::Row(_)
            | Seen::Panel(_)
            | Seen::Activity(_)
            | Seen::Mark(_)
            | Seen::Allocations(_)
            | Seen::Missed(_) => {}
        }
        Ok(())
    }
}

/// Takes the working set from the panel where surveys do not know it.
#[derive(Default)]
struct FromPanel {
    /// What the last survey says of each target.
    known: HashMap<TargetId, Amount>,
    /// The same of all targets together.
    total: Amount,
}

impl FromPanel {
    fn surveyed(&mut self, survey: &Survey) {
        let of = |sums: &PageSums, mapped| Amount { unknown_bytes: None, ..amount(sums, None, mapped) };
        self.known.clear();
        let (mut sums, mut all_mapped) = (PageSums::default(), 0);
        for (target, of_target, mapped) in &survey.targets {
            sums += *of_target;
            self.known.insert(*target, of(of_target, *mapped));
            all_mapped += mapped;
        }
        self.total = of(&survey.total.unwrap_or(sums), all_mapped);
    }

    /// Adds the points of a reading, which hold for the time `span` before it.
    fn take(
        &self,
        (found, span): (&PanelSnapshot, Duration),
        selection: &Selection,
        place: usize,
        wss: &mut Wss,
        once: &mut Option<Vec<Total>>,
    ) {
        let time = found.time;
        let with = |known: Amount, Estimate { low, value, high }: Estimate| Amount {
            bytes: value,
            low_bytes: Some(low),
            high_bytes: Some(high),
            ..known
        };
        let warm_up = |known: &Amount, of| !is_observed(found, WINDOWS[place]) || !is_figure(of, known.present_bytes);
        for of in found.targets.iter().filter(|of| selection.holds_target(of.id)) {
            let known = self.known.get(&of.id).copied().unwrap_or_default();
            let (amount, warm_up) = (with(known, of.within[place]), warm_up(&known, of.within[place]));
            wss.points.push(Point { time, target: of.id, amount, warm_up, span });
        }
        if found.targets.iter().all(|of| selection.holds_target(of.id)) {
            if let Some(once) = once {
                let warm_up = warm_up(&self.total, found.total[place]);
                once.push(Total { time, amount: with(self.total, found.total[place]), warm_up, span });
            }
        } else {
            *once = None;
        }
    }
}

/// `place` is that of the window; without one, the survey interval counts.
pub(super) fn amount(sums: &PageSums, place: Option<usize>, mapped: u64) -> Amount {
    Amount {
        bytes: place.map_or(sums.figures.touched, |place| sums.within[place]),
        present_bytes: Some(sums.figures.present),
        unobservable_bytes: Some(sums.figures.unobservable),
        unknown_bytes: Some(sums.figures.unknown),
        low_bytes: None,
        high_bytes: None,
        mapped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::Figures;

    #[test]
    fn surveys_and_readings_hold_one_after_the_other_without_a_gap() {
        let sums = |unknown| {
            let mut sums =
                PageSums::of(Figures { present: 100 << 20, touched: 10 << 20, unknown, ..Figures::default() });
            sums.within = [10 << 20; WINDOWS.len()];
            sums
        };
        let survey = |seconds: u64, interval: u64, unknown| Survey {
            time: Duration::from_secs(seconds),
            interval: Duration::from_secs(interval),
            covered: Duration::from_secs(seconds),
            targets: vec![(TargetId::PhysicalMemory, sums(unknown), 0)],
            total: Some(sums(unknown)),
        };
        // The first and the last but one do not know all memory.
        let surveys = vec![survey(0, 0, 0), survey(7, 7, 50 << 20), survey(12, 10, 0), survey(18, 6, 0)];
        let late = [survey(25, 7, 50 << 20), survey(30, 5, 0), survey(45, 15, 0)];
        let surveys = surveys.into_iter().chain(late).collect();
        // Its bounds are so far apart that surveys tell the window better.
        let within = Estimate { low: 8 << 20, value: 10 << 20, high: 11 << 20 };
        let target = TargetPanel { id: TargetId::PhysicalMemory, within: [within; WINDOWS.len()], by_mapping: vec![] };
        let panel = |seconds| PanelSnapshot {
            time: Duration::from_secs(seconds),
            interval: Duration::from_secs(1),
            observed: Duration::from_secs(seconds),
            total: [within; WINDOWS.len()],
            targets: vec![target.clone()],
            ..PanelSnapshot::default()
        };
        let found = Surveyed { surveys, panels: (1..50).map(panel).collect(), ..Surveyed::default() };
        let wss = found.wss(Some(Duration::from_secs(1))).unwrap();
        let mut until = Duration::ZERO;
        for (point, total) in wss.points.iter().zip(wss.once.as_ref().unwrap()) {
            assert_eq!((point.time - point.span, point.time, point.span), (until, total.time, total.span));
            until = point.time;
        }
        assert_eq!(until, Duration::from_secs(49));
        // A reading tells more than two windows after a survey, if the next one is no sooner.
        let last: Vec<u64> = wss.points.iter().map(|point| point.time.as_secs()).filter(|&time| time >= 28).collect();
        let expected = (28..=30).chain(30..=30).chain(33..=45).chain([45, 48, 49]);
        assert_eq!(last, expected.collect::<Vec<u64>>());
    }

    #[test]
    fn the_time_before_the_first_figure_is_left_out_if_it_is_longer_than_a_survey() {
        let at = |(seconds, warm_up)| Point {
            time: Duration::from_secs(seconds),
            target: TargetId::PhysicalMemory,
            amount: Amount::default(),
            warm_up,
            span: Duration::from_secs(1),
        };
        let until = |warm_up: &[bool]| {
            let points = (1..).zip(warm_up.iter().copied()).map(at).collect();
            Wss { points, ..Wss::default() }.unknown_until()
        };
        assert_eq!(until(&[true, true, true, false, true]), Some(Duration::from_secs(3)));
        assert_eq!([until(&[true, false]), until(&[false; 2]), until(&[true; 3]), until(&[])], [None; 4]);
    }

    #[test]
    fn a_reading_whose_bounds_tell_nothing_is_no_figure() {
        let at = |seconds, within| PanelSnapshot {
            time: Duration::from_secs(seconds),
            interval: Duration::from_secs(1),
            observed: Duration::from_secs(20),
            total: [within; WINDOWS.len()],
            targets: vec![TargetPanel {
                id: TargetId::PhysicalMemory,
                within: [within; WINDOWS.len()],
                by_mapping: vec![],
            }],
            ..PanelSnapshot::default()
        };
        let known = Estimate { low: 90 << 20, value: 100 << 20, high: 110 << 20 };
        let unknown = Estimate { low: 0, value: 4096, high: 10 << 30 };
        let (mut wss, mut once) = (Wss::default(), Some(vec![]));
        let (panel, selection) = (FromPanel::default(), Selection::default());
        for found in [at(1, unknown), at(2, known)] {
            panel.take((&found, Duration::from_secs(1)), &selection, 2, &mut wss, &mut once);
        }
        assert_eq!(wss.points.iter().map(|point| point.warm_up).collect::<Vec<_>>(), [true, false]);
        assert_eq!(
            once.map(|once| once.iter().map(|total| total.warm_up).collect::<Vec<_>>()),
            Some(vec![true, false])
        );
    }
}
