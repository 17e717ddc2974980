//! Idle times from surveys.

use std::time::Duration;

use isotherm_core::survey::{PageSums, SurveySnapshot, TargetSurvey, WINDOWS};
use isotherm_record::Needs;

use super::{ByName, IdleTime, edges};
use crate::ReportError;
use crate::extent::shown_name;
use crate::groups::Grouping;
use crate::histogram::{Moment, Sizes};
use crate::source::{Accumulator, Seen, Selection};
use crate::surveys::{Reach, part, selected};
use crate::wss::{Basis, Percentiles};

/// The surveys of a selection. How far they go back, and how often they are, decides on the bands.
#[derive(Default)]
pub(crate) struct Surveys {
    selection: Selection,
    reach: Reach,
    all: Vec<SurveyedSums>,
    /// Whether it is known of one of them only with what targets share counted for each.
    counts_twice: bool,
    /// The last one of the targets, without blocks.
    last: Vec<TargetSurvey>,
}

/// What a survey found.
struct SurveyedSums {
    time: Duration,
    interval: Duration,
    /// How far it goes back.
    known: Duration,
    /// The memory with what targets share counted for each, and with each page counted once, if that is something else.
    sum: PageSums,
    once: Option<Box<PageSums>>,
}

impl Surveys {
    /// Those of a selection, before its walk.
    pub(crate) fn new(selection: &Selection) -> Self {
        Self { selection: selection.clone(), ..Self::default() }
    }

    /// The idle times. `None` if the selection has no survey after the first.
    pub(super) fn idle_time(self, grouping: &Grouping) -> Option<IdleTime> {
        let SurveyedSums { time: last, known, .. } = *self.all.last()?;
        let intervals = self.all.iter().map(|found| (found.interval, found.interval.as_secs_f64()));
        let interval = Percentiles::weighted(intervals.collect()).median();
        let edges = edges(interval, known);
        let total = |found: &SurveyedSums| *found.once.as_deref().filter(|_| !self.counts_twice).unwrap_or(&found.sum);
        let moment = |found: &SurveyedSums| Moment {
            time_ns: found.time.as_nanos() as u64,
            sizes: sizes(&total(found), &edges, found.known),
        };
        let over_time: Vec<Moment> = self.all.iter().map(moment).collect();
        let mut names = ByName::default();
        for target in &self.last {
            let group = grouping.of_target(target.id);
            for (mapping, sums) in target.surveyed() {
                let sums = part(sums, mapping.range, self.selection.address);
                names.add(shown_name(&mapping.label()), group, &sizes(&sums, &edges, known));
            }
        }
        let [mappings, groups] = names.into_names(grouping);
        Some(IdleTime {
            basis: Basis::Survey,
            time: last,
            survey_interval: Some(Duration::from_millis((interval.as_micros() as u64 + 500) / 1000)),
            estimated_bytes: self.all.last().map_or(0, |found| total(found).figures.unknown),
            counts_once: !self.counts_twice,
            total: over_time.last().map(|moment| moment.sizes.clone()).unwrap_or_default(),
            mappings,
            by: grouping.by(),
            groups,
            over_time,
            edges,
        })
    }
}

impl Accumulator for Surveys {
    fn needs(&self) -> Needs {
        Needs { surveys: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Survey(record) = event else { return Ok(()) };
        let (survey, selection) = (&record.survey, &self.selection);
        let known = self.reach.of(survey);
        let targets = || survey.targets.iter().filter(|target| selection.holds_target(target.id));
        if targets().next().is_none() || !selection.holds_time(survey.time) || survey.interval.is_zero() {
            return Ok(());
        }
        let sum = targets().map(|target| selected(target, selection.address).0).sum();
        let once = once(survey, selection);
        self.counts_twice |= once.is_none();
        self.last.clear();
        self.last.extend(targets().map(TargetSurvey::without_blocks));
        let once = once.filter(|once| *once != sum).map(Box::new);
        self.all.push(SurveyedSums { time: survey.time, interval: survey.interval, known, sum, once });
        Ok(())
    }
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
    let observable = sums.figures.present.saturating_sub(sums.figures.unobservable);
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
    sizes.unobservable_bytes = sums.figures.unobservable;
    sizes.unknown_bytes = observable - before;
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::Figures;

    #[test]
    fn what_was_not_accessed_since_the_first_survey_has_been_idle_for_that_time_at_least() {
        let mut sums = PageSums::of(Figures { present: 100, unobservable: 10, ..Figures::default() });
        sums.within = [10, 20, 30, 40, 50, 60, 60, 60, 60, 60, 60];
        let edges = [0, 1, 5, 10].map(Duration::from_secs);
        let of = |known| sizes(&sums, &edges, Duration::from_secs(known));
        assert_eq!((of(20).bytes, of(20).unknown_bytes), (vec![10, 20, 10, 50], 0));
        assert_eq!((of(6).bytes, of(6).unknown_bytes), (vec![10, 20, 60, 0], 0));
        assert_eq!((of(0).bytes, of(0).unknown_bytes), (vec![10, 0, 0, 0], 80));
        assert_eq!((of(6).unobservable_bytes, of(6).all()), (10, 100));
    }
}
