//! Why the `idle` probe does not work.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use isotherm_core::TargetId;
use thiserror::Error;

use isotherm_kernel::NoScratch;
use isotherm_kernel::pages::TableError;

/// Why the `idle` probe does not work here, and what would mend it.
#[derive(Debug, Error)]
pub enum IdleError {
    /// Pages of another size.
    #[error("the idle probe knows pages of 4 KiB, and this machine's are of {0} bytes; use another probe")]
    PageSize(usize),
    /// A file may not be opened, or is not there.
    #[error("{path} cannot be opened: {source}; {mend}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
        /// What would mend it.
        mend: &'static str,
    },
    /// A file cannot be used.
    #[error("{0}; has another program or a security module closed it to isotherm?")]
    Table(#[from] TableError),
    /// The kernel does not tell in which frame a page is.
    #[error("/proc/self/pagemap does not tell page frames; run isotherm as root, or with CAP_SYS_ADMIN")]
    HiddenFrames,
    /// Own memory to try things on cannot be had.
    #[error(transparent)]
    Scratch(#[from] NoScratch),
    /// None of the targets may be watched.
    #[error("the memory of {target} may not be looked at: {source}; run isotherm as root, or with CAP_SYS_PTRACE")]
    Refused {
        /// One of them.
        target: TargetId,
        /// The kernel's word.
        source: io::Error,
    },
    /// The probe starts, but what it says of own memory is wrong.
    #[error("the idle probe's trial on its own memory failed: {0}; use another probe, and please report it")]
    Trial(String),
}

impl IdleError {
    /// The idle bitmap cannot be opened.
    pub(crate) fn bitmap(TableError { path, source, .. }: TableError) -> Self {
        let mend = match source.kind() {
            ErrorKind::NotFound => {
                "use a kernel with CONFIG_IDLE_PAGE_TRACKING (in a container, /sys must be mounted), or another probe"
            }
            ErrorKind::PermissionDenied => "run isotherm as root",
            _ => "use another probe",
        };
        Self::Open { path, source, mend }
    }

    /// The table of frames cannot be opened.
    pub(crate) fn flags(TableError { path, source, .. }: TableError) -> Self {
        let mend = match source.kind() {
            ErrorKind::NotFound => "use a kernel with CONFIG_PROC_PAGE_MONITOR, or another probe",
            ErrorKind::PermissionDenied => "run isotherm as root",
            _ => "use another probe",
        };
        Self::Open { path, source, mend }
    }

    /// A target's pagemap cannot be opened, for another reason than that it may not be, or has ended.
    pub(super) fn pagemap(TableError { path, source, .. }: TableError) -> Self {
        Self::Open {
            path,
            source,
            mend: "is /proc mounted, and is there room for another open file a target (`ulimit -n`)?",
        }
    }
}
