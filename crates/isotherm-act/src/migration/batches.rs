//! Moving pages in batches: makes the calls, reads back where the pages are, and counts what the kernel refused.

use std::collections::BTreeMap;

use isotherm_core::scheme::{Outcome, Refusal, RefusalReason};
use isotherm_core::{AddrRange, NodeId};
use rustix::io::Errno;

use crate::refusal::refusal;

/// The most pages of one call. A call first empties the lists of pages of all CPUs, which is expensive on large
/// machines.
const PAGES_A_CALL: usize = 2048;

/// The most bytes of one call, so that a request to stop is soon obeyed: a node copies some GB in a second.
const BYTES_A_CALL: u64 = 32 << 20;

/// The most pages of a call that tries again what an earlier one has not moved.
const PAGES_A_RETRY: usize = 32;

/// A page that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// Its addresses: 4 KiB, or a whole huge page.
    pub page: AddrRange,
    /// Where to.
    pub to: NodeId,
}

/// Where a page is after a call, or why it was not moved. `EAGAIN`, which is no status of a page, stands for a missing
/// one: the kernel leaves some out if a page could not be moved.
pub(super) type Status = Result<NodeId, Errno>;

/// The pages of a process, and the kernel's calls on them.
pub(super) trait Mover {
    /// Moves pages, each given by its first address, to these nodes. The statuses are those of `move_pages(2)`.
    ///
    /// # Errors
    /// Returns the kernel's error if the call fails as a whole.
    fn migrate(&mut self, pages: &[u64], to: &[NodeId]) -> Result<Vec<Status>, Errno>;

    /// Where pages are.
    ///
    /// # Errors
    /// Returns the kernel's error if the call fails as a whole.
    fn locate(&mut self, pages: &[u64]) -> Result<Vec<Status>, Errno>;

    /// Whether the work is to end.
    fn is_interrupted(&self) -> bool;
}

/// Makes all of `moves`, and counts in `outcomes` what was moved and refused of each of `ranges`. A huge page may lie
/// in several ranges.
///
/// If the target has ended, or access to it is not permitted, all that is left is refused. If a node takes no pages,
/// all that was to go there is.
pub(super) fn move_all(mover: &mut impl Mover, moves: &[Move], ranges: &[AddrRange], outcomes: &mut [Outcome]) {
    let mut closed: BTreeMap<NodeId, Refusal> = BTreeMap::new();
    let mut counted = Counted { ranges, outcomes };
    let mut rest = moves;
    while let Some(first) = rest.first() {
        // A call has one destination, so that an error of the call is about that node.
        let mut bytes = 0;
        let same = rest.iter().take(PAGES_A_CALL).take_while(|one| {
            bytes += one.page.size();
            one.to == first.to && bytes <= BYTES_A_CALL
        });
        let (call, later) = rest.split_at(same.count().max(1));
        if mover.is_interrupted() {
            return counted.refuse_all(rest, RefusalReason::Interrupted.into());
        }
        rest = later;
        if let Some(&why) = closed.get(&first.to) {
            counted.refuse_all(call, why);
            continue;
        }
        match move_to_one_node(mover, call, &mut counted) {
            Err(errno @ (Errno::SRCH | Errno::PERM | Errno::NOSYS)) => {
                return counted.refuse_all(rest, refusal(errno));
            }
            Err(errno @ (Errno::ACCESS | Errno::NODEV)) => drop(closed.insert(first.to, refused_call(errno))),
            Ok(()) | Err(_) => {}
        }
    }
}

/// Moves pages to one node, and counts what became of each.
///
/// # Errors
/// Returns the kernel's error if a call failed as a whole. All pages have been counted then, too.
fn move_to_one_node(mover: &mut impl Mover, moves: &[Move], counted: &mut Counted<'_>) -> Result<(), Errno> {
    let again = attempt(mover, moves, counted).inspect_err(|errno| counted.refuse_all(moves, refused_call(*errno)))?;
    // One page that cannot be moved may have kept others from being tried.
    let mut rest = again.as_slice();
    while !rest.is_empty() {
        let (some, later) = rest.split_at(rest.len().min(PAGES_A_RETRY));
        let left = attempt(mover, some, counted).inspect_err(|errno| counted.refuse_all(rest, refused_call(*errno)))?;
        counted.refuse_all(&left, refusal(Errno::BUSY));
        rest = later;
    }
    Ok(())
}

