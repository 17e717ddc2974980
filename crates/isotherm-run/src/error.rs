//! Why a run cannot be made, or cannot go on.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use isotherm_core::chain;
use isotherm_core::scheme::Unsupported;
use isotherm_core::{AttributesError, BoxError, MonitorError, units};
use isotherm_kernel::{RamError, TargetError};
use isotherm_probes::bpf::BpfError;
use isotherm_probes::damon::DamonError;
use isotherm_probes::idle::IdleError;
use isotherm_record::RecordError;
use isotherm_scheme::Diagnostics;
use thiserror::Error;

use crate::SurveyChoice;

/// The description of a run contradicts itself. Nothing has been opened or started.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Nothing to watch was named.
    #[error("there is nothing to watch")]
    NoTarget,
    /// Only the kernel's DAMON can watch a part of a process.
    #[error("only the probe damon can watch a part of a process")]
    RangeNeedsDamon,
    /// A range is of one address space.
    #[error("an address range is a part of one process")]
    RangeNeedsOneProcess,
    /// The kernel's DAMON keeps the targets that it began with.
    #[error("the probe damon watches the targets that it began with, and cannot follow children")]
    DamonWithChildren,
    /// The probe reads page tables of processes.
    #[error("the probe does not see physical memory; idle and damon do")]
    ProbeSeesProcessesOnly,
    /// Actions are done to processes.
    #[error("schemes act on processes, not on physical memory")]
    SchemesOnPhysicalMemory,
    /// There would be no snapshot.
    #[error(
        "the duration ({}) is shorter than the aggregation interval ({})",
        units::duration(*duration),
        units::duration(*aggregation)
    )]
    DurationTooShort {
        /// The duration asked for.
        duration: Duration,
        /// The aggregation interval that it would have to reach.
        aggregation: Duration,
    },
    /// The survey interval is below [`SurveyChoice::MIN_SURVEY`].
    #[error(
        "the survey interval ({}) is shorter than {}",
        units::duration(*.0),
        units::duration(SurveyChoice::MIN_SURVEY)
    )]
    SurveyTooShort(Duration),
    /// Neither samples nor surveys are wanted.
    #[error("without samples and without surveys nothing is measured")]
    NothingMeasured,
    /// The probe cannot read all pages.
    #[error("the probe {0} has no survey")]
    NoSurvey(&'static str),
    /// The attributes are invalid.
    #[error(transparent)]
    Attributes(#[from] AttributesError),
}

/// Why a run could not start, or ended before its time.
///
/// [`chain`] prints it with its sources.
#[derive(Debug, Error)]
pub enum RunError {
    /// The description is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A process cannot be watched.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The ranges of physical memory cannot be read.
    #[error(transparent)]
    PhysicalMemory(#[from] RamError),
    /// The probe `idle` does not work here.
    #[error(transparent)]
    Idle(#[from] IdleError),
    /// The probe `idle`, the only one of our own that sees physical memory, does not work here.
    #[error("physical memory is watched by the probe idle, which does not work here (the probe damon may)")]
    NoPhysicalProbe(#[source] IdleError),
    /// The probe `bpf` does not work here.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The kernel's DAMON cannot be used, or not any more.
    #[error(transparent)]
    Damon(#[from] DamonError),
    /// The command could not be started.
    #[error("the command {name:?} cannot be started ({hint})")]
    Command {
        /// The program.
        name: String,
        /// How to fix it.
        hint: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The command's log cannot be written.
    #[error("the log {} cannot be written (name another file)", path.display())]
    CommandLog {
        /// The log.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The command ended before it could be watched.
    #[error("the command ended at once, before it could be watched")]
    CommandEnded,
    /// A scheme file is wrong. The text has a line for each error: file, line, column, and what is wrong.
    #[error("{0}")]
    SchemeFile(Diagnostics),
    /// A scheme asks for what does not work here.
    #[error(transparent)]
    Scheme(#[from] Unsupported),
    /// Schemes could not go on.
    #[error("the schemes cannot go on")]
    Schemes(#[source] BoxError),
    /// The recording could not be written or read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The monitor could not go on.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The mappings of the targets can no longer be read.
    #[error("the mappings cannot be read")]
    Space(#[source] BoxError),
    /// A sink failed.
    #[error("the sink {name:?} failed")]
    Sink {
        /// The sink's name.
        name: String,
        /// Its error.
        #[source]
        source: BoxError,
    },
    /// The kernel could not wait for the targets.
    #[error("waiting for the targets failed")]
    Wait(#[source] io::Error),
    /// No file descriptor is left.
    #[error("this process has no file descriptor left; raise its limit (ulimit -n)")]
    Descriptors(#[source] io::Error),
    /// A thread could not be started.
    #[error("the thread {name:?} cannot be started")]
    Thread {
        /// The thread's name.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A thread panicked: a bug.
    #[error("the thread {thread:?} panicked, which is a bug in isotherm")]
    Panicked {
        /// The thread's name.
        thread: String,
    },
}
