//! Translates error numbers of the kernel into refusals.

use isotherm_core::scheme::{Refusal, RefusalReason};
use rustix::io::Errno;

/// The refusal for an error of a call on mapped memory. The error numbers are those of `madvise(2)`,
/// `process_madvise(2)`, `mlock(2)` and `ptrace(2)`.
///
/// `ENOMEM` means too little memory, or a limit. A caller that knows that addresses are unmapped uses [`NOT_MAPPED`].
pub(crate) fn refusal(errno: Errno) -> Refusal {
    let reason = match errno {
        Errno::SRCH | Errno::NOENT => RefusalReason::TargetGone,
        Errno::NOMEM => RefusalReason::NoMemory,
        Errno::AGAIN | Errno::BUSY | Errno::TIMEDOUT => RefusalReason::Busy,
        Errno::PERM | Errno::ACCESS => RefusalReason::NotPermitted,
        Errno::NOSYS | Errno::OPNOTSUPP => RefusalReason::Unsupported,
        Errno::INVAL | Errno::BADF => RefusalReason::Unsuitable,
        Errno::INTR => RefusalReason::Interrupted,
        _ => RefusalReason::Other,
    };
    reason.with_code(errno.raw_os_error())
}

/// The refusal for addresses at which nothing is mapped.
pub(crate) const NOT_MAPPED: Refusal = RefusalReason::NotMapped.with_code(Errno::NOMEM.raw_os_error());
