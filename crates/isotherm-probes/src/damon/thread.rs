//! The identity and the CPU time of the thread of a kdamond.

use std::fs;
use std::path::Path;
use std::time::Duration;

use isotherm_kernel::stat_field;

/// The identity of a process or kernel thread. The start time distinguishes it from a later one with the same ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The process ID.
    pub pid: u32,
    /// The start time in clock ticks since boot (`proc_pid_stat(5)`, field 22).
    pub started: u64,
}

impl Thread {
    /// Finds the thread that has this ID now. `proc` is the path of `/proc`.
    pub fn find(proc: &Path, pid: u32) -> Option<Self> {
        let started = stat_number(proc, pid, 22)?;
        Some(Self { pid, started })
    }

    /// Whether the thread still exists.
    pub fn lives(self, proc: &Path) -> bool {
        Self::find(proc, self.pid) == Some(self)
    }

    /// The CPU time that the thread has used, or `None` if it no longer exists. The precision is a nanosecond if the
    /// kernel keeps scheduler statistics, and a clock tick otherwise.
    pub fn cpu_time(self, proc: &Path) -> Option<Duration> {
        let schedstat = fs::read_to_string(proc.join(self.pid.to_string()).join("schedstat")).ok();
        let exact: Option<u64> = schedstat.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
        if let Some(nanoseconds) = exact.filter(|&nanoseconds| nanoseconds > 0) {
            return Some(Duration::from_nanos(nanoseconds));
        }
        let ticks = stat_number(proc, self.pid, 14)? + stat_number(proc, self.pid, 15)?;
        Some(Duration::from_nanos(ticks * (1_000_000_000 / procfs::ticks_per_second().max(1))))
    }
}

/// A field of `/proc/PID/stat` that is a number.
fn stat_number(proc: &Path, pid: u32, number: usize) -> Option<u64> {
    stat_field(proc, pid, number)?.parse().ok()
}
