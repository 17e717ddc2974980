//! Snapshots, and an actuator and an inspector that answer by rules.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Actuator, CacheWork, Destinations, Outcome, PageInspector, PageKind, ProcessFacts, Refusal, TargetUse,
    WantedLimits, Work,
};
use isotherm_core::{
    AddrRange, BoxError, Mapping, NodeId, PAGE_SIZE, RegionSnapshot, Snapshot, TargetId, TargetSnapshot,
};

pub const AGGREGATION: Duration = Duration::from_millis(100);
pub const SAMPLES: u32 = 20;

pub fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()
}

/// The action, to node 1 if it moves memory to a node that the scheme names.
pub fn action(action: Action) -> Action {
    action.with_destinations(Destinations::one(NodeId(1)))
}

/// The pages from `.0` to `.1`, with `.2` accesses and an age of `.3` aggregations.
pub type Region = (u64, u64, u32, u32);

/// The identity of the process with this pid.
pub fn process(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::from_secs(pid.into()))
}

/// A target with these regions and these mappings, each given by its pages and its name.
pub fn target(id: u32, regions: &[Region], mappings: &[(u64, u64, &str)]) -> TargetSnapshot {
    let region = |&(start, end, nr_accesses, age): &Region| RegionSnapshot {
        nr_accesses,
        nr_samples: SAMPLES,
        age,
        ..RegionSnapshot::new(pages(start, end))
    };
    let mapping =
        |&(start, end, name): &(u64, u64, &str)| Mapping { name: name.into(), ..Mapping::anonymous(pages(start, end)) };
    TargetSnapshot {
        id: process(id),
        regions: regions.iter().map(region).collect(),
        mappings: mappings.iter().map(mapping).collect(),
    }
}

/// The snapshot of the `nth` aggregation, counted from 1.
pub fn snapshot(nth: u32, targets: Vec<TargetSnapshot>) -> Snapshot {
    Snapshot { time: AGGREGATION * nth, aggregation: AGGREGATION, samples: SAMPLES, targets, ..Snapshot::default() }
}

/// One call of the actuator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub action: Action,
    pub target: TargetId,
    pub ranges: Vec<AddrRange>,
}

/// The limits that were wanted at one time: for each scheme its name, whether a goal is reached, and how much its
/// targets use.
pub type Limits = Vec<(String, bool, Vec<TargetUse>)>;

/// The calls of the actuator, shared with the test, the limits that were wanted, and the requests for page cache: the
/// age and the bytes.
#[derive(Clone, Debug, Default)]
pub struct Log(pub Rc<RefCell<Vec<Call>>>, pub Rc<RefCell<Vec<Limits>>>, pub Rc<RefCell<Vec<(Duration, u64)>>>);

impl Log {
    /// Takes the limits that were wanted since the last time.
    pub fn take_limits(&self) -> Vec<Limits> {
        self.1.take()
    }

    /// Takes the calls since the last time, range by range.
    pub fn take(&self) -> Vec<(TargetId, AddrRange)> {
        let calls = self.0.take();
        calls.into_iter().flat_map(|call| call.ranges.into_iter().map(move |range| (call.target, range))).collect()
    }

    pub fn take_pages(&self) -> Vec<(u64, u64)> {
        self.take().into_iter().map(|(_, range)| (range.start() / PAGE_SIZE, range.end() / PAGE_SIZE)).collect()
    }
}

/// Keeps all calls, takes a fixed time for each page, and refuses by a rule.
pub struct TestActuator {
    pub log: Log,
    pub time_per_page: Duration,
    pub spent: Duration,
    pub refuses: fn(AddrRange) -> Option<Refusal>,
    pub unsupported: Option<Action>,
    /// Which ranges need no action.
    pub needs_nothing: fn(AddrRange) -> bool,
    /// Which ranges are unmapped without being freed.
    pub unmaps: fn(AddrRange) -> bool,
    /// Which ranges are freed, and in memory again at once.
    pub returns: fn(AddrRange) -> bool,
    /// Which mappings can be freed.
    pub can_free: fn(&Mapping) -> bool,
    /// The node on which actions between nodes leave memory.
    pub left_node: Option<NodeId>,
    /// Bytes of page cache that are idle.
    pub cache: u64,
    /// Bytes that may be locked.
    pub lockable: u64,
}

