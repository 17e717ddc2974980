//! What one recording has of each quantity, by mapping name and by program.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_core::rate::sampling_interval;
use isotherm_core::survey::{PageSums, WINDOWS};

use super::quantity::{Amount, Count};
use isotherm_record::Needs;

use crate::ReportError;
use crate::command::program_of;
use crate::extent::shown_name;
use crate::intervals::IntervalRange;
use crate::parts::Parts;
use crate::source::{self, Accumulator, Seen, Selection, Share, Source};
use crate::surveys::{Reach, part};
use crate::wss::Percentiles;

/// The surveys of a selection.
#[derive(Default)]
pub(super) struct SurveyTimes {
    /// The time of each survey of the selection and the time since the survey before it, where there is one.
    times: Vec<(Duration, Duration)>,
    /// For each of these, the time since the first survey of the recording.
    reaches: Vec<Duration>,
}

impl SurveyTimes {
    pub(super) fn read(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let (mut reach, mut times, mut reaches) = (Reach::default(), vec![], vec![]);
        for record in source::surveys(source, false)? {
            let survey = record?.survey;
            let covered = reach.of(&survey);
            let has_targets = survey.targets.iter().any(|target| selection.holds_target(target.id));
            if has_targets && selection.holds_time(survey.time) && !survey.interval.is_zero() {
                times.push((survey.time, survey.interval));
                reaches.push(covered);
            }
        }
        Ok(Self { times, reaches })
    }

    /// The number of surveys that have one before them.
    pub(super) fn count(&self) -> usize {
        self.times.len()
    }

    /// The median time from a survey to the next, to the millisecond. `None` without surveys.
    pub(super) fn interval(&self) -> Option<Duration> {
        let weighted = self.times.iter().map(|&(_, interval)| (interval, interval.as_secs_f64())).collect();
        let median = Percentiles::weighted(weighted).median();
        (!self.times.is_empty()).then(|| Duration::from_millis((median.as_micros() as u64 + 500) / 1000))
    }

    /// Whether a survey of the selection has a whole window before it.
    pub(super) fn cover(&self, window: Duration) -> bool {
        self.reaches.iter().any(|&reach| reach >= window)
    }
}

/// What a name is of.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Mapping,
    Program,
}

/// The bytes of something over time.
#[derive(Clone, Copy, Default)]
struct Series {
    /// Bytes × seconds.
    sum: f64,
    /// The time that was added last, and the bytes of that time.
    now: (Duration, u64),
    peak: u64,
}

impl Series {
    fn add(&mut self, time: Duration, bytes: u64, seconds: f64) {
        if self.now.0 != time {
            self.now = (time, 0);
        }
        self.now.1 = self.now.1.saturating_add(bytes);
        self.peak = self.peak.max(self.now.1);
        self.sum += bytes as f64 * seconds;
    }
}

/// The four quantities of a name over time.
type AllSeries = [Series; Count::ALL.len()];

/// What one recording has.
#[derive(Default)]
pub(super) struct Gathered {
    total: AllSeries,
    /// The working set and the resident memory, where each page counts once. `None` if that is not known.
    once: Option<[Series; 2]>,
    mappings: HashMap<String, AllSeries>,
    programs: HashMap<String, AllSeries>,
    /// The time that is known of each quantity, in seconds.
    covered: [f64; Count::ALL.len()],
    /// The time of the last row.
    last: Option<Duration>,
    pub(super) snapshots: u64,
    pub(super) span: Option<(Duration, Duration)>,
    pub(super) targets: BTreeSet<TargetId>,
    pub(super) intervals: IntervalRange,
    /// The aggregation intervals, each with the time for which it was in force, in seconds.
    aggregations: Vec<(Duration, f64)>,
    /// The sampling intervals, in the same way.
    samplings: Vec<(Duration, f64)>,
    /// Whether the working set and the size are those of rows, and not of surveys.
    by_samples: bool,
}

impl Gathered {
    /// Nothing yet. `by_samples` says that the working set and the size are taken from rows.
    pub(super) fn new(by_samples: bool) -> Self {
        Self { by_samples, ..Self::default() }
    }

    /// Adds the working set and the resident memory from surveys.
    pub(super) fn add_surveys(
        &mut self,
        source: &dyn Source,
        selection: &Selection,
        surveys: &SurveyTimes,
        window: Duration,
    ) -> Result<(), ReportError> {
        let Some(place) = WINDOWS.iter().position(|&known| known == window) else { return Ok(()) };
        let settled = surveys.cover(window);
        self.once = Some([Series::default(); 2]);
        for record in source::surveys(source, false)? {
            let record = record?;
            let survey = &record.survey;
            let Ok(nth) = surveys.times.binary_search(&(survey.time, survey.interval)) else { continue };
            let seconds = survey.interval.as_secs_f64();
            let warm = !settled || surveys.reaches.get(nth).is_some_and(|&reach| reach >= window);
            let amounts = |sums: &PageSums| [warm.then_some(sums.within[place]), Some(sums.figures.present)];
            self.covered[0] += if warm { seconds } else { 0.0 };
            self.covered[1] += seconds;
            for (target, info) in record.described().filter(|(target, _)| selection.holds_target(target.id)) {
                let program = program_of(target.id, &info.command);
                for (mapping, sums) in target.surveyed() {
                    let sums = part(sums, mapping.range, selection.address);
                    let label = mapping.label();
                    for (nth, bytes) in amounts(&sums).into_iter().enumerate() {
                        let Some(bytes) = bytes else { continue };
                        self.add(nth, (shown_name(&label), &program), survey.time, bytes, seconds);
                    }
                }
            }
            self.once = self.once.zip(survey.total.filter(|_| selection.holds_all(survey))).map(|(mut once, total)| {
                for (series, bytes) in once.iter_mut().zip(amounts(&total.sums)) {
                    bytes.into_iter().for_each(|bytes| series.add(survey.time, bytes, seconds));
                }
                once
            });
        }
        Ok(())
    }

