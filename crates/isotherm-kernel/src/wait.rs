//! Waiting for the next round: to the microsecond, unless a target ends or the run is stopped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use smallvec::SmallVec;

use crate::{Pidfd, Roster};

/// Stops a run from another thread or a signal.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// A stop that nobody has asked for yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(event()?)))
    }

    /// Asks for the stop. It stays asked for.
    pub fn ask(&self) {
        ring(&self.0);
    }
}

/// Lets a run rest, from another thread: as long as it is asked for, nothing is monitored.
#[derive(Clone, Debug)]
pub struct Rest(Arc<RestState>);

#[derive(Debug)]
struct RestState {
    wanted: AtomicBool,
    /// Rings when it is over.
    over: OwnedFd,
}

impl Rest {
    /// A rest that nobody has asked for yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(RestState { wanted: AtomicBool::new(false), over: event()? })))
    }

    /// Whether the run is to rest now.
    pub fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Acquire)
    }

    /// Asks for the rest, or ends it.
    pub fn want(&self, wanted: bool) {
        let before = self.0.wanted.swap(wanted, Ordering::AcqRel);
        if before && !wanted {
            ring(&self.0.over);
        }
    }
}

fn event() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

fn ring(event: &OwnedFd) {
    // Fails only if the counter is full: then it has rung long ago.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Why a wait came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time has come, or the rest is over.
    Due,
    /// A target has ended, and the time has come.
    TargetEnded,
    /// The run is to stop.
    Stopped,
}

/// Waits for the rounds of one run.
#[derive(Debug)]
pub struct Waiter {
    roster: Roster,
    stop: Stop,
    /// What becomes readable at the end of a process, of those in the roster at the last wait; lent out again and again.
    ends: Vec<Pidfd>,
}

impl Waiter {
    /// A waiter that looks out for the end of the processes in `roster` and for `stop`.
    pub fn new(roster: Roster, stop: Stop) -> Self {
        Self { roster, stop, ends: Vec::new() }
    }

    /// Waits until `due`; not at all if that has passed.
    ///
    /// # Errors
    /// If the kernel refuses to wait on so many processes.
    pub fn until(&mut self, due: Instant) -> std::io::Result<Woken> {
        let mut fds = self.prepare();
        wait(&mut fds, Some(due))?;
        if !fds[0].revents().is_empty() {
            return Ok(Woken::Stopped);
        }
        if fds[1..].iter().all(|fd| fd.revents().is_empty()) {
            return Ok(Woken::Due);
        }
        // A target's end does not shorten the round of the others.
        fds.truncate(1);
        wait(&mut fds, Some(due))?;
        Ok(if fds[0].revents().is_empty() { Woken::TargetEnded } else { Woken::Stopped })
    }

    /// Waits until the rest is over, or until `due` if there is such a time; a target's end is told at once.
    ///
    /// # Errors
    /// If the kernel refuses to wait on so many processes.
    pub fn rest(&mut self, rest: &Rest, due: Option<Instant>) -> std::io::Result<Woken> {
        // What rang for an earlier rest does not end this one.
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

    /// What is waited for: first the stop, then the end of each process. The roster is free for others during the wait.
    fn prepare(&mut self) -> SmallVec<[PollFd<'_>; 8]> {
        self.ends.clear();
        self.ends.extend(self.roster.members().values().map(|member| member.process.pidfd()));
        // On the stack for a few targets, so that a round allocates nothing.
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
    // A wait of more than i64::MAX seconds is as good as one of that many.
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}
