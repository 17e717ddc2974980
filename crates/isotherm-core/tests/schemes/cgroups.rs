//! Limits of cgroups: what schemes want of them, and when.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, CgroupLimit, ClosedInterval, Condition, Filter, FilterKind, Gauges, Goal, Metric, Quota, Reclaim, Scheme,
    Schemes, TargetUse, Watermarks, Weights,
};
use isotherm_core::{PAGE_SIZE, Sink, Snapshot};

use crate::fixtures::{Log, TestActuator, TestInspector, process};
use crate::surveyed::{Pages, SECOND, history, idle, surveyed};

/// What the kernel brings back, and the share of memory that is free.
#[derive(Clone, Default)]
struct Figures {
    refaults: Rc<Cell<Option<f64>>>,
    free: Rc<Cell<f64>>,
}

impl Gauges for Figures {
    fn read(&mut self, metric: &Metric, _snapshot: &Snapshot) -> Option<f64> {
        match metric {
            Metric::Refaults => self.refaults.get(),
            Metric::FreeMemory => Some(self.free.get()),
            _ => None,
        }
    }
}

type Made = (Schemes<TestActuator, TestInspector, Figures>, Log, Figures);

/// A scheme that limits cgroups to what was not idle for three seconds, as long as nothing is brought back.
fn limit() -> Scheme {
    let action = Action::Limit(CgroupLimit::DEFAULT);
    let quota = Quota::UNLIMITED.with_goals(vec![Goal::new(Metric::Refaults, 0.002).unwrap()]);
    Scheme { quota, ..Scheme::new("limit", idle(SECOND * 3), action) }
}

fn schemes(scheme: Scheme) -> Made {
    let (log, figures) = (Log::default(), Figures::default());
    let made = Schemes::new(vec![scheme], TestActuator::new(&log), TestInspector::NONE, figures.clone());
    (made.unwrap(), log, figures)
}

/// Aggregation `nth`, after a survey in each second before. Of 100 pages, 40 are accessed.
fn look(schemes: &mut Schemes<TestActuator, TestInspector, Figures>, nth: u32) {
    let pages = history(u64::from(nth / 10), Pages { present: |page| page < 100, accessed: |page| page < 40 });
    schemes.aggregated(&surveyed(nth, &[(0, 100, 0, 0)], &pages)).unwrap();
}

fn in_use(pages: u64, idle: u64, is_known: bool) -> TargetUse {
    TargetUse { target: process(1), bytes: pages * PAGE_SIZE, idle: idle * PAGE_SIZE, is_known }
}

#[test]
fn limits_are_wanted_once_a_second_for_what_is_not_idle() {
    let (mut schemes, log, _) = schemes(limit());
    (10..=59).for_each(|nth| look(&mut schemes, nth));
    let wanted = log.take_limits();
    let uses: Vec<TargetUse> = wanted.iter().map(|limits| limits[0].2[0]).collect();
    assert_eq!(uses.len(), 5, "{wanted:?}");
    assert!(!uses[0].is_known && !uses[2].is_known, "surveys have not lasted for three seconds: {uses:?}");
    assert_eq!(uses[4], in_use(40, 60, true));
    assert!(wanted.iter().all(|limits| limits[0].0 == "limit" && !limits[0].1));
}

#[test]
fn a_bound_that_is_reached_is_told_within_a_second_whatever_the_period_of_the_quota_is() {
    let long = limit().quota;
    let quota = Quota::new(Some(1 << 30), None, Duration::from_secs(3600), long.weights(), long.goals().to_vec());
    let (mut schemes, log, figures) = schemes(Scheme { quota: quota.unwrap(), ..limit() });
    (10..=59).for_each(|nth| look(&mut schemes, nth));
    assert!(log.take_limits().iter().all(|limits| !limits[0].1), "nothing that is not known is reached");
    for (first, refaults, reached) in [(60, Some(0.01), true), (70, Some(0.0), false), (80, None, false)] {
        figures.refaults.set(refaults);
        (first..first + 10).for_each(|nth| look(&mut schemes, nth));
        let limits = log.take_limits();
        assert!(limits.len() == 1 && limits[0][0].1 == reached, "{refaults:?}: {limits:?}");
    }
}

#[test]
fn no_limit_is_wanted_of_a_scheme_that_sleeps_or_was_replaced_or_has_no_bound() {
    let marks = Watermarks::new(Metric::FreeMemory, SECOND, 0.5, 0.4, 0.1).unwrap();
    let (mut schemes, log, figures) = schemes(Scheme { watermarks: Some(marks), ..limit() });
    let wants = |log: &Log| log.take_limits().last().map(|limits| !limits.is_empty());
    figures.free.set(0.3);
    look(&mut schemes, 50);
    assert_eq!(wants(&log), Some(true));
    figures.free.set(0.9);
    look(&mut schemes, 60);
    assert_eq!((wants(&log), schemes.sleeps_until().is_some()), (Some(false), true));
    look(&mut schemes, 61);
    assert_eq!(wants(&log), None, "there is nothing to give back");
    figures.free.set(0.3);
    look(&mut schemes, 70);
    assert_eq!(wants(&log), Some(true));
    schemes.replace(vec![Scheme::new("other", idle(SECOND), Action::Stat)]).unwrap();
    look(&mut schemes, 71);
    assert_eq!(wants(&log), Some(false));
    schemes.replace(vec![Scheme { quota: Quota::UNLIMITED, ..limit() }]).unwrap();
    look(&mut schemes, 80);
    assert_eq!(wants(&log), None);
}

#[test]
fn idle_page_cache_is_taken_first_within_the_quota_and_counts_as_freed() {
    let reclaim = Action::Reclaim(Reclaim::DEFAULT);
    let quota = Quota::new(Some(100 * PAGE_SIZE), None, SECOND, Weights::DEFAULT, vec![]).unwrap();
    let scheme = Scheme { quota, ..Scheme::new("reclaim", idle(SECOND * 3), reclaim) };
    let log = Log::default();
    let actuator = TestActuator { cache: 130 * PAGE_SIZE, ..TestActuator::new(&log) };
    let mut schemes = Schemes::new(vec![scheme.clone()], actuator, TestInspector::NONE, Figures::default()).unwrap();
    look(&mut schemes, 50);
    assert_eq!(log.2.take(), [(SECOND * 3, 100 * PAGE_SIZE)]);
    let total = schemes.reports().next().unwrap().total.clone();
    assert_eq!((total.applied_bytes, total.tried_bytes), (100 * PAGE_SIZE, 100 * PAGE_SIZE));
    assert_eq!(log.take_pages(), [], "nothing of the quota is left");
    look(&mut schemes, 60);
    assert_eq!(log.take_pages(), [(40, 100)], "what is idle follows");
    assert_eq!(schemes.reports().next().unwrap().total.applied_bytes, 190 * PAGE_SIZE);

    // What the scheme says of the memory cannot be told of page cache.
    let filter = Filter { kind: FilterKind::Anonymous, matching: true, allow: false };
    let hot = Condition { age: ClosedInterval::new(SECOND, SECOND * 9).unwrap(), ..scheme.condition };
    log.2.take();
    for other in [
        Scheme { filters: vec![filter], ..scheme.clone() },
        Scheme { condition: hot, ..scheme.clone() },
        Scheme { action: Action::PageOut, ..scheme },
    ] {
        schemes.replace(vec![other]).unwrap();
        look(&mut schemes, 90);
        assert_eq!(log.2.take(), []);
    }
}
