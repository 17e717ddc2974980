//! A hold on a process by a pidfd (`pidfd_open(2)`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Names one process to the kernel. It never comes to mean another one, as a process ID can.
#[derive(Clone, Debug)]
pub struct Pidfd(Arc<OwnedFd>);

impl Pidfd {
    /// Takes hold of the process with this ID.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process; `EINVAL` or, from Linux 6.15 on, `ENOENT` if the ID is that of a thread; and what a
    /// limit or a filter of system calls answers.
    pub fn open(pid: u32) -> Result<Self, Errno> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        Ok(Self(Arc::new(pidfd_open(pid, PidfdFlags::empty())?)))
    }

    /// Whether the process has ended. It may be a zombie still.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// Becomes readable when the process has ended.
impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
