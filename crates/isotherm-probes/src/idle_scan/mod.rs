//! How much memory is idle, and whose it is: every page is looked at, once an interval.
//!
//! There are two ways to it. [`PhysicalScan`] goes over all page frames by the kernel's idle page tracking, and knows of each whose
//! cgroup it is charged to. [`PageTableScan`] goes over the page tables of processes by eBPF, on kernels without that. Both are used in
//! the same way ([`Scan`]): what is to be watched is marked once, and then, after each interval, read and marked again.

mod findings;
mod frames;
mod open;
mod pacer;
mod page_tables;
mod physical;
mod population;
mod processes;
mod wanted;

use std::path::PathBuf;

use thiserror::Error;

pub use findings::{CgroupIdle, IdleFindings, MappingIdle, ProcessIdle, Way};
pub use open::{WayChoice, open};
pub use pacer::{Pacer, Rate};
pub use page_tables::PageTableScan;
pub use physical::PhysicalScan;

use crate::bpf::BpfError;
use crate::idle::IdleError;
use isotherm_kernel::pages::{RamError, TableError};

/// Whose memory is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    All,
    /// That of these processes.
    Processes(Vec<u32>),
    /// That of these cgroups and those below them, by their paths within the hierarchy or in its mounted directory.
    Cgroups(Vec<String>),
}

/// What is to be told apart in the findings, besides cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Processes.
    pub processes: bool,
    /// Each mapping of each process, which implies the processes.
    pub mappings: bool,
}

impl Detail {
    fn any(self) -> bool {
        self.processes || self.mappings
    }
}

/// A way to learn which memory is idle.
pub trait Scan {
    /// Which way it is.
    fn way(&self) -> Way;

    /// Marks all that is to be watched as idle.
    ///
    /// # Errors
    /// If the memory cannot be looked at, or [`ScanError::Interrupted`].
    fn mark(&mut self, pacer: &mut Pacer) -> Result<(), ScanError>;

    /// Tells what has been idle since the memory was marked last, and marks it again.
    ///
    /// # Errors
    /// As of [`mark`](Self::mark). What goes away meanwhile is no error, but noted in the findings.
    fn read(&mut self, pacer: &mut Pacer) -> Result<IdleFindings, ScanError>;
}

/// Why memory cannot be scanned.
#[derive(Debug, Error)]
pub enum ScanError {
    /// It was asked to stop.
    #[error("the scan was stopped")]
    Interrupted,
    /// Idle page tracking does not work.
    #[error(transparent)]
    Idle(#[from] IdleError),
    /// Page tables cannot be read.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Neither way works here.
    #[error("neither way to find idle memory works here. By idle page tracking: {idle}. By page tables: {bpf}")]
    Neither {
        /// Why idle page tracking does not.
        idle: IdleError,
        /// Why page tables cannot be read.
        bpf: BpfError,
    },
    /// It cannot be told where memory is.
    #[error(transparent)]
    Ram(#[from] RamError),
    /// A table of pages cannot be read or written.
    #[error("{0}; has another program or a security module closed it to isotherm?")]
    Table(#[from] TableError),
    /// The processes cannot be listed.
    #[error("{path} cannot be read: {why}; is /proc mounted?")]
    Processes {
        /// The directory.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// None of the processes that were named can be looked at.
    #[error("{0}")]
    NoProcess(String),
    /// No cgroup of those that were named is there.
    #[error("there is no cgroup {named}; {mend}")]
    NoCgroup {
        /// What was named.
        named: String,
        /// How to find those that there are.
        mend: String,
    },
    /// A cgroup that was named has no process, by whose page tables its memory could be looked at.
    #[error("there is no process in a cgroup {named}; {mend}")]
    NoProcessInCgroup {
        /// What was named.
        named: String,
        /// How to find those that there are.
        mend: String,
    },
    /// Cgroups were named, and there are none, or none that can be looked up.
    #[error("memory cannot be told apart by cgroup: {0}")]
    NoCgroups(String),
    /// Waiting failed.
    #[error("waiting failed: {0}")]
    Wait(#[source] std::io::Error),
}
