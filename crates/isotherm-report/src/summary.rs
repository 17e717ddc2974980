//! The summary: hot, warm and cold memory by mapping name, and for how long cold memory has been cold.
//!
//! Sizes are means over the selected time, weighted by time. So hot + warm + cold + unobservable + unknown is the size,
//! and the sum over the names is the mean size of all memory. The time for which memory has been cold is that of the
//! last snapshot that has the name: a mean over time would be half of it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::{Header, TargetInfo, pid_column};
use serde::Serialize;

use crate::ReportError;
use crate::extent::shown_name;
use crate::intervals::IntervalRange;
use crate::overhead::Overhead;
use crate::pace::Pace;
use crate::parts::Parts;
use crate::resident::Surveyed;
use crate::source::{Piece, View, Visit};

/// The share of late rounds above which a report warns of them.
pub const MANY_LATE: f64 = 0.01;

/// Hot, warm and cold memory of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Temperature {
    /// The name of the mappings, `anonymous` for memory without a name.
    pub name: Arc<str>,
    /// Resident bytes, or mapped bytes without a survey: the sum of the next five.
    pub size_bytes: u64,
    /// Bytes with an access rate of at least one half.
    pub hot_bytes: u64,
    /// Bytes with a lower access rate.
    pub warm_bytes: u64,
    /// Bytes without accesses.
    pub cold_bytes: u64,
    /// Bytes that could not be observed.
    pub unobservable_bytes: u64,
    /// Bytes of which it is not known whether they were accessed: no sample was taken of them, and a survey could not
    /// tell either.
    pub unknown_bytes: u64,
    /// The working set: bytes that were touched within a survey interval; without surveys, bytes of regions with at
    /// least one access in an aggregation interval. The mean over time.
    pub working_set_bytes: u64,
    /// The largest working set of a single survey or snapshot.
    pub working_set_max_bytes: u64,
    /// The mean time for which cold bytes had been cold at the last snapshot. None if there are no cold bytes.
    pub cold_for_ns: Option<u64>,
    /// What surveys found. `None` without them.
    #[serde(flatten)]
    pub surveyed: Surveyed,
}

/// Hot, warm and cold memory of one target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetTemperature {
    /// The target.
    #[serde(skip)]
    pub id: TargetId,
    /// The process ID, or 0 for physical memory.
    pub pid: u32,
    /// The command line.
    pub command: String,
    /// The time of the first snapshot in the selection.
    pub first_ns: u64,
    /// The time of the last snapshot in the selection.
    pub last_ns: u64,
    /// Resident bytes, of which those that several processes share are divided among them (PSS): the mean over
    /// time, in which the target uses none while it does not run. `None` if no activity tells.
    pub proportional_bytes: Option<u64>,
    /// All memory of the target.
    #[serde(flatten)]
    pub total: Temperature,
}

/// Memory of several targets, where each page counts once: the means over the surveys, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CountedOnce {
    /// Bytes in memory.
    pub resident_bytes: u64,
    /// Of these, bytes that more than one target maps.
    pub shared_bytes: u64,
    /// Bytes that were accessed within a survey interval.
    pub touched_bytes: u64,
    /// Bytes in swap at the last survey. `None` if the surveys do not tell.
    pub swapped_bytes: Option<u64>,
}

/// The summary of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The start of the selected time.
    pub from_ns: u64,
    /// The end of the selected time.
    pub to_ns: u64,
    /// The number of snapshots.
    pub snapshots: u64,
    /// The header of the recording.
    pub recording: Header,
    /// Why the recording ends before its run, if it does.
    pub cut_short: Option<String>,
    /// Sampling rounds.
    pub rounds: u64,
    /// Sampling rounds that began late.
    pub late_rounds: u64,
    /// Missing aggregations: events of the kernel's DAMON that isotherm did not read in time.
    pub lost_aggregations: u64,
    /// How often the recording surveyed and sampled, and what that cost beside the budget.
    #[serde(flatten)]
    pub pace: Pace,
    /// The sampling intervals: the time over which a sample finds an access.
    #[serde(flatten)]
    pub intervals: IntervalRange,
    /// The targets.
    pub targets: Vec<TargetTemperature>,
    /// All memory. What several targets share counts for each.
    pub total: Temperature,
    /// What surveys found, where each page counts once. `None` without surveys of all targets, or if it is not known
    /// which memory they share.
    pub counted_once: Option<CountedOnce>,
    /// The names: those with most hot memory first, then the largest.
    pub mappings: Vec<Temperature>,
}

