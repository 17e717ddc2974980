//! Acting from inside: system calls that a process can make for itself only, made in it by `ptrace`.
//!
//! The main thread of the target is stopped for some tens of microseconds, makes the calls, and goes on as if nothing
//! had
//! happened: a system call that it was in begins or goes on again, a signal that comes at that moment is delivered.
//! What is
//! guaranteed, how, and what is refused: `docs/acting.md`.
//!
//! - No code is written into the target. It is sent to a `syscall` instruction in its own C library.
//! - The tracing is done by a [helper] process, which finishes what it is at though isotherm be killed.
//! - Before its registers are changed, they are written to a [frame] on the thread's stack, and it is given registers
//!   that lead it back by itself: so it is unharmed though the helper be killed.

mod error;
#[cfg(target_arch = "x86_64")]
mod frame;
#[cfg(target_arch = "x86_64")]
mod gadget;
#[cfg(target_arch = "x86_64")]
mod helper;
#[cfg(target_arch = "x86_64")]
mod message;
#[cfg(target_arch = "x86_64")]
mod prepared;
#[cfg(target_arch = "x86_64")]
mod ptrace;
#[cfg(target_arch = "x86_64")]
mod session;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod session;
#[cfg(target_arch = "x86_64")]
mod status;
#[cfg(target_arch = "x86_64")]
mod step;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod tests;
#[cfg(target_arch = "x86_64")]
mod tracer;

pub use error::InsideError;
pub use session::Inside;

/// A system call on a range of memory, that a process can make for itself only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsideCall {
    /// `madvise(MADV_HUGEPAGE)`: huge pages are allowed.
    HugePage,
    /// `madvise(MADV_NOHUGEPAGE)`: huge pages are forbidden.
    NoHugePage,
    /// `mlock`: kept in memory.
    MLock,
    /// `munlock`: let go again.
    MUnlock,
}

impl InsideCall {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::HugePage, Self::NoHugePage, Self::MLock, Self::MUnlock];

    /// As it is called in manuals and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HugePage => "madvise(MADV_HUGEPAGE)",
            Self::NoHugePage => "madvise(MADV_NOHUGEPAGE)",
            Self::MLock => "mlock()",
            Self::MUnlock => "munlock()",
        }
    }

    /// How much memory one call may take: what takes time for each page is cut, so that the target stands still for
    /// milliseconds at most.
    pub const fn most_bytes(self) -> u64 {
        match self {
            Self::HugePage | Self::NoHugePage => u64::MAX,
            Self::MLock | Self::MUnlock => 4 << 20,
        }
    }
}
