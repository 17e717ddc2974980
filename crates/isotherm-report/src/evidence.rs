//! Whether the reports on a recording rest on enough evidence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{PageSums, SurveySnapshot};
use isotherm_core::{Figures, units};
use isotherm_record::{MissedKind, Needs, missed_words};

use crate::ReportError;
use crate::escape::sanitise;
use crate::measure::Measure;
use crate::pace::{Pacing, RecordedPace};
use crate::punctuality::Punctuality;
use crate::source::{Accumulator, Detail, Seen, Selection, Source, Takes, Visit, is_surveyed, walk};
use crate::surveys::selected;

/// With a lower share of samples that found an access, samples say little.
const FEW_HITS: f64 = 0.01;

/// With a larger share of unknown or of unobservable memory, surveys say little.
const MUCH: f64 = 0.25;

/// What the reports on a selection rest on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Samples that were taken of single pages and could be observed, and how many of them found an access.
    taken: f64,
    hits: f64,
    /// Surveys that have one before them.
    surveys: u64,
    /// When the first survey was, whether or not it is selected.
    first: Option<Duration>,
    /// The sums of the last survey.
    last: PageSums,
    /// Unobservable and present bytes of all surveys, added up.
    unobservable: f64,
    present: f64,
    /// Why much memory was left unobservable, by the last survey that says so.
    left_out: Option<Arc<str>>,
    /// Whether the panel tells how much memory is in use.
    has_panel: bool,
    pacing: Pacing,
    punctuality: Punctuality,
    /// What is missing from the recording, by kind.
    missed: BTreeMap<MissedKind, u64>,
    selection: Selection,
    /// Whether it takes in samples.
    sampled: bool,
}

