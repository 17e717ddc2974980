//! Schemes on memory of which a survey knows each page.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, ClosedInterval, Condition, HUGE_PAGE_SIZE, NoGauges, PageKind, Quota, Report, Scheme, Schemes, Weights,
};
use isotherm_core::survey::{BlockPages, PageBits, PageHistory};
use isotherm_core::{Figures, PAGE_SIZE, Sink, Snapshot};

use crate::fixtures::{
    AGGREGATION, Log, Region, SAMPLES, TestActuator, TestInspector, action, pages, process, snapshot, target,
};

pub const SECOND: Duration = Duration::from_secs(1);

/// The pages of a block of 512 for which the last survey has these answers.
#[derive(Clone, Copy)]
pub struct Pages {
    pub present: fn(usize) -> bool,
    pub accessed: fn(usize) -> bool,
}

/// A survey in each of the first `seconds` seconds, which found this.
pub fn history(seconds: u64, block: Pages) -> PageHistory {
    let mut history = PageHistory::default();
    (1..=seconds).for_each(|second| history.take(&[found(block)], SECOND * second as u32));
    history
}

fn found(block: Pages) -> BlockPages {
    let present = PageBits::from_fn(block.present);
    BlockPages { present, accessed: present & PageBits::from_fn(block.accessed), ..BlockPages::default() }
}

/// A snapshot of regions of the pages that the survey knows.
pub fn surveyed(nth: u32, regions: &[Region], history: &PageHistory) -> Snapshot {
    let mut target = target(1, regions, &[(0, 512, "")]);
    for region in &mut target.regions {
        region.pages = Some(history.pages_in(region.range));
    }
    let histories = vec![(process(1), Arc::new(history.clone()))];
    Snapshot { histories, ..snapshot(nth, vec![target]) }
}

fn schemes(scheme: Scheme, log: &Log) -> Schemes<TestActuator, TestInspector, NoGauges> {
    Schemes::new(vec![scheme], TestActuator::new(log), TestInspector::NONE, NoGauges).unwrap()
}

pub fn idle(age: Duration) -> Condition {
    Condition {
        rate: ClosedInterval::new(0.0, 0.0).unwrap(),
        age: ClosedInterval::new(age, Duration::MAX).unwrap(),
        ..Condition::ANY
    }
}

fn any(of: Action) -> Scheme {
    Scheme { inside: true, ..Scheme::new("any", Condition::ANY, action(of)) }
}

/// The first 100 pages are present, and none is accessed.
const FIRST: Pages = Pages { present: |page| page < 100, accessed: |_| false };

#[test]
fn no_action_is_done_to_a_region_without_pages() {
    let history = history(5, FIRST);
    for action in Action::ALL {
        let log = Log::default();
        let mut schemes = schemes(any(action), &log);
        schemes.aggregated(&surveyed(50, &[(200, 512, 0, 50)], &history)).unwrap();
        assert_eq!(log.take(), [], "{action}");
        assert_eq!(schemes.reports().next().unwrap().total.tried_bytes, 0, "{action}");
    }
}

#[test]
fn no_action_is_done_to_a_region_of_which_nothing_is_known() {
    let mut history = PageHistory::default();
    history.take(&[found(Pages { present: |_| true, accessed: |_| true })], SECOND);
    let all = 512 * PAGE_SIZE;
    let unknown = Figures { present: all, unknown: all, ..Figures::unknown() };
    assert_eq!(history.pages_in(pages(0, 512)), unknown);
    for action in Action::ALL {
        let log = Log::default();
        let mut schemes = schemes(any(action), &log);
        schemes.aggregated(&surveyed(11, &[(0, 512, 0, 50)], &history)).unwrap();
        assert_eq!(log.take(), [], "{action}");
        let report = schemes.reports().next().unwrap();
        assert_eq!((report.total.tried_bytes, report.last.unobservable_bytes), (0, unknown.present), "{action}");
    }
}

