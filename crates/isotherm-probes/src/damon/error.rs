//! Why the probe `damon` does not work.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use super::others::Others;

/// Why the kernel's DAMON cannot be used here, or not any more, and what would mend it.
#[derive(Debug, Error)]
pub enum DamonError {
    /// The kernel has no DAMON that could be used.
    #[error(
        "the kernel has no DAMON to administrate: there is no {0}; use a kernel built with CONFIG_DAMON_SYSFS (Linux 5.18 \
         or later), or another probe"
    )]
    NoSysfs(PathBuf),
    /// Someone else uses DAMON.
    #[error("DAMON is in use, and isotherm changes nothing that it did not start: {0}")]
    Busy(Others),
    /// Another run of isotherm uses it.
    #[error("another isotherm{} uses the kernel's DAMON now (it holds {path}); wait for its end, or use another probe", owner.map_or(String::new(), |pid| format!(" (process {pid})")))]
    Claimed {
        /// Who, if the claim says so.
        owner: Option<u32>,
        /// Where the claim is.
        path: PathBuf,
    },
    /// The claim cannot be laid down, without which a killed run could not be cleaned up after.
    #[error(
        "{path} cannot be written: {source}; without it a run that is killed could not be cleaned up after, so make it writable"
    )]
    Claim {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}; {}", mend(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("`{value}` cannot be written to {path}: {source}; {}", mend(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// A file says something else than it should.
    #[error("{path} says {content:?}, which is not a number; this is not expected of any kernel: please report it")]
    Number {
        /// The file.
        path: PathBuf,
        /// What it says.
        content: String,
    },
    /// The kernel's DAMON cannot watch what was asked for.
    #[error("this kernel's DAMON has no operations `{wanted}` (it has: {available}); {mend}")]
    Operations {
        /// What is needed.
        wanted: &'static str,
        /// What there is.
        available: String,
        /// What would mend it.
        mend: &'static str,
    },
    /// The settings have no form that the kernel takes.
    #[error("{0}")]
    Settings(String),
    /// Another has changed what was set up.
    #[error(
        "{path} says {found:?} where isotherm wrote {expected:?}: another program administrates DAMON at the same time; \
         nothing of it was changed"
    )]
    Overtaken {
        /// The file.
        path: PathBuf,
        /// What isotherm wrote.
        expected: String,
        /// What is there.
        found: String,
    },
    /// It was started and did not stay.
    #[error(
        "the kernel's DAMON was turned off by someone else while targets were still there; what was recorded before is kept"
    )]
    TurnedOff,
    /// The events of the kernel cannot be had, and there is nothing in their place.
    #[error("the kernel's findings cannot be collected: {trace}{}", tried.as_ref().map_or(String::new(), |why| format!("; and tried_regions, the other way, is not to be had: {why}")))]
    NoFindings {
        /// Why not by the tracepoint.
        trace: TraceError,
        /// Why not by `tried_regions`.
        tried: Option<String>,
    },
    /// The events stopped coming.
    #[error("the kernel's events cannot be read any more: {0}")]
    Trace(#[from] TraceError),
}

/// Why the tracepoint `damon:damon_aggregated` cannot be used.
#[derive(Debug, Error)]
pub enum TraceError {
    /// There is no tracefs.
    #[error("tracefs is not mounted at {0}; mount it: mount -t tracefs tracefs /sys/kernel/tracing")]
    NotMounted(PathBuf),
    /// There is no such event.
    #[error("the kernel has no tracepoint {0}; use a kernel built with CONFIG_EVENT_TRACING")]
    NoEvent(PathBuf),
    /// A file of it cannot be read.
    #[error("{path} cannot be read: {source}; {}", mend(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// Its layout is not understood.
    #[error("{path} does not tell where the field {field} lies; please report it with the file's content")]
    Format {
        /// The file.
        path: PathBuf,
        /// Which field.
        field: &'static str,
    },
    /// The kernel hands out no events.
    #[error("perf_event_open of damon:damon_aggregated failed: {source}; {}", perf_mend(*source))]
    Perf {
        /// The kernel's word.
        source: Errno,
    },
    /// The ring cannot be mapped.
    #[error(
        "a ring of {bytes} bytes for events cannot be mapped: {source}; is there a limit on locked memory (ulimit -l)?"
    )]
    Ring {
        /// Its size.
        bytes: usize,
        /// The kernel's word.
        source: Errno,
    },
}

/// What would most probably mend a refusal of sysfs.
fn mend(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => "run isotherm as root",
        Some(Errno::BUSY) => "another kdamond runs; end its user first, or use another probe",
        Some(Errno::INVAL) => "the kernel refuses these settings, or a target has ended",
        Some(Errno::NOENT) => {
            "has another program changed the number of kdamonds, or is this kernel's DAMON of another kind?"
        }
        Some(Errno::NOMEM) => "the kernel has no memory left for it",
        Some(Errno::ROFS) => "sysfs is mounted read-only: run isotherm outside of the container",
        _ => "`isotherm doctor` tells what works here",
    }
}

fn perf_mend(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => "run isotherm as root (with CAP_PERFMON and CAP_SYS_PTRACE)",
        Errno::NOSYS | Errno::OPNOTSUPP => "use a kernel built with CONFIG_PERF_EVENTS",
        Errno::SRCH => "the kdamond has ended already: is the target still there?",
        Errno::MFILE => "raise the limit of open files (ulimit -n)",
        _ => "`isotherm doctor` tells what works here",
    }
}
