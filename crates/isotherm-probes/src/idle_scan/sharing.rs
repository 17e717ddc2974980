//! Memory that several processes map, counted once.
//!
//! First, all frames of all processes are [seen](Sharing::see). Then the frames that were seen more than once are
//! known, and the states in which each process has found them are [merged](Sharing::merge).

use std::collections::HashMap;

use isotherm_core::{FrameMap, FrameSet, PageState};

/// The frames that several processes map.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    seen: FrameSet,
    shared: FrameSet,
    /// For each shared frame its state, and the number of its cgroup in the bits above. 0 if it is not known yet.
    states: FrameMap<u32>,
    cgroups: Cgroups,
}

/// The number of a cgroup among those that a scan has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CgroupNumber(u32);

/// The bits of a state.
const STATE_BITS: u32 = 8;

impl Sharing {
    /// Forgets all frames.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// A process maps these frames.
    pub(super) fn see(&mut self, frames: impl Iterator<Item = u64>) {
        self.seen.insert_all(frames, |frame| {
            self.shared.insert(frame);
        });
    }

    /// Whether a frame was seen more than once.
    pub(super) fn is_shared(&self, frame: u64) -> bool {
        self.shared.contains(frame)
    }

    /// The number of a cgroup. `None` stands for a cgroup that is not known.
    pub(super) fn cgroup(&mut self, path: Option<&str>) -> CgroupNumber {
        self.cgroups.number(path)
    }

    /// A process of `cgroup` has found a shared frame in this state. Of all processes that map it, the one that says
    /// the page is in use counts.
    pub(super) fn merge(&mut self, frame: u64, state: PageState, cgroup: CgroupNumber) {
        let known = self.states.get_mut(frame);
        let (before, above) = (*known & ((1 << STATE_BITS) - 1), CgroupNumber(*known >> STATE_BITS));
        let (rank, cgroup) = match before {
            0 => (rank(state), cgroup),
            before => (rank(state).min(before), self.cgroups.above(above, cgroup)),
        };
        *known = rank | cgroup.0 << STATE_BITS;
    }

    /// Calls `tell` with each shared frame, its state, and the path of the cgroup that is above all processes that map
    /// it.
    pub(super) fn each(&self, mut tell: impl FnMut(u64, PageState, Option<&str>)) {
        for (frame, known) in self.states.iter() {
            let path = self.cgroups.path(CgroupNumber(known >> STATE_BITS));
            tell(frame, state(known & ((1 << STATE_BITS) - 1)), path);
        }
    }
}

/// The order of states: of two, the lower one is that of the page.
fn rank(state: PageState) -> u32 {
    match state {
        PageState::Unevictable => 1,
        PageState::Accessed => 2,
        PageState::Unobservable => 3,
        PageState::Idle(intervals) => 3 + u32::from(intervals.clamp(1, isotherm_core::MOST_INTERVALS)),
    }
}

fn state(rank: u32) -> PageState {
    match rank {
        1 => PageState::Unevictable,
        2 => PageState::Accessed,
        3 => PageState::Unobservable,
        idle => PageState::Idle((idle - 3) as u8),
    }
}

/// The paths of cgroups, by number.
#[derive(Debug, Default)]
struct Cgroups {
    paths: Vec<Option<String>>,
    numbers: HashMap<Option<String>, CgroupNumber>,
    above: HashMap<(CgroupNumber, CgroupNumber), CgroupNumber>,
}

impl Cgroups {
    fn number(&mut self, path: Option<&str>) -> CgroupNumber {
        let path = path.map(str::to_owned);
        *self.numbers.entry(path).or_insert_with_key(|path| {
            self.paths.push(path.clone());
            CgroupNumber(self.paths.len() as u32 - 1)
        })
    }

    fn path(&self, number: CgroupNumber) -> Option<&str> {
        self.paths[number.0 as usize].as_deref()
    }

    /// The lowest cgroup that is above both, or one of them.
    fn above(&mut self, a: CgroupNumber, b: CgroupNumber) -> CgroupNumber {
        if a == b {
            return a;
        }
        if let Some(&known) = self.above.get(&(a, b)) {
            return known;
        }
        let above = match (self.path(a), self.path(b)) {
            (None, _) => b,
            (_, None) => a,
            (Some(one), Some(other)) => {
                let parts = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
                let both = parts(one).into_iter().zip(parts(other)).take_while(|(one, other)| one == other);
                let path = both.map(|(part, _)| part).collect::<Vec<_>>().join("/");
                self.number(Some(if path.is_empty() { "/" } else { &path }))
            }
        };
        self.above.insert((a, b), above);
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_page_counts_once_as_the_process_that_uses_it_most_has_found_it() {
        use PageState::{Accessed, Idle, Unevictable, Unobservable};
        let mut sharing = Sharing::default();
        sharing.see(1..6);
        sharing.see(3..9);
        sharing.see(5..6);
        let shared: Vec<u64> = (0..10).filter(|&frame| sharing.is_shared(frame)).collect();
        assert_eq!(shared, [3, 4, 5]);
        let [a, b, c] = ["/a/x/1", "/a/x/2", "/b"].map(|path| sharing.cgroup(Some(path)));
        let nowhere = sharing.cgroup(None);
        for (frame, state, cgroup) in [
            (3, Idle(7), a),
            (3, Idle(2), b),
            (4, Accessed, a),
            (4, Idle(1), nowhere),
            (4, Unobservable, a),
            (5, Unobservable, a),
            (5, Idle(250), c),
            (5, Unobservable, b),
        ] {
            sharing.merge(frame, state, cgroup);
        }
        let mut found = Vec::new();
        sharing.each(|frame, state, cgroup| found.push((frame, state, cgroup.map(str::to_owned))));
        let expected = [(3, Idle(2), "/a/x"), (4, Accessed, "/a/x/1"), (5, Unobservable, "/")];
        assert_eq!(found, expected.map(|(frame, state, path)| (frame, state, Some(path.to_owned()))));
        sharing.merge(5, Unevictable, a);
        sharing.each(|frame, state, _| assert!(frame != 5 || state == Unevictable));
        sharing.begin();
        assert!(!sharing.is_shared(3));
    }
}
