//! Synthetic recordings: a process with a heap, a mapping area and a stack, and a known access pattern.

pub mod checked;
pub mod valid;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    ActedRegion, Action, Application, RefusalCount, RefusalReason, Report, ReportedAction, Statistics,
};
use isotherm_core::survey::{
    BLOCK_SIZE, BlockSums, Kinds, MappingSums, NodeSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey, TotalSums,
    WINDOWS,
};
use isotherm_core::{
    AddrRange, Allocations, BoxError, Figures, Mapping, MemoryUse, NodeId, Permissions, Quantity, RegionSnapshot,
    Snapshot, SystemMemory, TargetId, TargetSnapshot,
};
use isotherm_record::{
    Activity, Cost, Event, Header, Host, Mark, MarkText, Missed, Needs, RecordedBudget, Sight, SnapshotRecord,
    SurveyRecord, TargetInfo,
};
use isotherm_report::{Events, Source};

pub const MIB: u64 = 1 << 20;
pub const AGGREGATION: Duration = Duration::from_millis(100);
pub const HEAP: u64 = 0x55d0_c0de_0000;
pub const ANON: u64 = 0x7f30_0000_0000;
pub const STACK: u64 = 0x7ffd_1000_0000;

#[derive(Clone)]
pub struct Made {
    pub header: Header,
    pub rows: Vec<Row>,
    pub activities: Vec<Activity>,
    pub surveys: Vec<SurveyRecord>,
    pub marks: Vec<Mark>,
    pub allocations: Vec<Allocations>,
    pub missed: Vec<Missed>,
    pub cut_short: Option<String>,
}

impl Source for Made {
    fn header(&self) -> &Header {
        &self.header
    }

    fn events(&self, _needs: Needs) -> Result<Events<'_>, BoxError> {
        let snapshots = self.rows.iter().cloned().map(snapshot_of).map(Event::Snapshot);
        let mut events: Vec<Event> = snapshots
            .chain(self.surveys.iter().cloned().map(Event::Survey))
            .chain(self.activities.iter().cloned().map(Event::Activity))
            .chain(self.marks.iter().cloned().map(Event::Mark))
            .chain(self.allocations.iter().cloned().map(Event::Allocations))
            .chain(self.missed.iter().copied().map(Event::Missed))
            .collect();
        events.sort_by_key(Event::time);
        Ok(Box::new(events.into_iter().map(Ok)))
    }

    fn cut_short(&self) -> Option<String> {
        self.cut_short.clone()
    }
}

/// One target in one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub time: Duration,
    pub aggregation: Duration,
    pub samples: u32,
    pub target: TargetSnapshot,
    pub info: Arc<TargetInfo>,
    pub cost: Option<Cost>,
}

/// A snapshot of one target.
fn snapshot_of(row: Row) -> SnapshotRecord {
    let Row { time, aggregation, samples, target, info, cost } = row;
    let infos = Arc::new([(target.id, info)]);
    let snapshot = Snapshot { time, aggregation, samples, targets: vec![target], ..Snapshot::default() };
    SnapshotRecord { snapshot, cost, infos, ..SnapshotRecord::default() }
}

pub fn made(rows: Vec<Row>) -> Made {
    let header = Header {
        isotherm_version: "0.1.0".into(),
        probe: "bpf".into(),
        granularity: "page".into(),
        sight: Sight { blind_to: "memory of hugetlb or a guest".into(), ..Sight::default() },
        sampling_ns: 5_000_000,
        aggregation_ns: AGGREGATION.as_nanos() as u64,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        seed: 7,
        budget: Some(RecordedBudget { cpu: 0.02, targets: 0.005 }),
        intervals: Some("auto".into()),
        started_unix_ns: 1_790_000_000_000_000_000,
        host: Host {
            id: "0123456789abcdef0123456789abcdef".into(),
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".into(),
            name: "testhost".into(),
            kernel: "6.18.0".into(),
            architecture: "x86_64".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
        },
        ..Header::default()
    };
    Made {
        header,
        rows,
        activities: vec![],
        surveys: vec![],
        marks: vec![],
        allocations: vec![],
        missed: vec![],
        cut_short: None,
    }
}

