//! Idle memory: sums over a scan of every page.
//!
//! Unlike the monitor's regions, these figures count every single page. They answer the question of idle page
//! tracking (Linux `Documentation/admin-guide/mm/idle_page_tracking.rst`), whatever method scanned the pages.

use std::ops::AddAssign;

/// The state of a page after an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The page was accessed or allocated in the interval.
    Accessed,
    /// The page was not accessed for this many intervals in a row: 1 to [`MOST_INTERVALS`], which stands for any
    /// longer time.
    Idle(u8),
    /// The scan cannot tell whether the page was accessed.
    Unobservable,
    /// The page is locked in memory. It cannot be reclaimed, so that it does not matter whether it is idle.
    Unevictable,
}

/// The highest number of intervals in a row that is counted.
pub const MOST_INTERVALS: u8 = 250;

/// How much of some memory is accessed and how much is idle, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleTally {
    /// Bytes accessed in the last interval.
    pub accessed: u64,
    /// Bytes not accessed in the last interval.
    pub idle: u64,
    /// Bytes whose accesses the scan cannot see.
    pub unobservable: u64,
    /// Bytes locked in memory. They are in none of the other sums.
    pub unevictable: u64,
    /// Bytes that processes have freed lazily (`MADV_FREE`) and not used since. They are in none of the other sums.
    pub lazily_freed: u64,
    /// Idle bytes by the number of intervals: for exactly one, for two, and so on.
    by_intervals: Vec<u64>,
}

impl IdleTally {
    /// Adds `bytes` of memory in this state.
    pub fn add(&mut self, state: PageState, bytes: u64) {
        if bytes == 0 {
            return;
        }
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

    /// The sum of accessed, idle and unobservable bytes. Locked and lazily freed memory is left out.
    pub fn size(&self) -> u64 {
        self.accessed + self.idle + self.unobservable
    }

    /// Whether all sums are zero, those of locked and lazily freed memory included.
    pub fn is_empty(&self) -> bool {
        self.size() + self.unevictable + self.lazily_freed == 0
    }

    /// The bytes that have been idle for exactly one interval, for exactly two, and so on. Their sum is
    /// [`idle`](Self::idle). The entry for [`MOST_INTERVALS`] also counts memory that has been idle for longer.
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
        self.lazily_freed += other.lazily_freed;
        for (before, &bytes) in other.by_intervals.iter().enumerate() {
            self.add_idle(before + 1, bytes);
        }
    }
}
