//! What becomes of hot memory that waits for room in a full fast node, second by second.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Actuator, ClosedInterval, Condition, Gauges, Goal, Metric, NodePart, Outcome, PageInspector, PageKind,
    ProcessFacts, Quota, Refusal, Report, Scheme, Schemes, Weights, Work,
};
use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, PageBits, PageHistory};
use isotherm_core::tiering::IDLE;
use isotherm_core::{AddrRange, BoxError, NodeId, PAGE_SIZE, Sink, Snapshot, TargetId};

use crate::fixtures::{process, snapshot, target};

/// The memory in blocks, and the size of the fast node. Blocks above that are on the slow node at first.
const BLOCKS: usize = 48;
const FAST: usize = 8;
/// How many blocks are moved in a second in each direction, at most.
const RATE: usize = 4;

/// On which node each page is: whether it is the slow one.
#[derive(Clone)]
struct Machine(Rc<RefCell<Vec<bool>>>);

impl Machine {
    fn used(&self) -> f64 {
        self.0.borrow().iter().filter(|slow| !**slow).count() as f64 / (FAST * BLOCK_PAGES) as f64
    }
}

/// The indices of the pages of a range.
fn pages(range: AddrRange) -> Range<usize> {
    (range.start() / PAGE_SIZE) as usize..(range.end() / PAGE_SIZE) as usize
}

impl Gauges for Machine {
    fn read(&mut self, metric: &Metric, _: &Snapshot) -> Option<f64> {
        match metric {
            Metric::NodeUsed(_) => Some(self.used()),
            Metric::NodeFree(_) => Some(1.0 - self.used()),
            _ => None,
        }
    }

    fn size(&mut self, _: &Metric) -> Option<u64> {
        Some(FAST as u64 * BLOCK_SIZE)
    }
}

impl Actuator for Machine {
    fn supports(&mut self, _: Action, _: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn left_nodes(&mut self, action: Action) -> Vec<NodeId> {
        vec![NodeId(u32::from(action == Action::Demote))]
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        let mut slow = self.0.borrow_mut();
        for (range, outcome) in work.ranges.iter().zip(outcomes) {
            slow[pages(*range)].fill(work.action == Action::Demote);
            *outcome = Outcome::all(*range);
        }
        assert!(slow.iter().filter(|slow| !**slow).count() <= FAST * BLOCK_PAGES, "there is room");
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        Duration::ZERO
    }
}

impl PageInspector for Machine {
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        if kind == PageKind::Young { Err("the test has no look between two surveys".into()) } else { Ok(()) }
    }

    fn process(&mut self, _: TargetId) -> Option<ProcessFacts> {
        None
    }

    fn pages(
        &mut self,
        _: TargetId,
        ranges: &[AddrRange],
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        let slow = self.0.borrow();
        let is_there = |page: &usize| kind == PageKind::Node(NodeId(u32::from(slow[*page])));
        let of_kind = ranges.iter().flat_map(|range| pages(*range)).filter(is_there);
        found.extend(of_kind.map(|page| crate::fixtures::pages(page as u64, page as u64 + 1)));
        Ok(())
    }

    fn time_inspecting(&self) -> Duration {
        Duration::ZERO
    }
}

/// The schemes for two nodes, as `isotherm tier config` has them.
fn schemes() -> Vec<Scheme> {
    let part = || NodePart { node: NodeId(0), cgroup: None };
    let quota = |metric, value| {
        let goals = vec![Goal::new(metric, value).unwrap()];
        let bytes = RATE as u64 * BLOCK_SIZE;
        Quota::new(Some(bytes), None, Duration::from_secs(1), Weights::DEFAULT, goals).unwrap()
    };
    let up = Scheme::new("up", Condition::ANY, Action::Promote);
    let idle = Condition {
        rate: ClosedInterval::new(0.0, 0.0).unwrap(),
        age: ClosedInterval::new(IDLE, Duration::MAX).unwrap(),
        ..Condition::ANY
    };
    let down = Scheme::new("down", idle, Action::Demote);
    vec![
        Scheme { quota: quota(Metric::NodeUsed(part()), 0.999), ..up },
        Scheme { quota: quota(Metric::NodeFree(part()), 0.125), makes_room_for: vec!["up".into()], ..down },
    ]
}

