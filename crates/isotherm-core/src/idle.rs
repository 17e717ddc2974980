//! How much of some memory is idle: what looking at every page of it adds up to.
//!
//! Unlike the monitor's regions, these figures are of each single page: they answer the question of idle page tracking (Linux
//! `Documentation/admin-guide/mm/idle_page_tracking.rst`), whichever way the pages were looked at.

use std::ops::AddAssign;

/// What the last interval showed of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// It was accessed, or came to be.
    Accessed,
    /// It was not accessed, for so many intervals on end: 1 to [`MOST_INTERVALS`], the latter for any longer time.
    Idle(u8),
    /// Whether it was accessed cannot be told.
    Unobservable,
    /// It is locked in memory: whether it is idle does not matter, as it cannot be reclaimed.
    Unevictable,
}

/// Intervals on end are counted up to here.
pub const MOST_INTERVALS: u8 = 250;

/// How much of some memory was accessed, and how much is idle; in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleTally {
    /// Accessed in the last interval.
    pub accessed: u64,
    /// Not accessed in the last interval.
    pub idle: u64,
    /// Neither can be told.
    pub unobservable: u64,
    /// Locked in memory, and in none of the others.
    pub unevictable: u64,
    /// Of the idle, how much has been so for one interval, for two, and so on.
    by_intervals: Vec<u64>,
}

impl IdleTally {
    /// Adds memory of so many bytes.
    pub fn add(&mut self, state: PageState, bytes: u64) {
        match state {
            PageState::Accessed => self.accessed += bytes,
            PageState::Idle(intervals) => {
                self.idle += bytes;
                self.add_idle(intervals.clamp(1, MOST_INTERVALS).into(), bytes);
            }
            PageState::Unobservable => self.unobservable += bytes,
            PageState::Unevictable => self.unevictable += bytes,
        }
    }

    fn add_idle(&mut self, intervals: usize, bytes: u64) {
        if self.by_intervals.len() < intervals {
            self.by_intervals.resize(intervals, 0);
        }
        self.by_intervals[intervals - 1] += bytes;
    }

    /// All of it but what is locked: the sum of accessed, idle and unobservable.
    pub fn size(&self) -> u64 {
        self.accessed + self.idle + self.unobservable
    }

    /// Whether there is nothing in it, locked memory included.
    pub fn is_empty(&self) -> bool {
        self.size() + self.unevictable == 0
    }

    /// The bytes that have been idle for exactly one interval, for two, and so on; together [`idle`](Self::idle). The last of
    /// [`MOST_INTERVALS`] stands for any longer time, too.
    pub fn by_intervals(&self) -> &[u64] {
        &self.by_intervals
    }
}

impl AddAssign<&Self> for IdleTally {
    fn add_assign(&mut self, other: &Self) {
        self.accessed += other.accessed;
        self.idle += other.idle;
        self.unobservable += other.unobservable;
        self.unevictable += other.unevictable;
        for (before, &bytes) in other.by_intervals.iter().enumerate() {
            self.add_idle(before + 1, bytes);
        }
    }
}
