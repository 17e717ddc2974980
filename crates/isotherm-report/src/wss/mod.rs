//! The working set: how much memory was accessed within a window, and the percentiles over time.
//!
//! Surveys tell it for any window of theirs. A recording without surveys has an estimate only: the regions in which a
//! sample found an access, within an aggregation interval.

mod grouped;
mod in_use;
pub(crate) mod mappings;
mod percentiles;
mod sampled;
mod surveyed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_core::{Estimate, TargetId, units};
use isotherm_record::{Header, Needs, pid_column};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::ReportError;
use crate::intervals::IntervalRange;
use crate::schema::{as_ns, ns, serialized_as};
use crate::source::{Accumulator, Seen, Selection, Source, walk};

#[cfg(test)]
pub(crate) use grouped::Held;
pub use grouped::{GroupWss, GroupedWss};
pub use in_use::{InUse, Used, is_after, is_better, is_known};
pub(crate) use in_use::{KNOWN, knows};
pub(crate) use percentiles::weighted_at;
pub use percentiles::{PERCENTILES, Percentiles};
pub(crate) use surveyed::Surveyed;

/// What a working set rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Surveys, which read all pages.
    Survey,
    /// Samples of single pages.
    #[default]
    Samples,
}

/// Whether a working set is a lower bound because more than a twentieth of the memory, in bytes, could not be observed.
fn is_lower_bound(unobservable: u64, present: u64) -> bool {
    unobservable.saturating_mul(20) > present
}

/// The working set of one target, or of all together, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Amount {
    /// Bytes that were accessed within the window.
    pub bytes: u64,
    /// Bytes in memory (RSS). `None` if the recording does not tell.
    pub present_bytes: Option<u64>,
    /// Bytes that could not be observed. `None` if the recording does not tell.
    pub unobservable_bytes: Option<u64>,
    /// Bytes whose accesses are not known. `bytes` counts them in the same share as the rest.
    /// `None` without surveys.
    pub unknown_bytes: Option<u64>,
    /// The lower end of the band in which `bytes` lies with a probability of 95 %. `None` if a survey tells it.
    pub low_bytes: Option<u64>,
    /// The upper end of that band.
    pub high_bytes: Option<u64>,
    /// All mapped bytes, for charts.
    #[serde(skip)]
    pub mapped: u64,
}

/// The working set of one target in one snapshot or survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Point {
    /// The time since the start of the recording.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    #[schemars(with = "u64")]
    pub time: Duration,
    /// The target.
    #[serde(rename = "pid", serialize_with = "as_pid")]
    #[schemars(with = "u32")]
    pub target: TargetId,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
    /// Whether the window goes back to before the first survey, much of the memory is unknown, or the bounds are
    /// further apart than the figure is large.
    pub warm_up: bool,
    /// The time for which it holds: since the snapshot or survey before.
    #[serde(skip)]
    pub span: Duration,
}

/// The working set of all targets together in one snapshot or survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Total {
    /// The time since the start of the recording.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    #[schemars(with = "u64")]
    pub time: Duration,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
    /// Whether the window goes back to before the first survey, or much of the memory is unknown, so that the
    /// percentiles leave it out.
    pub warm_up: bool,
    /// The time for which it holds: since the snapshot or survey before.
    #[serde(skip)]
    pub span: Duration,
}

fn as_pid<S: Serializer>(target: &TargetId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(pid_column(*target))
}

/// The working set over time.
#[derive(Clone, Debug, Default)]
pub struct Wss {
    /// What it rests on.
    pub basis: Basis,
    /// The window: bytes count that were accessed within this time.
    pub window: Duration,
    /// The sampling intervals of an estimate from samples.
    pub intervals: IntervalRange,
    /// Whether the window is the survey interval, and not one that was asked for.
    pub by_interval: bool,
    /// A point for each snapshot or survey and target, in the order of time.
    pub points: Vec<Point>,
    /// The sums in which each page counts once, in the order of time. `None` if it is not known which memory the
    /// targets share.
    pub once: Option<Vec<Total>>,
    /// The resident bytes (RSS) of a single target, as the kernel told them. `None` of several, which may share memory.
    pub(crate) resident: Option<Percentiles<u64>>,
}

