//! isotherm's side of the helper: a separate process that does the tracing, so that the death of isotherm interrupts no
//! call.
//!
//! The helper is a small program of its own (`program/main.rs`), which is executed from memory. So it does not matter
//! how many threads this process has.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use super::message::{Plain, Reply, Request};

/// The helper program.
#[cfg(not(test))]
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside"));
/// The helper program that fails when it is asked to.
#[cfg(test)]
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside-faults"));

const NAME: &str = "isotherm-inside";

/// How long a helper may take to end before it is killed, and again after that.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A reply is waited for in waits as short as this.
const WAIT: Duration = Duration::from_millis(100);

/// The files of the process in which calls are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    /// `/proc/PID/mem` of the address space that the request is for.
    pub memory: BorrowedFd<'a>,
    /// `/proc/PID/status`.
    pub status: BorrowedFd<'a>,
}

/// A helper process.
#[derive(Debug)]
pub(super) struct Helper {
    pid: Pid,
    /// isotherm's end of the socket. `None` while the helper ends.
    socket: Option<OwnedFd>,
}

impl Helper {
    /// Starts a helper.
    ///
    /// # Errors
    /// Returns the error of memfd_create(2), write(2), socketpair(2), fork(2) or execve(2).
    pub(super) fn start() -> io::Result<Self> {
        let program = in_memory(PROGRAM)?;
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let path = format!("/proc/self/fd/{}", program.as_raw_fd());
        let helper = Command::new(path).arg0(NAME).env_clear().stdin(Stdio::from(its)).spawn()?;
        Ok(Self { pid: Pid::from_child(&helper), socket: Some(ours) })
    }

    /// The process ID of the helper.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a request and waits for the reply. Returns `None` if the helper has died, or does not reply in `timeout`.
    pub(super) fn request(&self, request: &Request, files: Files<'_>, timeout: Duration) -> Option<Reply> {
        let socket = self.socket.as_ref()?;
        let fds = [files.memory, files.status];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds)).then_some(())?;
        sendmsg(socket, &[IoSlice::new(request.bytes())], &mut ancillary, SendFlags::NOSIGNAL).ok()?;
        if !is_readable_within(socket, timeout) {
            return None;
        }
        let mut reply = Reply::zero();
        let length = recv(socket, reply.bytes_mut(), RecvFlags::empty()).ok()?.1;
        (length == size_of::<Reply>()).then_some(reply)
    }
}

/// Waits until there is something to read, for at most this time, in short waits: a virtual machine that stands still
/// for some seconds has used up one of them only.
fn is_readable_within(socket: &OwnedFd, timeout: Duration) -> bool {
    let wait = Timespec { tv_sec: 0, tv_nsec: WAIT.as_nanos() as i64 };
    let mut waits = timeout.as_nanos().div_ceil(WAIT.as_nanos());
    while waits > 0 {
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)) {
            Err(Errno::INTR) => {}
            Ok(0) => waits -= 1,
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

impl Drop for Helper {
    /// Ends the helper and waits for its end. A helper that does not end within [`END_WITHIN`] is killed, because it
    /// may be stopped or frozen. The target is unharmed by that (see `frame`).
    fn drop(&mut self) {
        drop(self.socket.take());
        if self.ends_within(END_WITHIN) {
            return;
        }
        let _ = kill_process(self.pid, Signal::KILL);
        // A process in a frozen cgroup of version 1 dies only when it is thawed, so this wait has a limit, too.
        self.ends_within(END_WITHIN);
    }
}

impl Helper {
    /// Waits for the helper's end for at most this time. Returns whether it has ended.
    fn ends_within(&self, longest: Duration) -> bool {
        // A pidfd becomes readable when the process ends. If none is available, the loop polls every 10 ms.
        let pidfd = pidfd_open(self.pid, PidfdFlags::empty());
        let deadline = Instant::now() + longest;
        loop {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(None) | Err(Errno::INTR) => {}
                Ok(Some(_)) | Err(_) => return true,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let wait = if pidfd.is_ok() { left } else { left.min(Duration::from_millis(10)) };
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let mut fds: Vec<PollFd<'_>> = pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
            let _ = poll(&mut fds, Some(&wait));
        }
    }
}

/// A file in memory with these contents, which can be executed.
fn in_memory(contents: &[u8]) -> io::Result<std::fs::File> {
    /// The file can be executed, whatever `vm.memfd_noexec` says. Linux before 6.3 does not know this flag.
    const EXECUTABLE: MemfdFlags = MemfdFlags::EXEC;
    let create = |flags| memfd_create(NAME, MemfdFlags::CLOEXEC | flags);
    let file = create(EXECUTABLE).or_else(|errno| match errno {
        Errno::INVAL => create(MemfdFlags::empty()),
        errno => Err(errno),
    })?;
    let mut file = std::fs::File::from(file);
    file.write_all(contents)?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    /// The state of a process, as in `/proc/PID/stat`. `None` if there is no such process.
    fn state(pid: Pid) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_stopped_helper_is_killed() {
        let helper = Helper::start().unwrap();
        let pid = helper.pid();
        kill_process(pid, Signal::STOP).unwrap();
        let began = Instant::now();
        while state(pid) != Some('T') {
            assert!(began.elapsed() < Duration::from_secs(20), "the helper does not stop: {:?}", state(pid));
            std::thread::yield_now();
        }
        drop(helper);
        assert_eq!(state(pid), None, "the helper has ended and was waited for");
    }

    #[test]
    fn a_helper_ends_when_its_socket_is_closed() {
        let helper = Helper::start().unwrap();
        let pid = helper.pid();
        drop(helper);
        assert_eq!(state(pid), None);
    }
}
