//! Facts about a recording for its reader: what was recorded, how, and which problems there were.

use std::time::Duration;

use isotherm_core::{Estimate, units};
use isotherm_record::Header;

use crate::command::{shown_command, shown_pid};
use crate::escape::sanitise;
use crate::summary::{Summary, UsedMemory};

/// Lines about the recording, the most important first.
pub(crate) fn facts(summary: &Summary) -> Vec<String> {
    let header = &summary.recording;
    let mut facts = vec![];
    let span = Duration::from_nanos(summary.to_ns - summary.from_ns);
    let what = match &summary.targets[..] {
        [one] if one.pid == 0 && header.sight.mapped_only => "physical memory that processes map".to_owned(),
        [one] if one.pid == 0 && one.command == "page cache" => one.command.clone(),
        [one] if one.pid == 0 => "physical memory".to_owned(),
        [one] if one.command.is_empty() => format!("pid {}", shown_pid(one.pid, one.inner_pid)),
        [one] => {
            format!("{} (pid {})", shown_command(&one.command), shown_pid(one.pid, one.inner_pid))
        }
        many => format!("{} targets", many.len()),
    };
    facts.push(format!("{what}: {}, {} snapshots", units::duration(span), units::count(summary.snapshots)));
    let version = sanitise(&header.isotherm_version);
    // The host of an imported recording is not known.
    if header.host.name.is_empty() {
        facts.push(format!("recorded by {}, imported by isotherm {version}", sanitise(&header.probe)));
    } else {
        facts.push(format!(
            "on {}, Linux {}, {}, {} CPUs, {}; isotherm {version}",
            sanitise(&header.host.name),
            sanitise(&header.host.kernel),
            sanitise(&header.host.architecture),
            header.host.cpus,
            units::bytes(header.host.memory_bytes),
        ));
    }
    let tuned = if header.intervals.as_deref() == Some("auto") { "intervals auto, at first " } else { "" };
    let mut how = format!(
        "probe {}, {tuned}sampling {}, aggregation {}",
        sanitise(&header.probe),
        units::nanoseconds(header.sampling_ns),
        units::nanoseconds(header.aggregation_ns),
    );
    if header.update_ns > 0 {
        how += &format!(", update {}", units::nanoseconds(header.update_ns));
    }
    if header.max_regions > 0 {
        how += &format!(", regions {} to {}", units::count(header.min_regions), units::count(header.max_regions));
    }
    facts.push(how);
    facts.extend(summary.in_use.map(|used| in_use(&used)));
    facts.extend(summary.pace.line());
    facts.extend(summary.pace.holds.map(|holds| holds.line()));
    facts
}

/// How much memory was in use.
fn in_use(used: &UsedMemory) -> String {
    let UsedMemory { window_ns, bytes, low_bytes, high_bytes, most_bytes, lower_bound } = *used;
    let median = Estimate { low: low_bytes, value: bytes, high: high_bytes };
    let how = if low_bytes < high_bytes { ", estimated from a random part of the pages" } else { "" };
    let (most, window) = (units::bytes(most_bytes), units::nanoseconds(window_ns));
    let at_least = if lower_bound { "at least " } else { "" };
    format!("working set {at_least}{median} median, {most} most, touched within {window}{how}")
}

/// Problems that affect the figures.
pub(crate) fn warnings(summary: &Summary) -> Vec<String> {
    let mut warnings = vec![];
    let header = &summary.recording;
    if let Some(why) = &summary.cut_short {
        warnings.push(why.clone());
    }
    if header.granularity == "mapping" {
        let effect = match summary.total.surveyed.resident_bytes.is_unknown() {
            false => "it tells how much of a mapping was touched, but not which part",
            true => "one answer speaks for a whole mapping, so a mapping looks hot as a whole",
        };
        warnings.push(format!("the probe {} is coarse: {effect}", sanitise(&header.probe)));
    }
    if summary.total.unobservable_bytes > 0 {
        warnings.push(format!(
            "{} could not be observed; it counts as neither hot nor cold. {}",
            units::bytes(summary.total.unobservable_bytes),
            why_unobservable(header),
        ));
    }
    if summary.lost_aggregations > 0 {
        warnings.push(lost_aggregations(summary.lost_aggregations));
    }
    warnings
}

/// The warning about missing aggregations of the kernel's DAMON.
pub(crate) fn lost_aggregations(count: u64) -> String {
    format!(
        "missing aggregations: {} of the kernel's were not taken in time; \
         lengthen --aggr or lower the maximum of --regions",
        units::count(count)
    )
}

/// Which kinds of memory the probe cannot observe. How much there was of each is not recorded.
fn why_unobservable(header: &Header) -> String {
    match &*header.sight.blind_to {
        "" => "The recording does not tell why".into(),
        kinds => format!("The probe {} cannot observe {}", sanitise(&header.probe), sanitise(kinds)),
    }
}
