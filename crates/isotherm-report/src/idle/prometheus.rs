//! The text format of Prometheus, version 0.0.4. All metrics are gauges, with their units in their names.
//!
//! The figures of a cgroup exclude cgroups below it, so sums over cgroups are right.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::bands::bands;
use super::{IdleFigures, IdleReport};
use crate::escape::sanitise;

/// The maximum number of bands of idle time.
const MOST_BANDS: usize = 8;

/// A metric and the lines of its samples.
struct Metric {
    name: &'static str,
    help: &'static str,
    samples: String,
}

impl Metric {
    fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, samples: String::new() }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = write!(self.samples, "{}", self.name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.samples, "{}{label}=\"{}\"", if i == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.samples, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Adds a sample for each state of memory.
    fn states(&mut self, labels: &[(&str, &str)], figures: &IdleFigures) {
        for (state, bytes) in [
            ("idle", figures.idle_bytes),
            ("accessed", figures.accessed_bytes),
            ("unobservable", figures.unobservable_bytes),
            ("unevictable", figures.unevictable_bytes),
            ("lazily_freed", figures.lazily_freed_bytes),
        ] {
            self.sample(&[labels, &[("state", state)]].concat(), bytes);
        }
    }
}

pub(super) fn write(out: &mut dyn Write, report: &IdleReport) -> io::Result<()> {
    for metric in metrics(report).iter().filter(|metric| !metric.samples.is_empty()) {
        writeln!(out, "# HELP {0} {1}\n# TYPE {0} gauge", metric.name, metric.help)?;
        out.write_all(metric.samples.as_bytes())?;
    }
    Ok(())
}

fn metrics(report: &IdleReport) -> Vec<Metric> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let single = |name, help, value: f64| {
        let mut metric = Metric::new(name, help);
        metric.sample(&[], value);
        metric
    };
    let mut info = Metric::new(
        "isotherm_idle_info",
        "The method that found idle memory, and the version of the cgroup hierarchy; always 1.",
    );
    let version = report.cgroup_version.map_or_else(String::new, |version| version.to_string());
    info.sample(&[("way", report.way), ("cgroup_version", &version)], 1);

    let mut total =
        Metric::new("isotherm_idle_memory_bytes", "Memory that was read, by whether it was accessed in the interval.");
    total.states(&[], &report.total);

    let mut shared = Metric::new(
        "isotherm_idle_shared_memory_bytes",
        "The part of isotherm_idle_memory_bytes that several of the read processes map.",
    );
    report.shared.iter().for_each(|figures| shared.states(&[], figures));

    let mut nodes = Metric::new(
        "isotherm_idle_node_memory_bytes",
        "Memory of a NUMA node, by whether it was accessed in the interval.",
    );
    for node in &report.nodes {
        let name = node.node.map_or_else(String::new, |node| node.to_string());
        nodes.states(&[("node", &name)], &node.figures);
    }

    let mut cgroups = Metric::new(
        "isotherm_idle_cgroup_memory_bytes",
        "Memory of a cgroup, without those below it, by whether it was accessed in the interval.",
    );
    let mut ages = Metric::new(
        "isotherm_idle_cgroup_idle_for_bytes",
        "Memory of a cgroup, without those below it, that has been idle for at least this number of seconds.",
    );
    let bands = bands(report.cgroups.iter().map(|cgroup| &cgroup.own), MOST_BANDS);
    for cgroup in report.cgroups.iter().filter(|cgroup| cgroup.own.size_bytes + cgroup.own.unevictable_bytes > 0) {
        let name = match (&cgroup.path, cgroup.inode) {
            (Some(path), _) => path.clone(),
            (None, Some(inode)) => format!("inode:{inode}"),
            (None, None) => String::new(),
        };
        cgroups.states(&[("cgroup", &name)], &cgroup.own);
        let Some(by_intervals) = &cgroup.own.idle_by_intervals else { continue };
        for &band in &bands {
            let bytes: u64 = by_intervals.iter().filter(|age| age.intervals >= band).map(|age| age.bytes).sum();
            let at_least = (seconds(report.interval_ns) * f64::from(band)).round().to_string();
            ages.sample(&[("cgroup", &name), ("at_least_seconds", &at_least)], bytes);
        }
    }

    let mut processes = Metric::new(
        "isotherm_idle_process_memory_bytes",
        "Memory that a process has mapped, by whether it was accessed in the interval.",
    );
    let mut shared_of_processes = Metric::new(
        "isotherm_idle_process_shared_memory_bytes",
        "The part of a process's memory that other read processes map, too.",
    );
    let mut mappings = Metric::new(
        "isotherm_idle_mapping_memory_bytes",
        "Memory of a mapping of a process, by whether it was accessed in the interval.",
    );
    for process in &report.processes {
        let pid = process.pid.to_string();
        let of = [("pid", &*pid), ("cgroup", process.cgroup.as_deref().unwrap_or_default())];
        let named = [&of[..], &[("command", &process.command)]].concat();
        processes.states(&named, &process.figures);
        if report.shared.is_some() {
            shared_of_processes.sample(&named, process.shared_bytes);
        }
        for mapping in &process.mappings {
            let start = format!("{:#x}", mapping.start);
            mappings.states(&[("pid", &pid), ("start", &start), ("mapping", &mapping.name)], &mapping.figures);
        }
    }
    vec![
        info,
        single(
            "isotherm_idle_timestamp_seconds",
            "When the memory was read, since the Unix epoch.",
            seconds(report.time_unix_ns),
        ),
        single(
            "isotherm_idle_interval_seconds",
            "The time from one read of a page to the next.",
            seconds(report.interval_ns),
        ),
        single("isotherm_idle_scan_cpu_seconds", "The CPU time of reading the memory.", seconds(report.cost.cpu_ns)),
        single(
            "isotherm_idle_scan_duration_seconds",
            "The time that reading the memory took.",
            seconds(report.cost.wall_ns),
        ),
        total,
        shared,
        nodes,
        cgroups,
        ages,
        processes,
        shared_of_processes,
        mappings,
    ]
}

/// The value of a label, escaped. Control characters may stand in it, but metrics may also go to a terminal.
fn escaped(text: &str) -> String {
    let text = if text.contains(|c| c != '\n' && isotherm_core::is_unsafe(c)) { sanitise(text) } else { text.into() };
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_act_on_a_terminal() {
        assert_eq!(escaped("/a\\b \"c\"\n"), "/a\\\\b \\\"c\\\"\\n");
        assert_eq!(escaped("x\x1b[31m\u{202e}\u{9b}"), "x\\\\x1b[31m\\\\u{202e}\\\\x9b");
    }
}
