//! The pages that a scan of all page frames covers.

use std::collections::HashSet;

use super::frames::FrameSet;

/// The pages to scan: all pages, unless a field is set.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// The pages that are charged to the cgroups with these inode numbers.
    pub(super) cgroups: Option<HashSet<u64>>,
    /// The pages with a frame in this set.
    pub(super) frames: Option<FrameSet>,
}

impl Wanted {
    /// Whether the page of `count` frames from `index` on, charged to `cgroup`, is counted in the totals.
    pub(super) fn counts(&self, cgroup: u64, index: usize, count: usize) -> bool {
        match (&self.cgroups, &self.frames) {
            (Some(cgroups), _) => cgroups.contains(&cgroup),
            (None, Some(frames)) => frames.has_any(index, count),
            (None, None) => true,
        }
    }

    /// Whether the page is scanned, counted or not. A process may map a page that is charged to a cgroup which was not
    /// asked for.
    pub(super) fn has(&self, cgroup: u64, index: usize, count: usize) -> bool {
        self.counts(cgroup, index, count) || self.frames.as_ref().is_some_and(|frames| frames.has_any(index, count))
    }
}
