//! Properties of schemes that hold for all snapshots and all schemes.

use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, ClosedInterval, Condition, Filter, FilterKind, NoGauges, PageKind, Pattern, Quota, Scheme, Schemes, Weights,
};
use isotherm_core::{AddrRange, PAGE_SIZE, Sink, Snapshot, TargetId};
use proptest::prelude::*;

use crate::fixtures::{self, AGGREGATION, Call, Log, Region, TestActuator, TestInspector, pages, snapshot, target};

fn action() -> impl Strategy<Value = Action> {
    prop::sample::select(Action::ALL.as_slice()).prop_map(fixtures::action)
}

fn condition() -> impl Strategy<Value = Condition> {
    (0..300_u64, 0..20_u32, 0..20_u32, 0..30_u32).prop_map(|(size, low, high, age)| Condition {
        size: ClosedInterval::new(size * PAGE_SIZE, u64::MAX).unwrap(),
        rate: ClosedInterval::new(f64::from(low.min(high)) / 20.0, f64::from(low.max(high)) / 20.0).unwrap(),
        age: ClosedInterval::new(AGGREGATION * age, Duration::MAX).unwrap(),
        hz: Condition::ANY.hz,
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    let bytes = prop::option::of((1..4000_u64).prop_map(|pages| pages * PAGE_SIZE));
    let time = prop::option::of((1..50_u64).prop_map(Duration::from_millis));
    (bytes, time, 1..30_u32, (0..5_u32, 0..5_u32, 1..5_u32)).prop_map(|(bytes, time, period, (size, rate, age))| {
        let weights = Weights::new(size, rate, age).unwrap();
        Quota::new(bytes, time, AGGREGATION * period, weights, Vec::new()).unwrap()
    })
}

fn filters() -> impl Strategy<Value = Vec<Filter>> {
    let kind = prop_oneof![
        Just(FilterKind::Anonymous),
        Just(FilterKind::File),
        Just(FilterKind::Mapping(Pattern::new("/lib*"))),
        Just(FilterKind::Process(1)),
        Just(FilterKind::Pages(PageKind::Young)),
        Just(FilterKind::Pages(PageKind::Huge)),
        Just(FilterKind::Pages(PageKind::Compressible)),
        (0..4000_u64, 1..3000_u64).prop_map(|(start, size)| FilterKind::Address(pages(start, start + size))),
    ];
    let filter = (kind, any::<bool>(), any::<bool>());
    prop::collection::vec(filter.prop_map(|(kind, matching, allow)| Filter { kind, matching, allow }), 0..5)
}

pub fn scheme() -> impl Strategy<Value = Scheme> {
    let interval = prop::option::of((1..15_u32).prop_map(|times| AGGREGATION * times));
    (condition(), action(), quota(), filters(), interval).prop_map(|(condition, action, quota, filters, interval)| {
        let scheme = Scheme::new("any", condition, action);
        Scheme { inside: true, quota, filters, apply_interval: interval, ..scheme }
    })
}

/// Regions that touch, from page `start` on, of all frequencies and ages.
fn regions(start: u64) -> impl Strategy<Value = Vec<Region>> {
    prop::collection::vec((1..900_u64, 0..20_u32, 0..60_u32), 1..8).prop_map(move |made| {
        let mut at = start;
        let place = |(size, count, age)| {
            at += size;
            (at - size, at, if count > 10 { 0 } else { count }, age)
        };
        made.into_iter().map(place).collect()
    })
}

const NAMES: [&str; 4] = ["", "[heap]", "/lib/c.so", "/data/file"];

fn mappings() -> impl Strategy<Value = Vec<(u64, u64, &'static str)>> {
    let gap = prop_oneof![Just(0), 1..300_u64];
    prop::collection::vec((gap, 1..900_u64, 0..4_usize), 1..8).prop_map(|made| {
        let mut at = 0;
        let place = |(gap, size, name): (u64, u64, usize)| {
            at += gap + size;
            (at - size, at, NAMES[name])
        };
        made.into_iter().map(place).collect()
    })
}

/// Snapshots of two targets, each one or more aggregations after the last.
pub fn snapshots() -> impl Strategy<Value = Vec<Snapshot>> {
    let one = (regions(0), mappings(), regions(700), mappings(), 1..6_u32);
    prop::collection::vec(one, 1..25).prop_map(|made| {
        let mut nth = 0;
        let place = |(a, of_a, b, of_b, after): (Vec<_>, Vec<_>, Vec<_>, Vec<_>, u32)| {
            nth += after;
            snapshot(nth, vec![target(1, &a, &of_a), target(2, &b, &of_b)])
        };
        made.into_iter().map(place).collect()
    })
}

/// Whether a page is of a kind, by its number.
fn is_of(kind: PageKind, page: u64) -> bool {
    match kind {
        PageKind::Present => true,
        PageKind::Young => page.is_multiple_of(7),
        PageKind::Huge => (page / 64).is_multiple_of(3),
        PageKind::Compressible => (page / 16).is_multiple_of(5),
        PageKind::Active => page.is_multiple_of(11),
        PageKind::Unmapped => (page / 8).is_multiple_of(13),
        PageKind::Folio(..) => (page / 4).is_multiple_of(9),
        PageKind::Node(node) => page / 32 % 3 == u64::from(node.0),
    }
}

fn schemes(scheme: &Scheme, log: &Log) -> Schemes<TestActuator, TestInspector, NoGauges> {
    let made = TestActuator { time_per_page: Duration::from_micros(20), ..TestActuator::new(log) };
    Schemes::new(vec![scheme.clone()], made, TestInspector { is_of, ..TestInspector::NONE }, NoGauges).unwrap()
}

/// Whether the filters allow a page, by the rule in their documentation.
fn allowed(filters: &[Filter], snapshot: &Snapshot, target: TargetId, addr: u64) -> bool {
    let of = snapshot.targets.iter().find(|t| t.id == target).unwrap();
    let Some(mapping) = of.mappings.iter().find(|mapping| mapping.range.contains(addr)) else {
        return false;
    };
    let is_file = mapping.name.starts_with('/');
    for filter in filters {
        let is = match &filter.kind {
            FilterKind::Anonymous => !is_file,
            FilterKind::File => is_file,
            FilterKind::Mapping(_) => mapping.name.starts_with("/lib"),
            FilterKind::Process(pid) => target.pid() == Some(*pid),
            FilterKind::Address(range) => range.contains(addr),
            FilterKind::Pages(kind) => is_of(*kind, addr / PAGE_SIZE),
            FilterKind::Command(_) | FilterKind::Cgroup(_) => unreachable!("`filters` makes no {:?}", filter.kind),
        };
        if is == filter.matching {
            return filter.allow;
        }
    }
    filters.last().is_none_or(|last| !last.allow)
}

/// The ranges that were acted on, for each snapshot. The action stat counts as well.
fn acted(scheme: &Scheme, snapshots: &[Snapshot]) -> Vec<Vec<(TargetId, AddrRange)>> {
    let mut schemes = schemes(scheme, &Log::default());
    let regions = snapshots.iter().map(|snapshot| {
        let before = schemes.reports().next().unwrap().total.applications;
        schemes.aggregated(snapshot).unwrap();
        let report = schemes.reports().next().unwrap();
        let new = report.total.applications > before;
        if new { report.last.regions.iter().map(|r| (r.target, r.range)).collect() } else { Vec::new() }
    });
    regions.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_period_sees_more_than_the_quota(scheme in scheme(), snapshots in snapshots()) {
        let Some(quota) = scheme.quota.bytes() else { return Ok(()); };
        let mut began: Option<Duration> = None;
        let mut used = 0;
        for (snapshot, acted) in snapshots.iter().zip(acted(&scheme, &snapshots)) {
            let period = scheme.quota.period();
            let start = *began.get_or_insert(snapshot.time);
            let over = (snapshot.time - start).as_nanos() / period.as_nanos();
            if over > 0 {
                began = Some(start + period * over as u32);
                used = 0;
            }
            used += acted.iter().map(|(_, range)| range.size()).sum::<u64>();
            prop_assert!(used <= quota, "{used} of {quota}");
        }
    }

    #[test]
    fn nothing_outside_the_mappings_and_no_page_that_a_filter_rejects(scheme in scheme(), snapshots in snapshots()) {
        for (snapshot, acted) in snapshots.iter().zip(acted(&scheme, &snapshots)) {
            for (target, range) in acted {
                for page in range.start() / PAGE_SIZE..range.end() / PAGE_SIZE {
                    prop_assert!(allowed(&scheme.filters, snapshot, target, page * PAGE_SIZE), "{target} {range:?}");
                }
            }
        }
    }

    #[test]
    fn only_memory_that_matches_the_condition_and_no_page_twice(scheme in scheme(), snapshots in snapshots()) {
        let mut last: Vec<(Duration, TargetId, AddrRange)> = Vec::new();
        for (snapshot, acted) in snapshots.iter().zip(acted(&scheme, &snapshots)) {
            let mut seen = BTreeSet::new();
            for (target, range) in acted {
                let of = snapshot.targets.iter().find(|t| t.id == target).unwrap();
                for page in range.start() / PAGE_SIZE..range.end() / PAGE_SIZE {
                    prop_assert!(seen.insert((target, page)), "page {page} twice in one application");
                    let region = of.regions.iter().find(|r| r.range.contains(page * PAGE_SIZE)).unwrap();
                    let rate = region.access_rate(snapshot.samples);
                    let age = region.age * snapshot.aggregation;
                    let least = scheme.condition.age.min();
                    prop_assert!(scheme.condition.holds(region.range.size(), rate, 0.0, age.max(least)));
                    prop_assert!(age >= least);
                }
                if scheme.action.restarts_age() {
                    let again = last.iter().any(|(then, t, r)| {
                        *t == target && r.intersection(range).is_some()
                            && snapshot.time - *then < scheme.condition.age.min()
                    });
                    prop_assert!(!again, "the age of acted memory did not start again");
                    last.push((snapshot.time, target, range));
                }
            }
        }
    }

    #[test]
    fn without_a_quota_all_memory_that_matches_is_acted_on(condition in condition(), snapshots in snapshots()) {
        let scheme = Scheme::new("all", condition, Action::Stat);
        for (snapshot, acted) in snapshots.iter().zip(acted(&scheme, &snapshots)) {
            let wanted = |t: &isotherm_core::TargetSnapshot| -> u64 {
                let holds = |r: &isotherm_core::RegionSnapshot| {
                    condition.holds(r.range.size(), r.access_rate(snapshot.samples), 0.0, r.age * snapshot.aggregation)
                };
                t.mapped_bytes().filter(|(region, _)| holds(region)).map(|(_, bytes)| bytes).sum()
            };
            let wanted: u64 = snapshot.targets.iter().map(wanted).sum();
            prop_assert_eq!(acted.iter().map(|(_, range)| range.size()).sum::<u64>(), wanted);
        }
    }

    #[test]
    fn a_quota_never_leaves_out_colder_memory_than_it_takes(
        counts in prop::collection::btree_set(0..20_u32, 2..10), budget in 1..50_u64
    ) {
        // Regions of ten pages, each of another rate, not in the order of rates. Only the rate has a weight.
        let mut counts: Vec<u32> = counts.into_iter().collect();
        counts.rotate_left(1);
        let regions: Vec<Region> =
            (0..).zip(&counts).map(|(nth, &count)| (nth * 10, nth * 10 + 10, count, 5)).collect();
        let weights = Weights::new(0, 1, 0).unwrap();
        let quota = Quota::new(Some(budget * PAGE_SIZE), None, AGGREGATION, weights, Vec::new()).unwrap();
        let scheme = Scheme { quota, ..Scheme::new("coldest", Condition::ANY, Action::PageOut) };
        let taken = &acted(&scheme, &[snapshot(1, vec![target(1, &regions, &[(0, 1000, "")])])])[0];
        let bytes = |region: &Region| -> u64 {
            let range = pages(region.0, region.1);
            taken.iter().filter_map(|(_, taken)| taken.intersection(range)).map(AddrRange::size).sum()
        };
        let mut by_rate = regions.clone();
        by_rate.sort_by_key(|region| region.2);
        let mut left = budget * PAGE_SIZE;
        for region in &by_rate {
            let expected = left.min(10 * PAGE_SIZE);
            prop_assert_eq!(bytes(region), expected, "the region of {} accesses", region.2);
            left -= expected;
        }
    }

    #[test]
    fn equally_cold_memory_is_taken_in_turn_period_after_period(size in 10..5000_u64, budget in 1..700_u64) {
        let quota = Quota::new(Some(budget * PAGE_SIZE), None, AGGREGATION, Weights::DEFAULT, Vec::new()).unwrap();
        let scheme = Scheme { quota, ..Scheme::new("in turn", Condition::ANY, Action::Stat) };
        let rounds = size.div_ceil(budget) as u32;
        let snapshots: Vec<Snapshot> =
            (1..=rounds).map(|nth| snapshot(nth, vec![target(1, &[(0, size, 0, 500)], &[(0, size, "")])])).collect();
        let mut covered: Vec<AddrRange> = acted(&scheme, &snapshots).into_iter().flatten().map(|(_, r)| r).collect();
        covered.sort();
        let mut at = 0;
        for range in covered {
            prop_assert!(range.start() <= at, "a gap at {at:#x}");
            at = at.max(range.end());
        }
        prop_assert_eq!(at, size * PAGE_SIZE);
    }

    #[test]
    fn the_same_snapshots_make_the_same_actions(scheme in scheme(), snapshots in snapshots()) {
        let run = || -> Vec<Call> {
            let log = Log::default();
            let mut schemes = schemes(&scheme, &log);
            snapshots.iter().for_each(|snapshot| schemes.aggregated(snapshot).unwrap());
            log.0.take()
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn collapse_gets_whole_huge_pages(mut scheme in scheme(), snapshots in snapshots()) {
        scheme.action = Action::Collapse;
        for (_, range) in acted(&scheme, &snapshots).into_iter().flatten() {
            prop_assert_eq!((range.start() % (512 * PAGE_SIZE), range.end() % (512 * PAGE_SIZE)), (0, 0));
        }
    }

    #[test]
    fn the_figures_of_a_report_add_up(scheme in scheme(), snapshots in snapshots()) {
        let mut schemes = schemes(&scheme, &Log::default());
        for snapshot in &snapshots {
            schemes.aggregated(snapshot).unwrap();
        }
        let total = &schemes.reports().next().unwrap().total;
        prop_assert!(total.applied_bytes <= total.passed_bytes && total.passed_bytes <= total.tried_bytes);
        prop_assert_eq!(total.refused_bytes(), 0);
    }
}