/// Sums over time, in bytes × seconds.
#[derive(Clone, Default)]
struct Sums {
    unknown: f64,
    hot: f64,
    warm: f64,
    cold: f64,
    unobservable: f64,
    working_set: f64,
    /// The time and the working set of the current snapshot, and the largest working set so far.
    current: (Duration, u64),
    largest: u64,
    /// For each target: the time of its last snapshot, its cold bytes then, and the sum of cold bytes × age.
    idle: HashMap<TargetId, (Duration, f64, f64)>,
}

impl Sums {
    /// Adds a piece of a region with `bytes` in memory.
    fn add(&mut self, visit: &Visit<'_>, piece: &Piece<'_>, bytes: u64) {
        let (region, time) = (piece.region, visit.row.time);
        let weight = bytes as f64 * visit.span().as_secs_f64();
        let parts = Parts::of(region, visit.row.samples);
        self.unobservable += weight * parts.unobservable;
        self.unknown += weight * parts.unknown;
        self.hot += weight * parts.hot;
        self.warm += weight * parts.warm;
        self.cold += weight * parts.cold;
        let idle = self.idle.entry(visit.row.target.id).or_insert((time, 0.0, 0.0));
        if idle.0 != time {
            *idle = (time, 0.0, 0.0);
        }
        let cold = bytes as f64 * parts.cold;
        idle.1 += cold;
        idle.2 += cold * f64::from(region.age) * visit.row.aggregation.as_secs_f64();
        if region.nr_accesses > 0 {
            self.working_set += weight;
            if self.current.0 != time {
                self.current = (time, 0);
            }
            self.current.1 = self.current.1.saturating_add(bytes);
            self.largest = self.largest.max(self.current.1);
        }
    }

    fn over(&self, seconds: f64, name: Arc<str>) -> Temperature {
        let mean = |sum: f64| (sum / seconds).round() as u64;
        let parts = [self.hot, self.warm, self.cold, self.unobservable, self.unknown].map(|sum| sum / seconds);
        let parts = whole_parts(parts);
        let [hot, warm, cold, unobservable, unknown] = parts;
        let (bytes, aged) = self.idle.values().fold((0.0, 0.0), |(b, a), &(_, bytes, aged)| (b + bytes, a + aged));
        Temperature {
            name,
            size_bytes: parts.into_iter().fold(0, u64::saturating_add),
            hot_bytes: hot,
            warm_bytes: warm,
            cold_bytes: cold,
            unobservable_bytes: unobservable,
            unknown_bytes: unknown,
            working_set_bytes: mean(self.working_set),
            working_set_max_bytes: self.largest,
            cold_for_ns: (bytes > 0.0).then(|| (aged / bytes * 1e9) as u64),
            surveyed: Surveyed::default(),
        }
    }
}

/// The parts as whole numbers: each to the nearest, and the largest so that all add up to their sum, rounded.
fn whole_parts<const N: usize>(parts: [f64; N]) -> [u64; N] {
    let whole = parts.iter().sum::<f64>().round() as u64;
    let mut parts = parts.map(|part| part.round() as u64);
    let sum = parts.iter().copied().fold(0, u64::saturating_add);
    if let Some(largest) = parts.iter_mut().max() {
        *largest = largest.saturating_add(whole).saturating_sub(sum);
    }
    parts
}

struct TargetSums {
    id: TargetId,
    info: Arc<TargetInfo>,
    first: Duration,
    last: Duration,
    sums: Sums,
}

/// Computes the summary.
#[derive(Default)]
pub struct SummaryBuilder {
    names: HashMap<Arc<str>, Sums>,
    targets: Vec<TargetSums>,
    total: Sums,
    span: Option<(Duration, Duration)>,
    covered: Duration,
    last: Option<Duration>,
    snapshots: u64,
    intervals: IntervalRange,
}

