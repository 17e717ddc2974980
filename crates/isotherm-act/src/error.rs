//! Why an action cannot be carried out on this machine.

use std::io;

use isotherm_core::scheme::Action;
use isotherm_kernel::NoScratch;
use thiserror::Error;

use super::inside::InsideError;

pub(super) const THP_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Why an action is not possible here.
#[derive(Debug, Error)]
pub enum ActError {
    /// It needs a call made inside the target, which the scheme does not allow.
    #[error("{0} needs a call made inside the target: allow it with `inside: true` in the scheme")]
    NeedsInside(Action),
    /// The kernel refuses the advice.
    #[error("{action} is not possible here: process_madvise({advice}) failed: {source}; {mend}")]
    Advice {
        /// What was to be done.
        action: Action,
        /// The advice that does it.
        advice: &'static str,
        /// The kernel's word.
        source: io::Error,
        /// What would mend it.
        mend: &'static str,
    },
    /// The call inside this process, as a trial, was refused by the kernel.
    #[error("{action} is not possible here: {call} failed when tried: {source}; is this kernel built with it?")]
    Call {
        /// What was to be done.
        action: Action,
        /// The call that does it.
        call: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// No call can be made inside other processes.
    #[error(
        "{action} is not possible here, as no call can be made inside a process; tried on isotherm itself: {source}"
    )]
    Inside {
        /// What was to be done.
        action: Action,
        /// Why not, and what would mend it.
        source: InsideError,
    },
    /// Huge pages are off, so that allowing them changes nothing.
    #[error(
        "{0} by madvise(MADV_HUGEPAGE) would change nothing: huge pages are off (\"never\" in {THP_ENABLED}); write \
         \"madvise\" \
         to it, or use hugepage without `inside: true`, which makes them at once"
    )]
    HugePagesOff(Action),
    /// There is no memory to try it on.
    #[error(transparent)]
    Scratch(#[from] NoScratch),
}
