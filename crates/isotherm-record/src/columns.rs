//! Rows on their way into a recording, gathered column by column until they make a batch.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, SchemaRef};
use isotherm_core::{Mapping, RegionSnapshot};

use crate::arrays::{list, strings, u32s, u64s};
use crate::schema::{cost_fields, mapping_fields, region_fields, target_fields};
use crate::{Activity, Cost, TargetInfo, activity, compat};

/// One row as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRow<'a> {
    pub(crate) time_ns: u64,
    pub(crate) aggregation_ns: u64,
    pub(crate) samples: u32,
    pub(crate) pid: u32,
    pub(crate) info: Option<&'a TargetInfo>,
    pub(crate) mappings: Option<&'a [Mapping]>,
    pub(crate) regions: &'a [RegionSnapshot],
    pub(crate) cost: Option<&'a Cost>,
    pub(crate) activity: Option<&'a Activity>,
}

impl NewRow<'_> {
    /// About how many bytes the row takes, uncompressed.
    pub(crate) fn bytes(&self) -> usize {
        let mappings = self.mappings.unwrap_or_default().iter().map(|m| 28 + m.name.len()).sum::<usize>();
        let activity = self.activity.map_or(0, activity::bytes);
        128 + self.regions.len() * 28 + mappings + self.info.map_or(0, |info| info.command.len()) + activity
    }
}

/// Gathers rows.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    time_ns: Vec<u64>,
    aggregation_ns: Vec<u64>,
    samples: Vec<u32>,
    pid: Vec<u32>,
    targets: Targets,
    mappings: Mappings,
    regions: Regions,
    costs: Vec<Option<Cost>>,
    activities: Vec<Option<Activity>>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Targets {
    set: Vec<bool>,
    command: Vec<String>,
    started_unix_ns: Vec<u64>,
}

#[derive(Debug, Default)]
struct Mappings {
    set: Vec<bool>,
    lengths: Vec<usize>,
    start: Vec<u64>,
    end: Vec<u64>,
    permissions: Vec<String>,
    name: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
struct Regions {
    lengths: Vec<usize>,
    start: Vec<u64>,
    end: Vec<u64>,
    nr_accesses: Vec<u32>,
    age: Vec<u32>,
    nr_unobservable: Vec<u32>,
}

impl Columns {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: &NewRow<'_>) {
        self.bytes += row.bytes();
        self.time_ns.push(row.time_ns);
        self.aggregation_ns.push(row.aggregation_ns);
        self.samples.push(row.samples);
        self.pid.push(row.pid);

        self.targets.set.push(row.info.is_some());
        self.targets.command.push(row.info.map(|info| info.command.clone()).unwrap_or_default());
        self.targets.started_unix_ns.push(row.info.map_or(0, |info| info.started_unix_ns));

        let mappings = row.mappings.unwrap_or_default();
        self.mappings.set.push(row.mappings.is_some());
        self.mappings.lengths.push(mappings.len());
        self.mappings.start.extend(mappings.iter().map(|m| m.range.start()));
        self.mappings.end.extend(mappings.iter().map(|m| m.range.end()));
        self.mappings.permissions.extend(mappings.iter().map(|m| compat::permissions_column(row.pid, m.permissions)));
        self.mappings.name.extend(mappings.iter().map(|m| m.label()));

        self.regions.lengths.push(row.regions.len());
        self.regions.start.extend(row.regions.iter().map(|r| r.range.start()));
        self.regions.end.extend(row.regions.iter().map(|r| r.range.end()));
        self.regions.nr_accesses.extend(row.regions.iter().map(|r| r.nr_accesses));
        self.regions.age.extend(row.regions.iter().map(|r| r.age));
        self.regions.nr_unobservable.extend(row.regions.iter().map(|r| r.nr_unobservable));

        self.costs.push(row.cost.copied());
        self.activities.push(row.activity.cloned());
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.time_ns.is_empty()
    }

    /// About how many bytes the rows take, uncompressed.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All rows as a batch; the columns are empty afterwards. Activities are left out if `schema` has no column for them.
    ///
    /// # Errors
    /// When the columns do not fit `schema`.
    pub(crate) fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(self);
        let mut columns: Vec<ArrayRef> = vec![
            u64s(rows.time_ns),
            u64s(rows.aggregation_ns),
            u32s(rows.samples),
            u32s(rows.pid),
            rows.targets.into_array()?,
            rows.mappings.into_array()?,
            rows.regions.into_array()?,
            costs(&rows.costs)?,
        ];
        if schema.fields().len() > columns.len() {
            columns.push(activity::array(&rows.activities)?);
        }
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

impl Targets {
    fn into_array(self) -> Result<ArrayRef, ArrowError> {
        let fields = vec![strings(&self.command), u64s(self.started_unix_ns)];
        Ok(Arc::new(StructArray::try_new(target_fields(), fields, Some(NullBuffer::from(self.set)))?))
    }
}

impl Mappings {
    fn into_array(self) -> Result<ArrayRef, ArrowError> {
        let fields = vec![u64s(self.start), u64s(self.end), strings(&self.permissions), strings(&self.name)];
        list(mapping_fields(), fields, self.lengths, Some(NullBuffer::from(self.set)))
    }
}

impl Regions {
    fn into_array(self) -> Result<ArrayRef, ArrowError> {
        let fields =
            vec![u64s(self.start), u64s(self.end), u32s(self.nr_accesses), u32s(self.age), u32s(self.nr_unobservable)];
        list(region_fields(), fields, self.lengths, None)
    }
}

fn costs(costs: &[Option<Cost>]) -> Result<ArrayRef, ArrowError> {
    let set: Vec<bool> = costs.iter().map(Option::is_some).collect();
    let narrow = |part: fn(&Cost) -> u32| u32s(costs.iter().map(|cost| cost.as_ref().map_or(0, part)).collect());
    let wide = |part: fn(&Cost) -> u64| u64s(costs.iter().map(|cost| cost.as_ref().map_or(0, part)).collect());
    let fields = vec![
        narrow(|cost| cost.rounds),
        narrow(|cost| cost.late_rounds),
        wide(|cost| cost.reads),
        narrow(|cost| cost.max_reads),
        wide(|cost| cost.clears),
        wide(|cost| cost.cpu_ns),
        wide(|cost| cost.unobservable_bytes),
    ];
    Ok(Arc::new(StructArray::try_new(cost_fields(), fields, Some(NullBuffer::from(set)))?))
}