#[test]
fn memory_that_cannot_be_observed_is_taken_away_only_if_the_scheme_allows_it() {
    let mut history = PageHistory::default();
    // The accessed bits of a guest's memory may be set or clear: nobody clears them.
    let (unobservable, accessed) = (PageBits::of(100..512), PageBits::of(300..512));
    let guest = BlockPages { present: PageBits::ALL, unobservable, accessed, ..BlockPages::default() };
    (1..=5).for_each(|second| history.take(&[guest], SECOND * second));
    // A region of which nothing is observed has no age.
    let regions = [(0, 512, 0, 0)];
    for action in Action::ALL.into_iter().filter(Action::takes_away) {
        for (unobserved, condition, expected) in [
            (false, Condition::ANY, &[(0, 100)][..]),
            (true, Condition::ANY, &[(0, 512)]),
            (false, idle(SECOND), &[]),
            (true, idle(SECOND), &[(0, 512)]),
            (true, idle(SECOND * 3), &[(0, 512)]),
            (true, idle(SECOND * 100), &[]),
        ] {
            let log = Log::default();
            let mut schemes = schemes(Scheme { unobserved, condition, ..any(action) }, &log);
            schemes.aggregated(&surveyed(50, &regions, &history)).unwrap();
            let mut taken = log.take_pages();
            taken.sort_unstable();
            assert_eq!(taken, expected, "{action}, {unobserved}, {condition:?}");
        }
    }
    // Without a survey, the samples tell.
    let mut unseen = target(1, &regions, &[(0, 512, "")]);
    unseen.regions[0].nr_unobservable = SAMPLES;
    for (unobserved, expected) in [(false, &[][..]), (true, &[(0, 512)])] {
        let log = Log::default();
        let mut schemes = schemes(Scheme { unobserved, ..any(Action::PageOut) }, &log);
        schemes.aggregated(&snapshot(50, vec![unseen.clone()])).unwrap();
        assert_eq!(log.take_pages(), expected, "{unobserved}");
    }
}

#[test]
fn what_is_absent_is_neither_reclaimed_nor_counted() {
    let sparse = Pages { present: |page| page % 100 < 10, accessed: |_| false };
    let history = history(5, sparse);
    let present = [(0, 10), (100, 110), (200, 210), (300, 310), (400, 410), (500, 510)];
    for action in [Action::PageOut, Action::Cold, Action::Stat] {
        let log = Log::default();
        let mut schemes = schemes(any(action), &log);
        schemes.aggregated(&surveyed(50, &[(0, 512, 0, 50)], &history)).unwrap();
        assert_eq!(schemes.reports().next().unwrap().total.applied_bytes, 60 * PAGE_SIZE, "{action}");
        if action != Action::Stat {
            assert_eq!(log.take_pages(), present, "{action}");
        }
    }
}

#[test]
fn of_a_region_the_pages_that_are_idle_for_longest_are_reclaimed_first() {
    // The region is idle since second 9. Some of its pages are idle for longer.
    let mut history = PageHistory::default();
    for second in 1..=40 {
        let accessed = |page: usize| (100..200).contains(&page) && second <= 25 || (page >= 300) && second <= 35;
        let block =
            BlockPages { present: PageBits::ALL, accessed: PageBits::from_fn(accessed), ..BlockPages::default() };
        history.take(&[block], SECOND * second);
    }
    let log = Log::default();
    let quota = Quota::new(Some(250 * PAGE_SIZE), None, AGGREGATION, Weights::DEFAULT, Vec::new()).unwrap();
    let mut schemes = schemes(Scheme { quota, ..Scheme::new("out", idle(SECOND), Action::PageOut) }, &log);
    let mut acted = |nth| {
        schemes.aggregated(&surveyed(nth, &[(0, 512, 0, 40)], &history)).unwrap();
        log.take_pages()
    };
    assert_eq!(acted(401), [(0, 150), (200, 300)]);
    assert_eq!(acted(402), [(150, 200), (300, 500)]);
    assert_eq!(acted(403), [(500, 512)]);
}

