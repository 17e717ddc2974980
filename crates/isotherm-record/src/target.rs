//! Rows of targets: what a snapshot holds of one target, as columns and back.

use std::sync::Arc;

use isotherm_core::{
    AddrRange, Figures, Frequency, LONGEST_NAME, Mapping, NodeId, RegionSnapshot, TargetId, bytes_of, start_of,
};

use crate::columns::{RegionReader, RowReader};
use crate::events::Said;
use crate::frequency::{recorded, tenths};
use crate::id::StoredId;
use crate::table::{ListReader, Read};
use crate::{Cost, Needs, TargetInfo, check, columns, permissions};

/// A row of a target as it is in a batch: what has not changed is left out.
#[derive(Debug)]
pub(crate) struct RawRow {
    pub(crate) time_ns: u64,
    pub(crate) aggregation_ns: u64,
    pub(crate) samples: u32,
    pub(crate) id: StoredId,
    pub(crate) info: Option<Arc<TargetInfo>>,
    pub(crate) mappings: Option<Arc<[Mapping]>>,
    pub(crate) regions: Vec<RegionSnapshot>,
    pub(crate) nr_regions: usize,
    pub(crate) cost: Option<Cost>,
}

impl RawRow {
    /// The row that these columns hold, with its regions, or their number, or without.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(
        row: &RowReader,
        index: usize,
        (id, info, mappings): Said,
        needs: Needs,
    ) -> Result<Self, &'static str> {
        let samples = row.samples.at(index).ok_or("the row of a target has no number of samples")?;
        let (mut regions, mut nr_regions) = (Vec::new(), 0);
        if needs.regions || needs.region_counts {
            let lists = row.regions.set(index).ok_or("the row of a target has no regions")?;
            nr_regions = lists.len(index);
            if needs.regions {
                regions = regions_of(row, lists, index, samples)?;
            }
        }
        Ok(Self {
            time_ns: row.time_ns.at(index),
            aggregation_ns: row.aggregation_ns.at(index).ok_or("the row of a target has no aggregation interval")?,
            samples,
            id,
            info,
            mappings,
            regions,
            nr_regions,
            cost: row.cost.at(index),
        })
    }

    /// The row of merged snapshots that these columns hold.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn merged(row: &RowReader, index: usize, said: Said) -> Result<Self, &'static str> {
        let found = row.merged.set(index).ok_or("the row of merged snapshots has none")?;
        let raw = Self::read(row, index, said, Needs::NOTHING)?;
        let regions = regions_of(row, &found.regions, index, raw.samples)?;
        Ok(Self { time_ns: found.time_ns.at(index), nr_regions: regions.len(), regions, ..raw })
    }
}

/// The regions of row `index`, which are in one of its lists. None if the entries of the lists were not read.
fn regions_of(
    row: &RowReader,
    lists: &ListReader<RegionReader>,
    index: usize,
    samples: u32,
) -> Result<Vec<RegionSnapshot>, &'static str> {
    let Some((entries, places)) = lists.entries(index) else { return Ok(Vec::new()) };
    let mut regions = Vec::with_capacity(places.len());
    let snapshot = row.snapshot.at(index).ok_or("the row of a target has no number of its snapshot")?;
    let mut end = 0;
    for place in places {
        regions.push(region(&entries.at(place), &mut end, snapshot)?);
    }
    check::regions(&regions, samples)?;
    Ok(regions)
}

/// What row `index` says of its target. `None` if that is of a type that this version does not know.
///
/// # Errors
/// What is wrong with it: `missing` if it has no identity.
pub(crate) fn description(row: &RowReader, index: usize, missing: &'static str) -> Result<Option<Said>, &'static str> {
    let Some(id) = StoredId::read(&row.id.at(index).ok_or(missing)?)? else { return Ok(None) };
    let info = row.target.at(index).map(|info| Arc::new(TargetInfo::from(info)));
    let mappings = row.mappings.at(index).map(mappings).transpose()?.map(Arc::from);
    Ok(Some((id, info, mappings)))
}

/// The columns of mappings of `target`.
pub(crate) fn mapping_columns(target: TargetId, mappings: &[Mapping]) -> Vec<columns::Mapping> {
    let column = |mapping: &Mapping| columns::Mapping {
        start: mapping.range.start(),
        end: mapping.range.end(),
        permissions: permissions::letters_of(target, mapping.permissions).into(),
        name: Arc::clone(&mapping.name),
        node: mapping.node.map(|NodeId(node)| node),
    };
    mappings.iter().map(column).collect()
}

/// The mappings that these columns hold.
///
/// # Errors
/// What is wrong with them.
fn mappings(found: Vec<columns::Mapping>) -> Result<Vec<Mapping>, &'static str> {
    let mappings: Vec<Mapping> = found.into_iter().map(mapping).collect::<Result<_, _>>()?;
    check::mappings(&mappings)?;
    Ok(mappings)
}

