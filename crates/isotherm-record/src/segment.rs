//! The segment that is being written: its batches, and its snapshots merged.
//!
//! Merged snapshots stand first in the batch that is all of a segment. So a reader of a long recording gets its regions
//! without those of each snapshot.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use isotherm_core::TargetSnapshot;
use isotherm_core::survey::TargetSurvey;

use crate::columns::{self, RowBuilder};
use crate::id::StoredId;
use crate::level::{MERGED, Merger};
use crate::surveyed::Surveyed;
use crate::table::{Build, only};
use crate::target::{mapping_columns, region_columns};
use crate::time::nanoseconds;
use crate::{SnapshotRecord, TargetInfo};

/// Rows that have not been handed to the kernel.
#[derive(Debug, Default)]
pub(crate) struct Buffered {
    builder: RowBuilder,
    pub(crate) rows: usize,
    /// About how many bytes they take, uncompressed.
    pub(crate) bytes: usize,
}

impl Buffered {
    pub(crate) fn push(&mut self, row: &columns::Row) {
        self.rows += 1;
        self.bytes += row.bytes();
        self.builder.push(row);
    }

    /// The rows as a batch, with the columns of `schema`.
    ///
    /// # Errors
    /// When there is more in them than Arrow can count.
    pub(crate) fn batch(self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let all = self.builder.finish(None)?;
        let columns = only(&all, &DataType::Struct(schema.fields().clone()))?;
        RecordBatch::try_new(Arc::clone(schema), columns.as_struct().columns().to_vec())
    }
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) number: u32,
    /// Where it begins in the file.
    pub(crate) at: u64,
    /// The batches that were handed to the kernel, and about how many bytes they take, uncompressed.
    batches: Vec<RecordBatch>,
    pub(crate) bytes: usize,
    /// The same of the last one.
    last: usize,
    /// The memory that the batches take: small ones take more than their bytes.
    memory: usize,
    /// The bytes of all, at most, and the memory if that is less than there may be.
    pub(crate) most: usize,
    /// The time of the last row of a target before it.
    pub(crate) since: Duration,
    /// How many snapshots it has.
    snapshots: usize,
    /// `None` if the recording has no merged snapshots, if there were more than [`MOST_TARGETS`], or if hardly any
    /// snapshots could be merged.
    merger: Option<Merger>,
    merged: Vec<(SnapshotRecord, Surveyed)>,
    /// The surveys since the last of these.
    surveyed: Surveyed,
}

/// About how many bytes the one batch of a segment has at most, uncompressed: readers allow any batch 16 MiB.
pub(crate) const MAX_WHOLE: usize = 14 << 20;

/// About how many bytes are buffered at most, uncompressed. A daemon has a recorder for each group, and a survey of
/// hundreds of processes fills all of them at once.
pub(crate) const MAX_BUFFERED: usize = 512 << 10;

/// About how many bytes a segment of many targets has at most, uncompressed.
const MAX_OF_MANY: usize = 2 << 20;

/// How many snapshots are merged into one at least. Fewer are read as fast by themselves.
const FEWEST_MERGED: usize = 8;

/// Snapshots of more targets are not merged. A merged snapshot has each target that there was in its time, and would
/// keep the mappings of all processes that have ended since.
const MOST_TARGETS: usize = 64;

impl Written {
    /// Segment `number` of a recording with the columns of `schema`, which begins at this byte and after this time.
    pub(crate) fn new(schema: &SchemaRef, number: u32, at: u64, since: Duration) -> Self {
        let merger = schema.column_with_name(columns::MERGED).map(|_| Merger::new(MERGED));
        Self {
            number,
            at,
            batches: Vec::new(),
            bytes: 0,
            last: 0,
            memory: 0,
            most: MAX_WHOLE,
            since,
            snapshots: 0,
            merger,
            merged: Vec::new(),
            surveyed: Surveyed::default(),
        }
    }

    /// Takes in a snapshot whose rows are in its batches, or will be.
    pub(crate) fn add_snapshot(&mut self, record: &SnapshotRecord) {
        self.snapshots += 1;
        let Some(merger) = &mut self.merger else { return };
        if let Some(merged) = merger.add(record) {
            self.merged.push((merged, std::mem::take(&mut self.surveyed)));
        }
        // Snapshots of processes that come and go cannot be merged: each is of other targets.
        let is_seldom = self.merged.len() > FEWEST_MERGED && !are_merged(&self.merged, self.snapshots);
        if is_seldom || merger.targets() > MOST_TARGETS {
            (self.merger, self.merged, self.surveyed) = (None, Vec::new(), Surveyed::default());
        }
    }

