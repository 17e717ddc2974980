//! Idle-memory scans: every page is visited once in each interval, to find how much memory is idle and whose it is.
//!
//! There are two methods. [`PhysicalScan`] visits all page frames with the kernel's idle page tracking, and knows the
//! cgroup that each page is charged to. [`PageTableScan`] surveys processes through their page tables, for kernels
//! without idle page tracking: with the same [survey](isotherm_core::survey) that the monitor does in addition to
//! sampling. Both implement [`Scan`]: the memory is marked once, and after each interval it is read and marked again.

mod findings;
mod frames;
mod nodes;
mod open;
mod pacer;
mod page_tables;
mod physical;
mod population;
mod processes;
mod sharing;
mod wanted;

use std::path::PathBuf;

use isotherm_core::{BoxError, chain};
use thiserror::Error;

pub use findings::{CgroupIdle, IdleFindings, MappingIdle, NodeIdle, ProcessIdle, ScanMethod};
pub use open::{ScanChoice, open};
pub use pacer::{CpuAccount, Rate, ScanPacer};
pub use page_tables::PageTableScan;
pub use physical::PhysicalScan;

use crate::bpf::BpfError;
use crate::idle::IdleError;
use isotherm_kernel::cgroup::Hierarchy;
use isotherm_kernel::pages::{RamError, TableError};
use isotherm_kernel::{Glob, Part, PatternError, Selection, TargetError};

/// Whose memory is scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All memory.
    All,
    /// The memory of the processes of a selection, at each scan.
    Processes(ProcessScope),
    /// The memory of these cgroups and the cgroups below them. A path, which may be a pattern ([`Glob`]), is relative
    /// to the hierarchy, or it is in the directory where the hierarchy is mounted.
    Cgroups(Vec<String>),
}

/// The processes whose memory is scanned, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessScope {
    /// Which processes.
    pub selection: Selection,
    /// The part of each process that is scanned.
    pub part: Part,
    /// Whether it is no error if there is no such process or part at the start.
    pub waits: bool,
}

impl From<Selection> for ProcessScope {
    /// All memory of these processes, at least one of which is there at the start.
    fn from(selection: Selection) -> Self {
        Self { selection, part: Part::default(), waits: false }
    }
}

/// What the findings list, besides cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Whether to list processes.
    pub processes: bool,
    /// Whether to list each mapping of each process. This implies the processes.
    pub mappings: bool,
}

/// The patterns of the cgroups that a user has named.
fn tops(hierarchy: &Hierarchy, named: &[String]) -> Result<Vec<Glob>, ScanError> {
    Ok(named.iter().map(|named| Glob::new(&hierarchy.path_of(named))).collect::<Result<_, _>>()?)
}

impl Detail {
    fn any(self) -> bool {
        self.processes || self.mappings
    }
}

/// A scan for idle memory.
pub trait Scan {
    /// The method of the scan.
    fn method(&self) -> ScanMethod;

    /// Marks all memory in the scope as idle.
    ///
    /// # Errors
    /// If the memory cannot be read or marked, or [`ScanError::Interrupted`] if the scan was stopped.
    fn mark(&mut self, pacer: &mut ScanPacer) -> Result<(), ScanError>;

    /// Reports the memory that has been idle since it was last marked, and marks it again.
    ///
    /// # Errors
    /// The errors of [`mark`](Self::mark). A process that ends during the scan is not an error: the findings note it.
    fn read(&mut self, pacer: &mut ScanPacer) -> Result<IdleFindings, ScanError>;
}

/// Why memory cannot be scanned.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The scan was stopped.
    #[error("the scan was stopped")]
    Interrupted,
    /// Idle page tracking does not work.
    #[error(transparent)]
    Idle(#[from] IdleError),
    /// Page tables cannot be read by eBPF.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Neither method works here.
    #[error(
        "no method to find idle memory works here; idle page tracking: {}; page tables: {}",
        chain(&**.idle), chain(&**.bpf)
    )]
    Neither {
        /// Why idle page tracking does not work.
        idle: Box<IdleError>,
        /// Why page tables cannot be read by eBPF.
        bpf: Box<BpfError>,
    },
    /// The pages of processes cannot be surveyed.
    #[error("the pages of processes cannot be surveyed")]
    Survey(#[source] BoxError),
    /// The addresses of the system's memory cannot be read.
    #[error(transparent)]
    Ram(#[from] RamError),
    /// A table of pages cannot be read or written.
    #[error("a table of pages cannot be used (does another program or a security module forbid it?)")]
    Table(#[from] TableError),
    /// The processes cannot be listed.
    #[error("{path} cannot be read: {why} (is /proc mounted?)")]
    Processes {
        /// The directory.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// A given process cannot be scanned.
    #[error("{0}")]
    NoProcess(String),
    /// No process, or nothing of the processes, is what was asked for.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// More processes belong to the selection than may.
    #[error("{count} processes match, and at most {most} are scanned: {selection} (ask for fewer)")]
    TooMany {
        /// What was asked for.
        selection: String,
        /// How many processes match.
        count: usize,
        /// How many are scanned at most.
        most: usize,
    },
    /// A given cgroup is no path, nor a pattern of paths.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A given cgroup does not exist.
    #[error("there is no cgroup {named} ({fix})")]
    NoCgroup {
        /// The cgroup, as it was given.
        named: String,
        /// How to list the cgroups.
        fix: String,
    },
    /// A given cgroup has no process. Without a process there are no page tables to read.
    #[error("there is no process in the cgroup {named} ({fix})")]
    NoProcessInCgroup {
        /// The cgroup, as it was given.
        named: String,
        /// How to list the cgroups that have processes.
        fix: String,
    },
    /// Cgroups were given, but the kernel has none, or they cannot be looked up.
    #[error("memory cannot be split by cgroup: {0}")]
    NoCgroups(String),
    /// The wait for the next step failed.
    #[error("waiting failed")]
    Wait(#[source] std::io::Error),
}
