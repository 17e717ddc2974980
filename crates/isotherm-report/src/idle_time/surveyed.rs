//! Idle times from surveys.

use std::time::Duration;

use isotherm_core::survey::{PageSums, SurveySnapshot, WINDOWS};
use isotherm_record::Needs;

use super::{ByName, IdleTime, edges};
use crate::ReportError;
use crate::extent::shown_name;
use crate::groups::Grouping;
use crate::histogram::{Moment, Sizes};
use crate::source::{self, Accumulator, Seen, Selection, Source};
use crate::surveys::{Reach, part, selected};
use crate::wss::{Basis, Percentiles};

/// What the bands follow from: how far the surveys of a selection go back, and how often they are.
#[derive(Default)]
pub(crate) struct Surveys {
    selection: Selection,
    reach: Reach,
    /// The time of the last one, and how far it goes back.
    last: Option<(Duration, Duration)>,
    intervals: Vec<(Duration, f64)>,
    /// Whether it is known of one of them only with what targets share counted for each.
    counts_twice: bool,
}

impl Surveys {
    /// Those of a selection, before its walk.
    pub(crate) fn new(selection: &Selection) -> Self {
        Self { selection: selection.clone(), ..Self::default() }
    }
}

impl Accumulator for Surveys {
    fn needs(&self) -> Needs {
        Needs { surveys: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Survey(record) = event else { return Ok(()) };
        let survey = &record.survey;
        let known = self.reach.of(survey);
        if is_selected(survey, &self.selection) {
            self.last = Some((survey.time, known));
            self.intervals.push((survey.interval, survey.interval.as_secs_f64()));
            self.counts_twice |= once(survey, &self.selection).is_none();
        }
        Ok(())
    }
}

fn is_selected(survey: &SurveySnapshot, selection: &Selection) -> bool {
    let has_targets = survey.targets.iter().any(|target| selection.holds_target(target.id));
    has_targets && selection.holds_time(survey.time) && !survey.interval.is_zero()
}

/// The idle times from surveys. `None` if the selection has no survey after the first.
pub(super) fn idle_time(
    surveys: Surveys,
    source: &dyn Source,
    grouping: &Grouping,
) -> Result<Option<IdleTime>, ReportError> {
    let Surveys { selection, last, intervals, counts_twice, .. } = surveys;
    let (selection, counts_once) = (&selection, !counts_twice);
    let Some((last, known)) = last else { return Ok(None) };
    let interval = Percentiles::weighted(intervals).median();
    let mut idle_time = IdleTime {
        basis: Basis::Survey,
        time: last,
        edges: edges(interval, known),
        survey_interval: Some(Duration::from_millis((interval.as_micros() as u64 + 500) / 1000)),
        counts_once,
        by: grouping.by(),
        ..IdleTime::default()
    };
    let mut reach = Reach::default();
    for record in source::surveys(source, false)? {
        let record = record?;
        let survey = &record.survey;
        let known = reach.of(survey);
        if !is_selected(survey, selection) {
            continue;
        }
        let targets = || survey.targets.iter().filter(|target| selection.holds_target(target.id));
        let total = once(survey, selection).filter(|_| counts_once).unwrap_or_else(|| {
            let mut total = PageSums::default();
            targets().for_each(|target| total.add(&selected(target, selection.address).0));
            total
        });
        let sizes = sizes(&total, &idle_time.edges, known);
        idle_time.over_time.push(Moment { time_ns: survey.time.as_nanos() as u64, sizes: sizes.clone() });
        if survey.time != last {
            continue;
        }
        let mut names = ByName::default();
        for target in targets() {
            let group = grouping.of_target(target.id);
            for found in &target.by_mapping {
                let Some(mapping) = target.mappings.get(found.mapping as usize) else { continue };
                let sums = part(&found.sums, mapping.range, selection.address);
                names.add(shown_name(&mapping.label()), group, &self::sizes(&sums, &idle_time.edges, known));
            }
        }
        (idle_time.total, idle_time.estimated_bytes) = (sizes, total.unknown);
        [idle_time.mappings, idle_time.groups] = names.into_names(grouping);
    }
    Ok(Some(idle_time))
}

/// The sums in which each page counts once. `None` if they are not known.
fn once(survey: &SurveySnapshot, selection: &Selection) -> Option<PageSums> {
    if !selection.holds_all(survey) {
        return None;
    }
    match (&survey.total, &survey.targets[..]) {
        (Some(total), _) => Some(total.sums),
        (None, [target]) => Some(target.total()),
        _ => None,
    }
}

/// The bytes between each of the edges. What was not accessed in the time that is `known` is in the band of that time:
/// it has been idle for at least the start of the band. Of what may belong to the first band, it is not known.
fn sizes(sums: &PageSums, edges: &[Duration], known: Duration) -> Sizes {
    let mut sizes = Sizes::empty(edges.len());
    let observable = sums.present.saturating_sub(sums.unobservable);
    let within = |edge: &Duration| {
        let place = WINDOWS.iter().position(|window| window == edge);
        place.map_or(observable, |place| sums.within[place].min(observable))
    };
    let mut before = 0;
    for (band, bytes) in sizes.bytes.iter_mut().enumerate() {
        let end = edges.get(band + 1);
        let up_to = end.map_or(observable, within).max(before);
        *bytes = up_to - before;
        before = up_to;
        if end.is_some_and(|&end| end > known) {
            if band > 0 {
                *bytes += observable - before;
                before = observable;
            }
            break;
        }
    }
    sizes.unobservable_bytes = sums.unobservable;
    sizes.unknown_bytes = observable - before;
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_accessed_since_the_first_survey_has_been_idle_for_that_time_at_least() {
        let mut sums = PageSums { present: 100, unobservable: 10, ..PageSums::default() };
        sums.within = [10, 20, 30, 40, 50, 60, 60, 60, 60, 60];
        let edges = [0, 1, 5, 10].map(Duration::from_secs);
        let of = |known| sizes(&sums, &edges, Duration::from_secs(known));
        assert_eq!((of(20).bytes, of(20).unknown_bytes), (vec![10, 20, 10, 50], 0));
        assert_eq!((of(6).bytes, of(6).unknown_bytes), (vec![10, 20, 60, 0], 0));
        assert_eq!((of(0).bytes, of(0).unknown_bytes), (vec![10, 0, 0, 0], 80));
        assert_eq!((of(6).unobservable_bytes, of(6).all()), (10, 100));
    }
}
