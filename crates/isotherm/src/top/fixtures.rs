//! Data for tests: a process with a heap, anonymous memory with a hot part, and a stack.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{ActedRegion, RefusalCount, RefusalReason, Report, Scheme};
use isotherm_core::survey::{BlockList, MappingSums, NodeSums, PageSums, SurveySnapshot, TargetSurvey};
use isotherm_core::{
    AddrRange, Figures, Frequency, Mapping, MemoryUse, NodeId, Quantity, RegionSnapshot, Snapshot, SystemMemory,
    TargetId, TargetSnapshot,
};
use isotherm_record::{Activity, Cost, SnapshotRecord, SurveyRecord, TargetInfo};
use isotherm_report::Colour;

use super::app::{App, Appearance, RunInfo};
use isotherm_run::{Event, Notice, Severity};

pub const MIB: u64 = 1 << 20;
pub const AGGREGATION: Duration = Duration::from_millis(100);

/// Start of the anonymous memory of 64 MiB: the second quarter is hot, the third unobservable.
pub const BASE: u64 = 0x7f00_0000_0000;
pub const STACK: u64 = 0x7ffc_0000_0000;

pub fn range(start: u64, bytes: u64) -> AddrRange {
    AddrRange::new(start, start + bytes).unwrap()
}

/// The process with this pid.
pub fn process(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::ZERO)
}

fn target(pid: u32) -> TargetSnapshot {
    let mapping = |start, bytes, name: &str| Mapping { name: name.into(), ..Mapping::anonymous(range(start, bytes)) };
    let region = |start, bytes, nr_accesses, nr_unobservable| RegionSnapshot {
        nr_accesses,
        nr_samples: 20,
        nr_unobservable,
        age: 30,
        // Some of the samples find an access of what is accessed from time to time.
        frequency: (1..20).contains(&nr_accesses).then(|| Frequency::new(f64::from(nr_accesses) * 0.6, Some(1.5))),
        ..RegionSnapshot::new(range(start, bytes))
    };
    TargetSnapshot {
        id: process(pid),
        regions: vec![
            region(0x1000_0000, 4 * MIB, 5, 0),
            region(BASE, 16 * MIB, 0, 0),
            region(BASE + 16 * MIB, 16 * MIB, 20, 0),
            region(BASE + 32 * MIB, 16 * MIB, 0, 20),
            region(BASE + 48 * MIB, 16 * MIB, 0, 0),
            region(STACK, MIB, 1, 0),
        ],
        mappings: [
            mapping(0x1000_0000, 4 * MIB, "[heap]"),
            mapping(BASE, 64 * MIB, ""),
            mapping(STACK, MIB, "[stack]"),
        ]
        .into(),
    }
}

/// What the `nth` aggregation brought, from 1 on, of these processes.
pub fn finding(nth: u32, pids: &[u32]) -> Event {
    Event::Snapshot(Arc::new(record(nth, pids)))
}

/// What the `nth` aggregation brought of processes of this pid, command and cgroup. Each has this many MiB, all of them
/// in memory and hot, as a survey found.
pub fn named(nth: u32, processes: &[(u32, &str, &str, u64)]) -> Event {
    let mut record = record(nth, &processes.iter().map(|&(pid, ..)| pid).collect::<Vec<u32>>());
    for (target, &(.., mib)) in record.snapshot.targets.iter_mut().zip(processes) {
        let heap = range(BASE, mib * MIB);
        target.regions.truncate(1);
        target.regions[0].range = heap;
        (target.regions[0].nr_accesses, target.regions[0].frequency) = (20, None);
        target.regions[0].pages =
            Some(Figures { present: mib * MIB, touched: 0, unobservable: 0, unknown: 0, swapped: Quantity::unknown() });
        target.mappings = [Mapping::anonymous(heap)].into();
    }
    let info = |&(pid, command, cgroup, _): &(u32, &str, &str, u64)| {
        let (command, cgroup) = (command.into(), Some(cgroup.into()));
        (process(pid), Arc::new(TargetInfo { command, cgroup, ..TargetInfo::default() }))
    };
    record.infos = processes.iter().map(info).collect();
    Event::Snapshot(Arc::new(record))
}

/// A survey that found these sums in a process.
pub fn surveyed(pid: u32, sums: PageSums) -> Event {
    let mappings: Arc<[Mapping]> = [Mapping::anonymous(range(BASE, 64 * MIB))].into();
    let target = TargetSurvey {
        id: process(pid),
        by_mapping: vec![MappingSums::new(0, &mappings, sums).unwrap()],
        mappings,
        by_block: BlockList::default(),
        by_node: Vec::new(),
    };
    let interval = Duration::from_secs(1);
    let survey = SurveySnapshot { interval, targets: vec![target], ..SurveySnapshot::default() };
    Event::Survey(Arc::new(SurveyRecord { survey, ..SurveyRecord::default() }))
}

