//! Probes for tracers (USDT), which bpftrace, perf and gdb find in the program: `isotherm:aggregated`,
//! `isotherm:surveyed`, `isotherm:scheme_applied` and `isotherm:tuned`.
//!
//! As long as nobody listens to a probe, it costs the reading of one word, and its arguments are not made. All
//! arguments are whole numbers of 64 bits; a name is an address and a length. Sizes are in bytes. `docs/tracing.md` has
//! them all.

use std::time::Duration;

use isotherm_core::scheme::Report;
use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{Attributes, Pace, Snapshot, TargetId};
use probe::probe_lazy;

/// For each region of each target: process ID, first address, address after the last, `nr_accesses`, frequency in
/// millihertz, age in milliseconds.
pub(crate) fn aggregated(snapshot: &Snapshot) {
    for target in &snapshot.targets {
        for region in &target.regions {
            let is_heard = probe_lazy!(
                isotherm,
                aggregated,
                pid(target.id),
                region.range.start(),
                region.range.end(),
                region.nr_accesses,
                region.access_hz(snapshot.aggregation) * 1e3,
                millis(snapshot.aggregation.saturating_mul(region.age))
            );
            if !is_heard {
                return;
            }
        }
    }
}

/// For each target: process ID, bytes in memory, of these accessed since the survey before, and unobservable.
pub(crate) fn surveyed(survey: &SurveySnapshot) {
    for target in &survey.targets {
        let is_heard = probe_lazy!(
            isotherm,
            surveyed,
            pid(target.id),
            target.total().figures.present,
            target.total().figures.touched,
            target.total().figures.unobservable
        );
        if !is_heard {
            return;
        }
    }
}

/// For each range that the application of `report` at the time `now` acted on: the name of the scheme and its length,
/// process ID, first address, address after the last, bytes that the action was carried out on.
pub(crate) fn scheme_applied(report: &Report, now: Duration) {
    if report.last.time != now {
        return;
    }
    for acted in &report.last.regions {
        let is_heard = probe_lazy!(
            isotherm,
            scheme_applied,
            report.name.as_ptr(),
            report.name.len(),
            pid(acted.target),
            acted.range.start(),
            acted.range.end(),
            acted.applied
        );
        if !is_heard {
            return;
        }
    }
}

/// The intervals that a run has settled on, in microseconds: sampling, aggregation, survey; 0 for none.
pub(crate) fn tuned(attributes: Attributes, pace: Pace) {
    let micros = |time: Option<Duration>| time.map_or(0, |time| time.as_micros());
    probe_lazy!(
        isotherm,
        tuned,
        micros(pace.sampling_interval),
        micros(Some(attributes.aggregation())),
        micros(pace.survey_interval)
    );
}

/// The process ID. 0 for physical memory.
fn pid(target: TargetId) -> u32 {
    target.pid().unwrap_or(0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
