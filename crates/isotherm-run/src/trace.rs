//! Events for tracers: USDT probes, which bpftrace, perf and gdb find in the program, and user_events, which the kernel
//! knows: `aggregated`, `surveyed`, `scheme_applied` and `tuned`.
//!
//! As long as nobody listens to an event, it costs the reading of three words, and its arguments are not made. All
//! numbers are whole, of 64 bits. Sizes are in bytes. `docs/tracing.md` has them all.

use std::ffi::CStr;
use std::time::Duration;

use isotherm_core::scheme::Report;
use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{Attributes, Pace, Snapshot, TargetId};
use isotherm_kernel::UserEvent;
use probe::probe_lazy;

/// Tells an event by both ways, and returns whether anybody hears it. It has a name, a text or none, and numbers, each
/// with its name.
macro_rules! tell {
    ($event:ident($($text:ident: $said:expr)?) $first:ident: $number:expr $(, $field:ident: $other:expr)* $(,)?) => {{
        static EVENT: UserEvent = UserEvent::new(
            match CStr::from_bytes_with_nul(
                concat!(
                    "isotherm_", stringify!($event), " u64 ", stringify!($first), $("; u64 ", stringify!($field),)*
                    $("; __rel_loc char[] ", stringify!($text),)? "\0"
                ).as_bytes()
            ) {
                Ok(definition) => definition,
                Err(_) => panic!("a zero within a name"),
            },
        );
        let is_probed = probe_lazy!(
            isotherm, $event, $($said.as_ptr(), $said.len(),)? u64::from($number) $(, u64::from($other))*
        );
        let is_heard = EVENT.is_heard();
        if is_heard {
            EVENT.tell(&[u64::from($number) $(, u64::from($other))*], None$(.or(Some($said)))?);
        }
        is_probed || is_heard
    }};
}

/// For each region of each target: process ID, first address, address after the last, `nr_accesses`, frequency in
/// millihertz, age in milliseconds.
pub(crate) fn aggregated(snapshot: &Snapshot) {
    for target in &snapshot.targets {
        for region in &target.regions {
            let is_heard = tell!(aggregated()
                pid: pid(target.id),
                start: region.range.start(),
                end: region.range.end(),
                nr_accesses: region.nr_accesses,
                millihertz: (region.access_hz(snapshot.aggregation) * 1e3) as u64,
                age_ms: whole(snapshot.aggregation.saturating_mul(region.age).as_millis()),
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
        let is_heard = tell!(surveyed()
            pid: pid(target.id),
            present: target.total().figures.present,
            touched: target.total().figures.touched,
            unobservable: target.total().figures.unobservable,
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
        let is_heard = tell!(scheme_applied(scheme: &*report.name)
            pid: pid(acted.target),
            start: acted.range.start(),
            end: acted.range.end(),
            applied: acted.applied,
        );
        if !is_heard {
            return;
        }
    }
}

/// The intervals that a run has settled on, in microseconds: sampling, aggregation, survey; 0 for none.
pub(crate) fn tuned(attributes: Attributes, pace: Pace) {
    let micros = |time: Option<Duration>| time.map_or(0, |time| whole(time.as_micros()));
    _ = tell!(tuned()
        sampling_us: micros(pace.sampling_interval),
        aggregation_us: micros(Some(attributes.aggregation())),
        survey_us: micros(pace.survey_interval),
    );
}

/// The process ID. 0 for physical memory.
fn pid(target: TargetId) -> u32 {
    target.pid().unwrap_or(0)
}

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