impl TestActuator {
    pub fn new(log: &Log) -> Self {
        Self {
            log: log.clone(),
            time_per_page: Duration::ZERO,
            spent: Duration::ZERO,
            refuses: |_| None,
            unsupported: None,
            needs_nothing: |_| false,
            unmaps: |_| false,
            returns: |_| false,
            can_free: |_| true,
            left_node: None,
            cache: 0,
            lockable: u64::MAX,
        }
    }
}

impl Actuator for TestActuator {
    fn supports(&mut self, action: Action, _inside: bool) -> Result<(), BoxError> {
        if self.unsupported == Some(action) { Err("not on this kernel; take another".into()) } else { Ok(()) }
    }

    fn left_nodes(&mut self, _action: Action) -> Vec<NodeId> {
        self.left_node.into_iter().collect()
    }

    fn can_free(&mut self, mapping: &Mapping) -> bool {
        (self.can_free)(mapping)
    }

    fn lockable(&mut self) -> u64 {
        self.lockable
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        assert_eq!(work.ranges.len(), outcomes.len());
        for (&range, outcome) in work.ranges.iter().zip(outcomes) {
            *outcome = match (self.refuses)(range) {
                Some(refusal) => Outcome::refused(range, refusal),
                None if (self.unmaps)(range) => {
                    Outcome { unmapped: range.size(), resident: Some(0), ..Outcome::default() }
                }
                None if (self.needs_nothing)(range) => Outcome::default(),
                None if (self.returns)(range) => {
                    Outcome { returned: range.size(), resident: Some(range.size()), ..Outcome::all(range) }
                }
                None => Outcome::all(range),
            };
            self.spent += self.time_per_page * range.pages() as u32;
        }
        let (action, target) = (work.action, work.target);
        self.log.0.borrow_mut().push(Call { action, target, ranges: work.ranges.to_vec() });
        Ok(())
    }

    fn set_limits(&mut self, wanted: &[WantedLimits<'_>]) {
        let limits = wanted.iter().map(|one| (one.scheme.to_owned(), one.reached.is_some(), one.in_use.to_vec()));
        self.log.1.borrow_mut().push(limits.collect());
    }

    fn reclaim_cache(&mut self, work: &CacheWork<'_>) -> u64 {
        self.log.2.borrow_mut().push((work.age, work.bytes));
        let freed = work.bytes.min(self.cache);
        self.cache -= freed;
        freed
    }

    fn time_spent(&self) -> Duration {
        self.spent
    }
}

/// Tells pages and processes by rules, and takes no time.
pub struct TestInspector {
    /// Whether a page is in memory.
    pub is_present: fn(u64) -> bool,
    /// Whether a page is of another kind.
    pub is_of: fn(PageKind, u64) -> bool,
    pub process: fn(TargetId) -> Option<ProcessFacts>,
}

impl TestInspector {
    /// All pages are in memory, no page is of another kind, and no process has facts.
    pub const NONE: Self = Self { is_present: |_| true, is_of: |_, _| false, process: |_| None };
}

impl PageInspector for TestInspector {
    fn tells(&mut self, _kind: PageKind) -> Result<(), BoxError> {
        Ok(())
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        (self.process)(target)
    }

    fn pages(
        &mut self,
        _target: TargetId,
        ranges: &[AddrRange],
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        assert!(ranges.is_sorted_by(|a, b| a.end() <= b.start()), "{ranges:?}");
        let pages_of = |range: &AddrRange| range.start() / PAGE_SIZE..range.end() / PAGE_SIZE;
        let is_of = |page: &u64| match kind {
            PageKind::Present => (self.is_present)(*page),
            kind => (self.is_of)(kind, *page),
        };
        let of_kind = ranges.iter().flat_map(pages_of).filter(is_of);
        found.extend(of_kind.map(|page| pages(page, page + 1)));
        Ok(())
    }

    fn time_inspecting(&self) -> Duration {
        Duration::ZERO
    }
}
