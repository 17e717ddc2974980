//! What recording costs: CPU time a snapshot, and bytes.
//!
//! `cargo run --release -p isotherm-record --example cost [SNAPSHOTS [REGIONS [KEEP]]]`: 10 snapshots a second of one
//! target whose regions are merged and split at random borders again and again, as the monitor does it. With KEEP the
//! recording is kept there. Then the same for surveys alone: 60 of 1 GiB in as many mappings, a second apart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_SIZE, BlockSums, MappingSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey};
use isotherm_core::{
    AddrRange, Figures, Mapping, PAGE_SIZE, Permissions, RegionSnapshot, Snapshot, TargetId, TargetSnapshot,
};
use isotherm_record::{Contents, Cost, Header, Host, Recorder, Recording, SnapshotRecord, SurveyRecord, TargetInfo};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let snapshots: u64 = arguments.next().map_or(Ok(6000), |text| text.parse())?;
    let regions: u64 = arguments.next().map_or(Ok(300), |text| text.parse())?;

    let directory = tempfile::tempdir()?;
    let path = arguments.next().map_or_else(|| directory.path().join("cost.rec"), Into::into);
    let mut random = Random(42);
    let mut memory = Memory::new(regions);
    let info = Arc::new(TargetInfo { command: "server --port 80".into(), started_unix_ns: 1, ..TargetInfo::default() });
    let cost = Cost { rounds: 20, reads: 20 * regions, max_reads: regions as u32, ..Cost::default() };

    let mut recorder = Recorder::create(&path, &header())?;
    let mut spent = 0;
    for i in 1..=snapshots {
        let snapshot = memory.snapshot(i, &mut random);
        let infos = Arc::new([(snapshot.targets[0].id, Arc::clone(&info))]);
        let record = SnapshotRecord { snapshot, cost: Some(cost), infos, ..SnapshotRecord::default() };
        let before = cpu_ns();
        recorder.write(&record)?;
        spent += cpu_ns() - before;
    }
    let bytes = recorder.finish()?;
    println!("write: {:.1} us of CPU a snapshot of {regions} regions", spent as f64 / 1e3 / snapshots as f64);
    println!(
        "size: {} bytes a snapshot, {:.1} MiB an hour",
        bytes / snapshots,
        bytes as f64 / snapshots as f64 * 36000.0 / 1048576.0
    );

    let before = cpu_ns();
    let recording = Recording::open(&path)?;
    let opened = cpu_ns();
    let mut rows = 0_u64;
    for record in recording.snapshots() {
        rows += record?.snapshot.targets.len() as u64;
    }
    println!(
        "open: {:.1} ms; read: {:.1} us a row",
        (opened - before) as f64 / 1e6,
        (cpu_ns() - opened) as f64 / 1e3 / rows as f64
    );
    surveys(&directory.path().join("surveys.rec"), regions, &mut random)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    println!(
        "peak memory: {}",
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim()
    );
    Ok(())
}

/// Records a minute of surveys of 1 GiB in this many mappings.
fn surveys(path: &Path, mappings: u64, random: &mut Random) -> Result<(), Box<dyn std::error::Error>> {
    const SURVEYS: u64 = 60;
    let mappings = memory(mappings, (1 << 30) / PAGE_SIZE / mappings);
    let info = Arc::new(TargetInfo { command: "server --port 80".into(), started_unix_ns: 1, ..TargetInfo::default() });
    let mut recorder = Recorder::create_with(path, &header(), Contents { surveys: true, ..Contents::default() })?;
    let mut idle = vec![Duration::ZERO; 513];
    let mut spent = 0;
    for i in 1..=SURVEYS {
        let target = surveyed(&mappings, &mut idle, random);
        let infos = Arc::new([(target.id, Arc::clone(&info))]);
        let (time, interval) = (Duration::from_secs(i), Duration::from_secs(1));
        let cost = SurveyCost { reads: 1 << 18, clears: 1 << 14 };
        let survey = SurveySnapshot { time, interval, cost, targets: vec![target], ..SurveySnapshot::default() };
        let before = cpu_ns();
        recorder.write_survey(&SurveyRecord {
            survey,
            cpu: Some(Duration::from_millis(3)),
            infos,
            ..SurveyRecord::default()
        })?;
        spent += cpu_ns() - before;
    }
    let bytes = recorder.finish()?;
    println!(
        "surveys of 1 GiB in {} mappings: {:.1} us of CPU each, {:.0} KiB a minute",
        mappings.len(),
        spent as f64 / 1e3 / SURVEYS as f64,
        bytes as f64 / 1024.0
    );
    Ok(())
}

