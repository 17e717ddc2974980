//! Waits for the next sampling round with microsecond precision. The stop of the run and the end of a target are
//! noticed during a wait.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use smallvec::SmallVec;

use crate::{Pidfd, ProcessTable};

/// Stops a run from another thread or from a signal handler. Clones refer to the same run.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// A stop that is not requested yet.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(event()?)))
    }

    /// Requests the stop. A request cannot be withdrawn.
    pub fn ask(&self) {
        signal(&self.0);
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
    // The write fails only if the counter is full. The descriptor is readable then.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time is reached, or the pause is over.
    Due,
    /// A target has ended. [`Waiter::until`] returns this only when the time is reached too.
    TargetEnded,
    /// A stop is requested.
    Stopped,
}

/// Waits for the sampling rounds of one run.
#[derive(Debug)]
pub struct Waiter {
    process_table: ProcessTable,
    stop: Stop,
    /// The pidfds of the processes at the last wait. The vector is kept so that a wait does not allocate.
    ends: Vec<Pidfd>,
}

impl Waiter {
    /// A waiter that notices the end of the processes in `process_table`, and `stop`.
    pub fn new(process_table: ProcessTable, stop: Stop) -> Self {
        Self { process_table, stop, ends: Vec::new() }
    }

    /// Waits until `due`, or until the stop. Returns at once if `due` has passed.
    ///
    /// # Errors
    /// Fails if `poll(2)` fails, for example because there are too many processes.
    pub fn until(&mut self, due: Instant) -> std::io::Result<Woken> {
        let mut fds = self.prepare();
        wait(&mut fds, Some(due))?;
        if !fds[0].revents().is_empty() {
            return Ok(Woken::Stopped);
        }
        if fds[1..].iter().all(|fd| fd.revents().is_empty()) {
            return Ok(Woken::Due);
        }
        // The end of a target does not shorten the round of the other targets.
        fds.truncate(1);
        wait(&mut fds, Some(due))?;
        Ok(if fds[0].revents().is_empty() { Woken::TargetEnded } else { Woken::Stopped })
    }

    /// Waits until the pause ends, until `due` if there is such a time, until the stop, or until a target ends.
    ///
    /// # Errors
    /// Fails if `poll(2)` fails, for example because there are too many processes.
    pub fn rest(&mut self, rest: &Rest, due: Option<Instant>) -> std::io::Result<Woken> {
        // Clear the event of an earlier pause, so that it does not end this one.
        let _ = rustix::io::read(&rest.0.over, &mut [0_u8; 8]);
        if !rest.is_wanted() {
            return Ok(Woken::Due);
        }
        let mut fds = self.prepare();
        fds.push(PollFd::new(&rest.0.over, PollFlags::IN));
        wait(&mut fds, due)?;
        let ended = &fds[1..fds.len() - 1];
        Ok(if !fds[0].revents().is_empty() {
            Woken::Stopped
        } else if ended.iter().all(|fd| fd.revents().is_empty()) {
            Woken::Due
        } else {
            Woken::TargetEnded
        })
    }

    /// The descriptors to poll: the stop first, then each process. The table is not locked during the wait.
    fn prepare(&mut self) -> SmallVec<[PollFd<'_>; 8]> {
        self.ends.clear();
        self.ends.extend(self.process_table.members().values().map(|member| member.process.pidfd()));
        // The list is on the stack for a few targets, so that a round does not allocate.
        let mut fds = SmallVec::new();
        fds.push(PollFd::from_borrowed_fd(self.stop.0.as_fd(), PollFlags::IN));
        fds.extend(self.ends.iter().map(|end| PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)));
        fds
    }
}

fn wait(fds: &mut [PollFd<'_>], due: Option<Instant>) -> std::io::Result<()> {
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
