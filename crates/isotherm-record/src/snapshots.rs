//! Reading a recording: its snapshots.

use std::collections::HashSet;
use std::sync::Arc;

use isotherm_core::{Mapping, RegionSnapshot, Snapshot, TargetId};

use crate::rows::Rows;
use crate::source::Source;
use crate::{RecordError, Row, SnapshotRecord, TargetInfo, TargetInfos};

/// The snapshots of a recording, in the order of time. After an error there is no further one.
///
/// Snapshots share what a target is and its mappings, as long as these do not change.
#[derive(Debug)]
pub struct Snapshots {
    rows: Rows,
    /// The first row of the next snapshot.
    next: Option<Result<Row, RecordError>>,
    /// What the targets of the last snapshot were: shared as long as it stays the same.
    infos: TargetInfos,
}

/// A snapshot whose rows are being gathered.
struct Gathered {
    record: SnapshotRecord,
    infos: Vec<(TargetId, Arc<TargetInfo>)>,
    targets: HashSet<TargetId>,
    /// The memory of its regions and mappings.
    bytes: usize,
}

impl Gathered {
    fn new(first: Row) -> Self {
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
        let record = SnapshotRecord { snapshot, cost: first.cost, infos: Arc::default() };
        let mut gathered = Self { record, infos: Vec::new(), targets: HashSet::new(), bytes: 0 };
        gathered.add(first);
        gathered
    }

    /// Whether `row` is of the same snapshot.
    fn takes(&self, row: &Row) -> bool {
        let Snapshot { time, aggregation, samples, .. } = self.record.snapshot;
        // Only the first row of a snapshot has a cost. In a recording that was merged, recorders have snapshots at one
        // time.
        row.cost.is_none()
            && (row.time, row.aggregation, row.samples) == (time, aggregation, samples)
            && !self.targets.contains(&row.target.id)
    }

    fn add(&mut self, row: Row) {
        self.bytes += size_of_val::<[RegionSnapshot]>(&row.target.regions);
        self.bytes += size_of_val::<[Mapping]>(&row.target.mappings);
        self.targets.insert(row.target.id);
        self.infos.push((row.target.id, row.info));
        self.record.snapshot.targets.push(row.target);
    }
}

impl Snapshots {
    pub(crate) fn new(source: Source) -> Self {
        let mut rows = Rows::new(source);
        let next = rows.next();
        Self { rows, next, infos: Arc::default() }
    }

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

impl Iterator for Snapshots {
    type Item = Result<SnapshotRecord, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut gathered = match self.next.take()? {
            Ok(row) => Gathered::new(row),
            Err(error) => return Some(Err(error)),
        };
        self.next = loop {
            match self.rows.next() {
                Some(Ok(row)) if gathered.takes(&row) => gathered.add(row),
                next => break next,
            }
            let batches = self.rows.batches();
            if gathered.bytes as u64 > batches.most_bytes() {
                return Some(Err(batches.too_large("a snapshot")));
            }
        };
        let infos = self.share(gathered.infos);
        Some(Ok(SnapshotRecord { infos, ..gathered.record }))
    }
}
