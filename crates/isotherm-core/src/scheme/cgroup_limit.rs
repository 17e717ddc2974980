//! Limits of cgroups: what schemes want of them, and what is known of the memory that they are about.

use std::time::Duration;

use crate::survey::PageHistory;
use crate::{AddrRange, PAGE_SIZE, Snapshot, TargetId};

use super::{Goal, Reclaim};

/// How often limits are set.
pub(super) const LIMITS_EVERY: Duration = Duration::from_secs(1);

/// How the limit of a cgroup is set, and how its memory is reclaimed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CgroupLimit {
    /// How memory is reclaimed before the limit is let down.
    pub reclaim: Reclaim,
    /// How far the limit is above the memory that is left, in thousandths of that, at most
    /// [`MOST_MARGIN`](Self::MOST_MARGIN).
    pub margin: u16,
    /// Whether the memory in use is protected from reclaim for other cgroups, too.
    pub keep: bool,
}

impl CgroupLimit {
    /// A margin of a tenth, and no protection.
    pub const DEFAULT: Self = Self { reclaim: Reclaim::DEFAULT, margin: 100, keep: false };

    /// The largest margin: as much again.
    pub const MOST_MARGIN: u16 = 1000;

    /// The least margin in bytes. The kernel charges a cgroup in advance for each processor.
    pub const LEAST_MARGIN: u64 = 4 << 20;

    /// The margin above `bytes`, in bytes of whole pages.
    pub const fn margin_of(self, bytes: u64) -> u64 {
        let margin = bytes / 1000 * self.margin as u64;
        let margin = margin - margin % PAGE_SIZE;
        if margin > Self::LEAST_MARGIN { margin } else { Self::LEAST_MARGIN }
    }
}

/// What a scheme wants of the limits of the cgroups of its targets.
#[derive(Clone, Copy, Debug)]
pub struct WantedLimits<'a> {
    /// The name of the scheme.
    pub scheme: &'a str,
    /// How the limits are set.
    pub how: CgroupLimit,
    /// The goal that is reached, and the value of its metric. The limits are raised then.
    pub reached: Option<(&'a Goal, f64)>,
    /// How much memory each target uses.
    pub in_use: &'a [TargetUse],
}

/// How much memory a target uses, as far as surveys know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetUse {
    /// The target.
    pub target: TargetId,
    /// Bytes in memory that are not known to be idle for the age that the scheme asks for. Pages that several targets
    /// share count in each.
    pub bytes: u64,
    /// Bytes that are known to be idle for that long.
    pub idle: u64,
    /// Whether surveys have lasted for that age, so that `bytes` is more than a bound.
    pub is_known: bool,
}

/// How much memory the targets of a scheme use. It is counted once a survey.
#[derive(Debug, Default)]
pub(super) struct InUse {
    targets: Vec<TargetUse>,
    /// The age that is asked for, and the times of the surveys that were counted.
    counted: (Duration, Vec<(TargetId, Duration)>),
}

impl InUse {
    /// Counts what is not idle for `age`, unless no target was surveyed since it was counted.
    pub(super) fn count(&mut self, snapshot: &Snapshot, age: Duration) -> &[TargetUse] {
        let surveys = snapshot.histories.iter().map(|(target, history)| (*target, history.time())).collect();
        let now = (age, surveys);
        if self.counted != now {
            self.targets = snapshot.histories.iter().map(|(target, pages)| target_use(*target, pages, age)).collect();
            self.counted = now;
        }
        &self.targets
    }
}

fn target_use(target: TargetId, pages: &PageHistory, age: Duration) -> TargetUse {
    let idle = AddrRange::new(0, u64::MAX).map(|all| pages.idle_ranges(all, age)).unwrap_or_default();
    let idle = idle.iter().map(|(range, _)| range.size()).sum();
    let bytes = (pages.present() * PAGE_SIZE).saturating_sub(idle);
    TargetUse { target, bytes, idle, is_known: pages.surveys() > 1 && pages.lasted() >= age }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_a_part_of_the_memory_and_not_less_than_a_bound() {
        let of = |margin, bytes| CgroupLimit { margin, ..CgroupLimit::DEFAULT }.margin_of(bytes);
        assert_eq!(of(100, 1000 << 20), 100 << 20);
        assert_eq!(of(100, 10 << 20), CgroupLimit::LEAST_MARGIN);
        assert_eq!(of(0, 1 << 40), CgroupLimit::LEAST_MARGIN);
        assert_eq!(of(333, 1 << 30) % PAGE_SIZE, 0);
    }
}
