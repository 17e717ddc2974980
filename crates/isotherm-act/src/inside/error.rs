//! Why a call was not made inside a process.

use std::io;

use isotherm_core::scheme::Refusal;
use rustix::io::Errno;
use thiserror::Error;

use crate::refusal::refusal;

/// Why a call was not made inside a process, and how to fix it. The process is unharmed. A number without a name is the
/// ID of the process.
#[derive(Debug, Error)]
pub enum InsideError {
    /// The architecture is not x86-64.
    #[error(
        "acting inside a process works on x86-64 only, but this machine is {0} (use actions that work from outside)"
    )]
    Architecture(&'static str),
    /// The helper process cannot be started.
    #[error(
        "the helper process for acting inside others cannot be started (is the number of processes limited, or may \
         files in memory not be executed: vm.memfd_noexec?)"
    )]
    Helper(#[source] io::Error),
    /// The helper process was killed, or does not answer.
    #[error("the helper process that acts inside process {0} was killed; process {0} continues (try again)")]
    HelperGone(u32),
    /// The process has ended.
    #[error("process {0} has ended")]
    Gone(u32),
    /// The process called exec meanwhile.
    #[error("process {0} started another program meanwhile (try again)")]
    Exec(u32),
    /// A file of the process in /proc cannot be opened.
    #[error("{path} cannot be opened (run isotherm as root, or with CAP_SYS_PTRACE)")]
    File {
        /// The file.
        path: String,
        /// The error of open(2).
        source: io::Error,
    },
    /// Tracing the process is not permitted.
    #[error(
        "tracing process {pid} is not permitted (run isotherm as root, or with CAP_SYS_PTRACE in the user namespace of \
         the process; the setting kernel.yama.ptrace_scope may forbid it, too)"
    )]
    NotPermitted {
        /// The ID of the process.
        pid: u32,
        /// The error of ptrace(2).
        source: io::Error,
    },
    /// Another process traces the process.
    #[error("process {0} is traced by another process, such as a debugger or strace (end that, and try again)")]
    Traced(u32),
    /// The process is stopped by a signal.
    #[error("process {0} is stopped (continue it with `kill -CONT {0}`)")]
    Stopped(u32),
    /// The main thread has ended, and other threads continue.
    #[error(
        "the main thread of process {0} has ended, and only a main thread can make the calls (use actions that work \
         from outside)"
    )]
    MainThreadEnded(u32),
    /// The main thread does not stop, or does not finish the call.
    #[error(
        "process {0} did not stop or make the call in time: it waits for a device, or for a child after vfork, or is \
         frozen (try again)"
    )]
    Unresponsive(u32),
    /// The process has a seccomp filter.
    #[error(
        "process {0} runs under seccomp, which may kill it for a call that the program itself does not make (use \
         actions that work from outside)"
    )]
    Seccomp(u32),
    /// The process is not a 64-bit program.
    #[error("process {0} is not a 64-bit program of x86-64, or runs 32-bit code (use actions that work from outside)")]
    NotX64(u32),
    /// The main thread has a shadow stack.
    #[error("process {0} has a shadow stack, which forbids the call (use actions that work from outside)")]
    ShadowStack(u32),
    /// The stack pointer of the main thread is outside the main stack.
    #[error(
        "the main thread of process {0} does not use the main stack, but a signal stack or the stack of a coroutine \
         (use actions that work from outside)"
    )]
    OtherStack(u32),
    /// The main thread does something that must not be interrupted.
    #[error(
        "the main thread of process {0} was in a restartable sequence or received a signal at each attempt (try again)"
    )]
    Busy(u32),
    /// The code of the process lacks the instructions that the call needs.
    #[error(
        "the code of process {0} has no `syscall; ret` or no rt_sigreturn, which every C library has (use actions that \
         work from outside)"
    )]
    NoPlace(u32),
    /// The process shares the memory of its parent, on which the call would act.
    #[error("process {0} shares the memory of its parent since vfork (try again after its exec)")]
    SharesMemory(u32),
    /// The call ended in an unexpected way.
    #[error("a call inside process {0} ended unexpectedly; the process continues (report this)")]
    Failed(u32),
}

impl InsideError {
    /// The error number that stands for this error among refusals. Errors with different fixes have different numbers,
    /// as far as fitting numbers exist.
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

    /// The refusal that stands for this error in the outcome of an action.
    pub fn refusal(&self) -> Refusal {
        refusal(Errno::from_raw_os_error(self.errno()))
    }

    /// Whether a later call in the same process may succeed although nothing was fixed.
    pub fn is_transient(&self) -> bool {
        self.errno() == Errno::AGAIN.raw_os_error()
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::chain;
    use isotherm_core::scheme::Action;

    use super::*;
    use crate::ActError;

    /// An error that a text contains only if it is the cause.
    fn cause() -> io::Error {
        io::Error::other("the cause")
    }

    #[test]
    fn a_chain_contains_the_cause_once() {
        let not_permitted = || InsideError::NotPermitted { pid: 7, source: cause() };
        let errors: [Box<dyn std::error::Error>; 6] = [
            Box::new(InsideError::Helper(cause())),
            Box::new(InsideError::File { path: "/proc/7/mem".into(), source: cause() }),
            Box::new(not_permitted()),
            Box::new(ActError::Advice { action: Action::Cold, advice: "MADV_COLD", source: cause(), fix: "a fix" }),
            Box::new(ActError::Call { action: Action::MLock, call: "mlock2()", source: cause() }),
            Box::new(ActError::Inside { action: Action::MLock, source: not_permitted() }),
        ];
        for error in errors {
            let text = chain(&*error);
            assert_eq!(text.matches("the cause").count(), 1, "{text}");
            assert!(text.ends_with("): the cause"), "the fix, then the cause: {text}");
        }
        let text = chain(&ActError::Inside { action: Action::MLock, source: not_permitted() });
        assert_eq!(text.matches("tracing process 7").count(), 1, "{text}");
    }
}
