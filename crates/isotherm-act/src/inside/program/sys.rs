//! The system calls of the helper program, which has no standard library: nothing here allocates or takes a lock.

#![allow(unsafe_code)]

use core::arch::asm;
use core::time::Duration;

/// The error number of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    pub(super) const SRCH: Self = Self(3);
    pub(super) const INTR: Self = Self(4);
}

// The numbers of the signals, `asm/signal.h`.
pub(super) const SIGILL: i32 = 4;
pub(super) const SIGTRAP: i32 = 5;
pub(super) const SIGBUS: i32 = 7;
pub(super) const SIGFPE: i32 = 8;
pub(super) const SIGKILL: i32 = 9;
pub(super) const SIGSEGV: i32 = 11;
pub(super) const SIGSYS: i32 = 31;

/// The numbers of the system calls on x86-64, `asm/unistd_64.h`.
pub(super) mod number {
    pub(in super::super) const CLOSE: usize = 3;
    pub(in super::super) const RT_SIGPROCMASK: usize = 14;
    pub(in super::super) const PREAD64: usize = 17;
    pub(in super::super) const PWRITE64: usize = 18;
    pub(in super::super) const SCHED_YIELD: usize = 24;
    pub(in super::super) const NANOSLEEP: usize = 35;
    pub(in super::super) const GETPID: usize = 39;
    pub(in super::super) const SENDTO: usize = 44;
    pub(in super::super) const RECVMSG: usize = 47;
    pub(in super::super) const WAIT4: usize = 61;
    pub(in super::super) const KILL: usize = 62;
    pub(in super::super) const PTRACE: usize = 101;
    pub(in super::super) const SETSID: usize = 112;
    pub(in super::super) const PRCTL: usize = 157;
    pub(in super::super) const TIMER_CREATE: usize = 222;
    pub(in super::super) const TIMER_SETTIME: usize = 223;
    pub(in super::super) const CLOCK_GETTIME: usize = 228;
    pub(in super::super) const EXIT_GROUP: usize = 231;
    pub(in super::super) const CLOSE_RANGE: usize = 436;
}

/// Makes a system call.
///
/// # Safety
/// The call must be sound with these arguments: a pointer must be valid for what the call reads or writes there.
pub(super) unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    let mut result = number;
    // SAFETY: the caller guarantees that the call is sound. The kernel changes the named registers only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result, in("rdi") args[0], in("rsi") args[1], in("rdx") args[2], in("r10") args[3],
            in("r8") args[4], in("r9") args[5], lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    match result as isize {
        errno @ -4095..=-1 => Err(Errno(-errno as i32)),
        _ => Ok(result),
    }
}

/// Makes a system call whose arguments are numbers.
pub(super) fn call_by_value(number: usize, [a, b, c]: [usize; 3]) -> Result<usize, Errno> {
    // SAFETY: the callers pass numbers only, so that the kernel accesses no memory of this program.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}

/// `struct timespec` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeSpec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl From<Duration> for TimeSpec {
    fn from(time: Duration) -> Self {
        Self { seconds: time.as_secs() as i64, nanoseconds: i64::from(time.subsec_nanos()) }
    }
}

/// A moment of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant(Duration);

impl Instant {
    pub(super) fn now() -> Self {
        const CLOCK_MONOTONIC: usize = 1;
        let mut now = TimeSpec::default();
        // SAFETY: the kernel fills `now`, which is borrowed for the call.
        let _ = unsafe { call(number::CLOCK_GETTIME, [CLOCK_MONOTONIC, &raw mut now as usize, 0, 0, 0, 0]) };
        Self(Duration::new(now.seconds as u64, now.nanoseconds as u32))
    }

    pub(super) fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

pub(super) fn sleep(time: Duration) {
    let time = TimeSpec::from(time);
    // SAFETY: the kernel reads `time`, which is borrowed for the call.
    let _ = unsafe { call(number::NANOSLEEP, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

pub(super) fn yield_now() {
    let _ = call_by_value(number::SCHED_YIELD, [0; 3]);
}

/// Reads at `offset` of a file.
pub(super) fn pread(file: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let args = [file as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0];
    // SAFETY: the kernel writes at most `buffer.len()` bytes to the buffer, which is borrowed for the call.
    unsafe { call(number::PREAD64, args) }
}

/// Writes at `offset` of a file.
pub(super) fn pwrite(file: i32, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    let args = [file as usize, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0];
    // SAFETY: the kernel reads the bytes, which are borrowed for the call.
    unsafe { call(number::PWRITE64, args) }
}

/// Sends a signal to this process.
#[cfg(faults)]
pub(super) fn kill_this(signal: i32) {
    let this = call_by_value(number::GETPID, [0; 3]).unwrap_or(0);
    let _ = call_by_value(number::KILL, [this, signal as usize, 0]);
}

/// Ends this process.
pub(super) fn exit(status: i32) -> ! {
    loop {
        let _ = call_by_value(number::EXIT_GROUP, [status as usize, 0, 0]);
    }
}

/// Kills this process when its time is over, even if the process is stopped. This ends all tracing.
#[derive(Debug)]
pub(super) struct Watchdog(i32);

impl Watchdog {
    /// A watchdog that is not set. `None` if the kernel has no timer left.
    pub(super) fn new() -> Option<Self> {
        const CLOCK_MONOTONIC: usize = 1;
        const SIGEV_SIGNAL: i32 = 0;
        /// `struct sigevent`: a value, the signal, the way to notify, and room for other ways.
        #[repr(C)]
        struct Event {
            value: u64,
            signal: i32,
            notify: i32,
            rest: [u64; 6],
        }
        let event = Event { value: 0, signal: SIGKILL, notify: SIGEV_SIGNAL, rest: [0; 6] };
        let mut timer = 0_i32;
        let args = [CLOCK_MONOTONIC, &raw const event as usize, &raw mut timer as usize, 0, 0, 0];
        // SAFETY: the kernel reads `event` and writes `timer`. Both have the kernel's layout, and are borrowed for the
        // call.
        unsafe { call(number::TIMER_CREATE, args) }.ok().map(|_| Self(timer))
    }

    /// Sets the time that is left from now on; `None` for as long as it takes.
    pub(super) fn set(&self, time: Option<Duration>) {
        let value = [TimeSpec::default(), time.map(TimeSpec::from).unwrap_or_default()];
        // SAFETY: the kernel reads `value`, which has the layout of `struct itimerspec` and is borrowed for the call.
        let _ = unsafe { call(number::TIMER_SETTIME, [self.0 as usize, 0, value.as_ptr() as usize, 0, 0, 0]) };
    }
}
