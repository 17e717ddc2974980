//! Reading a recording: snapshots, which are gathered of the rows of targets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};

use crate::id::StoredId;
use crate::target::RawRow;
use crate::{Cost, SnapshotRecord, TargetInfo, TargetInfos};

/// The name of mappings that are not known, because the recording is damaged.
const UNKNOWN: &str = "[unknown]";

/// A row of a target, with what earlier ones have said.
#[derive(Debug)]
pub(crate) struct TargetRow {
    time: Duration,
    aggregation: Duration,
    samples: u32,
    pub(crate) target: TargetSnapshot,
    nr_regions: usize,
    pub(crate) info: Arc<TargetInfo>,
    /// The cost of the whole snapshot, which only its first row has.
    cost: Option<Cost>,
}

/// What earlier rows have said.
#[derive(Debug, Default)]
pub(crate) struct EarlierRows {
    known: HashMap<StoredId, LastRow>,
    /// The time of the last row, in nanoseconds.
    time_ns: u64,
    /// What the targets of the last snapshot were: shared as long as it stays the same.
    infos: TargetInfos,
}

#[derive(Debug)]
struct LastRow {
    info: Arc<TargetInfo>,
    mappings: Arc<[Mapping]>,
    /// The time of the last row of the target, in nanoseconds.
    seen: u64,
}

impl EarlierRows {
    /// Fills in what earlier rows of the target have said. If those rows may be missing, what is not known is left
    /// open: the target has no command, and its regions lie in mappings without a file.
    pub(crate) fn complete(&mut self, mut raw: RawRow, after_gap: bool) -> Result<TargetRow, &'static str> {
        if raw.time_ns < self.time_ns {
            return Err("time goes backwards");
        }
        if raw.time_ns > self.time_ns {
            // A target that was missing in a snapshot begins anew.
            let last = self.time_ns;
            self.known.retain(|_, known| known.seen == last);
            self.time_ns = raw.time_ns;
        }
        if after_gap && !self.known.contains_key(&raw.id) {
            raw.info = raw.info.or_else(|| Some(Arc::default()));
            raw.mappings = raw.mappings.or_else(|| Some(mappings_of(&raw.regions).into()));
        }
        let (info, mappings) = (raw.info, raw.mappings);
        let before = self.known.remove(&raw.id);
        let (info, mappings) = match before {
            Some(known) => (info.unwrap_or(known.info), mappings.unwrap_or(known.mappings)),
            None => (
                info.ok_or("the first row of a target does not say what it is")?,
                mappings.ok_or("the first row of a target has no mappings")?,
            ),
        };
        let known = LastRow { info: Arc::clone(&info), mappings: Arc::clone(&mappings), seen: raw.time_ns };
        self.known.insert(raw.id, known);
        Ok(TargetRow {
            time: Duration::from_nanos(raw.time_ns),
            aggregation: Duration::from_nanos(raw.aggregation_ns),
            samples: raw.samples,
            target: TargetSnapshot { id: raw.id.target(&info), regions: raw.regions, mappings },
            nr_regions: raw.nr_regions,
            info,
            cost: raw.cost,
        })
    }
}

impl EarlierRows {
    /// What the targets are, shared with the last snapshot if nothing has changed.
    fn share(&mut self, infos: Vec<(TargetId, Arc<TargetInfo>)>) -> TargetInfos {
        let same =
            |a: &(TargetId, Arc<TargetInfo>), b: &(TargetId, Arc<TargetInfo>)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1);
        if self.infos.len() != infos.len() || !self.infos.iter().zip(&infos).all(|(a, b)| same(a, b)) {
            self.infos = infos.into();
        }
        Arc::clone(&self.infos)
    }
}

/// Mappings that hold these regions, where the mappings are not known.
fn mappings_of(regions: &[RegionSnapshot]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for region in regions {
        let range = region.range;
        match mappings.last_mut() {
            Some(last) if last.range.end() == range.start() => {
                last.range = AddrRange::new(last.range.start(), range.end()).unwrap_or(last.range);
            }
            _ => mappings.push(Mapping { name: UNKNOWN.into(), ..Mapping::anonymous(range) }),
        }
    }
    mappings
}

/// A snapshot whose rows are being gathered.
#[derive(Debug)]
pub(crate) struct GatheredSnapshot {
    record: SnapshotRecord,
    infos: Vec<(TargetId, Arc<TargetInfo>)>,
    targets: HashSet<TargetId>,
    /// The memory of its regions and mappings.
    pub(crate) bytes: usize,
    /// Whether a merged snapshot has its regions.
    pub(crate) is_beside_merged: bool,
}

impl GatheredSnapshot {
    pub(crate) fn new(first: TargetRow) -> Self {
        let cost = first.cost.unwrap_or_default();
        let snapshot = Snapshot {
            time: first.time,
            aggregation: first.aggregation,
            samples: first.samples,
            rounds: cost.rounds,
            reads: cost.reads,
            sampled_rounds: cost.sampled_rounds.unwrap_or(0),
            max_reads: cost.max_reads,
            clears: cost.clears,
            targets: Vec::new(),
            histories: Vec::new(),
        };
        let record = SnapshotRecord { snapshot, cost: first.cost, ..SnapshotRecord::default() };
        let mut gathered =
            Self { record, infos: Vec::new(), targets: HashSet::new(), bytes: 0, is_beside_merged: false };
        gathered.add(first);
        gathered
    }

    /// Whether `row` is of the same snapshot.
    pub(crate) fn takes(&self, row: &TargetRow) -> bool {
        let Snapshot { time, aggregation, samples, .. } = self.record.snapshot;
        // Only the first row of a snapshot has a cost. In a recording that was merged, recorders have snapshots at one
        // time.
        row.cost.is_none()
            && (row.time, row.aggregation, row.samples) == (time, aggregation, samples)
            && !self.targets.contains(&row.target.id)
    }

    pub(crate) fn add(&mut self, row: TargetRow) {
        self.bytes += size_of_val::<[RegionSnapshot]>(&row.target.regions);
        self.bytes += size_of_val::<[Mapping]>(&row.target.mappings);
        self.targets.insert(row.target.id);
        self.infos.push((row.target.id, row.info));
        self.record.nr_regions.push(row.nr_regions);
        self.record.snapshot.targets.push(row.target);
    }

    /// The snapshot, when it has all of its rows.
    pub(crate) fn finish(mut self, targets: &mut EarlierRows) -> SnapshotRecord {
        let SnapshotRecord { snapshot, nr_regions, .. } = &mut self.record;
        if snapshot.targets.iter().zip(&*nr_regions).all(|(target, count)| target.regions.len() == *count) {
            nr_regions.clear();
        }
        SnapshotRecord { infos: targets.share(self.infos), ..self.record }
    }
}
