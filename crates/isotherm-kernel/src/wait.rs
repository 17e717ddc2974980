//! Waits for the next sampling round with microsecond precision. The stop of the run and the end of a target are
//! noticed during a wait.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::ProcessTable;

/// Stops a run from another thread or from a signal handler. Clones refer to the same run.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopState>);

#[derive(Debug)]
struct StopState {
    asked: AtomicBool,
    /// Becomes readable when the stop is requested, and ends a wait.
    event: OwnedFd,
}

impl Stop {
    /// A stop that is not requested yet.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(StopState { asked: AtomicBool::new(false), event: event()? })))
    }

    /// Requests the stop. A request cannot be withdrawn.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::Release);
        signal(&self.0.event);
    }

    fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
}

/// Pauses a run from another thread. Nothing is monitored during the pause. Clones refer to the same run.
#[derive(Clone, Debug)]
pub struct Rest(Arc<RestState>);

#[derive(Debug)]
struct RestState {
    wanted: AtomicBool,
    /// Becomes readable when the pause ends.
    over: OwnedFd,
}

impl Rest {
    /// A pause that is not requested yet.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(RestState { wanted: AtomicBool::new(false), over: event()? })))
    }

    /// Whether a pause is requested now.
    pub fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Acquire)
    }

    /// Requests a pause (`true`) or ends it (`false`).
    pub fn want(&self, wanted: bool) {
        let before = self.0.wanted.swap(wanted, Ordering::AcqRel);
        if before && !wanted {
            signal(&self.0.over);
        }
    }
}

fn event() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

fn signal(event: &OwnedFd) {
    // The write fails only if the counter is full. The descriptor is readable then. What was asked for is noted apart
    // from it, so that even without the event it holds from the end of the wait on.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time is reached, or the pause is over.
    Due,
    /// A target has ended. [`Waiter::until`] returns this only when the time is reached too, or no target is left.
    TargetEnded,
    /// A stop is requested.
    Stopped,
}

/// Waits for the sampling rounds of one run.
#[derive(Debug)]
pub struct Waiter {
    processes: ProcessTable,
    stop: Stop,
}

impl Waiter {
    /// A waiter that notices the end of these processes, and `stop`.
    pub fn new(processes: ProcessTable, stop: Stop) -> Self {
        Self { processes, stop }
    }

    /// Waits until `due`, until the stop, or until the run [is over](ProcessTable::is_over). Returns at once if `due`
    /// has passed.
    ///
    /// # Errors
    /// Fails if `poll(2)` fails.
    pub fn until(&mut self, due: Instant) -> std::io::Result<Woken> {
        let has_ended = self.wait(None, Some(due))?;
        if has_ended && !self.processes.is_over() {
            // The end of a target does not shorten the round of the other targets.
            poll_until(&mut [PollFd::new(&self.stop.0.event, PollFlags::IN)], Some(due))?;
        }
        Ok(self.woken(has_ended))
    }

    /// Waits until the pause ends, until `due` if there is such a time, until the stop, or until a target ends.
    ///
    /// # Errors
    /// Fails if `poll(2)` fails.
    pub fn rest(&mut self, rest: &Rest, due: Option<Instant>) -> std::io::Result<Woken> {
        // Clear the event of an earlier pause, so that it does not end this one.
        let _ = rustix::io::read(&rest.0.over, &mut [0_u8; 8]);
        if !rest.is_wanted() {
            return Ok(Woken::Due);
        }
        let has_ended = self.wait(Some(&rest.0.over), due)?;
        Ok(self.woken(has_ended))
    }

    /// Waits until the stop, until a process ends, until `other` is readable, or until `due`. Returns whether a process
    /// has ended.
    fn wait(&self, other: Option<&OwnedFd>, due: Option<Instant>) -> std::io::Result<bool> {
        let stop = self.stop.0.event.as_fd();
        let (ends, other) = (self.processes.ends().descriptor(), other.map(AsFd::as_fd));
        // Where there is nothing to wait for, the stop stands for it.
        let mut fds = [Some(stop), ends, other].map(|fd| PollFd::from_borrowed_fd(fd.unwrap_or(stop), PollFlags::IN));
        poll_until(&mut fds, due)?;
        Ok(ends.is_some() && !fds[1].revents().is_empty())
    }

    fn woken(&self, has_ended: bool) -> Woken {
        match (self.stop.is_asked(), has_ended) {
            (true, _) => Woken::Stopped,
            (false, true) => Woken::TargetEnded,
            (false, false) => Woken::Due,
        }
    }
}

fn poll_until(fds: &mut [PollFd<'_>], due: Option<Instant>) -> std::io::Result<()> {
    loop {
        let left = due.map(|due| timespec(due.saturating_duration_since(Instant::now())));
        match poll(fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result.map(drop)?),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // No wait is longer than i64::MAX seconds in practice.
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}