#[test]
fn what_was_reclaimed_is_left_alone_until_a_survey_finds_it_in_memory_again() {
    let mut history = history(5, FIRST);
    let log = Log::default();
    let mut schemes = schemes(Scheme::new("out", idle(SECOND), Action::PageOut), &log);
    let mut acted = |nth, history: &PageHistory| {
        schemes.aggregated(&surveyed(nth, &[(0, 512, 0, 90)], history)).unwrap();
        log.take_pages()
    };
    assert_eq!(acted(51, &history), [(0, 100)]);
    assert!((52..90).all(|nth| acted(nth, &history).is_empty()));
    history.take(&[found(Pages { present: |page| page < 40, accessed: |_| false })], SECOND * 9);
    assert_eq!(acted(91, &history), [(0, 40)]);
}

#[test]
fn absent_memory_may_be_read_in_locked_and_become_huge_beside_present_memory() {
    let history = history(5, FIRST);
    for action in [Action::WillNeed, Action::Collapse, Action::HugePage, Action::MLock] {
        let log = Log::default();
        schemes(any(action), &log).aggregated(&surveyed(50, &[(0, 512, 9, 50)], &history)).unwrap();
        assert_eq!(log.take(), [(process(1), pages(0, HUGE_PAGE_SIZE / PAGE_SIZE))], "{action}");
    }
}

#[test]
fn touched_memory_without_samples_has_no_frequency() {
    let history = history(5, Pages { present: |_| true, accessed: |page| page < 256 });
    let log = Log::default();
    let mut schemes = schemes(Scheme::new("stat", idle(Duration::ZERO), Action::Stat), &log);
    let mut found = surveyed(50, &[(0, 256, 0, 50), (256, 512, 0, 50)], &history);
    found.targets[0].regions[0].pages = Some(Figures {
        unknown: 0,
        touched: 256 * PAGE_SIZE,
        ..Figures { present: 256 * PAGE_SIZE, ..Figures::default() }
    });
    found.targets[0].regions.iter_mut().for_each(|region| region.nr_samples = 0);
    schemes.aggregated(&found).unwrap();
    let acted: Vec<_> = schemes.reports().next().unwrap().last.regions.iter().map(|acted| acted.range).collect();
    assert_eq!(acted, [pages(256, 512)]);
}

/// Reclaims 512 idle pages in second 5, and goes on for ten seconds. From second 7 on, the survey finds the pages of
/// `back` in memory. Returns the report, and what was said of the returns: whether it is too much, and slows the
/// scheme.
fn reclaimed(scheme: Scheme, back: fn(usize) -> bool) -> (Report, Vec<(bool, bool)>) {
    let log = Log::default();
    let mut schemes = schemes(scheme, &log);
    let mut history = history(5, Pages { present: |_| true, accessed: |_| false });
    schemes.aggregated(&surveyed(50, &[(0, 512, 0, 50)], &history)).unwrap();
    for second in 6..=15 {
        let none: fn(usize) -> bool = |_| false;
        let block = Pages { present: if second < 7 { none } else { back }, accessed: |_| true };
        history.take(&[found(block)], SECOND * second);
        for nth in second * 10..(second + 1) * 10 {
            schemes.aggregated(&surveyed(nth, &[(0, 512, 9, 0)], &history)).unwrap();
        }
    }
    let said = schemes.take_returns().map(|returns| (returns.too_much, returns.slowed)).collect();
    (schemes.reports().next().unwrap().clone(), said)
}

fn limited() -> Quota {
    Quota::new(Some(1 << 30), None, AGGREGATION, Weights::DEFAULT, Vec::new()).unwrap()
}

#[test]
fn a_scheme_whose_victims_come_back_is_reported_and_slowed() {
    let scheme = Scheme { quota: limited(), ..Scheme::new("cold", idle(SECOND * 3), Action::PageOut) };
    let (report, said) = reclaimed(scheme, |page| page < 128);
    assert_eq!((report.total.watched_bytes, report.total.returned_bytes), (512 * PAGE_SIZE, 128 * PAGE_SIZE));
    assert_eq!(said, [(true, true)]);
    // It was halved, and has grown in the windows of 3 s since then.
    let share = report.quota_share.unwrap();
    assert!((0.5..1.0).contains(&share), "{share}");
    assert_eq!(report.quota, Some(((1_u64 << 30) as f64 * share) as u64));
}