impl Wss {
    /// The median survey interval, if the window is shorter, so that the working set within it is estimated.
    pub(crate) fn longer_interval(&self) -> Option<Duration> {
        let intervals = self.points.iter().filter(|point| !point.span.is_zero());
        let median = Percentiles::weighted(intervals.map(|point| (point.span, 1.0)).collect()).median();
        (self.basis == Basis::Survey && !self.by_interval && median > self.window + self.window / 20).then_some(median)
    }

    /// The working set within `window`, which is one of [`WINDOWS`](isotherm_core::survey::WINDOWS); without one,
    /// within the survey interval. In a recording without surveys, the estimate from samples within an aggregation
    /// interval.
    ///
    /// # Errors
    /// If the source cannot be read, has nothing in the selection, or has no surveys although there is a `window`.
    pub fn new(source: &dyn Source, selection: &Selection, window: Option<Duration>) -> Result<Self, ReportError> {
        let mut found = WssBuilder::new(source.header(), selection);
        match walk(source, selection, &mut [&mut found]) {
            // There may be surveys all the same.
            Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {}
            walked => walked?,
        }
        found.finish(source, window)
    }

    /// The sum of all targets at each time. If [`once`](Self::once) is not known, what several targets share counts
    /// once for each.
    pub fn sums(&self) -> Vec<Total> {
        if let Some(once) = &self.once {
            return once.clone();
        }
        self.sums_of(|_| true)
    }

    /// The sum of some targets at each time. What they share counts once for each.
    pub(crate) fn sums_of(&self, is_wanted: impl Fn(TargetId) -> bool) -> Vec<Total> {
        let mut sums: Vec<Total> = vec![];
        for point in self.points.iter().filter(|point| is_wanted(point.target)) {
            match sums.last_mut() {
                Some(total) if total.time == point.time => {
                    total.amount.add(&point.amount);
                    total.warm_up |= point.warm_up;
                    total.span = total.span.max(point.span);
                }
                _ => {
                    let Point { time, amount, warm_up, span, .. } = *point;
                    sums.push(Total { time, amount, warm_up, span });
                }
            }
        }
        sums
    }

    /// How much more the targets have together than the total, because what they share counts for each of them: the
    /// median over time. 0 also if that is not known.
    pub(crate) fn counted_again(&self) -> u64 {
        let each: BTreeMap<Duration, u64> =
            self.sums_of(|_| true).iter().map(|sum| (sum.time, sum.amount.bytes)).collect();
        let more = |total: &Total| Some((each.get(&total.time)?.checked_sub(total.amount.bytes)?, total.span));
        let more = self.once.iter().flatten().filter_map(more);
        Percentiles::weighted(more.map(|(bytes, span)| (bytes, span.as_secs_f64())).collect()).median()
    }

    /// Whether each page counts once in the sums.
    pub fn counts_once(&self) -> bool {
        self.once.is_some() || self.targets() < 2
    }

    /// The sums that percentiles count: without those of the warm-up. None if nothing is known.
    pub fn settled(&self) -> Vec<Total> {
        let mut sums = self.sums();
        sums.retain(|total| !total.warm_up);
        sums
    }

    /// Up to when the working set is not known at the start, if that is for longer than the first survey or reading.
    pub(crate) fn unknown_until(&self) -> Option<Duration> {
        let sums = self.sums();
        let count = sums.iter().take_while(|total| total.warm_up).count();
        let last = count.checked_sub(1).and_then(|last| sums.get(last)).filter(|_| (2..sums.len()).contains(&count));
        last.map(|total| total.time)
    }

    /// The sums that tell what is known at any time, such as resident memory: the settled ones, or else all.
    pub(crate) fn told(&self) -> Vec<Total> {
        let settled = self.settled();
        if settled.is_empty() { self.sums() } else { settled }
    }

