//! Limits that hold for all schemes together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Condition, Limits, NoGauges, Quota, QuotaError, Scheme, Schemes, TakenOut, Weights,
};
use isotherm_core::survey::{BlockPages, PageBits, PageHistory};
use isotherm_core::{PAGE_SIZE, Sink, Snapshot};
use proptest::prelude::*;

use crate::fixtures::{AGGREGATION, Log, TestActuator, TestInspector, process, snapshot, target};
use crate::properties;

const SECOND: Duration = Duration::from_secs(1);

type Tested = Schemes<TestActuator, TestInspector, NoGauges>;

fn limited(schemes: Vec<Scheme>, log: &Log, limits: Limits, out: TakenOut) -> Tested {
    Schemes::new(schemes, TestActuator::new(log), TestInspector::NONE, NoGauges).unwrap().limited(limits, out)
}

fn of_rate(pages: u64) -> Limits {
    Limits { bytes_per_second: Some(pages * PAGE_SIZE), most_out: None }
}

fn of_out(pages: u64) -> Limits {
    Limits { bytes_per_second: None, most_out: Some(pages * PAGE_SIZE) }
}

fn scheme(name: &str, action: Action) -> Scheme {
    Scheme { inside: true, ..Scheme::new(name, Condition::ANY, action) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_schemes_act_on_more_than_the_limit_in_any_time(
        schemes in prop::collection::vec(properties::scheme(), 1..4), snapshots in properties::snapshots(),
        limit in 1..3000_u64
    ) {
        let named = |(nth, scheme): (usize, Scheme)| Scheme { name: format!("s{nth}").into(), ..scheme };
        let log = Log::default();
        let named = schemes.into_iter().enumerate().map(named).collect();
        let mut schemes = limited(named, &log, of_rate(limit), TakenOut::default());
        let mut done: Vec<(Duration, u64)> = Vec::new();
        for snapshot in &snapshots {
            schemes.aggregated(snapshot).unwrap();
            done.push((snapshot.time, log.take().iter().map(|(_, range)| range.size()).sum()));
        }
        for first in 0..done.len() {
            let mut sum = 0;
            for (time, bytes) in &done[first..] {
                sum += bytes;
                let most = (limit * PAGE_SIZE) as f64 * (1.0 + (*time - done[first].0).as_secs_f64());
                prop_assert!(sum as f64 <= most + 1.0, "{sum} of {most}");
            }
        }
    }

    #[test]
    fn without_surveys_no_more_is_paged_out_than_may_be_out(
        schemes in prop::collection::vec(properties::scheme(), 1..4), ages in prop::collection::vec(0..60_u32, 1..30),
        limit in 1..3000_u64
    ) {
        let paging = |(nth, scheme): (usize, Scheme)| {
            Scheme { name: format!("s{nth}").into(), action: Action::PageOut, ..scheme }
        };
        let log = Log::default();
        let paging = schemes.into_iter().enumerate().map(paging).collect();
        let mut schemes = limited(paging, &log, of_out(limit), TakenOut::default());
        let mut out = BTreeSet::new();
        for (nth, age) in (1..).zip(ages) {
            schemes.aggregated(&snapshot(nth, vec![target(1, &[(0, 4000, 0, age)], &[(0, 4000, "")])])).unwrap();
            let pages = log.take_pages();
            out.extend(pages.iter().flat_map(|(from, to)| *from..*to));
            prop_assert!(out.len() as u64 <= limit, "{} of {limit}", out.len());
            prop_assert!(schemes.taken_out().bytes() <= limit * PAGE_SIZE);
        }
    }
}

/// Memory of 512 pages that schemes page out, of which each second a survey says what is present.
struct Paged {
    present: [bool; 512],
    history: PageHistory,
    second: u32,
}

impl Paged {
    fn new() -> Self {
        Self { present: [true; 512], history: PageHistory::default(), second: 0 }
    }

    fn out(&self) -> usize {
        self.present.iter().filter(|present| !**present).count()
    }

    /// A second with a survey at its beginning, after which schemes are applied ten times.
    fn pass(&mut self, schemes: &mut Tested, log: &Log) {
        self.second += 1;
        let present = PageBits::from_fn(|page| self.present[page]);
        self.history.take(&[BlockPages { present, ..BlockPages::default() }], SECOND * self.second);
        for nth in self.second * 10..(self.second + 1) * 10 {
            let mut target = target(1, &[(0, 512, 0, nth)], &[(0, 512, "")]);
            target.regions[0].pages = Some(self.history.pages_in(target.regions[0].range));
            let histories = vec![(process(1), Arc::new(self.history.clone()))];
            schemes.aggregated(&Snapshot { histories, ..snapshot(nth, vec![target]) }).unwrap();
            for (from, to) in log.take_pages() {
                self.present[from as usize..to as usize].fill(false);
            }
        }
    }
}

#[test]
fn what_comes_back_makes_room_for_as_much_and_another_run_goes_on_from_there() {
    let log = Log::default();
    let mut schemes = limited(vec![scheme("out", Action::PageOut)], &log, of_out(100), TakenOut::default());
    let mut paged = Paged::new();
    let pass = |schemes: &mut Tested, paged: &mut Paged, seconds: u32| {
        for _ in 0..seconds {
            paged.pass(schemes, &log);
            assert!(paged.out() <= 100, "{} pages are out", paged.out());
        }
    };
    pass(&mut schemes, &mut paged, 8);
    assert_eq!(paged.out(), 100);
    for wanted in [40, 100] {
        let mut back = paged.present.iter_mut().filter(|present| !**present);
        back.by_ref().take(wanted).for_each(|present| *present = true);
        pass(&mut schemes, &mut paged, 8);
        assert_eq!(paged.out(), 100, "after {wanted} came back");
    }
    schemes.replace(vec![scheme("another", Action::PageOut)]).unwrap();
    pass(&mut schemes, &mut paged, 3);

    let out = schemes.taken_out().clone();
    let mut next = limited(vec![scheme("next", Action::PageOut)], &log, of_out(100), out);
    pass(&mut next, &mut paged, 3);
    assert_eq!(paged.out(), 100);
}

#[test]
fn schemes_share_a_limit_and_what_one_does_not_need_is_for_the_next() {
    let log = Log::default();
    let small = Scheme { quota: quota(10).unwrap(), ..scheme("small", Action::Cold) };
    let all = vec![scheme("first", Action::Cold), small, scheme("last", Action::WillNeed)];
    let mut schemes = limited(all, &log, of_rate(300), TakenOut::default());
    for nth in 1..=100 {
        let found = target(1, &[(0, 100_000, 0, 500)], &[(0, 100_000, "")]);
        schemes.aggregated(&snapshot(nth * 10, vec![found])).unwrap();
    }
    let applied: Vec<u64> = schemes.reports().map(|report| report.total.applied_bytes / PAGE_SIZE / 99).collect();
    assert_eq!(applied, [100, 10, 190], "pages in a second, of 300");
    let quotas: Vec<_> = schemes.reports().map(|report| report.quota).collect();
    assert_eq!(quotas, [Some(300 * PAGE_SIZE), Some(10 * PAGE_SIZE), Some(300 * PAGE_SIZE)]);
}

fn quota(pages: u64) -> Result<Quota, QuotaError> {
    Quota::new(Some(pages * PAGE_SIZE), None, AGGREGATION, Weights::DEFAULT, Vec::new())
}

#[test]
fn counting_is_not_limited() {
    let log = Log::default();
    let mut schemes = limited(vec![scheme("stat", Action::Stat)], &log, of_rate(1), TakenOut::default());
    schemes.aggregated(&snapshot(1, vec![target(1, &[(0, 100, 0, 5)], &[(0, 100, "")])])).unwrap();
    assert_eq!(schemes.reports().next().unwrap().total.applied_bytes, 100 * PAGE_SIZE);
}