#[test]
fn a_scheme_without_a_quota_is_reported_only() {
    let (report, said) = reclaimed(Scheme::new("cold", idle(SECOND * 3), Action::PageOut), |_| true);
    assert_eq!(report.total.returned_bytes, 512 * PAGE_SIZE);
    assert_eq!((said, report.quota_share), (vec![(true, false)], None));
}

#[test]
fn a_scheme_whose_victims_stay_away_is_neither_reported_nor_slowed() {
    let scheme = Scheme { quota: limited(), ..Scheme::new("cold", idle(SECOND * 3), Action::PageOut) };
    let (report, said) = reclaimed(scheme, |page| page < 50);
    assert_eq!((report.total.watched_bytes, report.total.returned_bytes), (512 * PAGE_SIZE, 50 * PAGE_SIZE));
    assert_eq!((said.len(), report.quota_share, report.quota), (0, None, Some(1 << 30)));
}

#[test]
fn an_action_that_frees_nothing_has_no_victims() {
    let (report, said) = reclaimed(Scheme::new("cold", idle(SECOND * 3), Action::Cold), |_| true);
    assert_eq!((report.total.watched_bytes, said.len()), (0, 0));
}

/// The seconds, of the first 200, in which a scheme for pages that are idle for five seconds acts on a block that is in
/// memory all the time. A survey each second finds it accessed as `accessed` says.
fn tries(actuator: TestActuator, log: &Log, accessed: fn(u32) -> bool) -> (Vec<u32>, Report) {
    let scheme = Scheme::new("out", idle(SECOND * 5), Action::PageOut);
    let mut schemes = Schemes::new(vec![scheme], actuator, TestInspector::NONE, NoGauges).unwrap();
    let mut history = PageHistory::default();
    let mut tries = Vec::new();
    for second in 1..200 {
        let is_accessed = accessed(second);
        let accessed = if is_accessed { PageBits::ALL } else { PageBits::NONE };
        history.take(&[BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() }], SECOND * second);
        schemes.aggregated(&surveyed(second * 10 + 1, &[(0, 512, 0, 400)], &history)).unwrap();
        tries.extend((!log.take().is_empty()).then_some(second));
    }
    let report = schemes.reports().next().unwrap().clone();
    (tries, report)
}

#[test]
fn memory_that_resists_is_tried_more_and_more_rarely() {
    let log = Log::default();
    let pinned = TestActuator { needs_nothing: |_| true, ..TestActuator::new(&log) };
    let (tries, report) = tries(pinned, &log, |_| false);
    assert!(tries.len() < 10, "{tries:?}");
    assert!(tries.windows(3).skip(1).all(|tries| tries[2] - tries[1] >= (tries[1] - tries[0]) * 3 / 2), "{tries:?}");
    assert_eq!((report.total.applied_bytes, report.total.unmapped_bytes), (0, 0));
}

#[test]
fn memory_that_resisted_is_tried_again_once_it_has_been_used_and_is_idle_again() {
    let log = Log::default();
    let pinned = TestActuator { needs_nothing: |_| true, ..TestActuator::new(&log) };
    let (tries, _) = tries(pinned, &log, |second| (100..103).contains(&second));
    let after: Vec<&u32> = tries.iter().filter(|&&second| (100..115).contains(&second)).collect();
    assert!(!after.is_empty(), "{tries:?}");
}

#[test]
fn memory_that_is_only_unmapped_counts_as_such_and_is_not_unmapped_again_whenever_it_comes_back() {
    let log = Log::default();
    let dirty = TestActuator { unmaps: |_| true, ..TestActuator::new(&log) };
    // It comes back by an access every ten seconds.
    let (tries, report) = tries(dirty, &log, |second| second % 10 == 0);
    assert!(tries.len() < 8, "{tries:?}");
    let unmapped = 512 * PAGE_SIZE * tries.len() as u64;
    assert_eq!((report.total.applied_bytes, report.total.unmapped_bytes), (0, unmapped));
    assert_eq!(report.total.watched_bytes, 0, "what was not freed cannot come back");
}