/// Makes one call and counts what became of its pages. Returns the pages that are where they were for no known reason.
///
/// # Errors
/// Returns the kernel's error if the call fails as a whole. Nothing has been counted then.
fn attempt(mover: &mut impl Mover, moves: &[Move], counted: &mut Counted<'_>) -> Result<Vec<Move>, Errno> {
    let pages: Vec<u64> = moves.iter().map(|one| one.page.start()).collect();
    let nodes: Vec<NodeId> = moves.iter().map(|one| one.to).collect();
    let statuses = mover.migrate(&pages, &nodes)?;
    let located = match moves.iter().zip(&statuses).all(|(one, status)| *status == Ok(one.to)) {
        true => Vec::new(),
        false => mover.locate(&pages)?,
    };
    let mut left = Vec::new();
    for (index, one) in moves.iter().enumerate() {
        let status = statuses.get(index).copied().filter(|status| *status != Err(Errno::AGAIN));
        match (located.get(index).copied().or(status), status) {
            (Some(Ok(node)), _) if node == one.to => counted.apply(one.page),
            (_, Some(Err(errno))) | (Some(Err(errno)), _) => counted.refuse(one.page, refused_page(errno)),
            _ => left.push(*one),
        }
    }
    Ok(left)
}

/// The ranges that were asked for, and what became of each.
struct Counted<'a> {
    ranges: &'a [AddrRange],
    outcomes: &'a mut [Outcome],
}

impl Counted<'_> {
    fn apply(&mut self, page: AddrRange) {
        count(page, self.ranges, |range, bytes| self.outcomes[range].applied += bytes);
    }

    fn refuse(&mut self, page: AddrRange, why: Refusal) {
        count(page, self.ranges, |range, bytes| self.outcomes[range].refuse(bytes, why));
    }

    fn refuse_all(&mut self, moves: &[Move], why: Refusal) {
        moves.iter().for_each(|one| self.refuse(one.page, why));
    }
}

/// Why a call failed as a whole. The node of the call is offline, or the cpuset of the target forbids it, or the target
/// has ended.
fn refused_call(errno: Errno) -> Refusal {
    match errno {
        Errno::NODEV => RefusalReason::Unsupported.with_code(errno.raw_os_error()),
        errno => refusal(errno),
    }
}

/// Why a page was not moved, by its status (`move_pages(2)`, "Page states in the status array").
fn refused_page(errno: Errno) -> Refusal {
    match errno {
        // The page has gone since it was found, or it is the shared page of zeros.
        Errno::NOENT | Errno::FAULT => RefusalReason::NotMapped.with_code(errno.raw_os_error()),
        // Several processes map the page.
        Errno::ACCESS => RefusalReason::Unsuitable.with_code(errno.raw_os_error()),
        errno => refusal(errno),
    }
}

