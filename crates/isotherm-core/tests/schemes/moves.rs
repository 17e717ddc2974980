//! Schemes that move memory between nodes.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Actuator, ClosedInterval, Condition, Gauges, Goal, Metric, NoGauges, NodePart, Outcome, PageKind, Quota,
    Report, Scheme, Schemes, Weights, Work,
};
use isotherm_core::survey::{BlockPages, PageBits, PageHistory};
use isotherm_core::{BoxError, NodeId, PAGE_SIZE, Sink, Snapshot};

use crate::fixtures::{AGGREGATION, Log, Region, TestActuator, TestInspector, process, snapshot, target};

const SECOND: u32 = 10;

fn condition(rate: (f64, f64), age: Duration) -> Condition {
    Condition {
        rate: ClosedInterval::new(rate.0, rate.1).unwrap(),
        age: ClosedInterval::new(age, Duration::MAX).unwrap(),
        ..Condition::ANY
    }
}

fn up() -> Scheme {
    Scheme::new("up", condition((0.5, 1.0), Duration::ZERO), Action::Promote)
}

fn down() -> Scheme {
    Scheme::new("down", condition((0.0, 0.0), AGGREGATION * SECOND), Action::Demote)
}

fn limited(scheme: Scheme, bytes: u64) -> Scheme {
    let quota = Quota::new(Some(bytes), None, AGGREGATION * SECOND, Weights::DEFAULT, Vec::new()).unwrap();
    Scheme { quota, ..scheme }
}

type Engine = Schemes<TestActuator, TestInspector, NoGauges>;

fn engine(schemes: Vec<Scheme>, log: &Log) -> Engine {
    Schemes::new(schemes, TestActuator::new(log), TestInspector::NONE, NoGauges).unwrap()
}

/// The snapshot of the `nth` aggregation of one mapping of 4096 pages.
fn of(nth: u32, regions: &[Region]) -> Snapshot {
    snapshot(nth, vec![target(1, regions, &[(0, 4096, "")])])
}

fn reports(engine: &Engine) -> Vec<Report> {
    engine.reports().cloned().collect()
}

#[test]
fn without_a_survey_hot_memory_is_promoted_after_two_aggregations_have_found_it_hot() {
    let log = Log::default();
    let mut engine = engine(vec![up()], &log);
    for age in [0, 1] {
        engine.aggregated(&of(50 + age, &[(0, 512, 20, age)])).unwrap();
        assert_eq!(log.take(), [], "of age {age}");
    }
    engine.aggregated(&of(52, &[(0, 512, 20, 2)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 512)]);
}

