//! The working set from surveys.

use std::time::Duration;

use isotherm_core::survey::{PageSums, WINDOWS};

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
    let place = window.and_then(|window| WINDOWS.iter().position(|&known| known == window));
    let mut wss = Wss { basis: Basis::Survey, by_interval: window.is_none(), ..Wss::default() };
    let mut intervals = vec![];
    let mut reach = Reach::default();
    let mut once = Some(vec![]);
    for record in source.surveys().map_err(ReportError::Source)? {
        let survey = record.map_err(ReportError::Source)?.survey;
        let covered = reach.of(&survey);
        if !selection.holds_time(survey.time) {
            continue;
        }
        if !survey.interval.is_zero() {
            intervals.push((survey.interval, survey.interval.as_secs_f64()));
        }
        // A window that goes back to before the first survey counts what was accessed since that only.
        let warm_up = survey.interval.is_zero() || window.is_some_and(|window| covered < window);
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
    wss.once = once;
    wss.window = window.unwrap_or_else(|| Percentiles::weighted(intervals).median());
    // Intervals are not exact to the millisecond.
    if wss.by_interval {
        wss.window = Duration::from_millis((wss.window.as_micros() as u64 + 500) / 1000);
    }
    Ok((!wss.points.is_empty()).then_some(wss))
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
