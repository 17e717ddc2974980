//! The working set from surveys, and from the panel as long as surveys do not know all memory.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{PageSums, SurveySnapshot, WINDOWS};
use isotherm_core::{Estimate, PanelSnapshot, TargetId};

use super::in_use::{self, DefaultWindow, KNOWN, MUCH_UNKNOWN, is_figure, is_observed};
use super::{Amount, Basis, Percentiles, Point, Total, Wss};
use crate::ReportError;
use crate::source::{Selection, Source};
use crate::surveys::{Reach, selected};

/// The working set from surveys. `None` if the selection has no survey.
pub(super) fn wss(
    source: &dyn Source,
    selection: &Selection,
    window: Option<Duration>,
) -> Result<Option<Wss>, ReportError> {
    let panels = panels(source, selection)?;
    let place = match window {
        None if panels.is_empty() => None,
        None => default_window(source, selection, &panels)?,
        Some(window) => WINDOWS.iter().position(|&known| known == window),
    };
    let window = place.map(|place| WINDOWS[place]).or(window);
    let mut wss = Wss { basis: Basis::Survey, by_interval: window.is_none(), ..Wss::default() };
    let mut intervals = vec![];
    let mut reach = Reach::default();
    let mut once = Some(vec![]);
    // The panel tells no interval of surveys.
    let mut panels = panels.into_iter().filter(|_| place.is_some()).peekable();
    let has_panels = panels.peek().is_some();
    let mut panel = FromPanel::default();
    for record in source.surveys().map_err(ReportError::Source)? {
        let survey = record.map_err(ReportError::Source)?.survey;
        let covered = reach.of(&survey);
        if !selection.holds_time(survey.time) {
            continue;
        }
        if !survey.interval.is_zero() {
            intervals.push((survey.interval, survey.interval.as_secs_f64()));
        }
        while let Some(found) = panels.next_if(|found| found.time <= survey.time) {
            panel.take(&found, selection, place.unwrap_or(0), &mut wss, &mut once);
        }
        // The panel may know a window that goes back to before the first survey: of a program that has started since.
        let covers = window.is_none_or(|window| covered >= window);
        let is_known = covers && !survey.interval.is_zero() && knows(&survey, selection, KNOWN);
        panel.surveyed(&survey, selection, is_known);
        if has_panels && !is_known {
            continue;
        }
        // A window that goes back to before the first survey counts what was accessed since that only.
        let warm_up = survey.interval.is_zero()
            || window.is_some_and(|window| covered < window)
            || !knows(&survey, selection, MUCH_UNKNOWN);
        let mut all_mapped = 0;
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            let (sums, mapped) = selected(target, selection.address);
            all_mapped += mapped;
            let amount = amount(&sums, place, mapped);
            wss.points.push(Point { time: survey.time, target: target.id, amount, warm_up, span: survey.interval });
        }
        let total = survey.total.filter(|_| selection.holds_all(&survey));
        match (&mut once, total) {
            (Some(once), Some(total)) => {
                let amount = amount(&total.sums, place, all_mapped);
                once.push(Total { time: survey.time, amount, warm_up, span: survey.interval });
            }
            _ => once = None,
        }
    }
    for found in panels {
        panel.take(&found, selection, place.unwrap_or(0), &mut wss, &mut once);
    }
    wss.once = once;
    wss.window = window.unwrap_or_else(|| Percentiles::weighted(intervals).median());
    // Intervals are not exact to the millisecond.
    if wss.by_interval {
        wss.window = Duration::from_millis((wss.window.as_micros() as u64 + 500) / 1000);
    }
    Ok((!wss.points.is_empty()).then_some(wss))
}

/// Whether of at most one part of `parts` of the selected memory it is not known whether it was accessed.
fn knows(survey: &SurveySnapshot, selection: &Selection, parts: u64) -> bool {
    let mut sums = PageSums::default();
    let targets = survey.targets.iter().filter(|target| selection.holds_target(target.id));
    targets.for_each(|target| sums.add(&selected(target, selection.address).0));
    in_use::knows(&sums, parts)
}

/// The place of the window of a selection for which none was asked.
fn default_window(
    source: &dyn Source,
    selection: &Selection,
    panels: &[PanelSnapshot],
) -> Result<Option<usize>, ReportError> {
    let mut window = DefaultWindow::default();
    panels.iter().for_each(|panel| window.panel(panel));
    for record in source.surveys().map_err(ReportError::Source)? {
        let survey = record.map_err(ReportError::Source)?.survey;
        if selection.holds_time(survey.time) {
            window.survey(&survey, knows(&survey, selection, KNOWN));
        }
    }
    Ok(window.place())
}

/// The readings of the panel in a selection. A part of the addresses has none.
fn panels(source: &dyn Source, selection: &Selection) -> Result<Vec<PanelSnapshot>, ReportError> {
    if selection.address.is_some() {
        return Ok(vec![]);
    }
    let found = source.panels().map_err(ReportError::Source)?;
    let found = found.filter(|found| found.as_ref().map_or(true, |found| selection.holds_time(found.time)));
    found.collect::<Result<_, _>>().map_err(ReportError::Source)
}

/// Takes the working set from the panel where surveys do not know it.
#[derive(Default)]
struct FromPanel {
    /// What the last survey says of each target.
    known: HashMap<TargetId, Amount>,
    /// The same of all targets together.
    total: Amount,
    /// Whether the last survey knows all memory.
    is_known: bool,
    /// The time of the last reading.
    last: Duration,
}

impl FromPanel {
    fn surveyed(&mut self, survey: &SurveySnapshot, selection: &Selection, is_known: bool) {
        self.is_known = is_known;
        let of = |sums: &PageSums, mapped| Amount { unknown_bytes: None, ..amount(sums, None, mapped) };
        self.known.clear();
        self.total = Amount::default();
        let mut sums = PageSums::default();
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            let (of_target, mapped) = selected(target, None);
            sums.add(&of_target);
            self.known.insert(target.id, of(&of_target, mapped));
            self.total.mapped += mapped;
        }
        let once = survey.total.filter(|_| selection.holds_all(survey)).map_or(sums, |total| total.sums);
        self.total = of(&once, self.total.mapped);
    }

    fn take(
        &mut self,
        found: &PanelSnapshot,
        selection: &Selection,
        place: usize,
        wss: &mut Wss,
        once: &mut Option<Vec<Total>>,
    ) {
        let (time, span) = (found.time, found.time.saturating_sub(std::mem::replace(&mut self.last, found.time)));
        if self.is_known {
            return;
        }
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
        bytes: place.map_or(sums.touched, |place| sums.within[place]),
        present_bytes: Some(sums.present),
        unobservable_bytes: Some(sums.unobservable),
        unknown_bytes: Some(sums.unknown),
        low_bytes: None,
        high_bytes: None,
        mapped,
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::TargetPanel;

    use super::*;

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
        let (mut panel, selection) = (FromPanel::default(), Selection::default());
        for found in [at(1, unknown), at(2, known)] {
            panel.take(&found, &selection, 2, &mut wss, &mut once);
        }
        assert_eq!(wss.points.iter().map(|point| point.warm_up).collect::<Vec<_>>(), [true, false]);
        assert_eq!(
            once.map(|once| once.iter().map(|total| total.warm_up).collect::<Vec<_>>()),
            Some(vec![true, false])
        );
    }
}
