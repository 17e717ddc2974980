//! Metrics for Prometheus, in the OpenMetrics format.
//!
//! They are taken on the daemon's own clock, so that it costs nothing to be scraped often. Labels are bounded: groups,
//! cgroups above a size, memory nodes, states, schemes and reasons. There are no process IDs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use isotherm_core::chain;
use isotherm_core::survey::{PageSums, WINDOWS};
use isotherm_kernel::{Containers, memory_use};
use isotherm_output::Output;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::cgroups::{self, OTHERS};
use crate::config::GroupSettings;
use crate::daemon::Daemon;
use crate::hub::Newest;
use crate::overview::process_cpu;
use crate::view::{self, State, window_name};

type Labels = Vec<(&'static str, String)>;
type Floats = Family<Labels, Gauge<f64, AtomicU64>>;
type Sums = Family<Labels, Counter<f64, AtomicU64>>;

/// The windows whose working set is a metric: 1, 10 and 60 minutes.
const SHOWN: [u64; 3] = [60, 600, 3600];

/// The metrics now, as text.
pub fn take(daemon: &Daemon) -> String {
    let mut metrics = Metrics { registry: Registry::with_prefix("isotherm") };
    of_daemon(daemon, &mut metrics);
    of_groups(daemon, &mut metrics);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &metrics.registry);
    text
}

/// Metrics in the older text format of Prometheus (0.0.4), which tools such as promtool and the node exporter read: a
/// counter has its whole name in its description, and there are neither units nor an end.
pub fn plain(openmetrics: &str) -> String {
    let counters: Vec<&str> =
        openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "EOF"] | ["#", "UNIT", ..] => continue,
            ["#", kind, name, rest] if counters.contains(&name) => {
                text += &format!("# {kind} {name}_total {rest}");
            }
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

/// Writes metrics to a file for the collector of Prometheus's node exporter, which is another user.
///
/// # Errors
/// Why it cannot be written.
pub fn write_textfile(path: &Path, text: &str) -> Result<(), String> {
    let written = Output::new(path).readable_by_all().create();
    let text = plain(text);
    let written = written.and_then(|file| file.write_whole(|out| out.write_all(text.as_bytes())));
    written.map_err(|error| format!("metrics cannot be written: {}", chain(&error)))
}

struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// A gauge for each set of labels.
    fn gauges(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Floats {
        let family = Floats::default();
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family.clone()),
            None => self.registry.register(name, help, family.clone()),
        }
        family
    }

    /// A counter for each set of labels.
    fn sums(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Sums {
        let family = Sums::default();
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family.clone()),
            None => self.registry.register(name, help, family.clone()),
        }
        family
    }
}