/// A survey that found a process with 48 MiB on node 0 and 16 MiB on node 1, of which a quarter was touched.
pub fn on_two_nodes(pid: u32) -> Event {
    let sums = |mib: u64| PageSums::of(Figures { present: mib * MIB, touched: mib * MIB / 4, ..Figures::default() });
    let by_node = [(0, 48), (1, 16)].map(|(node, mib)| NodeSums { node: NodeId(node), sums: sums(mib) });
    let target = TargetSurvey {
        id: process(pid),
        mappings: [].into(),
        by_mapping: Vec::new(),
        by_block: BlockList::default(),
        by_node: by_node.into(),
    };
    let survey = SurveySnapshot { targets: vec![target], ..SurveySnapshot::default() };
    Event::Survey(Arc::new(SurveyRecord { survey, ..SurveyRecord::default() }))
}

/// A notice of the schemes.
pub fn notice(severity: Severity, text: &str) -> Event {
    Event::Notice(Notice::new(severity, text))
}

/// The same as the recording has it.
pub fn record(nth: u32, pids: &[u32]) -> SnapshotRecord {
    let info = |pid: &u32| {
        let info = TargetInfo { command: format!("./made --number {pid}"), ..TargetInfo::default() };
        (process(*pid), Arc::new(info))
    };
    SnapshotRecord {
        snapshot: Snapshot {
            time: AGGREGATION * nth,
            aggregation: AGGREGATION,
            samples: 20,
            targets: pids.iter().copied().map(target).collect(),
            rounds: 20,
            sampled_rounds: 20,
            reads: 120,
            max_reads: 6,
            clears: 40,
            histories: Vec::new(),
        },
        cost: Some(Cost {
            rounds: 20,
            late_rounds: 1,
            sampled_rounds: Some(20),
            reads: 120,
            max_reads: 6,
            clears: 40,
            cpu_ns: 500_000,
            other_cpu_ns: Some(100_000),
            limited: Some(false),
            not_afforded: None,
            unobservable_bytes: 16 * MIB,
            longest_hold_ns: Some(400_000),
            holds_ns: Some(900_000),
        }),
        infos: pids.iter().map(info).collect(),
        ..SnapshotRecord::default()
    }
}

/// A screen of this size after a number of aggregations.
pub fn app(size: (u16, u16), colour: Colour, aggregations: u32, pids: &[u32]) -> App {
    let run = RunInfo {
        probe: "bpf".into(),
        coarse: false,
        sampled: true,
        aggregation: AGGREGATION,
        max_regions: 1000,
        output: None,
    };
    let mut app = App::new(run, Appearance { colour, unicode: colour != Colour::None });
    app.size = size;
    (1..=aggregations).for_each(|nth| app.event(finding(nth, pids)));
    app
}

/// The first `count` of some schemes. The first one has a quota.
pub fn schemes(count: usize) -> Vec<Scheme> {
    let text = "
- {name: cold, action: pageout, access_rate: 0%, age: {min: 5s}, quota: {bytes: 10M}}
- {name: hot, action: hugepage, access_rate: {min: 50%}}
- {name: count-1, action: stat}
- {name: count-2, action: stat}
- {name: a-scheme-of-a-long-name, action: willneed}
";
    let mut schemes = isotherm_scheme::parse("made.yaml", text).unwrap();
    schemes.truncate(count);
    schemes
}

/// The report of a scheme that has done nothing yet.
pub fn report(name: &str) -> Report {
    Report::new(name, isotherm_core::scheme::Action::PageOut)
}

/// The activity at this second.
pub fn activity(second: u64, schemes: Vec<Report>) -> Activity {
    Activity {
        time: Duration::from_secs(second),
        schemes,
        memory: vec![(process(7), MemoryUse { resident: 60 * MIB, proportional: None, swapped: 4 * MIB })],
        system: SystemMemory { total: 1000 * MIB, free: 430 * MIB, swap_total: 1, ..SystemMemory::default() },
        major_faults: Some(3 * second),
        compressed_growth: None,
        surroundings: None,
    }
}

/// The activity of `count` schemes at this second. The first pages out 3 MiB per second, of which 1 MiB is refused.
pub fn acted(second: u64, count: usize) -> Activity {
    let reports = schemes(count).into_iter().enumerate().map(|(nth, scheme)| {
        let mut report = Report { action: scheme.action.into(), ..report(&scheme.name) };
        report.total.applications = 10 * second;
        report.last.time = Duration::from_secs(second);
        if nth == 0 {
            let bytes = second * MIB;
            report.quota = Some(10 * MIB);
            (report.total.tried_bytes, report.total.passed_bytes) = (3 * bytes, 3 * bytes);
            report.total.applied_bytes = 2 * bytes;
            let refusal = RefusalReason::NotMapped.with_code(12);
            report.total.refusals = vec![RefusalCount { refusal, unknown_reason: None, regions: second, bytes }];
            report.total.time = Duration::from_millis(10 * second);
            let region =
                |i: u64| ActedRegion { target: process(7), range: range(BASE + i * 2 * MIB, MIB), applied: MIB };
            report.last.regions = (0..5).map(region).collect();
            report.last.held_back_bytes = 20 * MIB;
        }
        report
    });
    activity(second, reports.collect())
}

/// Applies `count` schemes for some seconds.
pub fn acting(app: &mut App, count: usize, seconds: u64) {
    app.event(Event::Schemes(schemes(count).into()));
    for activity in (1..=seconds).map(|second| acted(second, count)) {
        app.event(Event::Activity(Arc::new(activity)));
    }
}
