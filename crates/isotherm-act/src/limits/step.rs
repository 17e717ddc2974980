//! What becomes of a limit, by what is known of its cgroup.

use isotherm_core::PAGE_SIZE;
use isotherm_kernel::cgroup::MemoryLimit;

/// A limit is let down only if that is at least this part of the margin, or to the least. So it is not written for
/// each page.
const LEAST_STEP: u64 = 4;

/// What is known of the memory of a cgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryOfGroup {
    /// Bytes that are charged to it.
    pub current: u64,
    /// Bytes that its processes use, at most: pages that they share count several times.
    pub in_use: u64,
    /// Whether surveys know at least half of that.
    pub is_surveyed: bool,
    /// Whether it had more memory than its limit since it was looked at before. `None` if that is not known.
    pub was_above: Option<bool>,
    /// The margin in bytes.
    pub margin: u64,
    /// The limit is not let down below so many bytes.
    pub least: u64,
    /// Whether a goal is reached that is a bound.
    pub is_bound: bool,
}

impl MemoryOfGroup {
    /// The limit for the memory that there is, or for `bytes` of it if that is less.
    fn limit(&self, bytes: u64) -> u64 {
        let limit = self.current.min(bytes).saturating_add(self.margin).max(self.least);
        limit.next_multiple_of(PAGE_SIZE)
    }
}

/// The limit that a cgroup is to have. `None` if it keeps the one that it has now. Before anything was changed, it had
/// `before`, and it never has more.
///
/// A limit is never below the memory that is charged to the cgroup, so that setting it takes nothing away.
pub(super) fn next(now: MemoryLimit, before: MemoryLimit, known: &MemoryOfGroup) -> Option<MemoryLimit> {
    if known.is_bound {
        return (now < before).then_some(before);
    }
    let wanted = MemoryLimit::Bytes(known.limit(u64::MAX)).min(before);
    let in_use = known.in_use.min(known.current);
    let MemoryLimit::Bytes(limit) = now else {
        return (known.is_surveyed && wanted < now).then_some(wanted);
    };
    if in_use.saturating_add(known.margin / 2) > limit || known.least > limit {
        return (wanted > now).then_some(wanted);
    }
    let MemoryLimit::Bytes(lower) = wanted else { return None };
    let is_least = lower == known.least.next_multiple_of(PAGE_SIZE);
    let is_worth_it = lower < limit && (is_least || limit - lower >= known.margin / LEAST_STEP);
    // What is above its limit needs no lower one.
    (is_worth_it && known.is_surveyed && known.was_above != Some(true)).then_some(wanted)
}

/// The protection that a cgroup is to have: as much as is in use. `None` if it keeps the one that it has now. Before
/// anything was changed, it had `before`, and it never has less.
pub(super) fn kept(now: MemoryLimit, before: MemoryLimit, known: &MemoryOfGroup) -> Option<MemoryLimit> {
    let in_use = known.in_use.min(known.current).next_multiple_of(PAGE_SIZE);
    let wanted = MemoryLimit::Bytes(in_use).max(before);
    let (MemoryLimit::Bytes(from), MemoryLimit::Bytes(to)) = (now, wanted) else { return None };
    (known.is_surveyed && from.abs_diff(to) >= known.margin / LEAST_STEP).then_some(wanted)
}