    fn add(&mut self, nth: usize, (mapping, program): (&str, &str), time: Duration, bytes: u64, seconds: f64) {
        self.total[nth].add(time, bytes, seconds);
        add_to(&mut self.mappings, mapping, nth, (time, bytes, seconds));
        add_to(&mut self.programs, program, nth, (time, bytes, seconds));
    }

    /// The median aggregation interval.
    pub(super) fn aggregation(&self) -> Duration {
        Percentiles::weighted(self.aggregations.clone()).median()
    }

    /// The median sampling interval. `None` without samples.
    pub(super) fn sampling(&self) -> Option<Duration> {
        self.intervals.bounds().map(|_| Percentiles::weighted(self.samplings.clone()).median())
    }

    /// Whether each page counts once in the total.
    pub(super) fn counts_once(&self) -> bool {
        self.targets.len() < 2 || (!self.by_samples && self.once.is_some())
    }

    /// All memory. If not each page can count `once`, what several targets share counts for each of them.
    pub(super) fn total(&self, quantity: Count, once: bool) -> Option<Amount> {
        let of_once = self.once.as_ref().filter(|_| once).and_then(|all| all.get(quantity as usize));
        self.amount(of_once.unwrap_or(&self.total[quantity as usize]), quantity)
    }

    fn of_kind(&self, kind: Kind) -> &HashMap<String, AllSeries> {
        match kind {
            Kind::Mapping => &self.mappings,
            Kind::Program => &self.programs,
        }
    }

    /// All names of this kind.
    pub(super) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.of_kind(kind).keys().map(String::as_str)
    }

    /// The quantity of the memory of this name. `None` if the name does not occur, or the quantity is not known.
    pub(super) fn named(&self, kind: Kind, name: &str, quantity: Count) -> Option<Amount> {
        self.amount(&self.of_kind(kind).get(name)?[quantity as usize], quantity)
    }

    fn amount(&self, series: &Series, quantity: Count) -> Option<Amount> {
        let seconds = self.covered[quantity as usize];
        let mean = || (series.sum / seconds).round() as u64;
        (seconds > 0.0).then(|| Amount { mean_bytes: mean(), peak_bytes: series.peak })
    }
}

fn add_to(
    named: &mut HashMap<String, AllSeries>,
    name: &str,
    nth: usize,
    (time, bytes, seconds): (Duration, u64, f64),
) {
    match named.get_mut(name) {
        Some(series) => series[nth].add(time, bytes, seconds),
        None => {
            let mut series = AllSeries::default();
            series[nth].add(time, bytes, seconds);
            named.insert(name.into(), series);
        }
    }
}

impl Accumulator for Gathered {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen {
            return Ok(());
        }
        let (row, span) = (&visit.row, visit.span().as_secs_f64());
        let (start, end) = self.span.unwrap_or((visit.since, row.time));
        self.span = Some((start.min(visit.since), end.max(row.time)));
        if self.last.replace(row.time) != Some(row.time) {
            self.snapshots += 1;
            let of_rows: &[Count] = if self.by_samples { &Count::ALL } else { &[Count::Hot, Count::Cold] };
            of_rows.iter().for_each(|&quantity| self.covered[quantity as usize] += span);
            self.aggregations.push((row.aggregation, span));
            self.samplings.push((sampling_interval(row.aggregation, row.samples), span));
        }
        self.targets.insert(row.target.id);
        self.intervals.add_row(row);
        let program = program_of(row.target.id, &row.info.command);
        for (piece, bytes) in visit.present_pieces() {
            let label = piece.mapping.label();
            let names = (shown_name(&label), &*program);
            let share = Share::of(piece.region, row.samples, row.aggregation);
            let parts = Parts::of(piece.region, share, visit.hot());
            let of = |share: f64| (bytes as f64 * share).round() as u64;
            self.add(Count::Hot as usize, names, row.time, of(parts.hot), span);
            self.add(Count::Cold as usize, names, row.time, of(parts.cold), span);
            if self.by_samples && piece.region.nr_accesses > 0 {
                self.add(Count::WorkingSet as usize, names, row.time, bytes, span);
            }
        }
        if self.by_samples {
            for (range, name) in visit.mapped() {
                let names = (shown_name(&name), &*program);
                self.add(Count::Resident as usize, names, row.time, range.size(), span);
            }
        }
        Ok(())
    }
}
