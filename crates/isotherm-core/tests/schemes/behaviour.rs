//! Schemes step by step, in single examples.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, ClosedInterval, Condition, Filter, FilterKind, Gauges, Goal, Metric, NoGauges, PageKind, Pattern,
    ProcessFacts, Quota, RefusalReason, Scheme, Schemes, Watermarks, Weights,
};
use isotherm_core::{PAGE_SIZE, Sink, Snapshot};

use crate::fixtures::{
    AGGREGATION, Log, Region, SAMPLES, TestActuator, TestInspector, pages, process, snapshot, target,
};

const SECOND: Duration = Duration::from_secs(1);

/// Idle for at least `age`.
fn idle(age: Duration) -> Condition {
    Condition {
        rate: ClosedInterval::new(0.0, 0.0).unwrap(),
        age: ClosedInterval::new(age, Duration::MAX).unwrap(),
        ..Condition::ANY
    }
}

fn pageout(age: Duration) -> Scheme {
    Scheme::new("cold", idle(age), Action::PageOut)
}

fn bytes(pages: u64, period: Duration) -> Quota {
    Quota::new(Some(pages * PAGE_SIZE), None, period, Weights::DEFAULT, Vec::new()).unwrap()
}

fn one(nth: u32, regions: &[Region]) -> Snapshot {
    snapshot(nth, vec![target(1, regions, &[(0, 100_000, "")])])
}