impl SummaryBuilder {
    /// The summary. `overhead` is of the same walk.
    pub fn finish(self, header: &Header, cut_short: Option<String>, overhead: &Overhead) -> Summary {
        let seconds = self.covered.as_secs_f64().max(1e-9);
        let mut mappings: Vec<_> = self.names.into_iter().map(|(name, sums)| sums.over(seconds, name)).collect();
        mappings.sort_by(|a, b| {
            let key = |t: &Temperature| Reverse((t.hot_bytes, t.size_bytes));
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        let targets = self
            .targets
            .into_iter()
            .map(|target| TargetTemperature {
                id: target.id,
                pid: pid_column(target.id),
                command: target.info.command.clone(),
                first_ns: target.first.as_nanos() as u64,
                last_ns: target.last.as_nanos() as u64,
                proportional_bytes: None,
                total: target.sums.over(seconds, "total".into()),
            })
            .collect();
        let (from, to) = self.span.unwrap_or_default();
        Summary {
            from_ns: from.as_nanos() as u64,
            to_ns: to.as_nanos() as u64,
            snapshots: self.snapshots,
            recording: header.clone(),
            cut_short,
            rounds: overhead.rounds,
            late_rounds: overhead.late_rounds,
            lost_aggregations: overhead.lost_aggregations,
            pace: overhead.pace,
            intervals: self.intervals,
            targets,
            total: self.total.over(seconds, "total".into()),
            counted_once: None,
            mappings,
        }
    }
}

impl View for SummaryBuilder {
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if !visit.chosen {
            return Ok(());
        }
        let row = visit.row;
        let (start, end) = self.span.unwrap_or((visit.since, row.time));
        self.span = Some((start.min(visit.since), end.max(row.time)));
        if self.last.replace(row.time) != Some(row.time) {
            self.snapshots += 1;
            self.covered += visit.span();
        }
        self.intervals.add_row(row);
        let target = match self.targets.iter().position(|target| target.id == row.target.id) {
            Some(i) => &mut self.targets[i],
            None => {
                let (id, info) = (row.target.id, row.info.clone());
                self.targets.push(TargetSums { id, info, first: row.time, last: row.time, sums: Sums::default() });
                let last = self.targets.len() - 1;
                &mut self.targets[last]
            }
        };
        target.last = row.time;
        target.info = row.info.clone();
        for (piece, bytes) in visit.present_pieces() {
            let label = piece.mapping.label();
            let name = shown_name(&label);
            if !self.names.contains_key(name) {
                self.names.insert(name.into(), Sums::default());
            }
            if let Some(sums) = self.names.get_mut(name) {
                sums.add(visit, &piece, bytes);
            }
            target.sums.add(visit, &piece, bytes);
            self.total.add(visit, &piece, bytes);
        }
        Ok(())
    }
}

/// The largest rows, and the sum of the others: names with less than the share `least` of the memory, that in swap
/// included, and of the hot memory, or beyond `most` rows.
pub fn folded(mappings: &[Temperature], most: usize, least: f64) -> (Vec<&Temperature>, Option<(usize, Temperature)>) {
    let kept = |m: &Temperature| m.size_bytes.saturating_add(m.surveyed.swapped_bytes.unwrap_or(0));
    let size: u64 = mappings.iter().map(kept).fold(0, u64::saturating_add);
    let hot: u64 = mappings.iter().map(|m| m.hot_bytes).fold(0, u64::saturating_add);
    let worth = |m: &Temperature| {
        kept(m) as f64 >= size as f64 * least || (hot > 0 && m.hot_bytes as f64 >= hot as f64 * least)
    };
    let few = mappings.len() <= most.min(4);
    let (mut shown, mut rest): (Vec<_>, Vec<_>) = mappings.iter().partition(|m| few || worth(m));
    if shown.len() + usize::from(!rest.is_empty()) > most {
        rest.extend(shown.drain(most.saturating_sub(1).max(1)..));
    }
    if let [single] = rest[..] {
        shown.push(single);
        return (shown, None);
    }
    let sum = |value: fn(&Temperature) -> u64| rest.iter().map(|m| value(m)).fold(0, u64::saturating_add);
    let idle: f64 = rest.iter().map(|m| m.cold_bytes as f64 * m.cold_for_ns.unwrap_or(0) as f64).sum();
    let cold = sum(|m| m.cold_bytes);
    let others = Temperature {
        name: format!("others ({})", rest.len()).into(),
        size_bytes: sum(|m| m.size_bytes),
        hot_bytes: sum(|m| m.hot_bytes),
        warm_bytes: sum(|m| m.warm_bytes),
        cold_bytes: cold,
        unobservable_bytes: sum(|m| m.unobservable_bytes),
        unknown_bytes: sum(|m| m.unknown_bytes),
        working_set_bytes: sum(|m| m.working_set_bytes),
        working_set_max_bytes: sum(|m| m.working_set_max_bytes),
        cold_for_ns: (cold > 0).then(|| (idle / cold as f64) as u64),
        surveyed: rest.iter().map(|m| m.surveyed).reduce(Surveyed::plus).unwrap_or_default(),
    };
    let rest = (!rest.is_empty()).then_some((rest.len(), others));
    (shown, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_parts_add_up_to_the_whole() {
        assert_eq!(whole_parts([60.5, 35.5]), [60, 36]);
        assert_eq!(whole_parts([4.4, 2.4, 3.2]), [5, 2, 3]);
        assert_eq!(whole_parts([2.999_999, 5.0]), [3, 5]);
        assert_eq!(whole_parts([0.0, 7.0]), [0, 7]);
        assert_eq!(whole_parts([0.0; 5]), [0; 5]);
    }
}
