//! Reading a recording snapshot by snapshot.

use std::sync::Arc;

use isotherm_core::{Snapshot, TargetId};

use crate::rows::Rows;
use crate::{RecordError, Row, SnapshotRecord, TargetInfo, TargetInfos};

/// The snapshots of a recording, in the order of time. After an error there is no further one.
#[derive(Debug)]
pub struct Snapshots {
    rows: Rows,
    /// The first row of the next snapshot.
    next: Option<Result<Row, RecordError>>,
    /// What the targets of the last snapshot were: shared as long as it stays the same.
    infos: TargetInfos,
}

impl Snapshots {
    pub(crate) fn new(mut rows: Rows) -> Self {
        let next = rows.next();
        Self { rows, next, infos: Arc::default() }
    }
}

impl Iterator for Snapshots {
    type Item = Result<SnapshotRecord, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = match self.next.take()? {
            Ok(row) => row,
            Err(error) => return Some(Err(error)),
        };
        let cost = first.cost;
        let mut snapshot = Snapshot {
            time: first.time,
            aggregation: first.aggregation,
            samples: first.samples,
            rounds: cost.map_or(0, |cost| cost.rounds),
            reads: cost.map_or(0, |cost| cost.reads),
            max_reads: cost.map_or(0, |cost| cost.max_reads),
            clears: cost.map_or(0, |cost| cost.clears),
            targets: Vec::new(),
        };
        let mut infos: Vec<(TargetId, Arc<TargetInfo>)> = Vec::new();
        let mut add = |row: Row| {
            infos.push((row.target.id, row.info));
            snapshot.targets.push(row.target);
        };
        let time = first.time;
        add(first);
        self.next = loop {
            match self.rows.next() {
                Some(Ok(row)) if row.time == time => add(row),
                next => break next,
            }
        };
        let same =
            |a: &(TargetId, Arc<TargetInfo>), b: &(TargetId, Arc<TargetInfo>)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1);
        if self.infos.len() != infos.len() || !self.infos.iter().zip(&infos).all(|(a, b)| same(a, b)) {
            self.infos = infos.into();
        }
        Some(Ok(SnapshotRecord { snapshot, cost, infos: Arc::clone(&self.infos) }))
    }
}
