//! File descriptors that refer to processes (`pidfd_open(2)`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A file descriptor that refers to one process. Unlike a process ID, it never refers to a later process.
#[derive(Clone, Debug)]
pub struct Pidfd(Arc<OwnedFd>);

impl Pidfd {
    /// Opens the process with this ID.
    ///
    /// # Errors
    /// Returns `ESRCH` if there is no such process. Returns `EINVAL` (since Linux 6.15: `ENOENT`) if the ID is that of
    /// a thread. A limit (`EMFILE`, `ENFILE`) or a seccomp filter can cause other errors.
    pub fn open(pid: u32) -> Result<Self, Errno> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        Ok(Self(Arc::new(pidfd_open(pid, PidfdFlags::empty())?)))
    }

    /// Whether the process has ended. It may still be a zombie.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// The descriptor becomes readable when the process ends.
impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
