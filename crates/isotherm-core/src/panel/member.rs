//! One page of a panel.

use super::estimate::Seen;
use crate::PageLook;
use crate::survey::BLOCK_SIZE;

/// Readings of a panel are numbered from 1 on; 0 stands for none.
pub(super) type Tick = u32;

/// One page of a panel, and what its readings have found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) addr: u64,
    /// Its place, which decides whether it belongs to a panel of some size. All views of a page have the same one.
    pub(super) place: u64,
    /// Whether it was not read yet.
    is_drawn: bool,
    /// The reading from which on it belongs to the panel. 0 if it has appeared since the panel was begun: it was not
    /// accessed before.
    from: Tick,
    /// The reading since which its accesses are seen, because its accessed bit was clear then. [`NEVER`] before.
    since: Tick,
    /// The last reading of which it is known that the page was accessed since the one before, or later.
    last: Tick,
    /// Whether the accessed bit was seen since the last reading, by somebody who has cleared it then.
    pub(super) seen: bool,
    pub(super) is_huge: bool,
    /// Whether it was not in memory at the last reading.
    pub(super) is_absent: bool,
    /// Whether the accessed bit is set and stays so, so that later accesses are not seen.
    set: bool,
    /// How many times in a row its accessed bit was refused to be cleared.
    refused: u8,
    /// Its page frame at the last reading, if it is known.
    pub(super) frame: Option<u64>,
    /// At how many other addresses the target had the page at the last reading.
    pub(super) again: u8,
}

/// Stands for a reading that has not come yet.
const NEVER: Tick = Tick::MAX;

/// A page is tried again at each reading until it was refused so many times, and then in one of [`RARELY`] readings. It
/// may have been on its way between two lists of the kernel, as a page is that was just faulted in.
const OFTEN: u8 = 3;
pub(super) const RARELY: u64 = 8;

impl Member {
    /// A page that has just been drawn. If it is present and has appeared since the panel was begun, it has done so
    /// after the reading before `appeared`.
    pub(super) fn drawn(addr: u64, place: u64, appeared: Option<Tick>) -> Self {
        Self {
            addr,
            place,
            is_drawn: true,
            from: if appeared.is_some() { 0 } else { NEVER },
            since: NEVER,
            last: appeared.unwrap_or_default(),
            seen: false,
            is_huge: false,
            is_absent: false,
            set: false,
            refused: 0,
            frame: None,
            again: 0,
        }
    }

    /// Whether it was not read yet.
    pub(super) fn is_drawn(&self) -> bool {
        self.is_drawn
    }

    /// Whether it has appeared since the panel was begun.
    pub(super) fn has_appeared(&self) -> bool {
        self.from == 0
    }

    /// Whether the reading `tick` reads it. Of pages that are absent, it is a part, unless memory is being added.
    pub(super) fn is_due(&self, tick: Tick, is_added: bool) -> bool {
        !self.is_absent || is_added || self.is_turn(tick)
    }

    /// Whether the reading `tick` is one of [`RARELY`], which ones depends on the page.
    fn is_turn(&self, tick: Tick) -> bool {
        (self.addr / crate::PAGE_SIZE + u64::from(tick)).is_multiple_of(RARELY)
    }

    /// Takes in what the reading `tick` has found, also at other addresses of the page. It was accessed if it was at
    /// one of them. Returns whether its accessed bit is to be cleared.
    pub(super) fn read_all(&mut self, look: PageLook, others: impl Iterator<Item = PageLook>, tick: Tick) -> bool {
        let (mut all, mut views) = (look, u8::from(look.present));
        for other in others.filter(|other| other.present) {
            let frame = all.frame.or(other.frame);
            all = PageLook { present: true, accessed: all.accessed || other.accessed, frame, ..all };
            views = views.saturating_add(1);
        }
        self.again = views.saturating_sub(1);
        self.read(all, tick)
    }

    /// Takes in what the reading `tick` has found. Returns whether its accessed bit is to be cleared.
    pub(super) fn read(&mut self, look: PageLook, tick: Tick) -> bool {
        let accessed = std::mem::take(&mut self.seen) || look.accessed;
        (self.is_huge, self.is_absent, self.frame) = (look.huge, !look.present, look.frame);
        if std::mem::take(&mut self.is_drawn) {
            if self.is_absent {
                // It was not accessed. What appears here later is new.
                (self.from, self.since, self.last) = (0, 0, 0);
            }
            self.from = self.from.min(tick);
        }
        if !look.present || !look.accessed {
            // If the bit was set before, somebody has cleared it.
            if self.since == NEVER || self.set {
                self.since = tick;
            }
            self.set = false;
        }
        if accessed && self.since != NEVER && !self.set {
            self.last = tick;
        }
        let is_set = look.present && look.accessed;
        let clears = is_set && (self.refused < OFTEN || self.is_turn(tick));
        self.set |= is_set && !clears;
        clears
    }

