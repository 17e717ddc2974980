//! A kdamond's thread: which it is, and what CPU time it takes.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// A process or kernel thread that cannot be taken for another one that has its ID later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process ID.
    pub pid: u32,
    /// When it started, in clock ticks since boot (`proc_pid_stat(5)`, field 22).
    pub started: u64,
}

impl Thread {
    /// The one that has this ID now, if there is one.
    pub fn find(proc: &Path, pid: u32) -> Option<Self> {
        // The name, in parentheses, may hold spaces and parentheses itself; field 3 follows it.
        let started = stat_field(proc, pid, 22)?;
        Some(Self { pid, started })
    }

    /// Whether it is still there.
    pub fn lives(self, proc: &Path) -> bool {
        Self::find(proc, self.pid) == Some(self)
    }

    /// The CPU time that it has taken: to the nanosecond where the kernel keeps scheduler statistics, else to the clock tick.
    pub fn cpu_time(self, proc: &Path) -> Option<Duration> {
        let schedstat = fs::read_to_string(proc.join(self.pid.to_string()).join("schedstat")).ok();
        let exact: Option<u64> = schedstat.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
        if let Some(nanoseconds) = exact.filter(|&nanoseconds| nanoseconds > 0) {
            return Some(Duration::from_nanos(nanoseconds));
        }
        let ticks = stat_field(proc, self.pid, 14)? + stat_field(proc, self.pid, 15)?;
        Some(Duration::from_nanos(ticks * (1_000_000_000 / procfs::ticks_per_second().max(1))))
    }
}

/// A field of `/proc/PID/stat`, by its number in `proc_pid_stat(5)`; 3 or higher.
fn stat_field(proc: &Path, pid: u32, number: usize) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}
