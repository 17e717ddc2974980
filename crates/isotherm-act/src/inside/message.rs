//! What isotherm and its helper say to each other: numbers only, so that the helper need not allocate.

#![allow(unsafe_code)]

use std::mem::size_of;

/// Calls a request.
pub(super) const CALLS: usize = 64;

/// Ask for one kind of system call on several ranges.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub pid: u64,
    /// Where `syscall; ret` is.
    pub call: u64,
    /// Where `rt_sigreturn` is, and how it is written.
    pub restorer: u64,
    pub restorer_kind: u64,
    /// The stack of the main thread.
    pub stack_start: u64,
    pub stack_end: u64,
    /// The system call's number, and its third argument.
    pub number: u64,
    pub third: u64,
    /// For so long the thread may not be in a state in which it can make calls, in nanoseconds.
    pub patience: u64,
    /// After so long a stop, no further call is begun, in nanoseconds.
    pub longest_stop: u64,
    pub count: u64,
    /// The first two arguments of each call.
    pub ranges: [[u64; 2]; CALLS],
    /// For tests: at which step the helper is to be killed; 0 for never.
    pub die_at: u64,
}

/// What came of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// A [`Refused`], or 0.
    pub refused: u64,
    /// The kernel's word on that, or 0.
    pub errno: u64,
    /// How many calls have been made.
    pub done: u64,
    /// For how long the thread stood still, in nanoseconds.
    pub stopped: u64,
    /// Whether the helper ends now, so that the kernel lets go of the thread.
    pub ends: u64,
    pub results: [i64; CALLS],
}

/// Why no (further) call was made.
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

/// Structures that are nothing but numbers of 64 bits.
///
/// # Safety
/// Without padding, and valid whatever bits they have.
pub(super) unsafe trait Plain: Sized {
    /// All zero.
    fn zero() -> Self {
        // SAFETY: whatever bits.
        unsafe { std::mem::zeroed() }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `self` is borrowed for as long, and has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `self` is borrowed for as long, has no padding, and may be filled with whatever bits.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), size_of::<Self>()) }
    }
}

// SAFETY: fields of 64 bits each.
unsafe impl Plain for Request {}
// SAFETY: fields of 64 bits each.
unsafe impl Plain for Reply {}
