//! Which pages a scan of all page frames looks at.

use std::collections::HashSet;

use super::frames::FrameSet;

/// Which pages are looked at: all, unless there is something here.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Those charged to cgroups of these inode numbers.
    pub(super) cgroups: Option<HashSet<u64>>,
    /// Those of which a frame is in the set.
    pub(super) frames: Option<FrameSet>,
}

impl Wanted {
    /// Whether a page is counted that is charged to this cgroup and has `count` frames from the place `index` on.
    pub(super) fn counts(&self, cgroup: u64, index: usize, count: usize) -> bool {
        match (&self.cgroups, &self.frames) {
            (Some(cgroups), _) => cgroups.contains(&cgroup),
            (None, Some(frames)) => frames.has_any(index, count),
            (None, None) => true,
        }
    }

    /// Whether it is looked at, counted or not: a process may have mapped what is charged to a cgroup that nobody asked for.
    pub(super) fn has(&self, cgroup: u64, index: usize, count: usize) -> bool {
        self.counts(cgroup, index, count) || self.frames.as_ref().is_some_and(|frames| frames.has_any(index, count))
    }
}
