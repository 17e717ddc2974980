//! The steps of a call. In tests, the helper fails at each of them.

use super::message::Request;

/// A step that has just been completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Step {
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

/// How the helper fails in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Fault {
    /// It is killed.
    Killed = 1,
    /// It panics.
    Panics,
    /// It does nothing any more.
    Hangs,
    /// It is stopped.
    Stopped,
}

/// Does nothing outside of tests.
#[cfg(not(faults))]
pub fn completed(_: &Request, _: Step) {}

/// Fails as the request says, if that says this step.
#[cfg(faults)]
pub fn completed(request: &Request, step: Step) {
    const KILL: i32 = 9;
    const STOP: i32 = 19;
    let is = |fault: Fault| request.fault == fault as u64;
    if request.fault_at != step as u64 {
        return;
    }
    if is(Fault::Killed) {
        super::sys::kill_this(KILL);
    } else if is(Fault::Stopped) {
        super::sys::kill_this(STOP);
    } else if is(Fault::Panics) {
        panic!("a test asks for it");
    } else if is(Fault::Hangs) {
        loop {
            super::sys::sleep(core::time::Duration::from_secs(1));
        }
    }
}