    /// Takes in that its accessed bit was cleared at the reading `tick`, or could not be cleared.
    pub(super) fn clear(&mut self, is_cleared: bool, tick: Tick) {
        if is_cleared && (self.since == NEVER || self.set) {
            self.since = tick;
        }
        self.set = !is_cleared;
        self.refused = if is_cleared { 0 } else { self.refused.saturating_add(1) };
    }

    /// Takes in that a survey has cleared it since the reading `tick`, perhaps without a look at it first.
    pub(super) fn cleared_by_survey(&mut self, is_unseen: bool, tick: Tick) {
        if self.set {
            // The access that was seen may be an old one.
            (self.set, self.seen) = (false, false);
            self.since = tick + 1;
        } else {
            // Its accessed bit was clear at that reading.
            self.seen |= is_unseen && self.since != NEVER;
        }
    }

    /// What is known of it within the window that holds the accesses that the readings after `begin` have found.
    pub(super) fn within(&self, begin: Tick, now: Tick) -> Seen {
        if self.last > begin {
            Seen::Used
        } else if self.set {
            let was_seen = self.since != NEVER && self.last >= self.since;
            if was_seen && self.last - self.since <= now - begin { Seen::Likely } else { Seen::Unknown }
        } else if self.from > begin || self.since > begin {
            // It was drawn later, or was refused to be cleared for a while.
            Seen::Unknown
        } else {
            Seen::Idle
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

    const IDLE: PageLook = PageLook { present: true, accessed: false, huge: false, frame: None };
    const ACCESSED: PageLook = PageLook { accessed: true, ..IDLE };

    #[test]
    fn what_a_survey_clears_without_a_look_was_accessed() {
        for (is_unseen, used) in [(true, true), (false, false)] {
            let mut member = Member::drawn(0x1000, 0, None);
            assert!(!member.read(IDLE, 1));
            member.cleared_by_survey(is_unseen, 1);
            member.read(IDLE, 2);
            assert_eq!(matches!(member.within(1, 2), Seen::Used), used);
        }
    }

    #[test]
    fn what_a_survey_clears_of_pages_that_were_refused_may_have_been_accessed_long_ago() {
        let mut member = Member::drawn(0x1000, 0, None);
        assert!(member.read(ACCESSED, 1));
        member.clear(false, 1);
        member.seen = true;
        member.cleared_by_survey(false, 1);
        member.read(IDLE, 2);
        assert_eq!((member.within(1, 2), member.within(2, 3)), (Seen::Unknown, Seen::Idle));
    }

    #[test]
    fn a_page_is_accessed_if_it_is_at_one_of_its_addresses() {
        let (absent, frame) = (PageLook::default(), Some(7));
        let used = |look: PageLook, others: &[PageLook]| {
            let mut member = Member::drawn(0x1000, 0, None);
            member.read(IDLE, 1);
            let clears = member.read_all(look, others.iter().copied(), 2);
            (clears, member.within(1, 2) == Seen::Used, member.is_absent, member.again)
        };
        assert_eq!(used(IDLE, &[]), (false, false, false, 0));
        assert_eq!(used(IDLE, &[IDLE, PageLook { frame, ..ACCESSED }]), (true, true, false, 2));
        assert_eq!(used(absent, &[absent, ACCESSED]), (true, true, false, 0));
        assert_eq!(used(absent, &[absent]), (false, false, true, 0));
    }

    #[test]
    fn the_time_before_a_page_was_drawn_is_unknown_unless_it_has_appeared_since() {
        let [old, new] = [None, Some(4)].map(|appeared| {
            let mut member = Member::drawn(0x1000, 0, appeared);
            assert!(member.read(ACCESSED, 4));
            member.clear(true, 4);
            member.read(IDLE, 5);
            member
        });
        assert_eq!((old.within(3, 5), old.within(4, 5)), (Seen::Unknown, Seen::Idle));
        // The page fault has set the accessed bit of the second one.
        assert_eq!((new.within(3, 5), new.within(4, 5)), (Seen::Used, Seen::Idle));
    }

    #[test]
    fn a_page_that_was_absent_was_not_accessed() {
        let mut member = Member::drawn(0x1000, 0, Some(4));
        assert!(!member.read(PageLook::default(), 4));
        assert_eq!(member.within(0, 4), Seen::Idle);
        assert!(member.read(ACCESSED, 5));
        assert_eq!((member.within(4, 5), member.has_appeared()), (Seen::Used, true));
    }

    #[test]
    fn a_page_that_was_refused_is_unknown_until_it_is_cleared() {
        let mut member = Member::drawn(0x1000, 0, None);
        assert!(member.read(ACCESSED, 1));
        member.clear(false, 1);
        assert!(member.read(ACCESSED, 2), "it is tried again at once");
        assert_eq!(member.within(1, 2), Seen::Unknown);
        member.clear(true, 2);
        member.read(IDLE, 3);
        assert_eq!((member.within(1, 3), member.within(2, 3)), (Seen::Unknown, Seen::Idle));
    }
}
