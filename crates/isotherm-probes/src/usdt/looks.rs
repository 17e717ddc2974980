//! The times at which the files of a process are checked: when it joins or executes a new program, and again and again
//! after that, because a process maps libraries at any time. The gap doubles from look to look.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The first gap between two looks: a program maps its libraries right after its start.
const SHORTEST_GAP: Duration = Duration::from_millis(5);
/// The last gap between two looks.
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// After a look that is not the first, this many times as long passes until the next such look: they take at most 0.5 %
/// of a CPU.
const REST: u32 = 200;

/// A process whose files are checked.
#[derive(Debug)]
struct Process {
    due: Instant,
    /// The gap after the next look. `None` before the first look.
    gap: Option<Duration>,
    /// Whether checks continue with the longest gap.
    stays: bool,
}

/// The looks that are to come.
#[derive(Debug)]
pub(super) struct Looks {
    processes: HashMap<u32, Process>,
    /// No look is due before, except first ones.
    rests_until: Instant,
    /// Whether a process was looked at for as long as libraries usually take to come.
    settled: bool,
}

/// A look that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) pid: u32,
    /// Whether it is the first one of the process or its program.
    pub(super) first: bool,
}

impl Looks {
    pub(super) fn new(now: Instant) -> Self {
        Self { processes: HashMap::new(), rests_until: now, settled: false }
    }

    /// A process joins. It is checked until it leaves.
    pub(super) fn join(&mut self, pid: u32, now: Instant) {
        self.processes.insert(pid, Process { due: now, gap: None, stays: true });
    }

    /// A process executes a new program. A process that has not joined is checked for a while.
    pub(super) fn new_program(&mut self, pid: u32, now: Instant) {
        let process = self.processes.entry(pid).or_insert(Process { due: now, gap: None, stays: false });
        (process.due, process.gap) = (now, None);
    }

    /// A process has left or ended.
    pub(super) fn leave(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// The look that is to come next, if it is due. First looks come before others.
    pub(super) fn next(&self, now: Instant) -> Option<Due> {
        let due = self.processes.iter().filter(|(_, process)| self.due(process) <= now);
        let (pid, process) = due.min_by_key(|(_, process)| (process.gap.is_some(), process.due))?;
        Some(Due { pid: *pid, first: process.gap.is_none() })
    }

    /// How long it is until a look is due.
    pub(super) fn until_next(&self, now: Instant) -> Option<Duration> {
        let next = self.processes.values().map(|process| self.due(process)).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn due(&self, process: &Process) -> Instant {
        if process.gap.is_some() { process.due.max(self.rests_until) } else { process.due }
    }

    /// A look at this process has ended at `now` and took `cost`.
    pub(super) fn looked(&mut self, look: Due, now: Instant, cost: Duration) {
        if !look.first {
            self.rests_until = now + cost * REST;
        }
        let Some(process) = self.processes.get_mut(&look.pid) else { return };
        let gap = process.gap.unwrap_or(SHORTEST_GAP);
        process.due = now + gap;
        process.gap = Some((gap * 2).min(LONGEST_GAP));
        if gap >= LONGEST_GAP {
            self.settled = true;
            if !process.stays {
                self.processes.remove(&look.pid);
            }
        }
    }

    /// Whether a process was looked at for as long as libraries usually take to come.
    pub(super) fn have_settled(&self) -> bool {
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(1);

    /// The times of the looks at a process within ten seconds, from its first one on, in milliseconds.
    fn times(looks: &mut Looks, pid: u32, start: Instant) -> Vec<u128> {
        let mut times = Vec::new();
        for time in (0..10_000).map(|ms| start + Duration::from_millis(ms)) {
            while let Some(due) = looks.next(time) {
                looks.looked(due, time, SHORT);
                if due.pid == pid {
                    times.push((time - start).as_millis());
                }
            }
        }
        times
    }

    #[test]
    fn looks_at_a_member_become_rare_and_go_on() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        looks.join(7, start);
        assert!(!looks.have_settled());
        let times = times(&mut looks, 7, start);
        assert_eq!(times, [0, 5, 15, 35, 75, 155, 315, 635, 1275, 2555, 4555, 6555, 8555]);
        assert!(looks.have_settled());
    }

    #[test]
    fn a_process_that_never_joins_is_forgotten_after_a_while() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        looks.new_program(7, start);
        assert_eq!(times(&mut looks, 7, start).last(), Some(&2555));
        assert_eq!(looks.until_next(start), None);
    }

    #[test]
    fn a_new_program_of_a_member_is_looked_at_at_once_and_it_stays_a_member() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        looks.join(7, start);
        times(&mut looks, 7, start);
        let later = start + Duration::from_secs(20);
        looks.new_program(7, later);
        assert_eq!(looks.next(later), Some(Due { pid: 7, first: true }));
        assert_eq!(times(&mut looks, 7, later).last(), Some(&8555));
        looks.leave(7);
        assert_eq!(looks.next(later + Duration::from_secs(60)), None);
    }

    #[test]
    fn looks_that_take_long_are_rare_and_first_looks_are_not_held_up() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        looks.join(7, start);
        looks.looked(Due { pid: 7, first: true }, start, SHORT);
        looks.looked(Due { pid: 7, first: false }, start, Duration::from_millis(100));
        assert_eq!(looks.until_next(start), Some(Duration::from_secs(20)));
        looks.join(8, start);
        assert_eq!(looks.next(start), Some(Due { pid: 8, first: true }));
    }
}
