//! The errors of the probe `damon`.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use super::others::Others;

/// Why the kernel's DAMON cannot be used, or can no longer be used, and how to fix it.
#[derive(Debug, Error)]
pub enum DamonError {
    /// The kernel has no sysfs interface of DAMON.
    #[error(
        "the kernel has no sysfs interface of DAMON: there is no {0} (use a kernel built with CONFIG_DAMON_SYSFS, \
         Linux 5.18 or later, or another probe)"
    )]
    NoSysfs(PathBuf),
    /// Another program uses DAMON.
    #[error("DAMON is in use, and isotherm does not change what it did not start: {0}")]
    Busy(Others),
    /// Another run of isotherm uses DAMON.
    #[error(
        "another isotherm{} uses the kernel's DAMON (it holds {path}; wait until it ends, or use another probe)",
        owner.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    Claimed {
        /// The process ID of the other run, if the claim contains it.
        owner: Option<u32>,
        /// The path of the claim.
        path: PathBuf,
    },
    /// The claim cannot be written.
    #[error("{path} cannot be written (make it writable; the next run needs it to clean up if this run is killed)")]
    Claim {
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{path} cannot be read ({})", hint(source))]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("`{value}` cannot be written to {path} ({})", hint(source))]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The value to write.
        value: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A file does not contain a number.
    #[error("{path} contains {content:?} instead of a number (please report this with the version of the kernel)")]
    Number {
        /// The path of the file.
        path: PathBuf,
        /// The content of the file.
        content: String,
    },
    /// The kernel's DAMON does not have the operations that the targets need.
    #[error("this kernel's DAMON does not have the operations `{wanted}`, it has: {available} ({fix})")]
    Operations {
        /// The operations that the targets need.
        wanted: &'static str,
        /// The operations that the kernel has.
        available: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// The kernel cannot accept the settings.
    #[error("{0}")]
    Settings(String),
    /// Another program has changed the settings.
    #[error(
        "{path} contains {found:?}, but isotherm wrote {expected:?}: another program configures DAMON at the same time \
         (end that program; isotherm has not changed its settings)"
    )]
    Overtaken {
        /// The path of the file.
        path: PathBuf,
        /// The value that isotherm wrote.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// The kdamond was turned off, although targets still exist.
    #[error(
        "the kernel's DAMON was turned off by someone else while targets still existed (the recording until then is \
         kept)"
    )]
    TurnedOff,
    /// The results of the kernel's DAMON can be read neither from the tracepoint nor from `tried_regions`.
    #[error(
        "the results of the kernel's DAMON cannot be read{}",
        tried.as_ref().map_or(String::new(), |why| format!(" (tried_regions is not available: {why})"))
    )]
    NoFindings {
        /// Why the tracepoint is not available.
        #[source]
        trace: TraceError,
        /// Why `tried_regions` is not available.
        tried: Option<String>,
    },
    /// The tracepoint can no longer be read.
    #[error("the events of the kernel's DAMON can no longer be read")]
    Trace(#[from] TraceError),
}

/// Why the tracepoint `damon:damon_aggregated` cannot be used.
#[derive(Debug, Error)]
pub enum TraceError {
    /// tracefs is not mounted.
    #[error("tracefs is not mounted at {0} (run: mount -t tracefs tracefs /sys/kernel/tracing)")]
    NotMounted(PathBuf),
    /// The kernel does not have the tracepoint.
    #[error("the kernel has no tracepoint {0} (use a kernel built with CONFIG_EVENT_TRACING)")]
    NoEvent(PathBuf),
    /// A file of the tracepoint cannot be read.
    #[error("{path} cannot be read ({})", hint(source))]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The layout of the event is not known.
    #[error(
        "{path} does not contain the offset of the field {field} (please report this with the content of the file)"
    )]
    Format {
        /// The path of the file.
        path: PathBuf,
        /// The name of the field.
        field: &'static str,
    },
    /// The event cannot be opened.
    #[error("perf_event_open of damon:damon_aggregated failed ({})", perf_hint(*source))]
    Perf {
        /// The error of the kernel.
        source: Errno,
    },
    /// The ring buffer cannot be mapped.
    #[error("a ring buffer of {bytes} bytes cannot be mapped (raise the limit on locked memory, ulimit -l)")]
    Ring {
        /// The size, in bytes.
        bytes: usize,
        /// The error of the kernel.
        source: Errno,
    },
}

/// The most probable way to fix an error of sysfs.
fn hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => "run isotherm as root",
        Some(Errno::BUSY) => "another kdamond is running; end the program that uses it, or use another probe",
        Some(Errno::INVAL) => "the kernel refuses these settings, or a target has ended",
        Some(Errno::NOENT) => {
            "another program has changed the number of kdamonds, or this kernel's DAMON has other files"
        }
        Some(Errno::NOMEM) => "the kernel is out of memory",
        Some(Errno::ROFS) => "sysfs is mounted read-only; run isotherm outside the container",
        _ => "`isotherm doctor` shows what works on this machine",
    }
}

/// The most probable way to fix an error of `perf_event_open(2)`.
fn perf_hint(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => "run isotherm as root, or with CAP_PERFMON and CAP_SYS_PTRACE",
        Errno::NOSYS | Errno::OPNOTSUPP => "use a kernel built with CONFIG_PERF_EVENTS",
        Errno::SRCH => "the kdamond has already ended; check that the target still exists",
        Errno::MFILE => "raise the limit of open files with `ulimit -n`",
        _ => "`isotherm doctor` shows what works on this machine",
    }
}