    /// The percentiles over time of the sum of all targets. `None` if nothing is known.
    pub fn percentiles(&self) -> Option<Percentiles<u64>> {
        self.percentiles_of(|amount| Some(amount.bytes)).filter(|_| !self.settled().is_empty())
    }

    /// The percentiles over time of a part of the sum of all targets. `None` if no time tells it.
    pub fn percentiles_of(&self, part: impl Fn(&Amount) -> Option<u64>) -> Option<Percentiles<u64>> {
        let weighted = |total: &Total| Some((part(&total.amount)?, total.span.as_secs_f64()));
        let values: Vec<(u64, f64)> = self.told().iter().filter_map(weighted).collect();
        (!values.is_empty()).then(|| Percentiles::weighted(values))
    }

    /// The percentiles over time of the lower and of the upper bound. `None` if all figures are exact.
    pub fn percentiles_of_bounds(&self) -> Option<(Percentiles<u64>, Percentiles<u64>)> {
        let is_estimated = self.settled().iter().any(|total| total.amount.low() < total.amount.high());
        let of = |bound: fn(&Amount) -> u64| self.percentiles_of(|amount| Some(bound(amount)));
        of(Amount::low).zip(of(Amount::high)).filter(|_| is_estimated)
    }

    /// The median over time of the sum of all targets, with the medians of its bounds. `None` if nothing is known.
    pub fn median(&self) -> Option<Estimate> {
        let value = self.percentiles()?.median();
        let bounds = self.percentiles_of_bounds();
        let of = |(low, high): (Percentiles<u64>, Percentiles<u64>)| (low.median(), high.median());
        Some(bounds.map(of).map_or(Estimate::exact(value), |(low, high)| Estimate { low, value, high }))
    }

    /// Whether the figures are lower bounds: so much memory could not be observed that may be in use, too.
    pub fn is_lower_bound(&self) -> bool {
        let median = |part: fn(&Amount) -> Option<u64>| self.percentiles_of(part).map_or(0, |of| of.median());
        is_lower_bound(median(|amount| amount.unobservable_bytes), median(|amount| amount.present_bytes))
    }

    /// Why nothing is known, and what to do. `None` if something is.
    pub fn unknown(&self) -> Option<String> {
        if self.percentiles().is_some() {
            return None;
        }
        let window = units::duration(self.window);
        Some(match self.by_interval {
            true => "not known: much of the memory was unknown at each time; record for longer, or with a larger \
                     --cpu-budget"
                .into(),
            false => format!(
                "not known: nothing observed a whole window of {window}, or enough of the memory; record for longer, \
                 or ask for a shorter one (--window)"
            ),
        })
    }

    /// The number of targets.
    pub fn targets(&self) -> usize {
        self.points.iter().map(|point| point.target).collect::<BTreeSet<_>>().len()
    }

    /// What it tells, in a few words: `touched within 10 s`.
    pub fn meaning(&self) -> String {
        let window = units::duration(self.window);
        match self.basis {
            Basis::Survey if self.by_interval => format!("touched within {window}, the survey interval"),
            Basis::Survey => format!("touched within {window}"),
            Basis::Samples => {
                let over = self.intervals.text().map_or_else(String::new, |interval| format!(" over {interval}"));
                format!("accessed within {window}, estimated from samples{over}")
            }
        }
    }
}

/// The working set of a selection, of any window.
#[derive(Debug)]
pub(crate) struct WssBuilder {
    surveyed: Surveyed,
    header: Header,
    selection: Selection,
    /// The time of the last activity.
    before: Duration,
    /// The resident bytes of targets, each value for the time since the one before.
    resident: Vec<(u64, f64)>,
}

impl WssBuilder {
    /// That of a selection of a recording with this header, before its walk.
    pub(crate) fn new(header: &Header, selection: &Selection) -> Self {
        let (surveyed, before, resident) = (Surveyed::new(selection), Duration::ZERO, vec![]);
        Self { surveyed, header: header.clone(), selection: selection.clone(), before, resident }
    }

