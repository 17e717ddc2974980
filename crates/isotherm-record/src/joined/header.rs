//! The header of recordings together, and whether they can be read as one at all.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::{sanitise, units};

use crate::time::nanoseconds;
use crate::{Header, Host, Part, RecordedBudget, Run};

/// How intervals were chosen if they follow from what is observed.
const AUTO: &str = "auto";

/// A difference, with the values of both.
fn differ(what: &str, a: &str, b: &str) -> String {
    let named = |value: &str| if value.is_empty() { "unknown".into() } else { sanitise(value).into_owned() };
    format!("{what} differ ({} and {})", named(a), named(b))
}

/// What makes two recordings those of different machines, or of different boots of one. `None` if they are of one.
pub(super) fn difference_of_machines(first: &Host, second: &Host) -> Option<String> {
    let has_no_id = first.id.is_empty() || second.id.is_empty();
    if if has_no_id { first.name != second.name } else { first.id != second.id } {
        return Some(differ("the machines", &first.name, &second.name));
    }
    let why = ", and process IDs of one boot mean nothing in another";
    let is_one = first.boot_id == second.boot_id;
    (!is_one).then(|| differ("the boots of the machine", &first.boot_id, &second.boot_id) + why)
}

/// What makes figures of both recordings together wrong, with the values of both. `None` if nothing does.
pub(super) fn difference(first: &Header, second: &Header) -> Option<String> {
    let differ = |what: &str, a: &str, b: &str| Some(differ(what, a, b));
    if (first.started_unix_ns == 0) != (second.started_unix_ns == 0) {
        return Some("of one it is not known when it started, so that its times cannot be those of the other".into());
    }
    let (a, b) = (&first.host.architecture, &second.host.architecture);
    if a != b {
        return differ("the architectures of the machine", a, b);
    }
    if first.probe != second.probe {
        let why = ", which observe different memory";
        return differ("the probes", &first.probe, &second.probe).map(|what| what + why);
    }
    if first.granularity != second.granularity {
        return differ("the granularities of the probes", &first.granularity, &second.granularity);
    }
    let (a, b) = (first.intervals.as_deref(), second.intervals.as_deref());
    if a != b {
        return differ("the ways of choosing intervals", a.unwrap_or_default(), b.unwrap_or_default());
    }
    if a == Some(AUTO) {
        // They are those of the start, and each snapshot has its own.
        return None;
    }
    let time = |ns: u64| units::duration(Duration::from_nanos(ns));
    if first.sampling_ns != second.sampling_ns {
        return differ("the sampling intervals", &time(first.sampling_ns), &time(second.sampling_ns));
    }
    if first.aggregation_ns != second.aggregation_ns {
        return differ("the aggregation intervals", &time(first.aggregation_ns), &time(second.aggregation_ns));
    }
    None
}

/// The header of recordings that can be read as one. Each comes with the time that it covers in that of all. The first
/// one started first.
pub(super) fn together(all: &[(&Header, Range<Duration>)]) -> Option<Header> {
    let (first, _) = all.first()?;
    let same = |of: fn(&Header) -> u64| all.iter().all(|(header, _)| of(header) == of(first));
    let are_apart = most_at_once(all, |_| 1.0) <= 1.0;
    let has_limits = are_apart && same(|header| header.min_regions) && same(|header| header.max_regions);
    let (min_regions, max_regions) = if has_limits { (first.min_regions, first.max_regions) } else { (0, 0) };
    let from = all.iter().map(|(_, time)| time.start).min().unwrap_or_default();
    let mut all_runs: Vec<Run> =
        all.iter().flat_map(|(header, time)| runs(header, first.started_unix_ns, time)).collect();
    all_runs.sort_by_key(|run| (run.from_ns, run.to_ns));
    let part = (!from.is_zero()).then(|| Part { from_ns: nanoseconds(from), to_ns: None });
    Some(Header {
        update_ns: if same(|header| header.update_ns) { first.update_ns } else { 0 },
        min_regions,
        max_regions,
        budget: budget(all),
        part,
        runs: all_runs,
        host: host(all)?,
        ..(*first).clone()
    })
}

/// What is known of all machines together.
fn host(all: &[(&Header, Range<Duration>)]) -> Option<Host> {
    let mut hosts = all.iter().map(|(header, _)| &header.host);
    let first = hosts.next()?;
    Some(hosts.filter(|host| difference_of_machines(first, host).is_some()).fold(first.clone(), |sum, host| {
        let is_known = |list: &str, one: &str| list.split(", ").any(|known| known == one);
        let listed = |list: &str, one: &str| if is_known(list, one) { list.into() } else { format!("{list}, {one}") };
        // Several boots are of one machine.
        let more = if is_known(&sum.name, &host.name) { (0, 0) } else { (host.cpus, host.memory_bytes) };
        Host {
            id: String::new(),
            boot_id: String::new(),
            name: listed(&sum.name, &host.name),
            kernel: listed(&sum.kernel, &host.kernel),
            cpus: sum.cpus.saturating_add(more.0),
            memory_bytes: sum.memory_bytes.saturating_add(more.1),
            architecture: sum.architecture,
        }
    }))
}

/// The runs of one recording, in the time of the result.
fn runs(header: &Header, started_unix_ns: u64, time: &Range<Duration>) -> Vec<Run> {
    if header.runs.is_empty() {
        return vec![Run { from_ns: nanoseconds(time.start), to_ns: nanoseconds(time.end) }];
    }
    let shift = header.started_unix_ns.saturating_sub(started_unix_ns);
    let within = |ns: u64| ns.saturating_add(shift).clamp(nanoseconds(time.start), nanoseconds(time.end));
    let runs = header.runs.iter().map(|run| Run { from_ns: within(run.from_ns), to_ns: within(run.to_ns) });
    runs.filter(|run| run.from_ns < run.to_ns).collect()
}

/// What all recorders together were allowed to cost at a time, at most. `None` if that is not known of one.
fn budget(all: &[(&Header, Range<Duration>)]) -> Option<RecordedBudget> {
    let targets = all.iter().map(|(header, _)| Some(header.budget?.targets));
    let targets = targets.collect::<Option<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
    Some(RecordedBudget { cpu: most_at_once(all, |header| header.budget.map_or(0.0, |budget| budget.cpu)), targets })
}

/// The largest sum over recordings that cover the same time.
fn most_at_once(all: &[(&Header, Range<Duration>)], of: impl Fn(&Header) -> f64) -> f64 {
    let at = |start: Duration| -> f64 {
        all.iter().filter(|(_, time)| time.start <= start && start < time.end).map(|(header, _)| of(header)).sum()
    };
    all.iter().map(|(header, time)| at(time.start).max(of(header))).fold(0.0, f64::max)
}
