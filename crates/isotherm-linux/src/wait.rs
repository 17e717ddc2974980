//! Waiting for the next round: to the microsecond, unless a target ends or the run is stopped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use smallvec::SmallVec;

use crate::Roster;

/// Stops a run from another thread or a signal.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// A stop that nobody has asked for yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Asks for the stop. It stays asked for.
    pub fn ask(&self) {
        // Fails only if the counter is full: then the stop has been asked for long ago.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Why a wait came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time has come.
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
}

impl Waiter {
    /// A waiter that looks out for the end of the processes in `roster` and for `stop`.
    pub fn new(roster: Roster, stop: Stop) -> Self {
        Self { roster, stop }
    }

    /// Waits until `due`; not at all if that has passed.
    ///
    /// # Errors
    /// If the kernel refuses to wait on so many processes.
    pub fn until(&self, due: Instant) -> std::io::Result<Woken> {
        let members = self.roster.members();
        // On the stack for a few targets, so that a round allocates nothing.
        let mut fds: SmallVec<[PollFd<'_>; 8]> = SmallVec::new();
        fds.push(PollFd::from_borrowed_fd(self.stop.0.as_fd(), PollFlags::IN));
        fds.extend(members.values().map(|m| PollFd::from_borrowed_fd(m.process.pidfd(), PollFlags::IN)));
        wait(&mut fds, due)?;

        if !fds[0].revents().is_empty() {
            return Ok(Woken::Stopped);
        }
        if fds[1..].iter().all(|fd| fd.revents().is_empty()) {
            return Ok(Woken::Due);
        }
        // A target's end does not shorten the round of the others.
        fds.truncate(1);
        wait(&mut fds, due)?;
        Ok(if fds[0].revents().is_empty() { Woken::TargetEnded } else { Woken::Stopped })
    }
}

fn wait(fds: &mut [PollFd<'_>], due: Instant) -> std::io::Result<()> {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        match poll(fds, Some(&timespec(left))) {
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
