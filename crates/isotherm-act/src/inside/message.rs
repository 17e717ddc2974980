//! The messages between isotherm and its helper. They consist of numbers only, so that the helper need not allocate.
//! The helper program contains this file, too.

#![allow(unsafe_code)]

use core::mem::size_of;

/// The maximum number of calls in one request.
pub(super) const CALLS: usize = 64;

/// A request to make one kind of system call on several ranges.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The ID of the process.
    pub pid: u64,
    /// The address of `syscall; ret` in the process.
    pub call: u64,
    /// The address of `rt_sigreturn` in the process.
    pub restorer: u64,
    /// The index of its encoding in [`RESTORERS`](super::gadget::RESTORERS).
    pub restorer_kind: u64,
    /// The first address of the stack of the main thread.
    pub stack_start: u64,
    /// The address after the stack of the main thread.
    pub stack_end: u64,
    /// The number of the system call.
    pub number: u64,
    /// The third argument of the system call.
    pub third: u64,
    /// The maximum time to wait for a state in which the thread can make calls, in nanoseconds.
    pub state_timeout: u64,
    /// No further call begins in a stop that has lasted this long, in nanoseconds.
    pub max_stop: u64,
    /// The number of calls, at most [`CALLS`].
    pub count: u64,
    /// The first two arguments of each call: an address and a size in bytes.
    pub ranges: [[u64; 2]; CALLS],
    /// For tests: the number of a fault of the helper, and of the step at which it happens; 0 for never.
    pub fault: u64,
    pub fault_at: u64,
}

/// The result of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// The number of a [`Refused`], or 0 if all went well.
    pub refused: u64,
    /// The error number that goes with `refused`, or 0.
    pub errno: u64,
    /// The number of calls that have been made.
    pub done: u64,
    /// How many times the thread was stopped.
    pub stops: u64,
    /// The time for which the thread was stopped, in nanoseconds.
    pub stopped: u64,
    /// 1 if the helper ends after this reply, so that the kernel detaches the thread; 0 otherwise.
    pub ends: u64,
    /// The result of each call that has been made: 0 or more, or a negative error number.
    pub results: [i64; CALLS],
}

/// Why no further call was made. [`InsideError`](super::InsideError) describes the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Gone = 1,
    NotPermitted,
    Traced,
    Stopped,
    MainThreadEnded,
    Unresponsive,
    Seccomp,
    Compatibility,
    ShadowStack,
    OtherStack,
    Sequence,
    Signals,
    Exec,
    Failed,
}

impl Refused {
    const ALL: [Self; 14] = [
        Self::Gone,
        Self::NotPermitted,
        Self::Traced,
        Self::Stopped,
        Self::MainThreadEnded,
        Self::Unresponsive,
        Self::Seccomp,
        Self::Compatibility,
        Self::ShadowStack,
        Self::OtherStack,
        Self::Sequence,
        Self::Signals,
        Self::Exec,
        Self::Failed,
    ];

    pub(super) fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|refused| *refused as u64 == number)
    }
}

/// A structure that consists of 64-bit numbers only, so that it can be sent as bytes.
///
/// # Safety
/// The type must have no padding, and every bit pattern must be a valid value of it.
pub(super) unsafe trait Plain: Sized {
    /// The value whose bits are all 0.
    fn zero() -> Self {
        // SAFETY: every bit pattern is valid.
        unsafe { core::mem::zeroed() }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are those of `self`, which is borrowed as long as the slice and has no padding.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are those of `self`, which is mutably borrowed as long as the slice and has no padding.
        // Every bit pattern that is written to them is valid.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(self).cast(), size_of::<Self>()) }
    }
}

// SAFETY: the type is `repr(C)`, and all of its fields consist of `u64`.
unsafe impl Plain for Request {}
// SAFETY: the type is `repr(C)`, and all of its fields consist of `u64` and `i64`.
unsafe impl Plain for Reply {}
