//! Acting from inside: makes system calls inside another process with `ptrace(2)`. Only the process itself can make
//! these calls.
//!
//! The main thread of the target is stopped for 0.1 to 0.3 ms per call on average. It makes the calls and then
//! continues: an interrupted system call is restarted, and a signal that arrives meanwhile is delivered.
//! `docs/acting.md` describes what is guaranteed, how, and which targets are refused.
//!
//! - No code is written into the target. The thread executes a `syscall` instruction of its own C library.
//! - A [helper] process does the tracing: a small program of its own. If isotherm is killed, the helper completes the
//!   calls in progress. A helper that takes longer than a second is killed.
//! - Before the registers of the thread are changed, they are saved in a frame on its stack. If the helper is killed,
//!   the kernel continues the thread with registers that restore the saved ones from this frame.

#[cfg(target_arch = "x86_64")]
mod code;
mod error;
#[cfg(target_arch = "x86_64")]
mod gadget;
#[cfg(target_arch = "x86_64")]
mod helper;
#[cfg(target_arch = "x86_64")]
mod message;
#[cfg(target_arch = "x86_64")]
mod prepared;
#[cfg(all(test, target_arch = "x86_64"))]
#[allow(dead_code, reason = "the program uses the rest")]
mod program;
#[cfg(target_arch = "x86_64")]
mod session;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod session;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod tests;

pub use error::InsideError;
pub use session::Inside;

/// A system call on a range of memory that only the process itself can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsideCall {
    /// `madvise(MADV_HUGEPAGE)`: allows huge pages.
    HugePage,
    /// `madvise(MADV_NOHUGEPAGE)`: forbids huge pages.
    NoHugePage,
    /// `mlock2(MLOCK_ONFAULT)`: keeps what is resident, and what becomes resident. It reads nothing in.
    MLock,
    /// `munlock(2)`: allows the memory to be reclaimed again.
    MUnlock,
}

impl InsideCall {
    /// All calls.
    pub const ALL: [Self; 4] = [Self::HugePage, Self::NoHugePage, Self::MLock, Self::MUnlock];

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HugePage => "madvise(MADV_HUGEPAGE)",
            Self::NoHugePage => "madvise(MADV_NOHUGEPAGE)",
            Self::MLock => "mlock2()",
            Self::MUnlock => "munlock()",
        }
    }

    /// The maximum number of bytes in one call. The time of `mlock` and `munlock` grows with the number of pages, so
    /// they are cut to stop the target for a few milliseconds at most.
    pub const fn max_bytes(self) -> u64 {
        match self {
            Self::HugePage | Self::NoHugePage => u64::MAX,
            Self::MLock | Self::MUnlock => 4 << 20,
        }
    }
}
