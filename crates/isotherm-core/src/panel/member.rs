//! One page of a panel.

use super::estimate::{COUNT, Seen, Sums};
use crate::PageLook;
use crate::survey::BLOCK_SIZE;

/// Readings of a panel are numbered from 1 on; 0 stands for none.
pub(super) type Tick = u32;

/// One page of a panel, and what its readings have found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) addr: u64,
    /// The reading from which on it belongs to the panel. 0 if it has appeared since: it was not accessed before.
    from: Tick,
    /// The reading since which it is known when the page was accessed. 0 as long as its accessed bit was not cleared.
    since: Tick,
    /// The last reading of which it is known that the page was accessed since the one before, or later.
    last: Tick,
    /// Whether the accessed bit was seen since the last reading, by somebody who has cleared it then.
    pub(super) seen: bool,
    pub(super) is_huge: bool,
    /// Whether it was not in memory at the last reading.
    pub(super) is_absent: bool,
    /// Whether it was absent when it was drawn, and was not accessed since: `last` is when it would have appeared.
    is_void: bool,
    /// Whether the accessed bit is set and stays so, so that later accesses are not seen.
    set: bool,
    /// Its page frame at the last reading, if it is known.
    pub(super) frame: Option<u64>,
}

impl Member {
    /// A page that has just been drawn. If it is present, it has appeared after the reading before `last`, if that is
    /// not 0.
    pub(super) fn drawn(addr: u64, last: Tick) -> Self {
        Self {
            addr,
            from: if last == 0 { Tick::MAX } else { 0 },
            since: 0,
            last,
            seen: false,
            is_huge: false,
            is_absent: false,
            is_void: false,
            set: false,
            frame: None,
        }
    }

    /// Whether it was not read yet.
    pub(super) fn is_drawn(&self) -> bool {
        self.since == 0 && !self.set
    }

    /// Takes in what the reading `tick` has found. Returns whether its accessed bit is to be cleared.
    pub(super) fn read(&mut self, look: PageLook, tick: Tick) -> bool {
        let accessed = std::mem::take(&mut self.seen) || look.accessed;
        (self.is_huge, self.is_absent, self.frame) = (look.huge, !look.present, look.frame);
        self.is_void |= self.is_drawn() && self.is_absent;
        if self.is_drawn() {
            self.from = self.from.min(tick);
        }
        if !look.present || !look.accessed {
            // If the bit was set before, somebody has cleared it. What was not there when it was drawn was not
            // accessed.
            if self.since == 0 || self.set {
                self.since = if self.is_drawn() && self.is_absent { 1 } else { tick };
            }
            self.set = false;
        }
        if accessed && self.since != 0 && !self.set {
            (self.last, self.is_void) = (tick, false);
        }
        // A page that could not be cleared may be so at another time: it may have been on its way between two lists.
        look.present
            && look.accessed
            && (!self.set || (self.addr / crate::PAGE_SIZE + u64::from(tick)).is_multiple_of(8))
    }

    /// Takes in that its accessed bit was cleared at the reading `tick`, or could not be cleared.
    pub(super) fn clear(&mut self, is_cleared: bool, tick: Tick) {
        if !is_cleared {
            self.set = true;
        } else {
            if self.since == 0 || self.set {
                self.since = tick;
            }
            self.set = false;
        }
    }

    /// Takes in that a survey has cleared it since the reading `tick`, perhaps without a look at it first.
    pub(super) fn cleared_by_survey(&mut self, is_unseen: bool, tick: Tick) {
        if self.set {
            self.set = false;
            self.since = tick + 1;
        } else {
            // Its accessed bit was clear at that reading.
            self.seen |= is_unseen && self.since > 0;
        }
    }

    /// What is known of it within the window that holds the accesses that the readings after `begin` have found.
    pub(super) fn within(&self, begin: Tick, now: Tick) -> Seen {
        // Whether it was accessed or not since it was drawn, it says nothing of the time before.
        if self.from > begin {
            Seen::New
        } else if self.last > begin {
            if self.is_void { Seen::Idle } else { Seen::Used }
        } else if self.set {
            let is_likely = self.since > 0 && self.last >= self.since && self.last - self.since <= now - begin;
            if is_likely { Seen::Likely } else { Seen::Unknown }
        } else if self.since == 0 || self.since > begin {
            // It has appeared before the window, or was refused to be cleared for a while.
            Seen::Unknown
        } else {
            Seen::Idle
        }
    }

    /// Adds it to `sums` with this weight. Each window holds the accesses that the readings after this one have found.
    pub(super) fn count(&self, weight: f64, sums: &mut Sums, begin: &[Tick; COUNT], now: Tick) {
        sums.members += weight;
        for (known, &begin) in sums.within.iter_mut().zip(begin) {
            known.add(self.within(begin, now), weight);
        }
    }

    /// The address of the memory that shares its accessed bit.
    pub(super) fn bit(&self) -> u64 {
        if self.is_huge { self.addr - self.addr % BLOCK_SIZE } else { self.addr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_survey_clears_without_a_look_was_accessed() {
        let idle = PageLook { present: true, ..PageLook::default() };
        for (is_unseen, used) in [(true, true), (false, false)] {
            let mut member = Member::drawn(0x1000, 0);
            assert!(!member.read(idle, 1));
            member.cleared_by_survey(is_unseen, 1);
            member.read(idle, 2);
            assert_eq!(matches!(member.within(1, 2), Seen::Used), used);
        }
    }

    #[test]
    fn a_page_says_nothing_of_the_time_before_it_was_drawn_unless_it_has_appeared_since() {
        let accessed = PageLook { present: true, accessed: true, ..PageLook::default() };
        let [old, new] = [0, 4].map(|appeared| {
            let mut member = Member::drawn(0x1000, appeared);
            assert!(member.read(accessed, 4));
            member.clear(true, 4);
            member.read(accessed, 5);
            member
        });
        assert!(matches!((old.within(3, 5), old.within(4, 5)), (Seen::New, Seen::Used)));
        assert!(matches!(new.within(3, 5), Seen::Used));
    }
}
