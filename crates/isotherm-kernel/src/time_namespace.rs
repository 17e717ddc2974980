//! The clocks of a time namespace (`time_namespaces(7)`): eBPF programs and tracepoints tell the kernel's times, from
//! which those that this process reads may differ.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How many nanoseconds the clocks of this process are ahead of the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffsets {
    monotonic: i64,
    boottime: i64,
}

impl ClockOffsets {
    /// Reads those of this process, where `root` stands for `/`. They are zero on a kernel without time namespaces.
    pub fn read(root: &Path) -> Self {
        let offsets = std::fs::read_to_string(root.join("proc/self/timens_offsets")).unwrap_or_default();
        let of = |clock: &str| {
            let mut words = offsets
                .lines()
                .map(str::split_whitespace)
                .find_map(|mut words| (words.next() == Some(clock)).then_some(words))?;
            let mut number = || words.next()?.parse::<i64>().ok();
            number()?.checked_mul(1_000_000_000)?.checked_add(number()?)
        };
        Self { monotonic: of("monotonic").unwrap_or(0), boottime: of("boottime").unwrap_or(0) }
    }

    /// A time of the kernel's monotonic clock, such as that of `bpf_ktime_get_ns`, as this process reads it.
    pub fn monotonic(self, of_kernel: Duration) -> Duration {
        shifted(of_kernel, self.monotonic)
    }

    /// A time since the boot by the kernel's clock, as this process reads it, also in `/proc/PID/stat`.
    pub fn since_boot(self, of_kernel: Duration) -> Duration {
        shifted(of_kernel, self.boottime)
    }

    /// The time of the kernel's monotonic clock.
    pub fn kernel_monotonic(self) -> Duration {
        shifted(monotonic(), -self.monotonic)
    }
}

/// The time by `CLOCK_MONOTONIC`, as programs in this time namespace read it.
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

fn shifted(time: Duration, ns: i64) -> Duration {
    let by = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(text: &str) -> ClockOffsets {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/timens_offsets"), text).unwrap();
        ClockOffsets::read(root.path())
    }

    #[test]
    fn times_of_the_kernel_become_those_of_the_namespace() {
        let ahead = offsets("monotonic      100000         5\nboottime         7200 500000000\n");
        assert_eq!(ahead.monotonic(Duration::from_secs(1)), Duration::new(100_001, 5));
        assert_eq!(ahead.since_boot(Duration::from_secs(1)), Duration::new(7201, 500_000_000));
        // The clock is 299.5 s behind.
        let behind = offsets("monotonic        -300 500000000\nboottime            0         0\n");
        assert_eq!(behind.monotonic(Duration::from_secs(1000)), Duration::from_millis(700_500));
        assert_eq!(behind.monotonic(Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn without_time_namespaces_the_clocks_are_the_same() {
        assert_eq!(ClockOffsets::read(tempfile::tempdir().unwrap().path()), ClockOffsets::default());
        assert_eq!(offsets("nonsense\nmonotonic x y\n"), ClockOffsets::default());
    }
}
