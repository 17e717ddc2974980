//! The steps of a call. Tests kill the helper at each of them.

use super::message::Request;

/// A step that has just been completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Step {
    /// The thread is traced.
    Seized = 1,
    /// The thread is stopped. Nothing has been changed.
    Interrupted,
    /// The frame is on the stack.
    FrameWritten,
    /// The thread has the registers for a call.
    RegistersSet,
    /// The thread is at the entry of the call.
    Entered,
    /// The thread is at the exit of the call.
    Left,
    /// The thread has its original registers again.
    Restored,
    /// The thread has its original registers again, because a signal or a stop preceded the call.
    RestoredEarly,
}

/// Does nothing outside of tests.
#[cfg(not(test))]
pub(super) fn completed(_: &Request, _: Step) {}

/// Kills this process if the request has this step as [`die_at`](Request::die_at).
#[cfg(test)]
pub(super) fn completed(request: &Request, step: Step) {
    if request.die_at == step as u64 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
