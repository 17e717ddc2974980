//! The report of `isotherm idle`: how much memory is idle, by cgroup, process and mapping.
//!
//! It is not about a recording, but about all pages at one time. Like the other reports it is plain data, which each
//! format renders: text, JSON, and the text format of Prometheus.

mod bands;
mod prometheus;
mod text;
mod tree;

use std::io::Write;
use std::path::Path;

use isotherm_core::{IdleTally, MOST_INTERVALS};
use schemars::JsonSchema;
use serde::Serialize;

use crate::extension::{UnknownExtension, format_of};
use crate::{ReportError, Terminal, escape};

pub use tree::{CgroupFigures, CgroupOwn, cgroup_tree};

/// Idle memory at the end of one interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IdleReport {
    /// The number of the report in its run, from 1 on.
    pub number: u64,
    /// The time of the scan, since the Unix epoch.
    pub time_unix_ns: u64,
    /// The interval: the time from one read of a page to the next.
    pub interval_ns: u64,
    /// Whether the interval is shorter than requested, because the run was stopped.
    pub cut_short: bool,
    /// The method: `idle_page_tracking` or `page_tables`.
    pub way: &'static str,
    /// The version of the cgroup hierarchy, 1 or 2. `None` if there is no hierarchy.
    pub cgroup_version: Option<u8>,
    /// The cost of the scan.
    pub cost: IdleCost,
    /// Remarks about the figures.
    pub notes: Vec<String>,
    /// All memory that was scanned. Each page counts once.
    pub total: IdleFigures,
    /// The part of it that several of the scanned processes map. `None` if that is not known.
    pub shared: Option<IdleFigures>,
    /// The memory of each NUMA node. Empty if all memory of the machine is on one node.
    pub nodes: Vec<NodeFigures>,
    /// The cgroups with memory and their parents, by path.
    pub cgroups: Vec<CgroupFigures>,
    /// The processes, the most idle memory first. Empty if they were not requested.
    pub processes: Vec<ProcessFigures>,
}

/// The cost of one scan of all pages.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct IdleCost {
    /// CPU time.
    pub cpu_ns: u64,
    /// The time from start to end.
    pub wall_ns: u64,
}

/// Idle and other memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IdleFigures {
    /// The sum of idle, accessed and unobservable bytes.
    pub size_bytes: u64,
    /// Not accessed in the interval.
    pub idle_bytes: u64,
    /// Accessed in the interval.
    pub accessed_bytes: u64,
    /// Bytes of pages whose state cannot be read.
    pub unobservable_bytes: u64,
    /// Locked memory. It is not part of the other figures.
    pub unevictable_bytes: u64,
    /// Memory that was freed lazily (`MADV_FREE`). It is not part of the other figures.
    pub lazily_freed_bytes: u64,
    /// For how long the bytes have been idle, if that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_by_intervals: Option<Vec<Age>>,
}

/// Bytes that have been idle for the same number of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Age {
    /// The number of intervals. 250 means 250 or more.
    pub intervals: u32,
    /// The bytes.
    pub bytes: u64,
}

/// The memory of a NUMA node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeFigures {
    /// The number of the node. `None` for memory whose node is not known.
    pub node: Option<u32>,
    /// The figures.
    #[serde(flatten)]
    pub figures: IdleFigures,
}

/// The memory that a process maps.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessFigures {
    /// The process ID.
    pub pid: u32,
    /// The process ID in the PID namespace of the process, if that is another one than isotherm's.
    pub inner_pid: Option<u32>,
    /// The command line, or the name.
    pub command: String,
    /// The path of its cgroup.
    pub cgroup: Option<String>,
    /// The figures.
    #[serde(flatten)]
    pub figures: IdleFigures,
    /// The part of the size that other scanned processes map, too. 0 if that is not known.
    pub shared_bytes: u64,
    /// The mappings, by address. Empty if they were not requested.
    pub mappings: Vec<MappingFigures>,
}

/// The memory of a mapping.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MappingFigures {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The permissions, as in `/proc/PID/maps`.
    pub permissions: String,
    /// The name, as in `/proc/PID/maps`, or `anonymous`.
    pub name: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: IdleFigures,
}

/// The format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleFormat {
    /// For people, fitted to the terminal.
    Text,
    /// For programs: one line of JSON per report.
    Json,
    /// The text format of Prometheus, for the textfile collector of its node exporter.
    Prometheus,
}

impl IdleFormat {
    /// Each format with its name on the command line and what it is for.
    pub const NAMES: [(Self, &'static str, &'static str); 3] = [
        (Self::Text, "text", "For people"),
        (Self::Json, "json", "For programs: one line of JSON per report"),
        (Self::Prometheus, "prometheus", "For Prometheus, through the textfile collector of its node exporter"),
    ];

    /// The format that the extension of a file's name selects. `None` if the name has no extension.
    ///
    /// # Errors
    /// If the extension selects no format.
    pub fn of_file(path: &Path) -> Result<Option<Self>, UnknownExtension> {
        let text: (Self, &[&str]) = (Self::Text, &["txt", "text"]);
        format_of(path, &[text, (Self::Json, &["json", "jsonl"]), (Self::Prometheus, &["prom"])])
    }
}

impl IdleFigures {
    /// The figures of a tally. `ages` says whether they include for how long memory has been idle.
    pub fn new(tally: &IdleTally, ages: bool) -> Self {
        let by_intervals = (1..=u32::from(MOST_INTERVALS)).zip(tally.by_intervals());
        let ages_by_intervals =
            by_intervals.filter(|(_, bytes)| **bytes > 0).map(|(intervals, &bytes)| Age { intervals, bytes });
        Self {
            size_bytes: tally.size(),
            idle_bytes: tally.idle,
            accessed_bytes: tally.accessed,
            unobservable_bytes: tally.unobservable,
            unevictable_bytes: tally.unevictable,
            lazily_freed_bytes: tally.lazily_freed,
            idle_by_intervals: ages.then(|| ages_by_intervals.collect()),
        }
    }

    /// The idle share of the size, 0 to 1; 0 if the size is 0.
    pub fn idle_share(&self) -> f64 {
        if self.size_bytes == 0 { 0.0 } else { self.idle_bytes as f64 / self.size_bytes as f64 }
    }
}

/// Writes the report.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_idle(
    report: &IdleReport,
    format: IdleFormat,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    match format {
        IdleFormat::Text => text::write(out, terminal, report)?,
        IdleFormat::Json => writeln!(out, "{}", escape::json(report)?)?,
        IdleFormat::Prometheus => prometheus::write(out, report)?,
    }
    out.flush()?;
    Ok(())
}
