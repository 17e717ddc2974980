//! How pages that several processes map, and locked pages, are observed, and what it may cost the processes.

use std::time::Duration;

use isotherm_core::survey::SurveySettings;
use isotherm_core::units;

/// Whether memory that several processes map, and locked memory, is observed.
///
/// `MADV_COLD` skips such pages. There are two ways to clear them. In both, the accessed bits then tell what each
/// process has accessed. The survey takes the way that costs the process less that loses the most.
///
/// *`/proc/PID/clear_refs`* works in one process at a time. A write to that file clears all pages of the process, all
/// pages of its files and shared memory, or all others. Meanwhile page faults and `mmap(2)` of the process wait: 7.5 to
/// 20 ms for 1 GiB, measured in November 2026 on idle virtual machines, and up to 40 ms on one with a load of 8. The
/// estimate is the longest of the last clears. A clear also resets the referenced marks of the pages, by which the
/// kernel chooses what to reclaim.
///
/// *The multi-generational LRU*, where the administrator has turned it on, ages a cgroup: it clears all pages of all
/// processes of the cgroup, private ones as well, and page faults do not wait for it (see `isotherm_kernel::lru_gen`).
/// The processes have to set all these accessed bits again, including processes that are not targets. The kernel can
/// then distinguish only memory that was accessed in one of the last three agings from older memory. Memory that aging
/// does not clear, for example because it is locked or charged to another cgroup, is cleared with
/// `/proc/PID/clear_refs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedMemory {
    /// Where [`SharedLimits`] allow it. A cgroup is aged only if targets have at least half of the resident memory of
    /// its processes.
    #[default]
    Auto,
    /// In every survey, whatever it costs the processes, and those that share a cgroup with them.
    Always,
    /// Not at all: such memory is unobservable.
    Never,
}

/// What observing shared memory may cost a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedLimits {
    /// The longest time for which page faults of a process may wait. Twice that, if its page faults are so rare that
    /// at most one clear in twenty meets one.
    pub longest_hold: Duration,
    /// For how long page faults of all processes that map the same memory may wait in one survey, one process after the
    /// other. If they would wait for longer, the others have their turn in the next survey.
    pub together: Duration,
    /// The share of time, 0 to 1, that a process may lose to waiting and to setting accessed bits again. With the
    /// multi-generational LRU, this is its only limit.
    pub time_share: f64,
    /// How long it takes a process to set an accessed bit again. A run takes the price of few pages: the CPU time of
    /// PostgreSQL's requests agrees with it (`bench/programs`), and with that of many, the buffers of PostgreSQL would
    /// be cleared less often than every 5 s.
    pub set_again: Duration,
}

impl Default for SharedLimits {
    /// 10 ms, 100 ms, and half a percent.
    ///
    /// `fork(2)` of a process of 1 GiB has its page faults wait for about as long. With 5 ms, a redis of 338 MiB and
    /// its child of BGSAVE were not observed on a machine that takes 20 ms for 1 GiB.
    fn default() -> Self {
        let SurveySettings { target_share, set_again, .. } = SurveySettings::default();
        Self {
            longest_hold: Duration::from_millis(10),
            together: Duration::from_millis(100),
            time_share: target_share,
            set_again,
        }
    }
}

impl SharedLimits {
    /// The same, if page faults of a process may wait for this long. All processes together may wait for ten times as
    /// long.
    #[must_use]
    pub fn with_longest_hold(self, longest_hold: Duration) -> Self {
        Self { longest_hold, together: longest_hold * 10, ..self }
    }

    /// For how long a process that has lost this much time is left alone.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn rest_after(&self, lost: Duration) -> Duration {
        Duration::from_secs_f64((lost.as_secs_f64() / self.time_share.max(1e-4)).min(1e6))
    }
}

/// Shared and locked memory that the last survey left unobservable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLeftOut {
    /// The amount in bytes, summed over processes.
    pub bytes: u64,
    /// Of these, the bytes that are locked.
    pub locked: u64,
    /// Why the largest part of it was left out.
    pub reason: SharedReason,
}

/// Why shared memory is not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedReason {
    /// [`SharedMemory::Never`] was chosen.
    Never,
    /// Page faults of the process would wait for longer than the limit.
    LongHold {
        /// How long, as estimated.
        estimate: Duration,
        /// The limit.
        longest: Duration,
    },
    /// It is a small part of the memory of the process, shared since a fork or locked. Clearing it would clear all
    /// private memory of the process.
    SmallPart,
    /// The kernel does not permit it, or lacks `/proc/PID/clear_refs`.
    Refused,
}

impl SharedLeftOut {
    /// Why the memory is unobservable and how to have it observed, in a sentence. `None` if that was asked for.
    pub(crate) fn remark(&self) -> Option<String> {
        let why = match self.reason {
            SharedReason::Never => return None,
            SharedReason::LongHold { estimate, longest } => format!(
                "to observe it, page faults of a process would wait for {}, and the limit is {} (--shared-hold {}ms \
                 allows it, --shared always has no limit)",
                units::duration(estimate),
                units::duration(longest),
                // Clears differ from one to the next.
                (estimate.as_secs_f64() * 1500.0).ceil()
            ),
            SharedReason::SmallPart => {
                "it is a small part of the private memory of its process, and to observe it, all \
                                        of that memory would have to be cleared (--shared always does so)"
                    .into()
            }
            SharedReason::Refused => "/proc/PID/clear_refs cannot be written (run isotherm as root)".into(),
        };
        let which = match self.locked {
            0 => "that are mapped several times",
            locked if locked == self.bytes => "that are locked in memory",
            _ => "that are locked in memory or mapped several times",
        };
        Some(format!("{} {which} are unobservable: {why}", units::bytes(self.bytes)))
    }

    /// Whether it is enough memory to tell the user of a run about it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_much(&self) -> bool {
        self.reason != SharedReason::SmallPart && self.bytes >= 1 << 20
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_that_was_not_asked_for_needs_no_remark() {
        let of = |reason| SharedLeftOut { bytes: 1 << 30, locked: 0, reason }.remark();
        assert_eq!(of(SharedReason::Never), None);
        let (estimate, longest) = (Duration::from_millis(8), Duration::from_millis(5));
        let remark = of(SharedReason::LongHold { estimate, longest }).unwrap();
        assert!(remark.starts_with("1 GiB") && remark.contains("8 ms"), "{remark}");
        assert!(remark.contains("--shared-hold 12ms") && remark.contains("--shared always"), "{remark}");
        let locked = |locked| SharedLeftOut { bytes: 1 << 30, locked, reason: SharedReason::Refused }.remark().unwrap();
        assert!(locked(1 << 30).starts_with("1 GiB that are locked in memory are"), "{}", locked(1 << 30));
        assert!(locked(1 << 20).contains("locked in memory or mapped several times"), "{}", locked(1 << 20));
    }
}
