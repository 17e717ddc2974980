//! The helper: a separate process that does the tracing, so that the death of isotherm interrupts no call.
//!
//! The helper is a fork of isotherm in a session of its own. It blocks all signals and closes all files except its end
//! of a socket. When isotherm ends, the socket is closed; the helper completes the calls in progress and ends. If the
//! helper itself is killed, the frame restores the registers of the thread (see `frame`).

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::io::IoSlice;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use super::message::{Plain, Reply, Request};
use super::ptrace::VECTOR_BUFFER;
use super::tracer::{Failure, Files, make_calls};

/// How long a helper may take to end before it is killed, and again after that.
const END_WITHIN: Duration = Duration::from_secs(2);

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
    /// Returns the error of socketpair(2) or fork(2).
    pub(super) fn start() -> Result<Self, Errno> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // Signals are blocked before the fork, so that no signal handler of this program runs in the child.
        // SAFETY: the first call initializes `all`, which the second one reads. The second call initializes `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        // SAFETY: the child calls only `serve`, which takes no lock, does not allocate, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            serve(its);
        }
        // A later call may change the error number.
        let failed = std::io::Error::last_os_error();
        // SAFETY: `pthread_sigmask` initialized `before` above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        // `Pid` does not take the -1 of a failure.
        let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
        pid.map(|pid| Self { pid, socket: Some(ours) })
            .ok_or_else(|| Errno::from_io_error(&failed).unwrap_or(Errno::AGAIN))
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
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        loop {
            match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(1..) => break,
                _ => return None,
            }
        }
        let mut reply = Reply::zero();
        let length = recv(socket, reply.bytes_mut(), RecvFlags::empty()).ok()?.1;
        (length == size_of::<Reply>()).then_some(reply)
    }
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

/// Ends the process when it is dropped, so that a panic in the child does not unwind into the code of the parent.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: `_exit` ends the process at once and runs no code of the program.
        unsafe { libc::_exit(0) };
    }
}

/// The main function of the helper. It takes no lock, because a thread of isotherm may have held one at the fork.
fn serve(socket: OwnedFd) -> ! {
    let end = ExitOnDrop;
    // SAFETY: the arguments are numbers and a pointer to a static string. The owners of the closed file descriptors are
    // values of isotherm that are never used or dropped in this process.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"isotherm-inside".as_ptr());
        let own = socket.as_raw_fd() as libc::c_uint;
        if own > 0 {
            libc::syscall(libc::SYS_close_range, 0, own - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, own + 1, libc::c_uint::MAX, 0);
    }
    let mut vector = [0; VECTOR_BUFFER];
    let mut request = Request::zero();
    while let Some([memory, status]) = receive(socket.as_fd(), &mut request) {
        let mut reply = Reply::zero();
        let files = Files { memory: memory.as_fd(), status: status.as_fd() };
        match make_calls(&request, files, &mut vector, &mut reply) {
            Ok(()) => {}
            Err(Failure::Detached(why, errno)) => {
                reply.refused = why as u64;
                reply.errno = errno.unsigned_abs().into();
            }
            Err(Failure::Attached(why)) => {
                reply.refused = why as u64;
                reply.ends = 1;
            }
        }
        send_reply(socket.as_fd(), &reply);
        if reply.ends != 0 {
            break;
        }
    }
    drop(end);
    unreachable!("the process has ended")
}

/// Receives the next request and its files. Returns `None` if isotherm has ended.
fn receive(socket: BorrowedFd<'_>, request: &mut Request) -> Option<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut into = [rustix::io::IoSliceMut::new(request.bytes_mut())];
        match recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received.ok()?.bytes,
        }
    };
    if length != size_of::<Request>() {
        return None;
    }
    let mut fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next()?;
    Some([fds.next()?, fds.next()?])
}

fn send_reply(socket: BorrowedFd<'_>, reply: &Reply) {
    // This fails if isotherm has ended. Then nobody needs the reply.
    let _ = send(socket, reply.bytes(), SendFlags::NOSIGNAL);
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