impl Evidence {
    /// That of a selection, before its walk. Without surveys samples are evidence, too, and a heatmap may need to know
    /// how much they say: then they are `needed`.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(crate) fn new(source: &dyn Source, selection: &Selection, needed: bool) -> Result<Self, ReportError> {
        Ok(Self {
            pacing: Pacing::new(source.header().budget.map(|budget| budget.cpu)),
            punctuality: Punctuality::new(&source.header().sight),
            selection: selection.clone(),
            sampled: needed || !is_surveyed(source)?,
            ..Self::default()
        })
    }

    /// The evidence of a selection, in one walk.
    ///
    /// # Errors
    /// If the source cannot be read or has nothing in the selection.
    pub(crate) fn of(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let mut evidence = Self::new(source, selection, true)?;
        let walked = walk(source, selection, &mut [&mut evidence]);
        evidence.suffices(walked).map(|()| evidence)
    }

    /// The result of a walk of a report that may be on surveys alone: such a recording has no snapshots.
    ///
    /// # Errors
    /// That of the walk, if there are no surveys.
    pub(crate) fn suffices(&self, walked: Result<(), ReportError>) -> Result<(), ReportError> {
        match walked {
            Err(ReportError::NothingRecorded { .. }) if self.first.is_some() => Ok(()),
            walked => walked,
        }
    }

    fn add_survey(&mut self, survey: &SurveySnapshot) {
        self.first.get_or_insert(survey.time);
        if !self.selection.holds_time(survey.time) {
            return;
        }
        self.pacing.survey(survey.interval);
        self.surveys += u64::from(!survey.interval.is_zero());
        self.last = PageSums::default();
        for target in survey.targets.iter().filter(|target| self.selection.holds_target(target.id)) {
            self.last += selected(target, self.selection.address).0;
        }
        self.unobservable += self.last.figures.unobservable as f64;
        self.present += self.last.figures.present as f64;
        if survey.left_out.is_some() {
            self.left_out = survey.left_out.clone();
        }
    }

    fn add_row(&mut self, visit: &Visit<'_>) {
        if visit.detail != Detail::Merged {
            self.pacing.add(visit);
            self.punctuality.add(visit);
        }
        if !visit.chosen || !self.sampled || visit.detail == Detail::Bare {
            return;
        }
        let samples = visit.row.samples;
        for region in &visit.row.target.regions {
            if visit.clip(region.range).is_some() {
                let observed = (1.0 - region.unobservable_share(samples)).clamp(0.0, 1.0);
                self.taken += f64::from(region.nr_samples) * observed;
                self.hits += f64::from(region.nr_samples) * region.access_rate(samples).min(observed);
            }
        }
    }

    /// What is missing from the selected time, in words. It is the first line of every report.
    pub(crate) fn missed(&self) -> Option<String> {
        missed_words(&self.missed)
    }

    /// How often the recording surveyed and sampled, and what that cost.
    pub(crate) fn pace(&self) -> RecordedPace {
        self.pacing.finish()
    }

    /// The measure of a heatmap for which there is information.
    pub(crate) fn measure(&self) -> Measure {
        if self.has_intervals() && self.has_few_hits() { Measure::Touched } else { Measure::Rate }
    }

    /// Whether a page was sampled.
    pub(crate) fn has_samples(&self) -> bool {
        self.taken > 0.0
    }

    /// Whether there are surveys.
    pub(crate) fn surveyed(&self) -> bool {
        self.first.is_some()
    }

    /// Whether there is a survey that tells what was touched since the one before.
    pub(crate) fn has_intervals(&self) -> bool {
        self.surveys > 0
    }

    /// Whether fewer samples found an access than say much.
    pub(crate) fn has_few_hits(&self) -> bool {
        self.hits < self.taken * FEW_HITS || self.taken == 0.0
    }

    /// What a reader has to know if something is missing, if the monitor got too little CPU time, or if the evidence is
    /// little; and what to do.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.of_monitoring().chain(self.little())
    }

    /// What a reader has to know if something is missing, or if the monitor got too little CPU time.
    pub(crate) fn of_monitoring(&self) -> impl Iterator<Item = String> {
        self.missed().into_iter().chain(self.punctuality.warning(self.has_intervals()))
    }

    fn little(&self) -> Option<String> {
        let Figures { present, unknown, .. } = self.last.figures;
        let known = present.saturating_sub(unknown);
        if !self.surveyed() {
            return self.has_few_hits().then(|| {
                let found = if self.taken > 0.0 { self.hits / self.taken } else { 0.0 };
                format!(
                    "little evidence: {} of the samples found an access, so memory that is used from time to time \
                     looks cold; record with --survey auto",
                    if found > 0.0 { units::percent(found) } else { "none".into() }
                )
            });
        }
        if self.has_panel && (self.surveys == 0 || unknown as f64 > MUCH * present as f64) {
            let known = if self.surveys == 0 { 0 } else { known };
            return Some(format!(
                "surveys know {} of {} of resident memory at the end: how much is in use is estimated from a random \
                 part of the pages, but not where it is; record for longer to know that too",
                units::bytes(known),
                units::bytes(present)
            ));
        }
        if self.surveys == 0 {
            return Some(
                "little evidence: there was only one survey, which cannot tell when memory was touched; record for \
                 longer than a survey interval"
                    .into(),
            );
        }
        let unobservable = self.unobservable / self.present.max(1.0);
        if unobservable > MUCH {
            let why = match &self.left_out {
                Some(left_out) => format!(". In the last such survey, {}", sanitise(left_out)),
                None => "; `isotherm doctor` says what would help".into(),
            };
            return Some(format!(
                "little evidence: on the mean, {} of the resident memory could not be observed{why}",
                units::percent(unobservable)
            ));
        }
        (unknown as f64 > MUCH * present as f64).then(|| {
            format!(
                "little evidence: at the end it was known of {} of {} of resident memory whether they are in use, and \
                 the rest is estimated from these; record for longer, or with a larger --target-budget",
                units::bytes(known),
                units::bytes(present)
            )
        })
    }
}

impl Accumulator for Evidence {
    fn needs(&self) -> Needs {
        let of_snapshots = Needs { snapshots: true, costs: true, regions: self.sampled, ..Needs::NOTHING };
        of_snapshots | Needs { surveys: true, ..Needs::NOTHING } | Needs::PANELS | Needs::MISSED
    }

    fn takes(&self) -> Takes {
        Takes::Both
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        match event {
            Seen::Row(visit) => self.add_row(visit),
            Seen::Survey(record) => self.add_survey(&record.survey),
            Seen::Panel(panel) => {
                self.has_panel |= self.selection.address.is_none() && self.selection.holds_time(panel.time);
            }
            Seen::Missed(missed) if self.selection.holds_time(missed.time) => {
                *self.missed.entry(missed.kind).or_default() += missed.count;
            }
            Seen::Activity(_) | Seen::Mark(_) | Seen::Allocations(_) | Seen::Missed(_) => {}
        }
        Ok(())
    }
}