fn mapping(found: columns::Mapping) -> Result<Mapping, &'static str> {
    Ok(Mapping {
        range: range(found.start, found.end)?,
        permissions: permissions::parse(&found.permissions)
            .ok_or("the permissions of a mapping are not four letters such as rw-p")?,
        name: found.name,
        node: found.node.map(NodeId),
        file: None,
    })
}

/// The columns of the regions of the snapshot with this number.
pub(crate) fn region_columns(regions: &[RegionSnapshot], snapshot: u32) -> Vec<columns::Region> {
    let mut end = 0;
    let column = |region: &RegionSnapshot| columns::Region {
        gap_bytes: region.range.start().wrapping_sub(std::mem::replace(&mut end, region.range.end())),
        absent_bytes: region.range.size().wrapping_sub(region.pages.map_or(0, |pages| pages.present)),
        nr_accesses: region.nr_accesses,
        nr_samples: region.nr_samples,
        since: snapshot.wrapping_sub(region.age),
        nr_unobservable: region.nr_unobservable,
        hz: region.frequency.map(|of| recorded(of).hz() as f32),
        hz_factor_tenths: region.frequency.and_then(|of| recorded(of).factor()).map(tenths),
        figures: region.pages.as_ref().map(Into::into),
    };
    regions.iter().map(column).collect()
}

/// A region of the snapshot with this number. `end` is the end of the one before it, and then that of this one.
fn region(found: &columns::Region, end: &mut u64, snapshot: u32) -> Result<RegionSnapshot, &'static str> {
    let pages = found.figures.as_ref().map(Figures::from);
    let start = end.checked_add(found.gap_bytes);
    let size = found.absent_bytes.checked_add(pages.map_or(0, |pages| pages.present));
    let range = start.zip(size).and_then(|(start, size)| AddrRange::new(start, start.checked_add(size)?));
    let range = range.ok_or(NO_RANGE)?;
    *end = range.end();
    Ok(RegionSnapshot {
        range,
        nr_accesses: found.nr_accesses,
        nr_samples: found.nr_samples,
        nr_unobservable: found.nr_unobservable,
        age: snapshot.wrapping_sub(found.since),
        frequency: found
            .hz
            .map(|hz| Frequency::new(hz.into(), found.hz_factor_tenths.map(|tenths| f64::from(tenths) / 10.0))),
        pages,
    })
}

const NO_RANGE: &str = "a range of addresses is empty or reversed";

/// A range of addresses.
///
/// # Errors
/// When it is empty or reversed.
pub(crate) fn range(start: u64, end: u64) -> Result<AddrRange, &'static str> {
    AddrRange::new(start, end).ok_or(NO_RANGE)
}

/// The command line of a recording, as recorders keep it: those of other tools, and older ones of isotherm, keep all.
fn shortened(command: &str) -> String {
    if command.len() <= LONGEST_NAME { command.into() } else { start_of(&bytes_of(command), LONGEST_NAME).into_owned() }
}

impl From<&TargetInfo> for columns::Target {
    fn from(info: &TargetInfo) -> Self {
        Self {
            command: info.command.as_str().into(),
            started_unix_ns: info.started_unix_ns,
            cgroup: info.cgroup.as_deref().map(Arc::from),
            inner_pid: info.inner_pid,
        }
    }
}

impl From<columns::Target> for TargetInfo {
    fn from(target: columns::Target) -> Self {
        Self {
            command: shortened(&target.command),
            started_unix_ns: target.started_unix_ns,
            cgroup: target.cgroup.as_deref().map(String::from),
            inner_pid: target.inner_pid,
        }
    }
}