    /// Takes in a survey of a target, whose row is in its batches, or will be.
    pub(crate) fn add_survey(&mut self, target: &TargetSurvey, column: &columns::Survey) {
        if self.merger.is_some() {
            self.surveyed.add(target, column);
        }
    }

    /// Takes in a batch that was handed to the kernel.
    pub(crate) fn add(&mut self, batch: RecordBatch, bytes: usize) {
        self.memory += batch.get_array_memory_size();
        self.batches.push(batch);
        self.bytes += bytes;
        self.last = bytes;
    }

    /// Whether it has so many bytes that it is to end: another batch as the last one, or of a MiB, would make one batch
    /// of it too large. With many targets it is short, because it is in memory three times when it ends, and one batch
    /// of it is hardly smaller.
    pub(crate) fn is_full(&self) -> bool {
        if self.merger.is_none() {
            return self.bytes >= self.most.min(MAX_OF_MANY);
        }
        let is_limited = self.most < MAX_WHOLE;
        self.bytes + self.last.max(self.most / 14) > self.most || is_limited && self.memory > self.most
    }

    /// Whether one batch can take the place of its batches, and is smaller than they are.
    pub(crate) fn is_divided(&self) -> bool {
        self.batches.len() > 1 && self.bytes <= MAX_WHOLE
    }

    /// All of it as one batch, in which snapshots up to number `nth` are.
    ///
    /// # Errors
    /// When there is more in it than Arrow can count.
    pub(crate) fn whole(&mut self, schema: &SchemaRef, nth: u32, from_boot: bool) -> Result<RecordBatch, ArrowError> {
        let mut batches = std::mem::take(&mut self.batches);
        if let Some(merged) = self.merger.as_mut().and_then(Merger::end) {
            self.merged.push((merged, std::mem::take(&mut self.surveyed)));
        }
        let merged = std::mem::take(&mut self.merged);
        if !merged.is_empty() && are_merged(&merged, self.snapshots) {
            batches.insert(0, merged_rows(&merged, self.since, nth, from_boot).batch(schema)?);
        }
        if let [_] = *batches {
            return Ok(batches.remove(0));
        }
        concat_batches(schema, &batches)
    }
}

/// Whether each of these stands for [`FEWEST_MERGED`] of so many snapshots on the mean.
fn are_merged(merged: &[(SnapshotRecord, Surveyed)], snapshots: usize) -> bool {
    merged.len() * FEWEST_MERGED <= snapshots
}

/// The rows of merged snapshots. `since` is the time of the row of a target before them.
fn merged_rows(merged: &[(SnapshotRecord, Surveyed)], since: Duration, number: u32, from_boot: bool) -> Buffered {
    let mut rows = Buffered::default();
    let mut before: Option<&SnapshotRecord> = None;
    for (record, surveyed) in merged {
        for (nth, target) in record.snapshot.targets.iter().enumerate() {
            let same = before.and_then(|before| of_target(before, target));
            let info = record.nth_info(nth);
            let same_info = same.as_ref().is_some_and(|(_, known)| *known == info);
            let same_mappings = same.as_ref().is_some_and(|(known, _)| known.mappings == target.mappings);
            rows.push(&columns::Row {
                aggregation_ns: Some(nanoseconds(record.snapshot.aggregation)),
                samples: Some(record.snapshot.samples),
                snapshot: Some(number),
                id: Some(StoredId::new(target.id, from_boot).column()),
                target: (!same_info).then(|| columns::Target::from(&**info)),
                mappings: (!same_mappings).then(|| mapping_columns(target.id, &target.mappings)),
                merged: Some(columns::Merged {
                    time_ns: nanoseconds(record.snapshot.time),
                    regions: region_columns(&target.regions, number),
                    surveys: surveyed.column(target.id, &target.mappings),
                }),
                ..columns::Row::new(columns::MERGED, nanoseconds(since))
            });
        }
        before = Some(record);
    }
    rows
}

/// What a snapshot has of a target.
fn of_target<'a>(
    record: &'a SnapshotRecord,
    target: &TargetSnapshot,
) -> Option<(&'a TargetSnapshot, &'a Arc<TargetInfo>)> {
    let nth = record.snapshot.targets.iter().position(|other| other.id == target.id)?;
    Some((&record.snapshot.targets[nth], record.nth_info(nth)))
}