/// Where the blocks are that a survey has found accessed in each second: how many hundredths of a block of them are on
/// the slow node at the end of it. Also what the schemes have done.
fn run(seconds: u32, accessed: impl Fn(u32, usize) -> bool) -> (Vec<usize>, [Report; 2]) {
    let mut slow = vec![true; BLOCKS * BLOCK_PAGES];
    slow[..FAST * BLOCK_PAGES].fill(false);
    let machine = Machine(Rc::new(RefCell::new(slow)));
    let mut engine = Schemes::new(schemes(), machine.clone(), machine.clone(), machine.clone()).unwrap();
    let mut history = PageHistory::default();
    let mut on_slow = Vec::new();
    for second in 1..=seconds {
        let is_accessed = |block: usize| second == 1 || accessed(second, block);
        let bits = |block| if is_accessed(block) { PageBits::ALL } else { PageBits::NONE };
        let found: Vec<BlockPages> = (0..BLOCKS)
            .map(|block| BlockPages {
                start: block as u64 * BLOCK_SIZE,
                present: PageBits::ALL,
                accessed: bits(block),
                ..BlockPages::default()
            })
            .collect();
        history.take(&found, Duration::from_secs(second.into()));
        history.cleared(&history.accessed());
        let size = BLOCK_PAGES as u64;
        let region = |block: usize| {
            (block as u64 * size, (block as u64 + 1) * size, if is_accessed(block) { 20 } else { 0 }, 50)
        };
        let regions: Vec<_> = (0..BLOCKS).map(region).collect();
        let mut target = target(1, &regions, &[(0, BLOCKS as u64 * size, "")]);
        for region in &mut target.regions {
            region.pages = Some(history.pages_in(region.range));
        }
        let histories = vec![(process(1), Arc::new(history.clone()))];
        engine.aggregated(&Snapshot { histories, ..snapshot(second * 10 + 1, vec![target]) }).unwrap();
        let slow = machine.0.borrow();
        let pages_of = |block: usize| &slow[block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES];
        let pages = (0..BLOCKS).filter(|&block| is_accessed(block)).flat_map(pages_of);
        on_slow.push(pages.filter(|slow| **slow).count() * 100 / BLOCK_PAGES);
    }
    let reports: Vec<Report> = engine.reports().cloned().collect();
    (on_slow, reports.try_into().unwrap())
}

/// The blocks that were moved, and the blocks of these of which it is known that they were moved back within a minute.
fn moves(reports: &[Report]) -> [u64; 2] {
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>() / BLOCK_SIZE;
    [sum(|report| report.total.applied_bytes), sum(|report| report.total.returned_bytes)]
}

/// The same for the blocks that were demoted.
fn demotions(reports: &[Report; 2]) -> [u64; 2] {
    moves(&reports[1..])
}

/// A number from 0 to 1 for a block in a second, as if by chance.
fn chance(second: u32, block: usize) -> f64 {
    let mixed = (u64::from(second) << 32 | block as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32) as u32 as f64 / f64::from(u32::MAX)
}

#[test]
fn a_hot_set_that_moved_is_in_place_after_five_seconds() {
    // Six sets of six blocks, each hot for 70 s. The fast node is full of memory that is not used, and then of sets.
    let (on_slow, reports) = run(350, |second, block| block / 6 == 1 + (second / 70 % 6) as usize);
    for (nth, phase) in on_slow[69..].chunks_exact(70).enumerate() {
        assert!(phase[5..].iter().all(|slow| *slow == 0), "phase {}: {phase:?}", nth + 1);
    }
    let [moved, back] = demotions(&reports);
    assert!(moved < 50 && back == 0, "{moved} {back}");
}

#[test]
fn a_set_that_is_larger_than_the_fast_node_fills_it_and_stays() {
    let (on_slow, reports) = run(200, |_, block| (FAST..FAST + FAST * 5 / 4).contains(&block));
    assert!(on_slow[10..].iter().all(|slow| *slow <= 200), "{on_slow:?}");
    let [moved, back] = demotions(&reports);
    assert!(moved <= 9 && back == 0, "{moved} {back}");
}

#[test]
fn memory_that_is_used_alike_stays_where_it_is() {
    // Sixteen blocks, each in one second of four, by chance.
    let chance = |second: u32, block: usize| (second * 31 + block as u32).wrapping_mul(0x9e37_79b9) >> 30 == 0;
    let (_, reports) = run(400, |second, block| (FAST..3 * FAST).contains(&block) && chance(second, block));
    let [moved, back] = moves(&reports);
    assert!(back * 20 < moved, "{moved} {back}");
}

#[test]
fn little_of_memory_that_is_used_alike_comes_back() {
    // The same with other chances, four times.
    let all = (0..4).map(|nth| {
        let is_accessed = |second, block| chance(second + 1000 * nth, block) < 0.25;
        let (_, reports) = run(400, |second, block| (FAST..3 * FAST).contains(&block) && is_accessed(second, block));
        moves(&reports)
    });
    let [moved, back] = all.reduce(|all, of| std::array::from_fn(|nth| all[nth] + of[nth])).unwrap();
    assert!(back * 20 < moved && moved < 4 * 40, "{moved} {back}");
}

#[test]
fn memory_that_is_used_by_zipfs_law_comes_to_its_place_and_little_of_it_comes_back() {
    let frequency = |block: usize| 2.0 / (block + 1 - FAST) as f64;
    let is_accessed = |second, block| block >= FAST && chance(second, block) < 1.0 - (-frequency(block)).exp();
    let (on_slow, reports) = run(400, is_accessed);
    let [moved, back] = moves(&reports);
    assert!(back <= 2, "{back} of {moved}");
    let slow = |seconds: &[usize]| seconds.iter().sum::<usize>() / seconds.len();
    // Where the first eight blocks are in the fast node, the others have this many accesses in a second.
    let best = (2 * FAST..BLOCKS).map(|block| 1.0 - (-frequency(block)).exp()).sum::<f64>() * 100.0;
    assert!((slow(&on_slow[200..]) as f64) < best * 1.15, "{} {best}", slow(&on_slow[200..]));
}

#[test]
fn sets_that_do_not_fit_together_do_not_drive_each_other_out() {
    // Six sets of two blocks, half as much again as the fast node, in turn.
    let (_, reports) = run(400, |second, block| block >= FAST && (block - FAST) / 2 == (second / 5 % 6) as usize);
    let [moved, back] = moves(&reports);
    assert!(back * 10 < moved, "{moved} {back}");
}