/// The limit that a cgroup would have after `idle` bytes of it were reclaimed.
pub(super) fn without(idle: u64, before: MemoryLimit, known: &MemoryOfGroup) -> Option<MemoryLimit> {
    let limit = MemoryLimit::Bytes(known.limit(known.current.saturating_sub(idle)));
    (known.is_surveyed && !known.is_bound && limit < before).then_some(limit)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_kernel::cgroup::MemoryLimit::{Bytes, Max};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn known(current: u64, in_use: u64) -> MemoryOfGroup {
        MemoryOfGroup {
            current: current * MIB,
            in_use: in_use * MIB,
            is_surveyed: true,
            was_above: Some(false),
            margin: 10 * MIB,
            least: 0,
            is_bound: false,
        }
    }

    fn mib(limit: u64) -> MemoryLimit {
        Bytes(limit * MIB)
    }

    #[test]
    fn a_limit_follows_the_memory_that_is_left_down_and_is_never_below_it() {
        assert_eq!(next(Max, Max, &known(100, 80)), Some(mib(110)));
        assert_eq!(next(mib(110), Max, &known(90, 80)), Some(mib(100)));
        assert_eq!(next(mib(110), Max, &known(99, 80)), None, "less than a quarter of the margin");
        assert_eq!(next(mib(110), Max, &known(108, 80)), None, "other memory than that in use may fill it");
        let odd = MemoryOfGroup { current: 100 * MIB + 1, ..known(100, 80) };
        assert_eq!(next(Max, Max, &odd), Some(Bytes(110 * MIB + PAGE_SIZE)));
    }

    #[test]
    fn a_limit_that_the_memory_in_use_comes_near_to_is_raised() {
        assert_eq!(next(mib(110), Max, &known(108, 106)), Some(mib(118)));
        assert_eq!(next(mib(110), mib(112), &known(108, 106)), Some(mib(112)), "no higher than it was before");
        assert_eq!(next(mib(110), Max, &known(108, 500)), Some(mib(118)), "what is shared counts several times");
        let unknown = MemoryOfGroup { is_surveyed: false, ..known(108, 106) };
        assert_eq!(next(mib(110), Max, &unknown), Some(mib(118)));
    }

    #[test]
    fn a_bound_that_is_reached_gives_back_what_there_was_before() {
        let bound = MemoryOfGroup { is_bound: true, ..known(100, 80) };
        for before in [Max, mib(500)] {
            assert_eq!(next(mib(110), before, &bound), Some(before));
            assert_eq!(next(before, before, &bound), None);
        }
    }

    #[test]
    fn nothing_is_let_down_that_is_not_known_or_was_above_its_limit() {
        assert_eq!(next(Max, Max, &MemoryOfGroup { is_surveyed: false, ..known(100, 80) }), None);
        assert_eq!(next(mib(200), Max, &MemoryOfGroup { is_surveyed: false, ..known(100, 80) }), None);
        assert_eq!(next(mib(200), Max, &MemoryOfGroup { was_above: Some(true), ..known(100, 80) }), None);
        assert_eq!(next(mib(200), Max, &MemoryOfGroup { was_above: None, ..known(100, 80) }), Some(mib(110)));
        assert_eq!(next(mib(105), mib(105), &known(100, 80)), None, "its owner has a lower one");
    }

    #[test]
    fn a_limit_is_not_below_the_least_and_follows_it() {
        let least = |bytes: u64| MemoryOfGroup { least: bytes * MIB, ..known(100, 80) };
        assert_eq!(next(Max, Max, &least(150)), Some(mib(150)));
        assert_eq!(next(Max, Max, &least(105)), Some(mib(110)), "what is there has its margin");
        assert_eq!(next(mib(150), Max, &least(150)), None);
        assert_eq!(next(mib(150), Max, &least(170)), Some(mib(170)));
        assert_eq!(next(mib(150), Max, &least(120)), Some(mib(120)));
        assert_eq!(next(mib(122), Max, &least(120)), Some(mib(120)), "less than a quarter of the margin");
        assert_eq!(next(mib(150), mib(150), &least(170)), None, "its owner has a lower one");
        assert_eq!(without(60 * MIB, Max, &least(150)), Some(mib(150)));
    }

    #[test]
    fn a_protection_follows_the_memory_in_use_and_is_never_less_than_it_was() {
        assert_eq!(kept(mib(0), mib(0), &known(100, 80)), Some(mib(80)));
        assert_eq!(kept(mib(80), mib(0), &known(100, 60)), Some(mib(60)));
        assert_eq!(kept(mib(80), mib(0), &known(100, 81)), None, "less than a quarter of the margin");
        assert_eq!(kept(mib(0), mib(0), &known(100, 500)), Some(mib(100)), "what is shared counts several times");
        assert_eq!(kept(mib(0), mib(0), &MemoryOfGroup { is_surveyed: false, ..known(100, 80) }), None);
        assert_eq!(kept(mib(90), mib(90), &known(100, 80)), None, "its owner protects more");
        assert_eq!(kept(mib(80), mib(70), &known(100, 60)), Some(mib(70)));
        assert_eq!(kept(Max, Max, &known(100, 80)), None);
    }

    #[test]
    fn a_dry_run_counts_idle_memory_as_reclaimed() {
        assert_eq!(without(60 * MIB, Max, &known(100, 40)), Some(mib(50)));
        assert_eq!(without(600 * MIB, Max, &known(100, 40)), Some(mib(10)));
        assert_eq!(without(60 * MIB, mib(45), &known(100, 40)), None);
        assert_eq!(without(60 * MIB, Max, &MemoryOfGroup { is_surveyed: false, ..known(100, 40) }), None);
    }
}
