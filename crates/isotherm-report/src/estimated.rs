//! Adds to the summary how much memory was in use, and replaces what surveys do not know by what the panel estimates.

use crate::bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::Estimate;

use crate::ReportError;
use crate::course::Course;
use crate::extent::shown_name;
use crate::source::{Selection, Source};
use crate::summary::{Summary, Temperature, UsedMemory};
use crate::wss::mappings::{self, MappingWss};
use crate::wss::{Basis, Total, Wss};

/// Adds it to a summary of the same selection, whose working set is `wss`.
///
/// # Errors
/// If the source cannot be read.
pub(crate) fn add(
    summary: &mut Summary,
    wss: &Wss,
    source: &dyn Source,
    selection: &Selection,
) -> Result<(), ReportError> {
    let (Basis::Survey, Some(median), Some(percentiles)) = (wss.basis, wss.median(), wss.percentiles()) else {
        return Ok(());
    };
    let Estimate { low, value, high } = median;
    summary.in_use = Some(UsedMemory {
        window_ns: wss.window.as_nanos() as u64,
        bytes: value,
        low_bytes: low,
        high_bytes: high,
        most_bytes: percentiles.0[6],
        lower_bound: wss.is_lower_bound(),
    });
    if wss.by_interval {
        return Ok(());
    }
    write(&mut summary.total, &wss.settled());
    for target in &mut summary.targets {
        write(&mut target.total, &settled(wss.sums_of(|id| id == target.id)));
    }
    let grouping = &summary.grouping;
    for group in &mut summary.groups {
        let sums = wss.sums_of(|id| grouping.of_target(id) == Some(group.place));
        if !sums.is_empty() {
            write(&mut group.total, &settled(sums));
        }
    }
    let mut names: HashMap<String, Course> = HashMap::new();
    mappings::each(wss, source, selection, |_, (time, span), mappings| {
        for MappingWss { mapping, bytes, .. } in mappings {
            let name = shown_name(&mapping.label()).to_owned();
            names.entry(name).or_default().add(time, span, Some(*bytes));
        }
    })?;
    let all: Duration = wss.settled().iter().map(|total| total.span).sum();
    for of in &mut summary.mappings {
        let course = names.get(&*of.name).copied().unwrap_or_default();
        let share = course.known().as_secs_f64() / all.as_secs_f64().max(1e-9);
        of.surveyed.touched_bytes = Bytes::default();
        of.working_set_bytes = (course.mean() as f64 * share) as u64;
        of.working_set_max_bytes = course.life().peak_bytes;
    }
    if let Some(once) = &mut summary.counted_once {
        once.touched_bytes = value;
    }
    Ok(())
}

/// The sums without those of the warm-up, as those of all targets are, unless there are no others.
fn settled(mut sums: Vec<Total>) -> Vec<Total> {
    if sums.iter().any(|total| !total.warm_up) {
        sums.retain(|total| !total.warm_up);
    }
    sums
}

/// Replaces the working set by its mean over time. What surveys found touched holds what they do not know.
fn write(of: &mut Temperature, sums: &[Total]) {
    of.surveyed.touched_bytes = Bytes::default();
    let seconds: f64 = sums.iter().map(|total| total.span.as_secs_f64()).sum();
    let bytes = sums.iter().map(|total| total.amount.bytes as f64 * total.span.as_secs_f64()).sum::<f64>();
    of.working_set_bytes = (bytes / seconds.max(1e-9)) as u64;
    of.working_set_max_bytes = sums.iter().map(|total| total.amount.bytes).max().unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wss::Amount;

    #[test]
    fn the_working_set_of_a_target_is_that_of_the_time_at_which_it_is_known() {
        let mean = |parts: &[(u64, bool)]| {
            let total = |&(bytes, warm_up)| Total {
                time: Duration::from_secs(1),
                amount: Amount { bytes, ..Amount::default() },
                warm_up,
                span: Duration::from_secs(1),
            };
            let mut of = Temperature::default();
            write(&mut of, &settled(parts.iter().map(total).collect()));
            of.working_set_bytes
        };
        assert_eq!(mean(&[(10, true), (20, true), (60, false), (80, false)]), 70);
        assert_eq!(mean(&[(10, true), (20, true)]), 15);
    }
}
