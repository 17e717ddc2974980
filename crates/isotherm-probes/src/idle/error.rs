//! The errors of the `idle` probe.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use isotherm_core::TargetId;
use thiserror::Error;

use isotherm_kernel::pages::TableError;
use isotherm_kernel::{NoScratch, unreadable_hint};

/// Why the `idle` probe does not work here, and how to fix it.
#[derive(Debug, Error)]
pub enum IdleError {
    /// The page size is not 4 KiB.
    #[error("the idle probe needs pages of 4 KiB, but this machine has pages of {0} bytes (use another probe)")]
    PageSize(usize),
    /// A file does not exist, or opening it is not permitted.
    #[error("{path} cannot be opened ({fix})")]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of open(2).
        source: io::Error,
        /// How to fix it.
        fix: &'static str,
    },
    /// A table of pages cannot be read or written.
    #[error("a table of pages cannot be used (does another program or a security module forbid it?)")]
    Table(#[from] TableError),
    /// The kernel does not show page frame numbers.
    #[error("/proc/self/pagemap does not show page frame numbers (run isotherm as root, or with CAP_SYS_ADMIN)")]
    HiddenFrames,
    /// The memory for the test is not available.
    #[error(transparent)]
    Scratch(#[from] NoScratch),
    /// The memory of none of the targets can be read; for example, access is not permitted.
    #[error("the memory of {target} cannot be read{}", unreadable_hint(source))]
    Refused {
        /// One of the targets.
        target: TargetId,
        /// The error of open(2).
        source: io::Error,
    },
    /// The probe can be opened, but its answers about its own memory are wrong.
    #[error("the idle probe failed its test on its own memory: {0} (use another probe, and report this)")]
    Trial(String),
}

impl IdleError {
    /// The error for an idle bitmap that cannot be opened.
    pub(crate) fn bitmap(TableError { path, source, .. }: TableError) -> Self {
        let fix = match source.kind() {
            ErrorKind::NotFound => {
                "use a kernel with CONFIG_IDLE_PAGE_TRACKING, or another probe; in a container, mount /sys"
            }
            ErrorKind::PermissionDenied => "run isotherm as root",
            _ => "use another probe",
        };
        Self::Open { path, source, fix }
    }

    /// The error for a table of page flags that cannot be opened.
    pub(crate) fn flags(TableError { path, source, .. }: TableError) -> Self {
        let fix = match source.kind() {
            ErrorKind::NotFound => "use a kernel with CONFIG_PROC_PAGE_MONITOR, or another probe",
            ErrorKind::PermissionDenied => "run isotherm as root",
            _ => "use another probe",
        };
        Self::Open { path, source, fix }
    }

    /// The error for a pagemap that cannot be opened, though the target is alive and access to it is permitted.
    pub(super) fn pagemap(TableError { path, source, .. }: TableError) -> Self {
        Self::Open {
            path,
            source,
            fix: "mount /proc, or raise the limit of open files with `ulimit -n`: each target needs one",
        }
    }
}
