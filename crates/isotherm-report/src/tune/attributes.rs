//! The attributes that a run has settled on, and the time and the targets of the selection.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_core::rate::sampling_interval;
use isotherm_record::{Header, Needs, TargetInfo};
use schemars::JsonSchema;
use serde::Serialize;

use super::facts::written;
use crate::ReportError;
use crate::overhead::Overhead;
use crate::pace::RecordedPace;
use crate::source::{Accumulator, Seen, Selection, Source, walk};
use crate::wss::Percentiles;

/// The attributes that a run has settled on: those of the second half of the selected time, since a run begins with
/// shorter intervals than it keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FoundAttributes {
    /// The options of `isotherm record` that fix them, without those that name the targets.
    pub options: Vec<String>,
    /// The time from a round with samples to the next. `None` without samples.
    pub sampling_interval_ns: Option<u64>,
    /// The aggregation interval.
    pub aggregation_ns: u64,
    /// The time from a survey to the next. `None` without surveys.
    pub survey_interval_ns: Option<u64>,
    /// The mean number of regions of all targets.
    pub regions_mean: f64,
    /// The maximum number of regions of all targets.
    pub regions_max: u64,
    /// CPU time of isotherm, in per cent of one CPU, over all of the time but the first 3 s. `None` if the recording
    /// has no costs.
    pub cpu_percent: Option<f64>,
    /// The budget, in per cent of one CPU. `None` if there was none.
    pub budget_percent: Option<f64>,
    /// The pace of all of the time, for a line of text.
    #[serde(skip)]
    pub(super) pace: RecordedPace,
}

/// The time and the targets of a selection.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub from: Duration,
    pub to: Duration,
    pub targets: Vec<(TargetId, Arc<TargetInfo>)>,
    /// The aggregation interval, its samples and its time, for each snapshot.
    aggregations: Vec<(Duration, u32, Duration)>,
}

impl Accumulator for Recorded {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        let row = &visit.row;
        if self.aggregations.is_empty() {
            self.from = visit.since;
        }
        self.to = row.time;
        if visit.first_of_snapshot {
            self.aggregations.push((row.aggregation, row.samples, row.time));
        }
        if visit.chosen {
            match self.targets.iter_mut().find(|(id, _)| *id == row.target.id) {
                Some((_, info)) => *info = Arc::clone(row.info),
                None => self.targets.push((row.target.id, Arc::clone(row.info))),
            }
        }
        Ok(())
    }
}

/// The attributes of a selection, and its time and targets.
pub(super) fn find(source: &dyn Source, selection: &Selection) -> Result<(FoundAttributes, Recorded), ReportError> {
    let (mut seen, mut overhead) = (Recorded::default(), Overhead::new(source.header(), selection));
    walk(source, selection, &mut [&mut seen, &mut overhead])?;
    let overhead = overhead.finish();
    let middle = seen.from + (seen.to.saturating_sub(seen.from)) / 2;
    let settled = settled_pace(source, &Selection { time: Some(middle..seen.to), ..selection.clone() }, overhead.pace)?;
    let late = seen.aggregations.iter().filter(|(_, _, time)| *time > middle);
    let weighted = |of: fn(Duration, u32) -> Duration| {
        let values = late
            .clone()
            .map(|&(aggregation, samples, _)| (of(aggregation, samples).as_nanos() as u64, aggregation.as_secs_f64()));
        Percentiles::weighted(values.collect()).median()
    };
    let aggregation = weighted(|aggregation, _| aggregation);
    let sampling = weighted(sampling_interval);
    // Samples may be rarer than rounds, to keep the budget. Runs that do not tell that have samples in each round.
    let sampled = !seen.aggregations.is_empty() && !settled.is_unsampled();
    let sampling = sampled.then(|| settled.sampling_interval_ns.unwrap_or(sampling).max(sampling));
    let mut found = FoundAttributes {
        options: vec![],
        sampling_interval_ns: sampling,
        aggregation_ns: aggregation.max(sampling.unwrap_or(0)),
        survey_interval_ns: settled.survey_interval_ns,
        regions_mean: overhead.regions.mean,
        regions_max: overhead.regions.max,
        cpu_percent: overhead.pace.cpu_percent,
        budget_percent: overhead.pace.budget_percent,
        pace: overhead.pace,
    };
    found.options = options(&found, source.header());
    Ok((found, seen))
}

/// The pace of the second half; that of all if nothing was recorded in it.
fn settled_pace(source: &dyn Source, half: &Selection, all: RecordedPace) -> Result<RecordedPace, ReportError> {
    let mut overhead = Overhead::new(source.header(), half);
    match walk(source, half, &mut [&mut overhead]) {
        Ok(()) => {}
        Err(ReportError::NothingMatches { .. }) => return Ok(all),
        Err(error) => return Err(error),
    }
    let mut settled = overhead.finish().pace;
    settled.survey_interval_ns = settled.survey_interval_ns.or(all.survey_interval_ns);
    Ok(settled)
}

/// The options of `isotherm record` that fix these attributes.
fn options(found: &FoundAttributes, header: &Header) -> Vec<String> {
    let mut options = vec![];
    let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
    if header.sight.only_by_name {
        add("--probe", header.probe.clone());
    }
    match found.sampling_interval_ns {
        Some(ns) => {
            let sampling = rounded(ns);
            add("--sample", written(sampling));
            add("--aggr", written(rounded(found.aggregation_ns).max(sampling)));
        }
        None if found.survey_interval_ns.is_some() => add("--sample", "off".into()),
        None => {}
    }
    match found.survey_interval_ns {
        Some(ns) => add("--survey", written(rounded(ns))),
        None if found.sampling_interval_ns.is_some() => add("--survey", "off".into()),
        None => {}
    }
    if header.max_regions > 0 {
        add("--regions", format!("{}:{}", header.min_regions, header.max_regions));
    }
    // With --sample, the budget holds only if it is given.
    if let Some(budget) = found.budget_percent {
        add("--cpu-budget", format!("{}%", (budget * 100.0).round() / 100.0));
    }
    options
}

/// A time with two digits, which options can write.
fn rounded(ns: u64) -> Duration {
    let step = 10_u64.pow(ns.max(1).ilog10().saturating_sub(1)).max(1_000);
    Duration::from_nanos((ns.saturating_add(step / 2) / step).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_options_have_two_digits_and_a_unit() {
        let text = |ns| written(rounded(ns));
        assert_eq!(text(5_000_000), "5ms");
        assert_eq!(text(5_030_000), "5ms");
        assert_eq!(text(1_004_000_000), "1s");
        assert_eq!(text(1_260_000_000), "1300ms");
        assert_eq!(text(123_456), "120us");
        assert_eq!(text(41_800_000_000), "42s");
    }
}
