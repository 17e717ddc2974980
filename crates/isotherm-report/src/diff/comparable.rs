//! Which figures of two recordings cannot be compared, and why.

use std::time::Duration;

use isotherm_core::units;

use super::Compared;
use crate::escape::sanitise;

/// Fewer surveys than this say little about a mean.
const FEW_SURVEYS: usize = 3;

/// Sampling intervals up to this ratio find about as many accesses.
const SAME_SAMPLING: f64 = 1.25;

/// Above this ratio of two lengths, peaks are not told from the difference of the lengths.
const MUCH_LONGER: f64 = 2.0;

/// What a reader has to know. `window` is that of the working set, if surveys tell it in both.
pub(super) fn warnings(before: &Compared, after: &Compared, window: Option<Duration>) -> Vec<String> {
    let mut warnings = vec![];
    let sides = [before, after];
    match (before.survey_interval, after.survey_interval) {
        (Some(_), None) | (None, Some(_)) => {
            let without = if before.survey_interval.is_none() { before } else { after };
            warnings.push(format!(
                "{} has no surveys: working sets are estimates from samples in both, sizes are mapped bytes, and cold \
                 memory includes what is not in memory; record both with --survey auto",
                without.name
            ));
        }
        (Some(_), Some(_)) => warnings.extend(about_surveys(sides, window)),
        (None, None) => {}
    }
    if before.probe != after.probe || before.granularity != after.granularity {
        warnings.push(format!(
            "the probes differ ({} and {}): they observe different memory, and their figures cannot be compared",
            sanitise(&before.probe),
            sanitise(&after.probe)
        ));
    }
    if !same_sampling(before, after) {
        let text = |side: &Compared| side.sampling.map_or_else(|| "no samples".into(), units::duration);
        let also = if window.is_none() { ", nor can estimates of the working set" } else { "" };
        warnings.push(format!(
            "the sampling intervals differ ({} and {}): longer samples find more accesses, so hot memory cannot be \
             compared{also}; record both with the same --sample",
            text(before),
            text(after)
        ));
    }
    let lengths = sides.map(|side| side.to.saturating_sub(side.from));
    let [shorter, longer] = [lengths[0].min(lengths[1]), lengths[0].max(lengths[1])];
    if longer.as_secs_f64() > shorter.as_secs_f64() * MUCH_LONGER {
        warnings.push(format!(
            "the lengths differ much ({} and {}): the longer one has had more time for its peaks, so compare means",
            units::duration(lengths[0]),
            units::duration(lengths[1])
        ));
    }
    warnings
}

fn about_surveys(sides: [&Compared; 2], window: Option<Duration>) -> Vec<String> {
    let mut warnings = vec![];
    for side in sides {
        if side.surveys < FEW_SURVEYS {
            let surveys = if side.surveys == 1 { "survey" } else { "surveys" };
            warnings.push(format!("{}: only {} {surveys}; a longer recording says more", side.name, side.surveys));
        }
        let Some((window, interval)) = window.zip(side.survey_interval) else { continue };
        if !side.covers_window {
            warnings.push(format!(
                "{}: no survey has {} before it, so what was touched since the first survey counts; use a shorter \
                 --window",
                side.name,
                units::duration(window)
            ));
        } else if interval > window + window / 20 {
            warnings.push(format!(
                "{}: surveys are {} apart, so what was touched within {} is an estimate",
                side.name,
                units::duration(interval),
                units::duration(window)
            ));
        }
    }
    warnings
}

/// Whether both sampled over about the same time, or neither did.
fn same_sampling(before: &Compared, after: &Compared) -> bool {
    match (before.sampling, after.sampling) {
        (Some(before), Some(after)) => {
            before.max(after).as_secs_f64() <= before.min(after).as_secs_f64() * SAME_SAMPLING
        }
        (before, after) => before == after,
    }
}