#[test]
fn memory_that_comes_back_soon_is_freed_more_and_more_rarely() {
    let log = Log::default();
    let (tries, report) = tries(TestActuator::new(&log), &log, |second| second % 10 == 0);
    assert!((4..8).contains(&tries.len()), "{tries:?}");
    let freed = 512 * PAGE_SIZE * tries.len() as u64;
    assert_eq!((report.total.applied_bytes, report.total.returned_bytes), (freed, freed));
}

#[test]
fn what_is_in_memory_again_when_the_action_ends_was_freed_and_has_come_back() {
    let log = Log::default();
    let in_use = TestActuator { returns: |_| true, ..TestActuator::new(&log) };
    let (tries, report) = tries(in_use, &log, |second| second % 10 == 0);
    let freed = 512 * PAGE_SIZE * tries.len() as u64;
    assert_eq!((report.total.applied_bytes, report.total.returned_bytes), (freed, freed));
}

#[test]
fn memory_that_can_be_freed_is_taken_first() {
    let log = Log::default();
    let only_files = TestActuator { can_free: |mapping| !mapping.name.is_empty(), ..TestActuator::new(&log) };
    let quota = Quota::new(Some(100 * PAGE_SIZE), None, SECOND, Weights::DEFAULT, Vec::new()).unwrap();
    let scheme = Scheme { quota, ..Scheme::new("out", idle(SECOND), Action::PageOut) };
    let mut schemes = Schemes::new(vec![scheme], only_files, TestInspector::NONE, NoGauges).unwrap();
    // The anonymous memory is colder.
    let target = target(1, &[(0, 200, 0, 400), (300, 500, 0, 100)], &[(0, 200, ""), (300, 500, "/data/file")]);
    schemes.aggregated(&snapshot(500, vec![target])).unwrap();
    assert_eq!(log.take_pages(), [(300, 400)]);
}

#[test]
fn a_page_that_was_accessed_since_the_survey_is_not_inspected_again_before_the_next_one() {
    let log = Log::default();
    let young = TestInspector { is_of: |kind, page| kind == PageKind::Young && page < 50, ..TestInspector::NONE };
    let scheme = Scheme::new("out", idle(SECOND), Action::PageOut);
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), young, NoGauges).unwrap();
    let mut history = history(5, FIRST);
    for nth in 51..60 {
        schemes.aggregated(&surveyed(nth, &[(0, 512, 0, 90)], &history)).unwrap();
    }
    let total = schemes.reports().next().unwrap().total.clone();
    assert_eq!((total.tried_bytes, total.rejected_bytes), (100 * PAGE_SIZE, 50 * PAGE_SIZE));
    assert_eq!(log.take_pages(), [(50, 100)]);
    history.take(&[found(Pages { present: |page| page < 50, accessed: |_| false })], SECOND * 6);
    schemes.aggregated(&surveyed(61, &[(0, 512, 0, 90)], &history)).unwrap();
    assert_eq!(schemes.reports().next().unwrap().total.tried_bytes, 150 * PAGE_SIZE);
}

#[test]
fn whether_memory_that_cannot_be_observed_is_young_is_not_asked() {
    let log = Log::default();
    // The accessed bits of all pages are set. Those of unobservable pages stay so.
    let young = TestInspector { is_of: |kind, _| kind == PageKind::Young, ..TestInspector::NONE };
    let scheme = Scheme { unobserved: true, ..Scheme::new("out", idle(SECOND), Action::PageOut) };
    let mut schemes = Schemes::new(vec![scheme], TestActuator::new(&log), young, NoGauges).unwrap();
    let mut history = PageHistory::default();
    for second in 1..=5 {
        let guest = BlockPages { unobservable: PageBits::of(100..512), ..found(FIRST) };
        history.take(&[BlockPages { present: PageBits::ALL, ..guest }], SECOND * second);
        history.cleared(&history.accessed());
    }
    schemes.aggregated(&surveyed(50, &[(0, 512, 0, 40)], &history)).unwrap();
    assert_eq!(log.take_pages(), [(100, 512)], "of the observed pages, none is taken");
    assert_eq!(schemes.reports().next().unwrap().total.rejected_bytes, 100 * PAGE_SIZE);
}