#[test]
fn memory_that_was_moved_is_not_moved_back_for_ten_seconds() {
    let log = Log::default();
    let mut engine = engine(vec![up(), down()], &log);
    engine.aggregated(&of(100, &[(0, 512, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 512)], "demoted");
    let mut promoted = Vec::new();
    for nth in 101..=220 {
        engine.aggregated(&of(nth, &[(0, 512, 20, 50)])).unwrap();
        if !log.take_pages().is_empty() {
            promoted.push(nth);
        }
    }
    assert_eq!(promoted.first(), Some(&200), "{promoted:?}");
}

#[test]
fn memory_on_a_node_that_the_action_leaves_is_not_acted_on_and_costs_no_quota() {
    let log = Log::default();
    let actuator = TestActuator { left_node: Some(NodeId(1)), ..TestActuator::new(&log) };
    // The first 4 MiB are on node 1.
    let inspector =
        TestInspector { is_of: |kind, page| kind == PageKind::Node(NodeId(1)) && page < 1024, ..TestInspector::NONE };
    let mut engine = Schemes::new(vec![limited(down(), 4 << 20)], actuator, inspector, NoGauges).unwrap();
    engine.aggregated(&of(100, &[(0, 4096, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(1024, 2048)]);
    let total = &engine.reports().next().unwrap().total;
    assert_eq!((total.applied_bytes, total.rejected_bytes), (4 << 20, 0), "what is in its place is not rejected");
}

#[test]
fn memory_that_the_actuator_finds_in_its_place_costs_no_quota_and_keeps_its_age() {
    let log = Log::default();
    let mut actuator = TestActuator::new(&log);
    actuator.needs_nothing = |range| range.end() <= 1024 * PAGE_SIZE;
    let old = Scheme::new("old", condition((0.0, 0.0), AGGREGATION * 2 * SECOND), Action::PageOut);
    let mut engine =
        Schemes::new(vec![limited(down(), 4 << 20), old], actuator, TestInspector::NONE, NoGauges).unwrap();
    engine.aggregated(&of(15, &[(0, 1024, 0, 15), (1024, 4096, 0, 15)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 1024), (1024, 2048)], "4 MiB that need nothing, and 4 MiB that are moved");
    engine.aggregated(&of(20, &[(0, 1024, 0, 20), (1024, 4096, 0, 20)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 1024), (2048, 4096)], "memory that was not moved is old enough to be reclaimed");
}

#[test]
fn a_quota_below_a_huge_page_moves_small_pages() {
    let log = Log::default();
    let mut engine = engine(vec![limited(down(), 10 * PAGE_SIZE)], &log);
    engine.aggregated(&of(100, &[(0, 512, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 10)]);
}

#[test]
fn a_huge_page_is_not_cut_by_the_quota() {
    let log = Log::default();
    let mut engine = engine(vec![limited(down(), 5 << 20)], &log);
    engine.aggregated(&of(100, &[(100, 4096, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(100, 1024)]);
}

#[test]
fn half_the_quota_is_in_force_while_more_than_a_tenth_is_moved_back_within_a_minute() {
    let log = Log::default();
    let down = limited(Scheme { condition: condition((0.0, 0.0), Duration::ZERO), ..down() }, 16 << 20);
    let mut engine = engine(vec![limited(up(), 16 << 20), down], &log);
    // All memory is cold for 20 s and hot for 20 s.
    let mut returned = Vec::new();
    for nth in 1..=1300 {
        let rate = if nth / 200 % 2 == 0 { 0 } else { 20 };
        engine.aggregated(&of(nth, &[(0, 4096, rate, 50)])).unwrap();
        returned.extend(engine.take_returns());
    }
    let [_, down] = &reports(&engine)[..] else { panic!() };
    assert!(down.total.returned_bytes > down.total.watched_bytes / 10, "{down:?}");
    assert!(down.quota_share.is_some_and(|share| share <= 0.5), "{down:?}");
    let first = returned.iter().find(|returns| &*returns.scheme == "down").unwrap();
    assert!(first.moved && first.too_much && first.slowed, "{first:?}");
    // Nothing is moved back any more.
    for nth in 1301..=8000 {
        engine.aggregated(&of(nth, &[(0, 4096, 0, 50)])).unwrap();
    }
    assert_eq!(reports(&engine)[1].quota_share, None);
}

/// The history of 200 pages after five surveys, one a second, each of which finds these pages accessed.
fn surveyed(accessed: impl Fn(u64, usize) -> bool) -> PageHistory {
    surveyed_until(5, accessed)
}

/// The same after a survey in each second until `last`.
fn surveyed_until(last: u64, accessed: impl Fn(u64, usize) -> bool) -> PageHistory {
    let mut history = PageHistory::default();
    for second in 1..=last {
        let accessed = PageBits::from_fn(|page| page < 200 && accessed(second, page));
        let found = BlockPages { present: PageBits::of(0..200), accessed, ..BlockPages::default() };
        history.take(&[found], Duration::from_secs(second));
        history.cleared(&history.accessed());
    }
    history
}

/// The pages that an engine moves right after these surveys, in the order of its calls.
fn moved_after(history: &PageHistory, rate: u32, mut engine: Engine, log: &Log) -> Vec<(u64, u64)> {
    moved_at(51, history, rate, &mut engine, log)
}

/// The pages that an engine moves in the `nth` aggregation.
fn moved_at(nth: u32, history: &PageHistory, rate: u32, engine: &mut Engine, log: &Log) -> Vec<(u64, u64)> {
    let mut target = target(1, &[(0, 512, rate, 50)], &[(0, 512, "")]);
    target.regions[0].pages = Some(history.pages_in(target.regions[0].range));
    let histories = vec![(process(1), Arc::new(history.clone()))];
    engine.aggregated(&Snapshot { histories, ..snapshot(nth, vec![target]) }).unwrap();
    log.take_pages()
}

#[test]
fn within_a_minute_memory_is_moved_back_only_on_much_evidence() {
    let (log, hot) = (Log::default(), Scheme { condition: Condition::ANY, ..up() });
    let mut engine = engine(vec![down(), hot], &log);
    assert_eq!(moved_at(51, &surveyed_until(5, |second, _| second == 1), 0, &mut engine, &log), [(0, 200)], "demoted");
    // From the 20th second on, the first 40 pages are accessed in each second, and the next 40 twice in ten seconds.
    let accessed = |second: u64, page: usize| {
        second == 1 || (second >= 20 && (page < 40 || (page < 80 && matches!(second % 10, 8 | 0))))
    };
    assert_eq!(moved_at(301, &surveyed_until(30, accessed), 20, &mut engine, &log), [(0, 40)]);
    assert_eq!(moved_at(701, &surveyed_until(70, accessed), 20, &mut engine, &log), [(0, 80)], "after a minute");
    // The test's machine has no nodes: the first 40 pages are promoted each time. Memory that was promoted is demoted
    // after three times the age of the scheme, which is a second.
    let idle = |second: u64, page: usize| if second <= 70 { accessed(second, page) } else { page < 40 || second <= 80 };
    let idle_for = |seconds: u64| surveyed_until(80 + seconds, idle);
    assert_eq!(moved_at(821, &idle_for(2), 0, &mut engine, &log), [(80, 200), (0, 40)]);
    assert_eq!(moved_at(841, &idle_for(4), 0, &mut engine, &log), [(40, 200), (0, 40)]);
}

#[test]
fn a_survey_leaves_idle_pages_to_demotion_and_pages_in_use_to_promotion() {
    let history = surveyed(|second, page| page < 50 && (second == 1 || second == 5));
    let mut moved = Vec::new();
    for (scheme, rate) in [(up(), 20), (down(), 0)] {
        let log = Log::default();
        // The look just before the action finds the first 40 pages accessed.
        let inspector =
            TestInspector { is_of: |kind, page| kind == PageKind::Young && page < 40, ..TestInspector::NONE };
        let engine = Schemes::new(vec![scheme], TestActuator::new(&log), inspector, NoGauges).unwrap();
        moved.push(moved_after(&history, rate, engine, &log));
    }
    assert_eq!(moved, [vec![(0, 40)], vec![(50, 200)]]);
}

/// Promotes at most this many pages. The look just before the move finds no page accessed.
fn promoting(pages: u64, log: &Log) -> Engine {
    engine(vec![limited(Scheme { condition: Condition::ANY, ..up() }, pages * PAGE_SIZE)], log)
}

#[test]
fn memory_that_only_one_look_has_found_accessed_is_not_promoted() {
    let log = Log::default();
    // All memory is read once, from its start to its end, beside memory that is in use.
    let history = surveyed(|second, page| page < 50 || second == 1 || page as u64 / 50 == second - 2);
    assert_eq!(moved_after(&history, 20, promoting(200, &log), &log), [(0, 50)]);
}

#[test]
fn a_scheme_that_asks_for_one_look_promotes_what_one_survey_has_found_accessed() {
    let log = Log::default();
    let history = surveyed(|second, page| page < 50 || second == 1 || page as u64 / 50 == second - 2);
    let once = Scheme { looks: 1, condition: Condition::ANY, ..up() };
    // The last of the five surveys has found the first and the last 50 pages accessed.
    assert_eq!(moved_after(&history, 20, engine(vec![once], &log), &log), [(0, 50), (150, 200)]);
}

#[test]
fn memory_that_more_surveys_have_found_accessed_is_promoted_first() {
    let log = Log::default();
    // The second half in all surveys, the rest in the last two of five, but for 30 pages in one of these.
    let history = surveyed(|second, page| page >= 100 || second == 1 || second == 4 || (second == 5 && page >= 30));
    assert_eq!(moved_after(&history, 0, promoting(100, &log), &log), [(100, 200)]);
    assert_eq!(moved_after(&history, 0, promoting(150, &log), &log), [(30, 80), (100, 200)]);
}

/// A fast node of 1024 pages, shared with what acts on it: the number of pages that are used.
#[derive(Clone)]
struct FastNode(Rc<Cell<u64>>);

const NODE_PAGES: u64 = 1024;

impl Gauges for FastNode {
    fn read(&mut self, metric: &Metric, _: &Snapshot) -> Option<f64> {
        let used = self.0.get() as f64 / NODE_PAGES as f64;
        match metric {
            Metric::NodeUsed(_) => Some(used),
            Metric::NodeFree(_) => Some(1.0 - used),
            _ => None,
        }
    }

    fn size(&mut self, _: &Metric) -> Option<u64> {
        Some(NODE_PAGES * PAGE_SIZE)
    }
}

impl Actuator for FastNode {
    fn supports(&mut self, _: Action, _: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        for (range, outcome) in work.ranges.iter().zip(outcomes) {
            let used = self.0.get();
            self.0.set(if work.action == Action::Promote { used + range.pages() } else { used - range.pages() });
            *outcome = Outcome::all(*range);
        }
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn goals_of_a_node_move_what_they_are_away_and_no_more() {
    let part = || NodePart { node: NodeId(0), cgroup: None };
    let to = |metric, share| {
        let goals = vec![Goal::new(metric, share).unwrap()];
        Quota::new(Some(1 << 30), None, AGGREGATION * SECOND, Weights::DEFAULT, goals).unwrap()
    };
    let up = Scheme { quota: to(Metric::NodeUsed(part()), 0.95), ..up() };
    let down = Scheme { quota: to(Metric::NodeFree(part()), 0.1), ..down() };
    let node = FastNode(Rc::new(Cell::new(1020)));
    let mut engine = Schemes::new(vec![up, down], node.clone(), TestInspector::NONE, node.clone()).unwrap();
    // There is much more to move, in both directions. In each period, what went down makes room for as much.
    let mut used = Vec::new();
    for nth in 100..150 {
        engine.aggregated(&of(nth, &[(0, 2048, 0, 50), (2048, 4096, 20, 50)])).unwrap();
        used.push(node.0.get());
    }
    let (fullest, emptiest) = (NODE_PAGES * 95 / 100, NODE_PAGES * 9 / 10);
    assert_eq!(used[0], emptiest + 1, "all of what has to be free is freed in the first period");
    assert!(used.iter().all(|used| (emptiest..=fullest + 1).contains(used)), "{used:?}");
    let [up, down] = engine.reports().collect::<Vec<_>>()[..] else { panic!() };
    assert!(up.total.applied_bytes >= 4 * 50 * PAGE_SIZE, "{up:?}");
    assert!(down.quota.is_some_and(|quota| quota <= 52 * PAGE_SIZE), "{down:?}");

    // Where nothing is hot, memory goes down once.
    let node = FastNode(Rc::new(Cell::new(1000)));
    let down = Scheme { quota: to(Metric::NodeFree(part()), 0.1), ..self::down() };
    let mut engine = Schemes::new(vec![down], node.clone(), TestInspector::NONE, node.clone()).unwrap();
    (100..150).for_each(|nth| engine.aggregated(&of(nth, &[(0, 2048, 0, 50)])).unwrap());
    let down = engine.reports().next().unwrap();
    assert_eq!((node.0.get(), down.quota), (emptiest + 1, Some(0)));
    assert_eq!(down.total.quota_exceeded, 1, "a goal that is reached needs no more");
}

#[test]
fn a_scheme_that_fills_several_nodes_has_what_is_missing_on_all_of_them() {
    /// The used pages of the nodes 0 and 1.
    struct TwoNodes([u64; 2]);
    impl Gauges for TwoNodes {
        fn read(&mut self, metric: &Metric, _: &Snapshot) -> Option<f64> {
            let Metric::NodeUsed(part) = metric else { return None };
            Some(self.0[part.node.0 as usize] as f64 / NODE_PAGES as f64)
        }

        fn size(&mut self, _: &Metric) -> Option<u64> {
            Some(NODE_PAGES * PAGE_SIZE)
        }
    }
    let quota = |used| {
        let goal = |node| Goal::new(Metric::NodeUsed(NodePart { node: NodeId(node), cgroup: None }), 0.5).unwrap();
        let quota = Quota::new(None, None, AGGREGATION * SECOND, Weights::DEFAULT, vec![goal(0), goal(1)]).unwrap();
        let (actuator, gauges) = (TestActuator::new(&Log::default()), TwoNodes(used));
        let scheme = Scheme { quota, ..up() };
        let mut engine = Schemes::new(vec![scheme], actuator, TestInspector::NONE, gauges).unwrap();
        engine.aggregated(&of(100, &[(0, 2048, 20, 50)])).unwrap();
        engine.reports().next().unwrap().quota.unwrap() / PAGE_SIZE
    };
    assert_eq!(quota([412, 500]), 112);
    assert_eq!(quota([600, 500]), 12, "one is full, and the other has room");
    assert_eq!(quota([600, 512]), 0);
}

#[test]
fn memory_in_which_no_access_was_ever_found_is_demoted_sooner() {
    let seconds = Duration::from_secs;
    let moved = |last: u64, never_accessed, accessed: fn(u64, usize) -> bool| {
        let log = Log::default();
        let condition = condition((0.0, 0.0), seconds(10));
        let mut engine = engine(vec![Scheme { never_accessed, condition, ..down() }], &log);
        moved_at(last as u32 * SECOND + 1, &surveyed_until(last, accessed), 0, &mut engine, &log)
    };
    // The first half is accessed until the third second.
    let accessed = |second, page| second == 1 || (page < 100 && second <= 3);
    assert_eq!(moved(5, Some(seconds(3)), accessed), [(100, 200)]);
    assert_eq!(moved(3, Some(seconds(3)), accessed), [], "idle for two seconds");
    assert_eq!(moved(5, None, accessed), [], "idle for less than ten seconds");
    assert_eq!(moved(14, Some(seconds(3)), accessed), [(0, 200)], "all is idle for ten seconds");
    let once_more = |second, page| second == 1 || second == 6 || (page < 100 && second <= 3);
    assert_eq!(moved(12, Some(seconds(3)), once_more), [], "an access was found");
}

#[test]
fn memory_that_is_not_accessed_again_is_looked_at_more_and_more_rarely() {
    let mut history = surveyed(|second, _| second == 1 || second == 5);
    let log = Log::default();
    let mut engine = engine(vec![up()], &log);
    let looks = |engine: &mut Engine, nth, history: &PageHistory| {
        let mut target = target(1, &[(0, 512, 20, 50)], &[(0, 512, "")]);
        target.regions[0].pages = Some(history.pages_in(target.regions[0].range));
        let histories = vec![(process(1), Arc::new(history.clone()))];
        let before = reports(engine)[0].total.tried_bytes;
        engine.aggregated(&Snapshot { histories, ..snapshot(nth, vec![target]) }).unwrap();
        reports(engine)[0].total.tried_bytes > before
    };
    // The survey was at the 50th aggregation.
    let looked: Vec<_> = (51..=100).filter(|&nth| looks(&mut engine, nth, &history)).collect();
    assert_eq!(looked, [51, 52, 54, 58, 66, 82]);
    for (second, accessed) in [(10, PageBits::NONE), (20, PageBits::of(0..200))] {
        let block = BlockPages { present: PageBits::of(0..200), accessed, ..BlockPages::default() };
        history.take(&[block], Duration::from_secs(second));
        history.cleared(&history.accessed());
    }
    assert!(looks(&mut engine, 201, &history), "another survey says that it was accessed");
    assert_eq!(log.take(), []);
}
