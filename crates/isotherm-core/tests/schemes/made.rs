//! Made snapshots, and an actuator that answers by rules.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, ActionKind, Actuator, Outcome, PageInspector, PageKind, ProcessFacts, Refusal, Work,
};
use isotherm_core::{AddrRange, BoxError, Mapping, PAGE_SIZE, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};

pub const AGGREGATION: Duration = Duration::from_millis(100);
pub const SAMPLES: u32 = 20;

pub fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()
}

/// Pages from `.0` to `.1`, of this count and this age in aggregations.
pub type Region = (u64, u64, u32, u32);

/// The identity of a process.
pub fn process(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::from_secs(pid.into()))
}

/// One target with regions, and mappings by pages and name.
pub fn target(id: u32, regions: &[Region], mappings: &[(u64, u64, &str)]) -> TargetSnapshot {
    let region = |&(start, end, nr_accesses, age): &Region| RegionSnapshot {
        range: pages(start, end),
        nr_accesses,
        nr_samples: SAMPLES,
        nr_unobservable: 0,
        age,
    };
    let mapping =
        |&(start, end, name): &(u64, u64, &str)| Mapping { name: name.into(), ..Mapping::anonymous(pages(start, end)) };
    TargetSnapshot {
        id: process(id),
        regions: regions.iter().map(region).collect(),
        mappings: mappings.iter().map(mapping).collect(),
    }
}

/// The snapshot of the `nth` aggregation, from 1 on.
pub fn snapshot(nth: u32, targets: Vec<TargetSnapshot>) -> Snapshot {
    Snapshot { time: AGGREGATION * nth, aggregation: AGGREGATION, samples: SAMPLES, targets, ..Snapshot::default() }
}

/// One call of an action, as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub action: Action,
    pub target: TargetId,
    pub ranges: Vec<AddrRange>,
}

/// What the actuator was told; shared with the test.
#[derive(Clone, Debug, Default)]
pub struct Log(pub Rc<RefCell<Vec<Call>>>);

impl Log {
    /// The calls since the last time, with their ranges one by one.
    pub fn take(&self) -> Vec<(TargetId, AddrRange)> {
        let calls = self.0.take();
        calls.into_iter().flat_map(|call| call.ranges.into_iter().map(move |range| (call.target, range))).collect()
    }

    pub fn take_pages(&self) -> Vec<(u64, u64)> {
        self.take().into_iter().map(|(_, range)| (range.start() / PAGE_SIZE, range.end() / PAGE_SIZE)).collect()
    }
}

/// Keeps what it is told; takes a time a page and refuses by rules.
pub struct Made {
    pub log: Log,
    pub time_per_page: Duration,
    pub spent: Duration,
    pub refuses: fn(AddrRange) -> Option<Refusal>,
    pub unsupported: Option<ActionKind>,
}

impl Made {
    pub fn new(log: &Log) -> Self {
        Self {
            log: log.clone(),
            time_per_page: Duration::ZERO,
            spent: Duration::ZERO,
            refuses: |_| None,
            unsupported: None,
        }
    }
}

impl Actuator for Made {
    fn supports(&mut self, action: Action, _inside: bool) -> Result<(), BoxError> {
        if self.unsupported == Some(action.kind()) { Err("not on this kernel; take another".into()) } else { Ok(()) }
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        assert_eq!(work.ranges.len(), outcomes.len());
        for (&range, outcome) in work.ranges.iter().zip(outcomes) {
            *outcome = match (self.refuses)(range) {
                Some(refusal) => Outcome::refused(range, refusal),
                None => Outcome::all(range),
            };
            self.spent += self.time_per_page * range.pages() as u32;
        }
        let (action, target) = (work.action, work.target);
        self.log.0.borrow_mut().push(Call { action, target, ranges: work.ranges.to_vec() });
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        self.spent
    }
}

/// Tells pages and processes by rules, at no cost.
pub struct Rules {
    pub is_of: fn(PageKind, u64) -> bool,
    pub process: fn(TargetId) -> Option<ProcessFacts>,
}

impl Rules {
    /// No page is of any kind, and nothing is known of any process.
    pub const NONE: Self = Self { is_of: |_, _| false, process: |_| None };
}

impl PageInspector for Rules {
    fn tells(&mut self, _kind: PageKind) -> Result<(), BoxError> {
        Ok(())
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        (self.process)(target)
    }

    fn pages(
        &mut self,
        _target: TargetId,
        range: AddrRange,
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        for page in range.start() / PAGE_SIZE..range.end() / PAGE_SIZE {
            if (self.is_of)(kind, page) {
                found.push(pages(page, page + 1));
            }
        }
        Ok(())
    }

    fn time_inspecting(&self) -> Duration {
        Duration::ZERO
    }
}