    /// The working set after the walk over `source`.
    ///
    /// # Errors
    /// As [`Wss::new`].
    pub(crate) fn finish(&self, source: &dyn Source, window: Option<Duration>) -> Result<Wss, ReportError> {
        let mut wss = match (self.surveyed.wss(window), window) {
            (Some(wss), _) => wss,
            (None, Some(window)) => return Err(ReportError::NoSurveys { window }),
            (None, None) => sampled::wss(source, &self.selection)?,
        };
        if wss.targets() == 1 && self.selection.address.is_none() && !self.resident.is_empty() {
            wss.resident = Some(Percentiles::weighted(self.resident.clone()));
        }
        Ok(wss)
    }
}

impl Accumulator for WssBuilder {
    fn needs(&self) -> Needs {
        self.surveyed.needs() | Needs::ACTIVITIES
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Activity(activity) = event {
            let before = std::mem::replace(&mut self.before, activity.time);
            let span = self.header.recorded(before, activity.time);
            let of_target = activity.memory.iter().filter(|(id, _)| self.selection.holds_target(*id));
            if self.selection.holds_time(activity.time) {
                self.resident.extend(of_target.map(|(_, memory)| (memory.resident, span.as_secs_f64())));
            }
        }
        self.surveyed.event(event)
    }
}

impl Amount {
    /// The lower bound of `bytes`.
    pub(crate) fn low(&self) -> u64 {
        self.low_bytes.unwrap_or(self.bytes)
    }

    /// The upper bound of `bytes`.
    pub(crate) fn high(&self) -> u64 {
        self.high_bytes.unwrap_or(self.bytes)
    }

    /// Adds that of another target.
    fn add(&mut self, other: &Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        *self = Self {
            bytes: self.bytes.saturating_add(other.bytes),
            present_bytes: both(self.present_bytes, other.present_bytes),
            unobservable_bytes: both(self.unobservable_bytes, other.unobservable_bytes),
            unknown_bytes: both(self.unknown_bytes, other.unknown_bytes),
            low_bytes: both(self.low_bytes, other.low_bytes),
            high_bytes: both(self.high_bytes, other.high_bytes),
            mapped: self.mapped.saturating_add(other.mapped),
        };
    }
}

/// The working set in JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Wss")]
struct WssJson<'a> {
    /// What the figures rest on.
    source: Basis,
    /// The window; with samples the aggregation interval.
    window_ns: u64,
    /// The sampling intervals of an estimate from samples.
    #[serde(flatten)]
    intervals: IntervalRange,
    /// Bytes, by nearest rank over time, of the sums of all selected targets, without those of the warm-up. `None` if
    /// there are no others.
    percentiles: Option<Percentiles<u64>>,
    /// Whether more than a twentieth of the memory could not be observed, so that the figures are lower bounds.
    lower_bound: bool,
    /// The lower bounds of the percentiles, which hold in 19 of 20 cases, by nearest rank over time. `None` if all
    /// figures are exact.
    low_percentiles: Option<Percentiles<u64>>,
    /// The upper bounds of the percentiles.
    high_percentiles: Option<Percentiles<u64>>,
    /// One entry for each snapshot or survey and target, in the order of time.
    over_time: &'a [Point],
    /// The sums of all selected targets, in the order of time.
    total_over_time: Vec<Total>,
    /// Whether `total_over_time` counts each page once. Otherwise, what several targets share counts for each.
    counted_once: bool,
}

serialized_as!(Wss, WssJson<'_>);

impl<'a> From<&'a Wss> for WssJson<'a> {
    fn from(wss: &'a Wss) -> Self {
        let (low_percentiles, high_percentiles) = wss.percentiles_of_bounds().unzip();
        Self {
            source: wss.basis,
            window_ns: ns(wss.window),
            intervals: wss.intervals,
            percentiles: wss.percentiles(),
            lower_bound: wss.is_lower_bound(),
            low_percentiles,
            high_percentiles,
            over_time: &wss.points,
            total_over_time: wss.sums(),
            counted_once: wss.counts_once(),
        }
    }
}
