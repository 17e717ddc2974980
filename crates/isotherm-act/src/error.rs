//! Why an action cannot be carried out on this machine.

use std::io;

use isotherm_core::scheme::Action;
use isotherm_kernel::NoScratch;
use isotherm_kernel::cgroup::NoMemoryCgroup;
use thiserror::Error;

use super::frames::FramesError;
use super::inside::InsideError;
use super::migration::MigrationError;

pub(super) const THP_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Why an action cannot be carried out on this machine, and how to fix it.
#[derive(Debug, Error)]
pub enum ActError {
    /// The action needs a call inside the target, which the scheme does not allow.
    #[error("{0} needs a call inside the target (allow it with `inside: true` in the scheme)")]
    NeedsInside(Action),
    /// The kernel refuses the advice.
    #[error("{action} does not work here: process_madvise({advice}) failed ({fix})")]
    Advice {
        /// The action.
        action: Action,
        /// The advice that carries it out.
        advice: &'static str,
        /// The error of process_madvise(2).
        source: io::Error,
        /// How to fix it.
        fix: &'static str,
    },
    /// The kernel refuses the call, which was tried inside this process.
    #[error("{action} does not work here: {call} failed in a test (use a kernel that is built with this call)")]
    Call {
        /// The action.
        action: Action,
        /// The call that carries it out.
        call: &'static str,
        /// The error of the call.
        source: io::Error,
    },
    /// No call can be made inside a process.
    #[error("{action} does not work here: a call inside isotherm itself failed in a test")]
    Inside {
        /// The action.
        action: Action,
        /// Why no call can be made, and how to fix it.
        source: InsideError,
    },
    /// Memory cannot be moved between nodes.
    #[error("{action} does not work here")]
    Migration {
        /// The action.
        action: Action,
        /// Why, and how to fix it.
        #[source]
        source: Box<MigrationError>,
    },
    /// Memory of cgroups cannot be reclaimed.
    #[error("{action} does not work here")]
    Cgroup {
        /// The action.
        action: Action,
        /// Why, and how to fix it.
        source: NoMemoryCgroup,
    },
    /// Huge pages are disabled, so that the action has no effect.
    #[error(
        "{0} by madvise(MADV_HUGEPAGE) has no effect here: {THP_ENABLED} is set to \"never\" (write \"madvise\" to it, \
         or use hugepage without `inside: true`, which makes huge pages at once)"
    )]
    HugePagesOff(Action),
    /// The action does not work on the page cache of files.
    #[error(
        "{0} is for memory of processes, and not for the page cache of files (use pageout, which drops it, willneed, \
         stat, or an action between memory nodes)"
    )]
    NotOnFiles(Action),
    /// The action does not work on physical memory.
    #[error(
        "{0} cannot be carried out on page frames (use pageout, cold or stat, or name processes instead of physical \
         memory)"
    )]
    NotOnFrames(Action),
    /// Page frames cannot be found in processes.
    #[error("{action} does not work on physical memory here")]
    Frames {
        /// The action.
        action: Action,
        /// Why, and how to fix it.
        source: FramesError,
    },
    /// It cannot be found out which pages of files were changed.
    #[error(
        "{0} does not work here: pages that were changed cannot be told from others (use Linux 6.5 or later, or run \
         isotherm as root)"
    )]
    DirtyUnknown(Action),
    /// The memory for the test is not available.
    #[error(transparent)]
    Scratch(#[from] NoScratch),
}
