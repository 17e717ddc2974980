//! The pages that a scan of all page frames covers.

use std::collections::HashSet;

use isotherm_core::FrameSet;

/// The pages to scan: all pages, unless a field is set.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// The pages that are charged to the cgroups with these inode numbers.
    pub(super) cgroups: Option<HashSet<u64>>,
    /// The pages with a frame in this set.
    pub(super) frames: Option<FrameSet>,
}

impl Wanted {
    /// Whether the page of `count` frames from `first` on, charged to `cgroup`, is counted in the totals.
    pub(super) fn counts(&self, cgroup: u64, first: u64, count: u64) -> bool {
        match (&self.cgroups, &self.frames) {
            (Some(cgroups), _) => cgroups.contains(&cgroup),
            (None, Some(frames)) => frames.has_any(first, count),
            (None, None) => true,
        }
    }

    /// Whether the page is scanned, counted or not. A process may map a page that is charged to a cgroup which was not
    /// asked for.
    pub(super) fn has(&self, cgroup: u64, first: u64, count: u64) -> bool {
        self.counts(cgroup, first, count) || self.frames.as_ref().is_some_and(|frames| frames.has_any(first, count))
    }
}
