//! Batches out of bytes, and rows out of batches.
//!
//! The checksums keep accidents away from Arrow's decoder, which panics at some batches that are wrong; [`crate::shape`]
//! keeps malice from it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::Buffer;
use arrow_ipc as ipc;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::SchemaRef;
use isotherm_core::{Mapping, RegionSnapshot};

use crate::activity::Identities;
use crate::arrays::{range_from, u32_at, u64_at};
use crate::{Activity, Cost, TargetInfo, activity, check, compat, shape};

/// A row as it is in a batch.
#[derive(Debug)]
pub(crate) struct RawRow {
    pub(crate) time_ns: u64,
    pub(crate) aggregation_ns: u64,
    pub(crate) samples: u32,
    pub(crate) pid: u32,
    pub(crate) info: Option<TargetInfo>,
    pub(crate) mappings: Option<Vec<Mapping>>,
    pub(crate) regions: Vec<RegionSnapshot>,
    pub(crate) cost: Option<Cost>,
}

/// Decodes the message of a batch.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn batch(message: ipc::Message<'_>, body: Vec<u8>, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let batch = message.header_as_record_batch().ok_or("a message is not a batch of rows")?;
    shape::check(&batch, &body, schema.fields())?;
    let version = message.version();
    let (body, dictionaries) = (Buffer::from_vec(body), HashMap::new());
    RecordBatchDecoder::try_new(&body, batch, Arc::clone(schema), &dictionaries, &version)
        .and_then(RecordBatchDecoder::read_record_batch)
        .map_err(|error| format!("a batch cannot be decoded: {error}"))
}

/// Which column holds activities, if there is one.
const ACTIVITY: usize = 8;

/// Whether row `index` of a batch is an activity, and so of no target.
pub(crate) fn is_activity(batch: &RecordBatch, index: usize) -> bool {
    batch.columns().get(ACTIVITY).is_some_and(|column| column.is_valid(index))
}

/// The activity that row `index` of a batch is, if it is one.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn activity(
    batch: &RecordBatch,
    index: usize,
    identities: &Identities,
) -> Result<Option<Activity>, &'static str> {
    let column = batch.columns().get(ACTIVITY).filter(|column| column.is_valid(index));
    column.map(|column| activity::at(column.as_struct(), index, identities)).transpose()
}

/// The number of the target that row `index` is of, and what the row says that the target is.
pub(crate) fn target(batch: &RecordBatch, index: usize) -> (u32, Option<TargetInfo>) {
    let target = batch.column(4).as_struct();
    (u32_at(batch.column(3), index), target.is_valid(index).then(|| info_at(target, index)))
}

/// Row `index` of a batch, which has [`crate::schema::columns`] and that many rows; it is of a target.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn row(batch: &RecordBatch, index: usize) -> Result<RawRow, &'static str> {
    let samples = u32_at(batch.column(2), index);
    let (pid, info) = target(batch, index);
    let mappings: &ListArray = batch.column(5).as_list();
    let cost = batch.column(7).as_struct();
    Ok(RawRow {
        time_ns: u64_at(batch.column(0), index),
        aggregation_ns: u64_at(batch.column(1), index),
        samples,
        pid,
        info,
        mappings: mappings.is_valid(index).then(|| mappings_of(&mappings.value(index), pid)).transpose()?,
        regions: regions_of(&batch.column(6).as_list::<i32>().value(index), samples)?,
        cost: cost.is_valid(index).then(|| cost_at(cost, index)),
    })
}

fn info_at(target: &StructArray, index: usize) -> TargetInfo {
    let command: &StringArray = target.column(0).as_string();
    TargetInfo { command: command.value(index).to_owned(), started_unix_ns: u64_at(target.column(1), index) }
}

fn mappings_of(entries: &dyn Array, pid: u32) -> Result<Vec<Mapping>, &'static str> {
    let entries = entries.as_struct();
    let permissions: &StringArray = entries.column(2).as_string();
    let names: &StringArray = entries.column(3).as_string();
    let mappings: Vec<Mapping> = (0..entries.len())
        .map(|i| {
            let mut mapping = Mapping {
                range: range_from(entries, 0, i)?,
                permissions: compat::permissions(permissions.value(i))
                    .ok_or("the permissions of a mapping are not four letters such as rw-p")?,
                name: names.value(i).into(),
                node: None,
            };
            if pid == 0 {
                compat::split_node(&mut mapping);
            }
            Ok(mapping)
        })
        .collect::<Result<_, &'static str>>()?;
    check::mappings(&mappings)?;
    Ok(mappings)
}

fn regions_of(entries: &dyn Array, samples: u32) -> Result<Vec<RegionSnapshot>, &'static str> {
    let entries = entries.as_struct();
    let regions: Vec<RegionSnapshot> = (0..entries.len())
        .map(|i| {
            Ok(RegionSnapshot {
                range: range_from(entries, 0, i)?,
                nr_accesses: u32_at(entries.column(2), i),
                nr_samples: samples,
                age: u32_at(entries.column(3), i),
                nr_unobservable: u32_at(entries.column(4), i),
            })
        })
        .collect::<Result<_, &'static str>>()?;
    check::regions(&regions, samples)?;
    Ok(regions)
}

fn cost_at(cost: &StructArray, index: usize) -> Cost {
    Cost {
        rounds: u32_at(cost.column(0), index),
        late_rounds: u32_at(cost.column(1), index),
        reads: u64_at(cost.column(2), index),
        max_reads: u32_at(cost.column(3), index),
        clears: u64_at(cost.column(4), index),
        cpu_ns: u64_at(cost.column(5), index),
        unobservable_bytes: u64_at(cost.column(6), index),
    }
}
