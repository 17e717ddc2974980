//! Why a call was not made inside a process.

use std::io;

use isotherm_core::scheme::Refusal;
use rustix::io::Errno;
use thiserror::Error;

use crate::refusal::refusal;

/// Why a call was not made inside a process. The process is unharmed by it.
#[derive(Debug, Error)]
pub enum InsideError {
    /// Registers are those of x86-64.
    #[error("acting inside a process is built for x86-64 only, and this is {0}; use actions that work from outside")]
    Architecture(&'static str),
    /// The helper that traces cannot be had.
    #[error("the helper process that acts inside others cannot be started: {0}; is there a limit on processes?")]
    Helper(io::Error),
    /// The helper was killed, or does not answer.
    #[error("the helper process that acts inside process {0} was killed; the process runs on; try again")]
    HelperGone(u32),
    /// It has ended, or called exec, in the meantime.
    #[error("process {0} has ended")]
    Gone(u32),
    /// It called exec in the meantime.
    #[error("process {0} has become another program in the meantime; try again")]
    Exec(u32),
    /// Its files in /proc cannot be read.
    #[error("{path} cannot be read: {source}; run isotherm as root, or with CAP_SYS_PTRACE")]
    File {
        /// The file.
        path: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// The kernel does not allow it.
    #[error(
        "process {pid} may not be traced: {source}; run isotherm as root, or with CAP_SYS_PTRACE in the process's user \
         namespace; a limit of Yama (sysctl kernel.yama.ptrace_scope) may forbid it, too"
    )]
    NotPermitted {
        /// Its ID.
        pid: u32,
        /// The kernel's word.
        source: io::Error,
    },
    /// Another traces it.
    #[error("process {0} is traced by another process already (a debugger, strace); end that, and try again")]
    Traced(u32),
    /// It is stopped.
    #[error("process {0} is stopped and makes no calls; continue it (kill -CONT {0})")]
    Stopped(u32),
    /// Its main thread has ended, others live on.
    #[error(
        "the main thread of process {0} has ended, and calls are made in it only; use actions that work from outside"
    )]
    MainThreadEnded(u32),
    /// It does not stop, or does not go on.
    #[error(
        "process {0} did not come to a place where it could make a call in time: it waits for a device or for a child \
         after \
         vfork(), or is frozen; try again"
    )]
    Unresponsive(u32),
    /// A seccomp filter is on.
    #[error(
        "process {0} runs under seccomp, which may end it for a call that it does not make itself; use actions that \
         work \
         from outside"
    )]
    Seccomp(u32),
    /// It is not a 64-bit program.
    #[error("process {0} is not a plain 64-bit program, or runs 32-bit code; use actions that work from outside")]
    NotX64(u32),
    /// A shadow stack is on.
    #[error("process {0} has a shadow stack, which allows no detour; use actions that work from outside")]
    ShadowStack(u32),
    /// The stack pointer is not where it could be worked with.
    #[error(
        "the main thread of process {0} is not on its own stack (a signal stack, a coroutine) whenever it is looked \
         at; \
         use actions that work from outside"
    )]
    OtherStack(u32),
    /// It is busy with what must not be interrupted.
    #[error(
        "the main thread of process {0} is in a restartable sequence, or gets signals, whenever it is looked at; try \
         again"
    )]
    Busy(u32),
    /// Its code has not what is needed.
    #[error(
        "the code of process {0} has no `syscall; ret` or no rt_sigreturn, which every C library has; use actions \
         that work \
         from outside"
    )]
    NoPlace(u32),
    /// It shares its memory with its parent.
    #[error(
        "process {0} still shares the memory of its parent (vfork), which would be acted on; try again after its exec"
    )]
    SharesMemory(u32),
    /// Something that should not happen.
    #[error("a call in process {0} did not come to pass as it should have; it runs on; please report it")]
    Failed(u32),
}

impl InsideError {
    /// As an error number, for the account of what was refused: one for each way to mend it, where there is one that
    /// fits.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Architecture(_) => Errno::NOSYS,
            Self::Gone(_) => Errno::SRCH,
            Self::NotPermitted { .. } => Errno::PERM,
            Self::File { source, .. } => return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            Self::Seccomp(_) => Errno::ACCESS,
            Self::Traced(_) => Errno::BUSY,
            Self::Unresponsive(_) => Errno::TIMEDOUT,
            Self::MainThreadEnded(_) | Self::NotX64(_) | Self::ShadowStack(_) | Self::NoPlace(_) => Errno::OPNOTSUPP,
            Self::Failed(_) => Errno::IO,
            Self::Stopped(_)
            | Self::Helper(_)
            | Self::HelperGone(_)
            | Self::Exec(_)
            | Self::OtherStack(_)
            | Self::Busy(_)
            | Self::SharesMemory(_) => Errno::AGAIN,
        };
        errno.raw_os_error()
    }

    /// As a refusal, for the account of what was refused.
    pub fn refusal(&self) -> Refusal {
        refusal(Errno::from_raw_os_error(self.errno()))
    }

    /// Whether it may go better in a moment, in the same process.
    pub fn passes(&self) -> bool {
        self.errno() == Errno::AGAIN.raw_os_error()
    }
}