fn set(family: &Floats, labels: &[(&'static str, &str)], value: f64) {
    family.get_or_create(&owned(labels)).set(value);
}

fn sum(family: &Sums, labels: &[(&'static str, &str)], value: f64) {
    family.get_or_create(&owned(labels)).inc_by(value);
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    // Names of cgroups may have anything in them.
    labels.iter().map(|(name, value)| (*name, isotherm_core::sanitise(value).into_owned())).collect()
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn of_daemon(daemon: &Daemon, metrics: &mut Metrics) {
    let build = metrics.gauges("build_info", "The version of isotherm; always 1", None);
    set(&build, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let start = metrics.gauges("start_time", "When the daemon started, since the Unix epoch", Some(Unit::Seconds));
    set(&start, &[], daemon.started_unix_ns as f64 / 1e9);
    let budget = metrics.gauges(
        "cpu_budget",
        "The share of one CPU that all groups may take",
        Some(Unit::Other("ratio".into())),
    );
    set(&budget, &[], daemon.groups.allowance().whole().cpu);
    let cpu = metrics.sums("process_cpu", "CPU time of the daemon", Some(Unit::Seconds));
    sum(&cpu, &[], process_cpu().as_secs_f64());
    let serving = metrics.sums(
        "serving_cpu",
        "CPU time of requests, streams, metrics and the order of the history, which is a part of the budget",
        Some(Unit::Seconds),
    );
    sum(&serving, &[], daemon.serving.cpu().as_secs_f64());
    let streams = metrics.gauges("streams", "Streams that clients follow", None);
    set(&streams, &[], daemon.streams.count() as f64);
    if let Ok(memory) = memory_use(Path::new("/"), std::process::id()) {
        let resident = metrics.gauges("process_resident_memory", "Memory of the daemon", Some(Unit::Bytes));
        set(&resident, &[], memory.resident as f64);
    }
    let history = metrics.gauges("history", "The size of the history of all groups", Some(Unit::Bytes));
    set(&history, &[], daemon.kept_bytes() as f64);
    if daemon.config().settings.fleet.to.is_some() {
        let state = daemon.fleet.state();
        let writing = metrics.gauges("fleet_writing", "Whether the history was written to the dataset", None);
        set(&writing, &[], flag(state.failure.is_none()));
        let rows = metrics.sums("fleet_rows", "Rows that were written to the dataset", None);
        sum(&rows, &[], state.rows as f64);
        let last = "When the history was last written to the dataset, since the Unix epoch";
        let written = metrics.gauges("fleet_written_time", last, Some(Unit::Seconds));
        if state.written_at > 0 {
            set(&written, &[], state.written_at as f64);
        }
    }
}

/// What there is of each group.
struct Families {
    up: Floats,
    processes: Floats,
    writing: Floats,
    memory: Floats,
    touched: Floats,
    by_cgroup: Floats,
    touched_by_cgroup: Floats,
    by_node: Floats,
    out: Floats,
    cpu: Sums,
    limited: Floats,
    survey_interval: Floats,
    holds: Sums,
    rounds: Sums,
    late: Sums,
    snapshots: Sums,
    surveys: Sums,
    missed: Sums,
    runs: Sums,
    faults: Sums,
    schemes: Schemes,
}

struct Schemes {
    awake: Floats,
    quota: Floats,
    goal: Floats,
    exceeded: Sums,
    net: Floats,
    bytes: Sums,
    refused: Sums,
}

impl Families {
    fn new(metrics: &mut Metrics) -> Self {
        let bytes = || Some(Unit::Bytes);
        let seconds = || Some(Unit::Seconds);
        Self {
            up: metrics.gauges("group_up", "Whether the group is watched", None),
            processes: metrics.gauges("group_processes", "Processes of the group", None),
            writing: metrics.gauges("history_writing", "Whether the history of the group is written", None),
            memory: metrics.gauges(
                "memory",
                "Memory of a group by state. Memory that several processes map counts once",
                bytes(),
            ),
            touched: metrics.gauges("touched", "Memory of a group that was accessed within a time", bytes()),
            by_cgroup: metrics.gauges(
                "cgroup_memory",
                "Memory of the processes of a cgroup by state. What several of them map counts for each. \
                 Small cgroups are added up without a name",
                bytes(),
            ),
            touched_by_cgroup: metrics.gauges(
                "cgroup_touched",
                "Memory of the processes of a cgroup that was accessed within a time",
                bytes(),
            ),
            by_node: metrics.gauges("node_memory", "Memory of a group on a memory node by state", bytes()),
            out: metrics.gauges(
                "group_out",
                "Memory of a group that is in swap or that schemes have paged out, if its configuration bounds it",
                bytes(),
            ),
            cpu: metrics.sums("group_cpu", "CPU time that watching the group takes", seconds()),
            limited: metrics.gauges("group_limited", "Whether the budget makes surveys or samples rarer", None),
            survey_interval: metrics.gauges("survey_interval", "The time from a survey to the next", seconds()),
            holds: metrics.sums(
                "holds",
                "The time for which the kernel held memory maps of processes for isotherm",
                seconds(),
            ),
            rounds: metrics.sums("rounds", "Sampling rounds", None),
            late: metrics.sums("late_rounds", "Sampling rounds that began late", None),
            snapshots: metrics.sums("snapshots", "Snapshots", None),
            surveys: metrics.sums("surveys", "Surveys of all pages", None),
            missed: metrics.sums("missed_events", "Events that could not be handed over in time", None),
            runs: metrics.sums("runs", "How often watching the group has begun", None),
            faults: metrics.sums("major_faults", "Major page faults while schemes run", None),
            schemes: Schemes {
                awake: metrics.gauges("scheme_awake", "Whether the scheme is awake by its watermarks", None),
                quota: metrics.gauges("scheme_quota", "What the quota allows in a period", bytes()),
                goal: metrics.gauges("scheme_goal_score", "How far the goals are reached; 1 is exactly", None),
                exceeded: metrics.sums("scheme_quota_exceeded", "Periods in which the quota did not suffice", None),
                net: metrics.gauges(
                    "group_net_freed",
                    "Bytes that the schemes have freed, less those by which compressed swap has grown since they began",
                    bytes(),
                ),
                bytes: metrics.sums(
                    "scheme",
                    "Bytes that the scheme tried, applied (freed or moved, where the action does so), and left to \
                     filters; freed or moved bytes that were watched, and those of them that came back",
                    bytes(),
                ),
                refused: metrics.sums("scheme_refused", "Bytes that the system refused to act on", bytes()),
            },
        }
    }
}

fn of_groups(daemon: &Daemon, metrics: &mut Metrics) {
    let families = Families::new(metrics);
    for (name, group) in daemon.groups.all() {
        let known = group.hub.known();
        let labels = [("group", &*name)];
        set(&families.up, &labels, flag(group.state().0 == State::Watching));
        set(&families.processes, &labels, known.processes() as f64);
        if daemon.groups.history().is_some() {
            set(&families.writing, &labels, flag(group.hub.history_failure().is_none()));
        }
        if let Some(out) = group.out_bytes() {
            set(&families.out, &labels, out as f64);
        }
        of_run(&families, &name, &known);
        of_memory(&families, &name, &known, (&group.group().settings, &daemon.containers()));
        of_schemes(&families.schemes, &name, &known);
    }
}

fn of_run(families: &Families, name: &str, known: &Newest) {
    let labels = [("group", name)];
    let sums = &known.sums;
    sum(&families.cpu, &labels, sums.cpu.as_secs_f64());
    sum(&families.holds, &labels, sums.holds.as_secs_f64());
    for (family, count) in [
        (&families.rounds, sums.rounds),
        (&families.late, sums.late_rounds),
        (&families.snapshots, sums.snapshots),
        (&families.surveys, sums.surveys),
        (&families.missed, sums.missed),
        (&families.runs, sums.runs),
    ] {
        sum(family, &labels, count as f64);
    }
    if let Some(pace) = known.pace {
        set(&families.limited, &labels, flag(pace.is_limited));
        if let Some(interval) = pace.survey_interval {
            set(&families.survey_interval, &labels, interval.as_secs_f64());
        }
    }
    if let Some(faults) = known.activity.as_ref().and_then(|activity| activity.major_faults) {
        sum(&families.faults, &labels, faults as f64);
    }
}

fn of_memory(families: &Families, name: &str, known: &Newest, (settings, containers): (&GroupSettings, &Containers)) {
    let Some(record) = &known.survey else { return };
    let survey = &record.survey;
    let states = |family: &Floats, labels: &[(&'static str, &str)], sums: &PageSums| {
        let states = [
            ("resident", sums.figures.present),
            ("idle", view::Memory::new(sums).idle),
            ("lazily_freed", sums.kinds.lazily_freed),
            ("unobservable", sums.figures.unobservable),
            ("unknown", sums.figures.unknown),
        ];
        for (state, bytes) in states.into_iter().chain(sums.figures.swapped.known().map(|swapped| ("swapped", swapped)))
        {
            set(family, &[labels, &[("state", state)]].concat(), bytes as f64);
        }
    };
    let touched = |family: &Floats, labels: &[(&'static str, &str)], sums: &PageSums| {
        for (window, bytes) in WINDOWS.iter().zip(sums.within).filter(|(window, _)| SHOWN.contains(&window.as_secs())) {
            set(family, &[labels, &[("window", &*window_name(*window))]].concat(), bytes as f64);
        }
    };
    let labels = [("group", name)];
    states(&families.memory, &labels, &survey.sums());
    if let Some(total) = survey.total {
        set(&families.memory, &[labels[0], ("state", "shared")], total.shared as f64);
    }
    touched(&families.touched, &labels, &survey.sums());
    for (cgroup, sums) in by_cgroup(known, settings.cgroups_above.0) {
        let names = containers.names_in(&cgroup).unwrap_or_default();
        let (pod, namespace) = (names.pod.unwrap_or_default(), names.namespace.unwrap_or_default());
        let labels = [
            labels[0],
            ("cgroup", &*cgroup),
            ("container", &*names.container),
            ("pod", &*pod),
            ("namespace", &*namespace),
        ];
        states(&families.by_cgroup, &labels, &sums);
        touched(&families.touched_by_cgroup, &labels, &sums);
    }
    for node in &survey.by_node {
        let number = node.node.0.to_string();
        states(&families.by_node, &[labels[0], ("node", &*number)], &node.sums);
    }
}

/// The memory of each cgroup that has at least so many bytes of the group, and that of the others together.
fn by_cgroup(known: &Newest, least: u64) -> BTreeMap<String, PageSums> {
    let (mut named, small): (BTreeMap<String, PageSums>, BTreeMap<String, PageSums>) =
        cgroups::sums(known).into_iter().partition(|(name, sums)| sums.figures.present >= least && name != OTHERS);
    if !small.is_empty() {
        *named.entry(OTHERS.into()).or_default() += small.into_values().sum();
    }
    named
}

fn of_schemes(families: &Schemes, group: &str, known: &Newest) {
    if let Some(net) = known.activity.as_ref().and_then(|activity| activity.net_freed()) {
        set(&families.net, &[("group", group)], net as f64);
    }
    for scheme in view::schemes(known) {
        let labels = [("group", group), ("scheme", &*scheme.name)];
        if let Some(awake) = scheme.awake {
            set(&families.awake, &labels, flag(awake));
        }
        if let Some(quota) = scheme.quota_bytes {
            set(&families.quota, &labels, quota as f64);
        }
        if let Some(score) = scheme.goal_score {
            set(&families.goal, &labels, score);
        }
        sum(&families.exceeded, &labels, scheme.quota_exceeded as f64);
        for (what, bytes) in [
            ("tried", scheme.tried_bytes),
            ("applied", scheme.applied_bytes),
            ("freed", scheme.freed_bytes),
            ("moved", scheme.moved_bytes),
            ("rejected", scheme.rejected_bytes),
            ("watched", scheme.watched_bytes),
            ("returned", scheme.returned_bytes),
        ] {
            sum(&families.bytes, &[labels[0], labels[1], ("what", what)], bytes as f64);
        }
        for (reason, bytes) in &scheme.refused_bytes {
            sum(&families.refused, &[labels[0], labels[1], ("reason", reason)], *bytes as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_has_whole_names_of_counters_and_no_units() {
        let openmetrics = "# HELP a_seconds What a is.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                           a_seconds_total{x=\"# UNIT\"} 1.5\n# HELP b Words of b.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_seconds_total What a is.\n# TYPE a_seconds_total counter\n\
                        a_seconds_total{x=\"# UNIT\"} 1.5\n# HELP b Words of b.\n# TYPE b gauge\nb 2\n";
        assert_eq!(plain(openmetrics), expected);
    }
}
