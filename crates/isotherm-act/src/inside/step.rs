//! The points at which a tracer may die; tests have it die at each.

use super::message::Request;

/// What has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Step {
    Seized = 1,
    /// Stopped, nothing changed.
    Interrupted,
    FrameLaid,
    /// It has the registers of a call.
    Changed,
    /// It enters the call.
    Entered,
    /// It leaves the call.
    Left,
    /// It has its own registers again.
    GivenBack,
    /// Its own registers again, after a signal came in between.
    Disturbed,
}

/// Passes a point.
#[cfg(not(test))]
pub(super) fn pass(_: &Request, _: Step) {}

/// Passes a point, if the request allows it.
#[cfg(test)]
pub(super) fn pass(request: &Request, step: Step) {
    if request.die_at == step as u64 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