/// Marks at these times in milliseconds.
pub fn marks(marks: &[(u64, &str)]) -> Vec<Mark> {
    let mark = |&(ms, text): &(u64, &str)| Mark {
        time: Duration::from_millis(ms),
        text: MarkText::new(text.as_bytes()).expect("a text"),
    };
    marks.iter().map(mark).collect()
}

/// The same recording, as if imported: the header has few fields, and the rows have no names of mappings and no costs.
pub fn imported(mut source: Made) -> Made {
    let header = &mut source.header;
    header.probe = "damo".into();
    (header.update_ns, header.min_regions, header.max_regions, header.seed) = (0, 0, 0, 0);
    header.host = Host::default();
    (header.budget, header.intervals) = (None, None);
    for row in &mut source.rows {
        row.cost = None;
        row.info = Arc::new(TargetInfo::default());
    }
    source
}

/// The process with this process ID, or physical memory if that is 0.
pub fn process(pid: u32) -> TargetId {
    if pid == 0 { TargetId::PhysicalMemory } else { TargetId::process(pid, Duration::from_nanos(1)) }
}

pub fn range(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start, end).unwrap()
}

pub fn mapping(start: u64, end: u64, name: &str) -> Mapping {
    Mapping { name: name.into(), ..Mapping::anonymous(range(start, end)) }
}

pub fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> RegionSnapshot {
    RegionSnapshot { nr_accesses, nr_samples: 20, age, ..RegionSnapshot::new(range(start, end)) }
}

/// The row of snapshot `index` (the first is 1) of a target, with a cost.
pub fn row(index: u32, pid: u32, mappings: &Arc<[Mapping]>, regions: Vec<RegionSnapshot>) -> Row {
    let n = regions.len() as u32;
    Row {
        time: AGGREGATION * index,
        aggregation: AGGREGATION,
        samples: 20,
        target: TargetSnapshot { id: process(pid), regions, mappings: mappings.clone() },
        info: Arc::new(TargetInfo { command: "demo --phases 3".into(), started_unix_ns: 1, ..TargetInfo::default() }),
        cost: Some(Cost {
            rounds: 20,
            late_rounds: u32::from(index == 5),
            sampled_rounds: Some(20),
            reads: u64::from(n) * 19,
            max_reads: n,
            clears: u64::from(n) * 7,
            cpu_ns: 1_200_000,
            other_cpu_ns: Some(100_000),
            limited: Some(false),
            not_afforded: None,
            unobservable_bytes: 0,
            longest_hold_ns: None,
            holds_ns: None,
        }),
    }
}

/// A pseudo-random number from 0 to 1.
fn noise(x: u64) -> f64 {
    let mut x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 40) as f64 / (1 << 24) as f64
}

/// A process whose hot memory moves through a mapping of 256 MiB. It has a heap that is half hot and partly locked, a
/// library, and a stack. After half of the time it maps another 64 MiB.
pub fn phases(snapshots: u32) -> Made {
    phases_of(1234, snapshots)
}

