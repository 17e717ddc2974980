//! The helper: a process of its own that does the tracing, so that isotherm's death interrupts nothing.
//!
//! It is a fork of isotherm, in a session of its own and deaf to every signal that can be blocked, and it holds nothing
//! of
//! isotherm's but its own end of a socket. When isotherm ends, however it does, that socket ends, and the helper after
//! it, once
//! it has finished what it was at. Should the helper itself be killed, the frame leads the thread back (see `frame`).

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
use super::ptrace::VECTOR_ROOM;
use super::tracer::{End, Files, make_calls};

/// How long a helper may take to end before it is killed, and again after that.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The helper, as isotherm sees it.
#[derive(Debug)]
pub(super) struct Helper {
    pid: Pid,
    socket: Option<OwnedFd>,
}

impl Helper {
    /// Starts it.
    pub(super) fn start() -> Result<Self, Errno> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `all` is filled before it is read, `before` by the second call. All signals are blocked from before
        // the
        // fork on, so that no handler of this program ever runs in the child.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        // SAFETY: the child calls nothing but `serve`, which takes no lock and does not allocate, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            serve(its);
        }
        // Taken before anything else can change it.
        let failed = std::io::Error::last_os_error();
        // SAFETY: `before` was filled above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
        let pid = Pid::from_raw(pid).filter(|_| pid > 0);
        pid.map(|pid| Self { pid, socket: Some(ours) })
            .ok_or_else(|| Errno::from_io_error(&failed).unwrap_or(Errno::AGAIN))
    }

    /// Its process ID.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Has it do what `request` says, and waits for that; nothing if it has died, or does not answer.
    pub(super) fn ask(&self, request: &Request, files: Files<'_>, longest: Duration) -> Option<Reply> {
        let socket = self.socket.as_ref()?;
        let fds = [files.memory, files.status];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut with = SendAncillaryBuffer::new(&mut room);
        with.push(SendAncillaryMessage::ScmRights(&fds)).then_some(())?;
        sendmsg(socket, &[IoSlice::new(request.bytes())], &mut with, SendFlags::NOSIGNAL).ok()?;
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        loop {
            match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&longest)) {
                Err(Errno::INTR) => {}
                Ok(1..) => break,
                _ => return None,
            }
        }
        let mut reply = Reply::zero();
        let told = recv(socket, reply.bytes_mut(), RecvFlags::empty()).ok()?.1;
        (told == size_of::<Reply>()).then_some(reply)
    }
}

impl Drop for Helper {
    /// Ends the helper, and waits for its end. A helper that does not end in [`END_WITHIN`] is killed: it may have been
    /// stopped or frozen. The target is unharmed by that (see `frame`).
    fn drop(&mut self) {
        drop(self.socket.take());
        if self.ends_within(END_WITHIN) {
            return;
        }
        let _ = kill_process(self.pid, Signal::KILL);
        // A process in a frozen cgroup of version 1 dies when it is thawed. Nothing is gained by waiting for that.
        self.ends_within(END_WITHIN);
    }
}

impl Helper {
    /// Waits for the helper's end for at most this time. Returns whether it has ended.
    fn ends_within(&self, longest: Duration) -> bool {
        // The pidfd of a child becomes readable when it ends. Without one, the child is asked for its end now and then.
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

/// Ends this process if it is ever unwound into what it was forked from.
struct NoWayBack;

impl Drop for NoWayBack {
    fn drop(&mut self) {
        // SAFETY: ends the process at once, without running anything of the program that it was forked from.
        unsafe { libc::_exit(0) };
    }
}

/// All that the helper does. What it was forked from may have had threads that held locks: it takes none.
fn serve(socket: OwnedFd) -> ! {
    let end = NoWayBack;
    // SAFETY: these take numbers and a pointer to a static text. The descriptors that are closed belong to owners that
    // never
    // run in this process.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"isotherm-inside".as_ptr());
        let own = socket.as_raw_fd() as libc::c_uint;
        if own > 0 {
            libc::syscall(libc::SYS_close_range, 0, own - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, own + 1, libc::c_uint::MAX, 0);
    }
    let mut vector = [0; VECTOR_ROOM];
    let mut request = Request::zero();
    while let Some([memory, status]) = receive(socket.as_fd(), &mut request) {
        let mut reply = Reply::zero();
        let files = Files { memory: memory.as_fd(), status: status.as_fd() };
        match make_calls(&request, files, &mut vector, &mut reply) {
            Ok(()) => {}
            Err(End::LetGo(why, errno)) => {
                reply.refused = why as u64;
                reply.errno = errno.unsigned_abs().into();
            }
            Err(End::Held(why)) => {
                reply.refused = why as u64;
                reply.ends = 1;
            }
        }
        if reply.ends != 0 {
            // First, so that the thread runs on when isotherm hears of it.
            answer(socket.as_fd(), &reply);
            break;
        }
        answer(socket.as_fd(), &reply);
    }
    drop(end);
    unreachable!("the process has ended")
}

/// The next request, with the files to it; nothing if isotherm has gone.
fn receive(socket: BorrowedFd<'_>, request: &mut Request) -> Option<[OwnedFd; 2]> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut with = RecvAncillaryBuffer::new(&mut room);
    let told = loop {
        let mut into = [rustix::io::IoSliceMut::new(request.bytes_mut())];
        match recvmsg(socket, &mut into, &mut with, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            told => break told.ok()?.bytes,
        }
    };
    if told != size_of::<Request>() {
        return None;
    }
    let mut fds = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next()?;
    Some([fds.next()?, fds.next()?])
}

fn answer(socket: BorrowedFd<'_>, reply: &Reply) {
    // Nobody is there to hear it if isotherm has gone.
    let _ = send(socket, reply.bytes(), SendFlags::NOSIGNAL);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    /// The state of a process, as `/proc/PID/stat` has it; `None` if there is no such process.
    fn state(pid: Pid) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_helper_that_is_stopped_is_killed_instead_of_waited_for() {
        let helper = Helper::start().unwrap();
        let pid = helper.pid();
        kill_process(pid, Signal::STOP).unwrap();
        let began = Instant::now();
        while state(pid) != Some('T') {
            assert!(began.elapsed() < Duration::from_secs(20), "the helper does not stop: {:?}", state(pid));
            std::thread::yield_now();
        }
        drop(helper);
        assert_eq!(state(pid), None, "the helper is gone, and so is its zombie");
    }

    #[test]
    fn a_helper_ends_with_its_socket() {
        let helper = Helper::start().unwrap();
        let pid = helper.pid();
        drop(helper);
        assert_eq!(state(pid), None);
    }
}
