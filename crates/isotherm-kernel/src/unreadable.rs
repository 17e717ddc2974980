//! Why a process cannot be read, and what "ended" means.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::Pidfd;

/// Why a process could not be read. This is the one place that distinguishes the end of a process from an error.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The process has ended, with all its threads. A main thread that has called `pthread_exit` is not enough.
    #[error("the process has ended")]
    Ended,
    /// A later attempt can succeed: isotherm or the system lacks something, a signal came, or the process was just
    /// calling exec.
    #[error("it cannot be read at the moment{}", hint(.0))]
    ForNow(#[source] io::Error),
    /// A later attempt fails, too: access is not permitted, or the kernel wrote something that isotherm cannot read.
    #[error("it cannot be read{}", hint(.0))]
    ForGood(#[source] io::Error),
}

impl Unreadable {
    /// What `error` means. It came when a file of the process was opened, read or written, or when the process was
    /// advised. `process` refers to the process.
    pub fn new(error: io::Error, process: &Pidfd) -> Self {
        if process.has_ended() {
            return Self::Ended;
        }
        if Self::passes(&error) { Self::ForNow(error) } else { Self::ForGood(error) }
    }

    /// Whether a later attempt can succeed after this error, if the process has not ended.
    pub fn passes(error: &io::Error) -> bool {
        matches!(
            Errno::from_io_error(error),
            Some(
                Errno::INTR
                    | Errno::AGAIN
                    | Errno::MFILE
                    | Errno::NFILE
                    | Errno::NOMEM
                    | Errno::NOBUFS
                    | Errno::BUSY
                    // It lives, so its memory is just being replaced, or it is just about to end.
                    | Errno::SRCH
                    | Errno::NOENT
            )
        )
    }

    /// The error of the kernel, if the process has not ended.
    pub fn error(&self) -> Option<&io::Error> {
        match self {
            Self::Ended => None,
            Self::ForNow(error) | Self::ForGood(error) => Some(error),
        }
    }
}

/// How to fix an error of reading a process, in parentheses after a space; empty if that is not known.
pub fn hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => " (raise the limit of open files: ulimit -n)",
        Some(Errno::NFILE) => " (raise the limit of open files of the system: sysctl fs.file-max)",
        Some(Errno::ACCESS | Errno::PERM) => " (run isotherm as root, or with CAP_SYS_PTRACE and CAP_SYS_NICE)",
        Some(Errno::NOMEM) => " (the system has too little memory)",
        _ => "",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_has_ended_counts_as_ended() {
        let own = Pidfd::open(std::process::id()).unwrap();
        let of = |errno: Errno| Unreadable::new(errno.into(), &own);
        for errno in [Errno::INTR, Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::SRCH, Errno::NOENT] {
            assert!(matches!(of(errno), Unreadable::ForNow(_)), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::PERM, Errno::IO] {
            assert!(matches!(of(errno), Unreadable::ForGood(_)), "{errno}");
        }
        let garbage = Unreadable::new(io::Error::from(io::ErrorKind::InvalidData), &own);
        assert!(matches!(garbage, Unreadable::ForGood(_)));
        assert!(of(Errno::MFILE).to_string().contains("ulimit -n"));

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = Pidfd::open(child.id()).unwrap();
        child.wait().unwrap();
        assert!(matches!(Unreadable::new(Errno::MFILE.into(), &ended), Unreadable::Ended));
    }
}