#[test]
fn only_regions_that_match_are_acted_on() {
    let log = Log::default();
    let mut schemes =
        Schemes::new(vec![pageout(SECOND)], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    schemes.aggregated(&one(50, &[(0, 10, 0, 10), (10, 20, 0, 9), (20, 30, 1, 50), (30, 40, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 10), (30, 40)]);
    let report = schemes.reports().next().unwrap();
    assert_eq!((report.total.tried_regions, report.total.applied_bytes), (2, 20 * PAGE_SIZE));
}

#[test]
fn unmapped_memory_is_not_acted_on() {
    let log = Log::default();
    let mut schemes =
        Schemes::new(vec![pageout(SECOND)], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    let regions = [(0, 100, 0, 50)];
    schemes
        .aggregated(&snapshot(50, vec![target(1, &regions, &[(10, 20, ""), (20, 25, "a"), (90, 200, "")])]))
        .unwrap();
    assert_eq!(log.take_pages(), [(10, 25), (90, 100)], "ranges that touch become one");
}

#[test]
fn unobservable_memory_is_not_cold() {
    let log = Log::default();
    let all = Scheme { unobserved: true, ..Scheme::new("all", Condition::ANY, Action::Cold) };
    let mut schemes =
        Schemes::new(vec![pageout(SECOND), all], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    let mut found = one(50, &[(0, 10, 0, 50), (10, 20, 0, 50), (20, 30, 0, 50)]);
    found.targets[0].regions[0].nr_unobservable = SAMPLES;
    found.targets[0].regions[1].nr_unobservable = SAMPLES / 2;
    schemes.aggregated(&found).unwrap();
    let calls = log.0.take();
    assert_eq!(calls[0].ranges, [pages(10, 30)], "a region that was observed by half counts");
    assert_eq!(calls[1].ranges, [pages(0, 30)], "a scheme that allows unobserved memory takes it");
    assert_eq!(schemes.reports().next().unwrap().last.unobservable_bytes, 10 * PAGE_SIZE);
}

#[test]
fn another_sampling_interval_makes_memory_neither_hotter_nor_colder() {
    let log = Log::default();
    let hot = Condition { rate: ClosedInterval::new(0.5, 1.0).unwrap(), ..Condition::ANY };
    let hot = || vec![Scheme::new("hot", hot, Action::HugePage)];
    let mut schemes = Schemes::new(hot(), TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    // Memory that is accessed at random, on the mean once in ten samples of the first interval, and memory in use all
    // the time: found by 2 and by all of 20 samples, and by 17 and by all of those that are 20 times as long.
    let of = |found| one(50, &[(0, 512, found, 10), (512, 1024, SAMPLES, 10)]);
    let longer = |found| Snapshot { aggregation: AGGREGATION * 20, ..of(found) };
    schemes.aggregated(&of(2)).unwrap();
    schemes.aggregated(&longer(17)).unwrap();
    assert_eq!(log.take_pages(), [(512, 1024), (512, 1024)]);
    // Schemes that are put in force later are about the interval of their time.
    schemes.replace(hot()).unwrap();
    schemes.aggregated(&longer(17)).unwrap();
    assert_eq!(log.take_pages(), [(0, 1024)]);
    schemes.aggregated(&of(2)).unwrap();
    assert_eq!(log.take_pages(), [(0, 1024)]);
    // Or about the one that is given.
    schemes.replace(hot()).unwrap();
    schemes.compare_over(AGGREGATION / SAMPLES);
    schemes.aggregated(&longer(17)).unwrap();
    assert_eq!(log.take_pages(), [(512, 1024)]);
}

#[test]
fn a_scheme_asks_for_short_aggregations_by_its_times_and_for_the_default_ones_if_it_compares_rates() {
    let longest = |scheme: Scheme| scheme.longest_aggregation();
    assert_eq!(longest(pageout(SECOND * 60)), Some(SECOND));
    assert_eq!(longest(pageout(SECOND * 2)), Some(SECOND * 2 / 5));
    assert_eq!(longest(Scheme::new("all", Condition::ANY, Action::PageOut)), Some(SECOND));
    let often = Scheme { apply_interval: Some(SECOND / 2), ..pageout(SECOND * 60) };
    assert_eq!(longest(often), Some(SECOND / 2));
    assert_eq!(longest(Scheme { quota: bytes(1, SECOND / 4), ..pageout(SECOND * 60) }), Some(SECOND / 4));
    let hot = Condition { rate: ClosedInterval::new(0.5, 1.0).unwrap(), ..Condition::ANY };
    assert_eq!(longest(Scheme::new("hot", hot, Action::HugePage)), None);
}

#[test]
fn after_an_action_the_age_starts_again() {
    let log = Log::default();
    let mut schemes =
        Schemes::new(vec![pageout(SECOND)], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    let acted: Vec<u32> = (10..40)
        .filter(|&nth| {
            schemes.aggregated(&one(nth, &[(0, 10, 0, nth)])).unwrap();
            !log.take().is_empty()
        })
        .collect();
    assert_eq!(acted, [10, 20, 30]);
}

#[test]
fn the_age_starts_again_exactly_where_an_action_was_even_if_regions_are_merged() {
    let log = Log::default();
    let mut schemes =
        Schemes::new(vec![pageout(SECOND)], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    schemes.aggregated(&one(20, &[(0, 10, 0, 20), (10, 20, 0, 8)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 10)]);
    schemes.aggregated(&one(23, &[(0, 20, 0, 16)])).unwrap();
    assert_eq!(log.take_pages(), [(10, 20)]);
}

#[test]
fn memory_that_an_earlier_scheme_acted_on_is_of_age_zero_for_a_later_one() {
    let log = Log::default();
    let cold = Scheme::new("later", idle(SECOND), Action::Cold);
    let mut schemes =
        Schemes::new(vec![pageout(SECOND * 2), cold], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    schemes.aggregated(&one(50, &[(0, 10, 0, 30), (10, 20, 0, 15)])).unwrap();
    let calls = log.0.take();
    assert_eq!(calls.iter().map(|call| call.action).collect::<Vec<_>>(), [Action::PageOut, Action::Cold]);
    assert_eq!(calls[1].ranges[0].start(), 10 * PAGE_SIZE);
}

#[test]
fn the_action_stat_changes_no_age() {
    let log = Log::default();
    let stat = Scheme::new("stat", idle(SECOND), Action::Stat);
    let mut schemes = Schemes::new(vec![stat], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    for nth in 20..25 {
        schemes.aggregated(&one(nth, &[(0, 10, 0, 20)])).unwrap();
    }
    assert_eq!(schemes.reports().next().unwrap().total.applied_bytes, 50 * PAGE_SIZE);
    assert!(log.take().is_empty(), "the actuator is not called");
}

#[test]
fn allowing_huge_pages_ahead_changes_no_age() {
    let log = Log::default();
    let scheme = Scheme { inside: true, ..Scheme::new("ahead", idle(SECOND), Action::HugePageAhead) };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    for nth in 20..25 {
        schemes.aggregated(&one(nth, &[(0, 10, 0, 20)])).unwrap();
    }
    assert_eq!(log.take().len(), 5);
}

#[test]
fn the_action_stat_counts_a_region_as_one_however_large_it_is() {
    let log = Log::default();
    let stat = Scheme::new("stat", idle(SECOND), Action::Stat);
    let mut schemes = Schemes::new(vec![stat], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    // Actions take 32 MiB at a time.
    let pages = 90_000;
    schemes.aggregated(&one(20, &[(0, pages, 0, 20)])).unwrap();
    let report = schemes.reports().next().unwrap();
    assert_eq!((report.last.regions.len(), report.total.applied_bytes), (1, pages * PAGE_SIZE));
}

#[test]
fn a_period_goes_on_where_the_quota_of_the_last_one_ended() {
    let log = Log::default();
    let scheme = Scheme { quota: bytes(25, SECOND), ..pageout(SECOND) };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    let mut taken = Vec::new();
    for nth in 10..50 {
        schemes.aggregated(&one(nth * 2, &[(0, 40, 0, 500), (40, 100, 0, 500)])).unwrap();
        taken.extend(log.take_pages());
    }
    assert_eq!(taken[..5], [(0, 25), (25, 50), (50, 75), (75, 100), (0, 25)]);
    let report = schemes.reports().next().unwrap();
    assert_eq!(report.quota, Some(25 * PAGE_SIZE));
    assert!(report.total.quota_exceeded >= 3);
}

#[test]
fn the_coldest_is_reclaimed_first_and_the_hottest_gets_huge_pages_first() {
    let regions = [(0, 1024, 4, 100), (1024, 2048, 18, 100), (2048, 3072, 2, 100)];
    for (action, first) in [(Action::PageOut, 2048), (Action::Collapse, 1024)] {
        let log = Log::default();
        let scheme = Scheme { quota: bytes(1024, SECOND), ..Scheme::new("first", Condition::ANY, action) };
        let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
        schemes.aggregated(&one(1, &regions)).unwrap();
        assert_eq!(log.take_pages(), [(first, first + 1024)]);
        assert_eq!(schemes.reports().next().unwrap().last.held_back_bytes, 2048 * PAGE_SIZE);
    }
}

#[test]
fn actions_on_huge_pages_get_whole_huge_pages() {
    let log = Log::default();
    let scheme = Scheme { quota: bytes(1500, SECOND), ..Scheme::new("huge", Condition::ANY, Action::HugePage) };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    schemes.aggregated(&one(1, &[(100, 5000, 20, 1), (5000, 5100, 20, 1)])).unwrap();
    assert_eq!(log.take_pages(), [(512, 1536)]);
}

#[test]
fn schemes_that_share_a_quota_keep_to_it_together_and_the_first_one_has_precedence() {
    let log = Log::default();
    let hot = Condition { rate: ClosedInterval::new(0.5, 1.0).unwrap(), ..Condition::ANY };
    let first = Scheme { quota: bytes(10, SECOND), ..pageout(Duration::ZERO) };
    let shared = |more: Vec<Goal>| first.quota.shared("cold".into(), Weights::DEFAULT, more);
    let second = Scheme { quota: shared(Vec::new()), ..Scheme::new("second", hot, Action::PageOut) };
    let schemes = vec![first.clone(), second.clone()];
    let mut engine = Schemes::new(schemes, TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    // The periods begin at each tenth aggregation.
    for (nth, cold, expected) in [
        (1, 6, vec![(0, 6), (100, 104)]),
        (2, 6, vec![]),
        (11, 20, vec![(6, 16)]),
        (21, 3, vec![(0, 3), (100, 107)]),
        (22, 20, vec![]),
    ] {
        engine.aggregated(&one(nth, &[(0, cold, 0, 20), (100, 200, 20, 20)])).unwrap();
        assert_eq!(log.take_pages(), expected, "aggregation {nth}");
    }
    let refused = |schemes: Vec<Scheme>| {
        let made = Schemes::new(schemes, TestActuator::new(&log), TestInspector::NONE, NoGauges);
        made.err().unwrap().source.to_string()
    };
    assert!(refused(vec![second.clone(), first.clone()]).contains("no scheme before this one has the name \"cold\""));
    let third = Scheme { quota: first.quota.shared("second".into(), Weights::DEFAULT, vec![]), ..second.clone() };
    let third = Scheme { name: "third".into(), ..third };
    assert!(refused(vec![first, second, third]).contains("\"second\" shares the quota of another scheme"));
}

#[test]
fn a_quota_of_time_is_kept() {
    let log = Log::default();
    let quota = Quota::new(None, Some(Duration::from_millis(10)), SECOND, Weights::DEFAULT, Vec::new()).unwrap();
    let scheme = Scheme { quota, ..Scheme::new("slow", Condition::ANY, Action::PageOut) };
    let made = TestActuator { time_per_page: Duration::from_micros(100), ..TestActuator::new(&log) };
    let mut schemes = Schemes::new(vec![scheme], made, TestInspector::NONE, NoGauges).unwrap();
    for nth in 0..200 {
        schemes.aggregated(&one(nth, &[(0, 90_000, 0, nth)])).unwrap();
    }
    // The first mebibyte measures the speed. Its 256 pages take 25.6 ms, which the next periods pay for.
    let spent = schemes.reports().next().unwrap().total.time;
    assert!((Duration::from_millis(180)..=Duration::from_millis(210)).contains(&spent), "{spent:?} in 20 s");
    let limit = schemes.reports().next().unwrap().quota.unwrap();
    assert!((99 * PAGE_SIZE..=100 * PAGE_SIZE).contains(&limit), "100 pages in 10 ms, not {limit} bytes");
}

#[test]
fn an_action_slower_than_its_quota_acts_on_single_pages_and_pays_for_them() {
    let log = Log::default();
    let quota = Quota::new(None, Some(Duration::from_millis(1)), SECOND, Weights::DEFAULT, Vec::new()).unwrap();
    let scheme = Scheme { quota, ..Scheme::new("slow", Condition::ANY, Action::PageOut) };
    let made = TestActuator { time_per_page: Duration::from_millis(5), ..TestActuator::new(&log) };
    let mut schemes = Schemes::new(vec![scheme], made, TestInspector::NONE, NoGauges).unwrap();
    let mut late = 0;
    for nth in 0..20_000 {
        schemes.aggregated(&one(nth, &[(0, 90_000, 0, nth)])).unwrap();
        let pages = log.take().len();
        late += if nth >= 15_000 { pages } else { 0 };
    }
    assert_eq!(late, 100, "one page, which takes 5 ms, in every 5 s of 500 s");
}

#[test]
fn a_scheme_is_applied_once_in_each_apply_interval() {
    let log = Log::default();
    let scheme = Scheme { apply_interval: Some(SECOND), ..Scheme::new("now and then", Condition::ANY, Action::Cold) };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    let applied: Vec<u32> = (1..30)
        .filter(|&nth| {
            schemes.aggregated(&one(nth, &[(0, 10, 0, 20)])).unwrap();
            !log.take().is_empty()
        })
        .collect();
    assert_eq!(applied, [1, 11, 21]);
}

#[test]
fn refused_memory_is_counted_by_reason_and_not_tried_again_at_once() {
    let log = Log::default();
    let refuses =
        |range: isotherm_core::AddrRange| (range.start() < 20 * PAGE_SIZE).then_some(RefusalReason::Busy.with_code(11));
    let made = TestActuator { refuses, ..TestActuator::new(&log) };
    let mut schemes = Schemes::new(vec![pageout(SECOND)], made, TestInspector::NONE, NoGauges).unwrap();
    for nth in 20..25 {
        schemes.aggregated(&one(nth, &[(0, 10, 0, nth), (50, 60, 0, nth)])).unwrap();
    }
    let total = &schemes.reports().next().unwrap().total;
    assert_eq!((total.tried_bytes, total.applied_bytes), (20 * PAGE_SIZE, 10 * PAGE_SIZE));
    let refusals: Vec<_> = total.refusals.iter().map(|r| (r.refusal, r.regions, r.bytes)).collect();
    assert_eq!(refusals, [(RefusalReason::Busy.with_code(11), 1, 10 * PAGE_SIZE)]);
}

#[test]
fn young_pages_are_left_out_page_by_page() {
    let log = Log::default();
    let young = Filter { kind: FilterKind::Pages(PageKind::Young), matching: true, allow: false };
    let scheme = Scheme { filters: vec![young], quota: bytes(5, SECOND), ..pageout(SECOND) };
    let rules = TestInspector { is_of: |_, page| page % 4 == 0, ..TestInspector::NONE };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), rules, NoGauges).unwrap();
    schemes.aggregated(&one(50, &[(0, 100, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(1, 4), (5, 7)], "the quota counts pages that are acted on");
    let total = &schemes.reports().next().unwrap().total;
    assert_eq!((total.passed_bytes, total.rejected_bytes), (5 * PAGE_SIZE, 2 * PAGE_SIZE));
    assert_eq!(total.tried_bytes, 7 * PAGE_SIZE);
}

#[test]
fn without_a_survey_absent_pages_are_not_taken_away() {
    let rules = || TestInspector { is_present: |page| page % 10 < 3, ..TestInspector::NONE };
    let applied = |action| {
        let log = Log::default();
        let scheme = Scheme::new("any", Condition::ANY, action);
        let scheme = Scheme { quota: bytes(8, SECOND), ..scheme };
        let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), rules(), NoGauges).unwrap();
        schemes.aggregated(&one(50, &[(0, 100, 0, 50)])).unwrap();
        let total = &schemes.reports().next().unwrap().total;
        (log.take_pages(), total.passed_bytes / PAGE_SIZE, total.rejected_bytes)
    };
    for action in [Action::PageOut, Action::Cold] {
        assert_eq!(
            applied(action),
            (vec![(0, 3), (10, 13), (20, 21), (21, 22)], 8, 0),
            "the quota counts what is present"
        );
    }
    assert_eq!(applied(Action::WillNeed), (vec![(0, 8)], 8, 0));
}

#[test]
fn filters_of_pages_and_of_mappings_are_evaluated_in_one_order() {
    let log = Log::default();
    let filter = |allow, kind| Filter { kind, matching: true, allow };
    let filters = vec![
        filter(true, FilterKind::Mapping(Pattern::new("[heap]"))),
        filter(false, FilterKind::Pages(PageKind::Young)),
        filter(false, FilterKind::Mapping(Pattern::new("/lib/*"))),
    ];
    let scheme = Scheme { filters, ..pageout(SECOND) };
    let rules = TestInspector { is_of: |_, page| page % 2 == 0, ..TestInspector::NONE };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), rules, NoGauges).unwrap();
    let mappings = [(0, 4, "[heap]"), (4, 8, "/lib/c.so"), (8, 12, "")];
    schemes.aggregated(&snapshot(50, vec![target(1, &[(0, 12, 0, 50)], &mappings)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 4), (9, 10), (11, 12)]);
}

#[test]
fn a_process_without_facts_is_left_out_if_a_filter_needs_them() {
    let log = Log::default();
    let kind = FilterKind::Command(Pattern::new("postgres"));
    let filters = vec![Filter { kind, matching: true, allow: false }];
    let facts = |target| {
        let name = if target == process(1) { "postgres" } else { "cat" };
        (target != process(2)).then(|| ProcessFacts { name: name.into(), ..Default::default() })
    };
    let rules = TestInspector { process: facts, ..TestInspector::NONE };
    let scheme = Scheme { filters, ..pageout(SECOND) };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), rules, NoGauges).unwrap();
    let targets = (1..=3).map(|id| target(id, &[(0, 9, 0, 50)], &[(0, 9, "")])).collect();
    schemes.aggregated(&snapshot(50, targets)).unwrap();
    assert_eq!(log.take().into_iter().map(|(target, _)| target).collect::<Vec<_>>(), [process(3)]);
}

/// Free memory that the test sets.
#[derive(Clone, Default)]
struct Free(Rc<Cell<f64>>);

impl Gauges for Free {
    fn read(&mut self, metric: &Metric, _snapshot: &Snapshot) -> Option<f64> {
        (*metric == Metric::FreeMemory).then(|| self.0.get())
    }
}

#[test]
fn the_driver_learns_until_when_all_schemes_sleep() {
    let log = Log::default();
    let free = Free::default();
    let marks = |high| Some(Watermarks::new(Metric::FreeMemory, SECOND, high, 0.3, 0.1).unwrap());
    let one_mark = Scheme { watermarks: marks(0.5), ..pageout(SECOND) };
    let other = Scheme { watermarks: marks(0.8), name: "other".into(), ..pageout(SECOND) };
    let mut schemes =
        Schemes::new(vec![one_mark, other], TestActuator::new(&log), TestInspector::NONE, free.clone()).unwrap();
    let regions = [(0, 10, 0, 50)];

    free.0.set(0.2);
    schemes.aggregated(&one(50, &regions)).unwrap();
    assert_eq!(schemes.sleeps_until(), None);
    assert_eq!(log.take().len(), 1);

    free.0.set(0.6);
    schemes.look(AGGREGATION * 60, &Snapshot::default());
    assert_eq!(schemes.reports().map(|report| report.awake).collect::<Vec<_>>(), [false, true]);
    assert_eq!(schemes.sleeps_until(), None);

    free.0.set(0.9);
    schemes.aggregated(&one(70, &regions)).unwrap();
    assert_eq!(schemes.sleeps_until(), Some(AGGREGATION * 80));
    schemes.aggregated(&one(90, &regions)).unwrap();
    assert!(log.take().is_empty());
}

#[test]
fn a_scheme_that_is_not_possible_is_an_error_and_leaves_the_present_ones_in_force() {
    let log = Log::default();
    let made = TestActuator { unsupported: Some(Action::Collapse), ..TestActuator::new(&log) };
    let mut schemes = Schemes::new(vec![pageout(SECOND)], made, TestInspector::NONE, NoGauges).unwrap();
    let collapse = Scheme::new("huge", Condition::ANY, Action::Collapse);
    let error = isotherm_core::chain(&schemes.replace(vec![pageout(SECOND), collapse]).unwrap_err());
    assert!(error.contains("\"huge\"") && error.contains("take another"), "{error}");
    let lock = Scheme::new("lock", Condition::ANY, Action::MLock);
    let error = isotherm_core::chain(&schemes.replace(vec![lock]).unwrap_err());
    assert!(error.contains("inside: true"), "{error}");
    assert_eq!(schemes.schemes().map(|scheme| &*scheme.name).collect::<Vec<_>>(), ["cold"]);
}

#[test]
fn a_replaced_scheme_keeps_the_use_of_its_quota() {
    let log = Log::default();
    let with = |pages| vec![Scheme { quota: bytes(pages, SECOND * 10), ..pageout(SECOND) }];
    let mut schemes = Schemes::new(with(20), TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    schemes.aggregated(&one(50, &[(0, 100, 0, 50)])).unwrap();
    schemes.replace(with(30)).unwrap();
    schemes.aggregated(&one(51, &[(0, 100, 0, 51)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 20), (20, 30)]);
    assert_eq!(schemes.reports().next().unwrap().total.applied_bytes, 30 * PAGE_SIZE);
}

fn locks() -> Scheme {
    let hot = Condition { rate: ClosedInterval::new(0.1, 1.0).unwrap(), ..Condition::ANY };
    Scheme { inside: true, ..Scheme::new("lock", hot, Action::MLock) }
}

#[test]
fn the_hottest_memory_is_locked_first_and_no_more_than_there_is_room_for() {
    let log = Log::default();
    let little = TestActuator { lockable: 40 * PAGE_SIZE, ..TestActuator::new(&log) };
    let mut schemes = Schemes::new(vec![locks()], little, TestInspector::NONE, NoGauges).unwrap();
    schemes.aggregated(&one(50, &[(0, 30, 3, 50), (30, 60, 18, 50), (60, 90, 0, 50)])).unwrap();
    assert_eq!(log.take_pages(), [(0, 10), (30, 60)]);
}

#[test]
fn memory_is_locked_and_unlocked_once_in_a_minute_or_when_the_other_was_done_to_it() {
    let log = Log::default();
    let unlock = Scheme { inside: true, ..Scheme::new("unlock", idle(SECOND), Action::MUnlock) };
    let schemes = vec![locks(), unlock];
    let mut schemes = Schemes::new(schemes, TestActuator::new(&log), TestInspector::NONE, NoGauges).unwrap();
    let mut acted = |second: u32, hot: bool| {
        let accesses = if hot { 18 } else { 0 };
        schemes.aggregated(&one(second * 10, &[(0, 30, accesses, 50), (30, 60, 18, 50)])).unwrap();
        log.take_pages()
    };
    assert_eq!(acted(5, true), [(0, 60)]);
    assert!((6..64).all(|second| acted(second, true).is_empty()));
    assert_eq!(acted(65, true), [(0, 60)]);
    assert_eq!(acted(66, false), [(0, 30)], "it is unlocked");
    assert!((67..70).all(|second| acted(second, false).is_empty()));
    assert_eq!(acted(70, true), [(0, 30)], "and locked again");
}