pub fn phases_of(pid: u32, snapshots: u32) -> Made {
    let base: Vec<Mapping> = vec![
        mapping(HEAP - 4 * MIB, HEAP - 3 * MIB, "/usr/bin/demo"),
        mapping(HEAP, HEAP + 48 * MIB, "[heap]"),
        mapping(ANON, ANON + 256 * MIB, ""),
        mapping(ANON + 300 * MIB, ANON + 302 * MIB, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        mapping(STACK, STACK + MIB / 8, "[stack]"),
    ];
    let mut more = base.clone();
    more.insert(3, mapping(ANON + 256 * MIB, ANON + 300 * MIB, "/dev/shm/cache"));
    let (base, more): (Arc<[Mapping]>, Arc<[Mapping]>) = (base.into(), more.into());
    let rows = (1..=snapshots)
        .map(|i| {
            let late = i > snapshots / 2;
            let mappings = if late { &more } else { &base };
            let mut regions = vec![
                region(HEAP - 4 * MIB, HEAP - 3 * MIB, 3, i),
                region(HEAP, HEAP + 20 * MIB, 18 + (noise(u64::from(i)) * 2.9) as u32, i),
                RegionSnapshot { nr_unobservable: 20, ..region(HEAP + 20 * MIB, HEAP + 28 * MIB, 0, i) },
                region(HEAP + 28 * MIB, HEAP + 48 * MIB, 0, i),
            ];
            let hot = u64::from(i * 3 / snapshots.max(1)) % 4;
            for part in 0..32 {
                let (start, end) = (ANON + part * 8 * MIB, ANON + (part + 1) * 8 * MIB);
                let rate = if part / 8 == hot { 14.0 } else { 1.2 };
                let nr = (rate * (0.6 + 0.6 * noise(u64::from(i) * 100 + part))) as u32;
                regions.push(region(start, end, nr.min(20), if nr == 0 { i % (snapshots / 3 + 1) } else { 2 }));
            }
            if late {
                regions.push(region(ANON + 256 * MIB, ANON + 300 * MIB, 0, i - snapshots / 2));
            }
            regions.push(region(ANON + 300 * MIB, ANON + 302 * MIB, 5, 3));
            regions.push(region(STACK, STACK + MIB / 8, 20, i));
            let mut row = row(i, pid, mappings, regions);
            if let Some(cost) = &mut row.cost {
                cost.unobservable_bytes = 8 * MIB;
                cost.cpu_ns = 1_000_000 + (noise(u64::from(i) + 7) * 800_000.0) as u64;
            }
            row
        })
        .collect();
    made(rows)
}

/// As [`phases`] of a second for each of `seconds`, with two schemes at work: `prcl` reclaims, under a quota that tunes
/// itself, and sleeps for the third quarter of the time; `hot` makes huge pages, of which some are refused.
pub fn schemed(seconds: u32) -> Made {
    let mut made = phases(seconds * 10);
    let mut totals = [Statistics::default(), Statistics::default()];
    made.activities = (1..=seconds)
        .map(|second| {
            let n = u64::from(second);
            let (share, awake) = (f64::from(second) / f64::from(seconds), second * 4 / seconds.max(1) != 2);
            let quota = (4 + (12.0 * share) as u64) * MIB;
            let [reclaimed, collapsed] = &mut totals;
            if awake {
                let wanted = quota + (noise(n) * 8.0) as u64 * MIB;
                reclaimed.applications += 10;
                reclaimed.tried_regions += 12;
                reclaimed.tried_bytes += quota;
                reclaimed.passed_bytes += quota - MIB;
                reclaimed.applied_regions += 11;
                reclaimed.applied_bytes += (quota - MIB) / 4096 * 4096;
                reclaimed.watched_bytes += quota / 2;
                reclaimed.returned_bytes += quota / 16;
                reclaimed.rejected_bytes += MIB;
                reclaimed.quota_exceeded += u64::from(wanted > quota);
                reclaimed.time += Duration::from_millis(12);
            }
            collapsed.applications += 1;
            collapsed.tried_regions += 2;
            collapsed.tried_bytes += 4 * MIB;
            collapsed.passed_bytes += 4 * MIB;
            if second % 3 == 0 {
                collapsed.refusals = vec![
                    RefusalCount {
                        refusal: RefusalReason::Unsuitable.with_code(22),
                        unknown_reason: None,
                        regions: n / 9,
                        bytes: n / 9 * 2 * MIB,
                    },
                    RefusalCount {
                        refusal: RefusalReason::Busy.with_code(11),
                        unknown_reason: None,
                        regions: n / 3,
                        bytes: n / 3 * 2 * MIB,
                    },
                    RefusalCount {
                        refusal: RefusalReason::Other.with_code(4711),
                        unknown_reason: None,
                        regions: 1,
                        bytes: 4096,
                    },
                ];
            } else {
                collapsed.applied_regions += 2;
                collapsed.applied_bytes += 4 * MIB;
            }
            collapsed.time += Duration::from_millis(3);
            let region = |at: u64, size, applied| ActedRegion {
                target: process(1234),
                range: range(ANON + at * MIB, ANON + at * MIB + size),
                applied,
            };
            let last = |regions, held_back_bytes| Application {
                time: Duration::from_secs(n) - Duration::from_millis(40),
                regions,
                held_back_bytes,
                unobservable_bytes: 8 * MIB,
            };
            let report = |name: &str, action: ReportedAction, total: &Statistics, last| Report {
                total: total.clone(),
                last,
                ..Report::new(name, action)
            };
            let cold = (0..14).map(|i| region(64 + 8 * i, MIB + i * 4096, if i == 3 { 0 } else { MIB })).collect();
            let hot = vec![region(0, 2 * MIB, 2 * MIB), region(2, 2 * MIB, 0)];
            let used = |pid, resident| {
                (
                    process(pid),
                    MemoryUse {
                        resident,
                        proportional: Some(resident - 2 * MIB),
                        swapped: reclaimed.applied_bytes / 3,
                    },
                )
            };
            let resident = (350 * MIB).saturating_sub(reclaimed.applied_bytes / 3) + (noise(n + 9) * 6.0) as u64 * MIB;
            Activity {
                time: Duration::from_secs(n) - Duration::from_millis(30),
                schemes: vec![
                    Report {
                        awake,
                        quota: Some(quota),
                        goal_score: Some(0.4 + share / 2.0),
                        quota_share: (n > 40).then_some(0.5),
                        ..report("prcl", Action::PageOut.into(), reclaimed, last(cold, 5 * MIB))
                    },
                    report("hot", Action::HugePage.into(), collapsed, last(hot, 0)),
                ],
                memory: vec![used(1234, resident)],
                system: SystemMemory {
                    total: 8 << 30,
                    free: (2 << 30) + reclaimed.applied_bytes / 3,
                    available: 3 << 30,
                    swap_total: 1 << 30,
                    swap_free: (1 << 30) - reclaimed.applied_bytes / 3,
                    stalled: Some(Duration::from_micros((share * share * 9e4) as u64 * n)),
                },
                major_faults: Some(n * n),
                compressed_growth: Some(reclaimed.applied_bytes / 10),
                surroundings: None,
            }
        })
        .collect();
    made
}

/// A server of 64 MiB that samples find idle. A survey each second finds the first 8 MiB touched each time, the next 8
/// MiB in the fifth survey only, 4 MiB of unknown and 4 MiB of unobservable memory; 12 MiB of the mapping are in swap
/// and 20 MiB absent.
/// It reserves a terabyte without access permission.
pub fn surveyed(seconds: u32) -> Made {
    let reserved = range(ANON + 4096 * MIB, ANON + 4096 * MIB + (1 << 40));
    let mappings: Arc<[Mapping]> = vec![
        mapping(ANON, ANON + 96 * MIB, ""),
        Mapping { permissions: Permissions { shared: false, ..Permissions::NONE }, ..Mapping::anonymous(reserved) },
    ]
    .into();
    let parts = [(0, 8, 8), (8, 56, 0), (56, 60, 0), (60, 64, 0)];
    let rows = (1..=seconds * 10).map(|i| {
        let mut regions: Vec<RegionSnapshot> = vec![];
        for (nth, (start, end, touched)) in parts.into_iter().enumerate() {
            let present = (end - start) * MIB;
            let pages = Figures {
                present,
                touched: touched * MIB,
                unknown: if nth == 2 { present } else { 0 },
                unobservable: if nth == 3 { present } else { 0 },
                swapped: Quantity::exact(0),
            };
            let region = region(ANON + start * MIB, ANON + end * MIB, 0, i);
            regions.push(RegionSnapshot { pages: (i > 10).then_some(pages), ..region });
        }
        regions.push(RegionSnapshot {
            pages: (i > 10).then(|| Figures { swapped: Quantity::exact(12 * MIB), ..Figures::default() }),
            ..region(ANON + 64 * MIB, ANON + 96 * MIB, 0, i)
        });
        row(i, 1234, &mappings, regions)
    });
    let mut made = made(rows.collect());
    made.surveys = (1..=seconds)
        .map(|second| {
            let since = |survey: u32| second >= survey && second > 1;
            let within = WINDOWS.map(|window| {
                let recent = since(5) && u64::from(second - 5) < window.as_secs();
                (8 + if recent { 8 } else { 0 }) * MIB
            });
            let touched = (8 + if second == 5 { 8 } else { 0 }) * MIB;
            let sums = PageSums {
                figures: Figures {
                    present: 64 * MIB,
                    touched,
                    unobservable: 4 * MIB,
                    unknown: 4 * MIB,
                    swapped: Quantity::exact(12 * MIB),
                },
                kinds: Kinds::default(),
                within,
                ..PageSums::default()
            };
            let block = |nth: u64| {
                let hot = nth < 4 || (nth < 8 && second == 5);
                let idle = match nth {
                    _ if hot => 0,
                    4..8 if second > 5 => second - 5,
                    _ => second - 1,
                };
                let touched = if hot { 512 } else { 0 };
                BlockSums {
                    pages: Figures { present: 512, touched, swapped: Quantity::exact(0), ..Figures::default() },
                    start: ANON + nth * BLOCK_SIZE,
                    idle: Duration::from_secs(idle.into()),
                    ..BlockSums::default()
                }
            };
            let in_swap = |nth: u64| BlockSums {
                pages: Figures { swapped: Quantity::exact(512), ..Figures::default() },
                start: ANON + nth * BLOCK_SIZE,
                ..BlockSums::default()
            };
            let target = TargetSurvey {
                id: process(1234),
                mappings: mappings.clone(),
                by_mapping: vec![MappingSums::new(0, &mappings, sums).unwrap()],
                by_block: (0..32).map(block).chain((32..38).map(in_swap)).collect(),
                by_node: Vec::new(),
            };
            SurveyRecord {
                survey: SurveySnapshot {
                    time: Duration::from_secs(second.into()),
                    interval: Duration::from_secs(u64::from(second > 1)),
                    cost: SurveyCost { reads: 16384, clears: 2048 },
                    total: Some(TotalSums { sums: target.total(), shared: 0 }),
                    targets: vec![target],
                    ..SurveySnapshot::default()
                },
                cpu: Some(Duration::from_millis(3)),
                infos: vec![(process(1234), made.rows[0].info.clone())].into(),
                ..SurveyRecord::default()
            }
        })
        .collect();
    made
}

/// What [`surveyed`] has, on two memory nodes: a quarter of each sum is on node 2.
pub fn on_two_nodes(seconds: u32) -> Made {
    let mut source = surveyed(seconds);
    for record in &mut source.surveys {
        let survey = &mut record.survey;
        for target in &mut survey.targets {
            let all = target.total();
            let part = |quarters: u64| {
                let mut sums = all.map(|bytes| bytes / 4 * quarters);
                sums.figures.swapped = Quantity::unknown();
                PageSums { kinds: Kinds::default(), mapped_again: 0, ..sums }
            };
            target.by_node = [(0, 3), (2, 1)].map(|(node, of)| NodeSums { node: NodeId(node), sums: part(of) }).into();
        }
        survey.by_node = survey.targets[0].by_node.clone();
    }
    source
}

/// A heap of 24 MiB, of which 16 are in swap and nothing in memory, beside what [`surveyed`] has.
pub fn with_heap_in_swap(seconds: u32) -> Made {
    let mut source = surveyed(seconds);
    let start = 64 * MIB;
    let heap = Mapping { name: "[heap]".into(), ..Mapping::anonymous(range(start, start + 24 * MIB)) };
    let with_heap = |mappings: &[Mapping]| std::iter::once(&heap).chain(mappings).cloned().collect();
    for target in source.surveys.iter_mut().flat_map(|record| &mut record.survey.targets) {
        target.mappings = with_heap(&target.mappings);
        let sums = PageSums::of(Figures { swapped: Quantity::exact(16 * MIB), ..Figures::default() });
        let all = [sums, target.by_mapping[0].sums].into_iter().enumerate();
        target.by_mapping = all.map(|(nth, sums)| MappingSums::new(nth, &target.mappings, sums).unwrap()).collect();
        let in_swap = |nth| BlockSums {
            pages: Figures { swapped: Quantity::exact(512), ..Figures::default() },
            start: start + nth * BLOCK_SIZE,
            ..BlockSums::default()
        };
        target.by_block = (2..10).map(in_swap).chain(target.by_block.iter()).collect();
    }
    for row in &mut source.rows {
        row.target.mappings = with_heap(&row.target.mappings);
    }
    source
}