/// A survey in which a quarter of the blocks is accessed in part, by chance, and the rest is idle since different
/// times.
fn surveyed(mappings: &Arc<[Mapping]>, idle: &mut [Duration], random: &mut Random) -> TargetSurvey {
    let by_mapping = mappings.iter().enumerate().map(|(nth, mapping)| {
        let present = mapping.range.size();
        let touched = if nth % 4 == 0 { random.below(present / PAGE_SIZE) * PAGE_SIZE } else { 0 };
        // Longer windows hold a little more.
        let mut at = touched;
        let within = std::array::from_fn(|_| {
            at = (at + random.below(1 + (present - at) / PAGE_SIZE / 4) * PAGE_SIZE).min(present);
            at
        });
        let figures = Figures { present, touched, ..Figures::default() };
        MappingSums::new(nth, mappings, PageSums { within, ..PageSums::of(figures) })
    });
    let by_mapping = by_mapping.flatten().collect();
    let first = BASE / BLOCK_SIZE * BLOCK_SIZE;
    let by_block = (0..).zip(idle).map(|(nth, idle)| {
        let touched = if nth % 4 == 0 { random.below(513) as u16 } else { u16::from(random.below(50) == 0) };
        *idle = if touched > 0 { Duration::ZERO } else { *idle + Duration::from_secs(1) };
        let (start, mean_idle) = (first + nth * BLOCK_SIZE, Some(*idle));
        BlockSums { pages: Figures { present: 512, touched, ..Figures::default() }, start, idle: *idle, mean_idle }
    });
    TargetSurvey {
        id: TargetId::process(4711, Duration::ZERO),
        by_mapping,
        by_block: by_block.collect(),
        by_node: Vec::new(),
        mappings: Arc::clone(mappings),
    }
}

/// This many mappings of `pages`, one after another.
fn memory(count: u64, pages: u64) -> Arc<[Mapping]> {
    let mapping = |i: u64| Mapping {
        range: AddrRange::new(BASE + i * pages * PAGE_SIZE, BASE + (i + 1) * pages * PAGE_SIZE)
            .expect("a mapping is not empty"),
        permissions: Permissions::READ_WRITE,
        node: None,
        file: None,
        name: if i.is_multiple_of(3) { "".into() } else { format!("/usr/lib/x86_64-linux-gnu/lib{i}.so.6").into() },
    };
    (0..count).map(mapping).collect()
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for a measurement.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A target of 300 mappings and 8 GiB, whose regions' borders lie within blocks of equal temperature.
struct Memory {
    blocks: u64,
    mappings: Arc<[Mapping]>,
    ages: Vec<u32>,
}

const BASE: u64 = 0x7f12_3456_7000;
const BLOCK_PAGES: u64 = 7000;

impl Memory {
    fn new(blocks: u64) -> Self {
        Self { blocks, mappings: memory(blocks, BLOCK_PAGES), ages: vec![0; blocks as usize] }
    }

    fn snapshot(&mut self, i: u64, random: &mut Random) -> Snapshot {
        let mut borders = vec![BASE];
        borders.extend((1..self.blocks).map(|b| BASE + (b * BLOCK_PAGES + random.below(BLOCK_PAGES / 2)) * PAGE_SIZE));
        borders.push(BASE + self.blocks * BLOCK_PAGES * PAGE_SIZE);
        let regions = borders.windows(2).enumerate().map(|(b, pair)| {
            // A tenth is hot, a fifth is warm, the rest is cold.
            let nr_accesses = match b % 10 {
                0 => 18 + random.below(3) as u32,
                1 | 2 => random.below(12) as u32,
                _ => 0,
            };
            self.ages[b] = if random.below(20) == 0 { 0 } else { self.ages[b] + 1 };
            RegionSnapshot {
                nr_accesses,
                nr_samples: 20,
                age: self.ages[b],
                ..RegionSnapshot::new(AddrRange::new(pair[0], pair[1]).expect("borders are in order"))
            }
        });
        let regions = regions.collect();
        Snapshot {
            time: Duration::from_millis(100 * i),
            aggregation: Duration::from_millis(100),
            samples: 20,
            targets: vec![TargetSnapshot {
                id: TargetId::process(4711, Duration::ZERO),
                regions,
                mappings: Arc::clone(&self.mappings),
            }],
            ..Snapshot::default()
        }
    }
}

fn header() -> Header {
    Header {
        isotherm_version: env!("CARGO_PKG_VERSION").into(),
        probe: "none".into(),
        granularity: "page".into(),
        sampling_ns: 5_000_000,
        aggregation_ns: 100_000_000,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        seed: 42,
        started_unix_ns: 1,
        host: Host {
            id: "0123456789abcdef0123456789abcdef".into(),
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".into(),
            name: "host".into(),
            kernel: "6.1".into(),
            architecture: "x86_64".into(),
            cpus: 2,
            memory_bytes: 1 << 33,
        },
        ..Header::default()
    }
}
