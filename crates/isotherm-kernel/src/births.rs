//! Processes that have begun and are not watched yet: to find those whose parents have ended, and to count those that
//! end before anybody has looked at them.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::listing::ROOT;
use crate::process_events::Life;

/// The process ID of the parent of all threads of the kernel.
const KTHREADD: u32 = 2;

/// How often it is checked which processes there are.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The most processes that are remembered. Further ones are not counted.
const MOST: usize = 65_536;

/// Which of the processes that have begun belong to a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belonging {
    /// All but threads of the kernel.
    All,
    /// The descendants of members.
    Descendants,
    /// It is not known of a process that has ended.
    Unknown,
}

/// The processes that have begun, belong to a selection, and are no members yet.
#[derive(Debug, Default)]
pub(crate) struct Births {
    waiting: HashSet<u32>,
    /// When it was checked last which of them there are.
    checked: Option<Instant>,
}

impl Births {
    /// Takes in which processes have begun and ended, in their order. Returns how many of them have ended without
    /// becoming members.
    pub(crate) fn take(&mut self, lives: &[Life], belonging: Belonging, is_member: impl Fn(u32) -> bool) -> u64 {
        let mut ended = 0;
        for &life in lives {
            match life {
                Life::Begun { parent, child } => {
                    let belongs = match belonging {
                        Belonging::All => parent != KTHREADD,
                        Belonging::Descendants => is_member(parent) || self.waiting.contains(&parent),
                        Belonging::Unknown => false,
                    };
                    if belongs && child != std::process::id() && self.waiting.len() < MOST {
                        self.waiting.insert(child);
                    }
                }
                Life::Ended(pid) => ended += u64::from(self.waiting.remove(&pid) && !is_member(pid)),
            }
        }
        ended
    }

    /// Forgets those that are members by now. The others are those that wait.
    pub(crate) fn waiting(&mut self, is_member: impl Fn(u32) -> bool) -> Vec<u32> {
        self.waiting.retain(|pid| !is_member(*pid));
        self.waiting.iter().copied().collect()
    }

    /// Now and then, forgets those that do not exist. Returns how many these are. The kernel did not report their end,
    /// because it had no room.
    pub(crate) fn check(&mut self, now: Instant) -> u64 {
        if self.checked.is_some_and(|before| now < before + CHECK_EVERY) {
            return 0;
        }
        self.checked = Some(now);
        let before = self.waiting.len();
        self.waiting.retain(|pid| Path::new(ROOT).join(format!("proc/{pid}")).exists());
        (before - self.waiting.len()) as u64
    }

    /// Forgets one that does not belong to the selection after all.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.waiting.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process ID that nobody has.
    const NOBODY: u32 = u32::MAX - 10;

    fn begun(parent: u32, child: u32) -> Life {
        Life::Begun { parent, child }
    }

    #[test]
    fn descendants_that_have_ended_are_counted_and_others_are_not() {
        let mut births = Births::default();
        let is_member = |pid| pid == 1000 || pid == 1003;
        let lives = [begun(1000, 1001), begun(1001, 1002), begun(4, 5), begun(1000, 1003), Life::Ended(1001)];
        assert_eq!(births.take(&lives, Belonging::Descendants, is_member), 1);
        assert_eq!(births.waiting(is_member), [1002], "1003 has joined");
        assert_eq!(births.take(&[Life::Ended(5), Life::Ended(1003)], Belonging::Descendants, is_member), 0);
        births.take(&[begun(1002, NOBODY)], Belonging::Descendants, is_member);
        births.forget(1002);
        let now = Instant::now();
        assert_eq!((births.check(now), births.check(now + CHECK_EVERY)), (1, 0), "its end was not reported");
    }

    #[test]
    fn threads_of_the_kernel_and_this_process_are_not_counted() {
        let mut births = Births::default();
        let own = std::process::id();
        let lives = [begun(KTHREADD, 1001), begun(1, own), Life::Ended(1001), Life::Ended(own)];
        assert_eq!(births.take(&lives, Belonging::All, |_| false), 0);
        let lives = [begun(1, 1001), Life::Ended(1001)];
        assert_eq!(births.take(&lives, Belonging::Unknown, |_| false), 0);
        assert_eq!(births.take(&lives, Belonging::All, |_| false), 1);
    }
}