/// Calls `each` with the index of each of `ranges` that has a part of `page`, and with the size of that part.
pub(super) fn count(page: AddrRange, ranges: &[AddrRange], mut each: impl FnMut(usize, u64)) {
    let first = ranges.partition_point(|range| range.end() <= page.start());
    for (index, range) in ranges.iter().enumerate().skip(first) {
        match range.intersection(page) {
            Some(part) => each(index, part.size()),
            None => break,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::PAGE_SIZE;
    use proptest::prelude::*;

    use super::*;

    const FAST: NodeId = NodeId(0);
    const SLOW: NodeId = NodeId(1);

    /// A simulated process: for each page its node, and how the kernel answers.
    struct Simulated {
        pages: Vec<(NodeId, Answer)>,
        /// The number of calls after which the process has ended.
        calls_left: usize,
        /// The error of each call to a node.
        closed: Option<(NodeId, Errno)>,
        interrupted: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Answer {
        Moves,
        /// It stays, and keeps what follows from being tried, as a pinned page does.
        Pinned,
        Status(Errno),
    }

    impl Simulated {
        fn of(pages: &[Answer]) -> Self {
            let pages = pages.iter().map(|answer| (FAST, *answer)).collect();
            Self { pages, calls_left: usize::MAX, closed: None, interrupted: false }
        }
    }

    impl Mover for Simulated {
        fn migrate(&mut self, pages: &[u64], to: &[NodeId]) -> Result<Vec<Status>, Errno> {
            assert!(pages.len() <= PAGES_A_CALL && pages.len() == to.len());
            self.calls_left = self.calls_left.checked_sub(1).ok_or(Errno::SRCH)?;
            if let Some((node, errno)) = self.closed
                && to.contains(&node)
            {
                return Err(errno);
            }
            let mut statuses = Vec::new();
            let mut stuck = false;
            for (addr, to) in pages.iter().zip(to) {
                let (node, answer) = &mut self.pages[(addr / PAGE_SIZE) as usize];
                match answer {
                    Answer::Moves if !stuck => *node = *to,
                    Answer::Status(errno) => {
                        statuses.push(Err(*errno));
                        continue;
                    }
                    Answer::Moves | Answer::Pinned => stuck = true,
                }
                statuses.push(if stuck { Err(Errno::AGAIN) } else { Ok(*node) });
            }
            Ok(statuses)
        }

        fn locate(&mut self, pages: &[u64]) -> Result<Vec<Status>, Errno> {
            Ok(pages.iter().map(|addr| Ok(self.pages[(addr / PAGE_SIZE) as usize].0)).collect())
        }

        fn is_interrupted(&self) -> bool {
            self.interrupted
        }
    }

    fn range(pages: std::ops::Range<u64>) -> AddrRange {
        AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE).unwrap()
    }

    fn moved(simulated: &mut Simulated) -> Outcome {
        let pages = simulated.pages.len() as u64;
        let moves: Vec<Move> = (0..pages).map(|page| Move { page: range(page..page + 1), to: SLOW }).collect();
        let mut outcomes = [Outcome::default()];
        move_all(simulated, &moves, &[range(0..pages)], &mut outcomes);
        outcomes[0]
    }

    #[test]
    fn each_status_of_a_page_is_counted() {
        let refused = |answer| {
            let outcome = moved(&mut Simulated::of(&[Answer::Moves, answer]));
            assert_eq!((outcome.applied, outcome.refused), (PAGE_SIZE, PAGE_SIZE));
            outcome.refusal.unwrap().reason
        };
        assert_eq!(refused(Answer::Pinned), RefusalReason::Busy);
        assert_eq!(refused(Answer::Status(Errno::BUSY)), RefusalReason::Busy);
        assert_eq!(refused(Answer::Status(Errno::NOENT)), RefusalReason::NotMapped);
        assert_eq!(refused(Answer::Status(Errno::FAULT)), RefusalReason::NotMapped);
        assert_eq!(refused(Answer::Status(Errno::ACCESS)), RefusalReason::Unsuitable);
        assert_eq!(refused(Answer::Status(Errno::NOMEM)), RefusalReason::NoMemory);
    }

    #[test]
    fn a_node_that_takes_no_pages_is_asked_once() {
        for (errno, reason) in
            [(Errno::ACCESS, RefusalReason::NotPermitted), (Errno::NODEV, RefusalReason::Unsupported)]
        {
            let mut simulated = Simulated::of(&[Answer::Moves; 3 * PAGES_A_CALL]);
            (simulated.closed, simulated.calls_left) = (Some((SLOW, errno)), 1);
            let outcome = moved(&mut simulated);
            assert_eq!((outcome.applied, outcome.refused), (0, 3 * PAGES_A_CALL as u64 * PAGE_SIZE));
            assert_eq!(outcome.refusal.unwrap().reason, reason);
        }
    }

    #[test]
    fn what_is_left_when_the_target_ends_or_the_work_is_interrupted_is_refused() {
        let all = 2 * PAGES_A_CALL as u64 * PAGE_SIZE;
        let mut simulated = Simulated::of(&[Answer::Moves; 2 * PAGES_A_CALL]);
        simulated.calls_left = 1;
        let outcome = moved(&mut simulated);
        assert_eq!((outcome.applied, outcome.refused), (all / 2, all / 2));
        assert_eq!(outcome.refusal.unwrap().reason, RefusalReason::TargetGone);
        simulated.interrupted = true;
        let outcome = moved(&mut simulated);
        assert_eq!((outcome.applied, outcome.refused), (0, all));
        assert_eq!(outcome.refusal.unwrap().reason, RefusalReason::Interrupted);
    }

    #[test]
    fn a_huge_page_counts_for_each_range_that_has_a_part_of_it() {
        let ranges = [range(0..300), range(300..512)];
        let mut sizes = Vec::new();
        count(range(0..512), &ranges, |index, bytes| sizes.push((index, bytes / PAGE_SIZE)));
        assert_eq!(sizes, [(0, 300), (1, 212)]);
    }

    proptest! {
        #[test]
        fn every_byte_is_counted_as_moved_or_as_refused(
            answers in prop::collection::vec(0_u8..12, 1..200),
            calls_left in prop::option::of(0_usize..4),
        ) {
            let answer = |kind: &u8| match kind {
                0 => Answer::Pinned,
                1 => Answer::Status(Errno::NOENT),
                _ => Answer::Moves,
            };
            let answers: Vec<Answer> = answers.iter().map(answer).collect();
            let mut simulated = Simulated::of(&answers);
            simulated.calls_left = calls_left.unwrap_or(usize::MAX);
            let outcome = moved(&mut simulated);
            prop_assert_eq!(outcome.applied + outcome.refused, answers.len() as u64 * PAGE_SIZE);
            let there = simulated.pages.iter().filter(|(node, _)| *node == SLOW).count() as u64 * PAGE_SIZE;
            prop_assert_eq!(outcome.applied, there);
        }
    }
}
