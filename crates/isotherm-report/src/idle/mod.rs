//! How much memory is idle, and whose it is: the report of `isotherm idle`.
//!
//! It is the one report that is of no recording, but of all pages at one time. As the others, it is plain data, which each format
//! renders: text, JSON, and the text format of Prometheus.

mod bands;
mod prometheus;
mod text;
mod tree;

use std::io::Write;
use std::path::Path;

use isotherm_core::{IdleTally, MOST_INTERVALS};
use serde::Serialize;

use crate::extension::{UnknownExtension, format_of};
use crate::{ReportError, Terminal, escape};

pub use tree::{CgroupFigures, CgroupOwn, cgroup_tree};

/// What is idle, at the end of one interval.
#[derive(Clone, Debug, Serialize)]
pub struct IdleReport {
    /// Which report of the run this is, from 1 on.
    pub number: u64,
    /// When the memory was looked at, since the Unix epoch.
    pub time_unix_ns: u64,
    /// For how long the memory was let alone: the time between two looks at a page.
    pub interval_ns: u64,
    /// Whether that is shorter than what was asked for, because the run was stopped.
    pub cut_short: bool,
    /// How it was found: `idle_page_tracking` or `page_tables`.
    pub way: &'static str,
    /// 1 or 2, the kind of the hierarchy that the cgroups are of; nothing if there is none.
    pub cgroup_version: Option<u8>,
    /// What the looking took.
    pub cost: IdleCost,
    /// What is to be known of these figures.
    pub notes: Vec<String>,
    /// All memory that was looked at.
    pub total: IdleFigures,
    /// The cgroups that have memory, and those above them, by path.
    pub cgroups: Vec<CgroupFigures>,
    /// The most idle first; empty if they were not asked for.
    pub processes: Vec<ProcessFigures>,
}

/// What one look at all pages took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct IdleCost {
    /// CPU time.
    pub cpu_ns: u64,
    /// From its beginning to its end.
    pub wall_ns: u64,
}

/// What of some memory is idle, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IdleFigures {
    /// The sum of the next three.
    pub size_bytes: u64,
    /// Not accessed in the interval.
    pub idle_bytes: u64,
    /// Accessed in the interval.
    pub accessed_bytes: u64,
    /// Neither can be told.
    pub unobservable_bytes: u64,
    /// Locked in memory, and in none of the others.
    pub unevictable_bytes: u64,
    /// How long the idle bytes have been so, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_by_intervals: Option<Vec<Age>>,
}

/// Bytes that have been idle for the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Age {
    /// For so many intervals on end; 250 stands for more, too.
    pub intervals: u32,
    /// How many bytes.
    pub bytes: u64,
}

/// What one process has mapped.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessFigures {
    /// Its ID.
    pub pid: u32,
    /// Its command line, or its name.
    pub command: String,
    /// The path of its cgroup.
    pub cgroup: Option<String>,
    /// What of it is idle.
    #[serde(flatten)]
    pub figures: IdleFigures,
    /// By address; empty if they were not asked for.
    pub mappings: Vec<MappingFigures>,
}

/// What of one mapping is idle.
#[derive(Clone, Debug, Serialize)]
pub struct MappingFigures {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// As in `/proc/PID/maps`.
    pub permissions: String,
    /// What is mapped: `anonymous`, or as in `/proc/PID/maps`.
    pub name: String,
    /// What of it is idle.
    #[serde(flatten)]
    pub figures: IdleFigures,
}

/// How the report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleFormat {
    /// For people, fitted to the terminal.
    Text,
    /// For programs: one line a report.
    Json,
    /// For Prometheus, through its node exporter's textfile collector for one.
    Prometheus,
}

impl IdleFormat {
    /// The format that the extension of a file's name stands for. None if the name has no extension.
    ///
    /// # Errors
    /// If the extension stands for no format.
    pub fn of_file(path: &Path) -> Result<Option<Self>, UnknownExtension> {
        let text: (Self, &[&str]) = (Self::Text, &["txt", "text"]);
        format_of(path, &[text, (Self::Json, &["json", "jsonl"]), (Self::Prometheus, &["prom"])])
    }
}

impl IdleFigures {
    /// The figures of a tally; how long memory has been idle only if `ages` are wanted.
    pub fn new(tally: &IdleTally, ages: bool) -> Self {
        let by_intervals = (1..=u32::from(MOST_INTERVALS)).zip(tally.by_intervals());
        let told = by_intervals.filter(|(_, bytes)| **bytes > 0).map(|(intervals, &bytes)| Age { intervals, bytes });
        Self {
            size_bytes: tally.size(),
            idle_bytes: tally.idle,
            accessed_bytes: tally.accessed,
            unobservable_bytes: tally.unobservable,
            unevictable_bytes: tally.unevictable,
            idle_by_intervals: ages.then(|| told.collect()),
        }
    }

    /// The share of its size that is idle, 0 to 1; 0 if it has none.
    pub fn idle_share(&self) -> f64 {
        if self.size_bytes == 0 { 0.0 } else { self.idle_bytes as f64 / self.size_bytes as f64 }
    }
}

/// Writes the report.
///
/// # Errors
/// When `out` cannot be written to.
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
