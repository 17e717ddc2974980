//! The reasons why a run cannot be prepared, or cannot continue.

use std::io;
use std::time::Duration;

pub use isotherm_core::chain;
use isotherm_core::scheme::Unsupported;
use isotherm_core::{AttributesError, BoxError, MonitorError, units};
use isotherm_kernel::page_cache::FilesError;
use isotherm_kernel::{RamError, TargetError};
use isotherm_output::OutputError;
use isotherm_probes::bpf::BpfError;
use isotherm_probes::damon::DamonError;
use isotherm_probes::idle::IdleError;
use isotherm_probes::stacks::StacksError;
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
    /// Processes that are named by their IDs are there or not.
    #[error("a process that is named by its ID cannot be waited for")]
    NothingToWaitFor,
    /// A range is of one address space.
    #[error("an address range is a part of one process")]
    RangeNeedsOneProcess,
    /// The kernel's DAMON keeps the targets that it began with.
    #[error("the probe damon keeps the targets of its start, and cannot follow processes that join")]
    DamonWithNewcomers,
    /// The kernel's DAMON knows addresses only: those of the mappings at the start.
    #[error("the probe damon watches mappings by their names in one process only, which runs already")]
    DamonWithMappings,
    /// The probe sees whole mappings of processes.
    #[error("the probe does not see physical memory; idle, bpf and damon do")]
    ProbeSeesProcessesOnly,
    /// Accesses to page cache that no process maps leave a mark in no page table.
    #[error("the probe does not see page cache that no process maps; idle does")]
    ProbeSeesNoFiles,
    /// Page cache of files is surveyed.
    #[error("the page cache of files is watched by surveys only")]
    FilesWithSamples,
    /// Only surveys know which pages of a region are idle, and so which pages of which processes.
    #[error("schemes act on physical memory by surveys only")]
    SchemesOnPhysicalMemory,
    /// Call stacks are those of processes.
    #[error("call stacks can be recorded only for processes of this machine")]
    StacksOfProcesses,
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
    /// A share of the budget is zero.
    #[error("the budget is zero")]
    NoBudget,
    /// The goal of the intervals is no share.
    #[error("the goal of the intervals is not a share above 0 and at most 1")]
    WrongGoal,
    /// The intervals are fixed, so that a goal has no effect.
    #[error("the intervals have a goal, but are fixed")]
    GoalOfFixedIntervals,
    /// Neither samples nor surveys are wanted.
    #[error("without samples and without surveys nothing is measured")]
    NothingMeasured,
    /// Samples of physical memory were asked for, and the probe has none.
    #[error(
        "the probe bpf cannot sample physical memory: to find the page tables that map a page frame, all page \
         tables must be read, as a survey does"
    )]
    NoSamples,
    /// No surveys are wanted, and the probe has nothing else.
    #[error("the probe bpf watches physical memory by surveys only")]
    SurveyNeeded,
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
    /// The page cache of files cannot be watched.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The probe `idle` does not work here.
    #[error(transparent)]
    Idle(#[from] IdleError),
    /// None of our own probes that see physical memory works here.
    #[error(
        "no probe that sees physical memory works here (the probe damon may); idle: {}; bpf: {}",
        chain(&**.idle), chain(&**.bpf)
    )]
    NoPhysicalProbe {
        /// Why idle page tracking does not work.
        idle: Box<IdleError>,
        /// Why page tables cannot be read by eBPF.
        bpf: Box<BpfError>,
    },
    /// The probe `bpf` does not work here.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Call stacks cannot be recorded here, or not any more.
    #[error(transparent)]
    Stacks(#[from] StacksError),
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
    /// The recording or the log of the command cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A scheme file is wrong. The text has a line for each error: file, line, column, and what is wrong.
    #[error("{0}")]
    SchemeFile(Diagnostics),
    /// A scheme needs something that does not work here.
    #[error(transparent)]
    Scheme(#[from] Unsupported),
    /// Schemes could not continue.
    #[error("the schemes cannot continue")]
    Schemes(#[source] BoxError),
    /// The recording could not be written or read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The monitor could not continue.
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
    /// The nice value cannot be set.
    #[error("the monitor cannot have the nice value {nice}; lower values need root or CAP_SYS_NICE")]
    Nice {
        /// The value that was asked for.
        nice: i32,
        /// Why.
        source: std::io::Error,
    },
    /// The monitor cannot be bound to the processors.
    #[error("the monitor cannot run on these processors; name some that are online and allowed (taskset -p)")]
    Affinity(#[source] std::io::Error),
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
