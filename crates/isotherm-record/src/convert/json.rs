//! JSON: one document, with the header, the snapshots and the activities; what a target is and its mappings stand where they change.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use isotherm_core::Mapping;
use serde::Serialize;

use super::FormatWriter;
use super::activity::ActivityOut;
use crate::compat::{permissions_column, pid_column};
use crate::time::nanoseconds;
use crate::{Activity, Cost, Ending, Recording, Row, TargetInfo};

pub(super) struct Json {
    output: BufWriter<File>,
    /// The snapshot that rows are being added to.
    snapshot: Option<Snapshot>,
    /// Whether the list that is being written has an entry.
    some: bool,
    /// Whether that list is that of the activities.
    activities: bool,
    /// What the last snapshots said of each target.
    known: HashMap<u32, (Arc<TargetInfo>, Arc<[Mapping]>)>,
}

#[derive(Serialize)]
struct Snapshot {
    time_ns: u64,
    aggregation_ns: u64,
    samples: u32,
    cost: Option<Cost>,
    targets: Vec<Target>,
}

#[derive(Serialize)]
struct Target {
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Vec<MappingOut>>,
    regions: Vec<RegionOut>,
}

#[derive(Serialize)]
struct MappingOut {
    start: u64,
    end: u64,
    permissions: String,
    name: String,
}

#[derive(Serialize)]
struct RegionOut {
    start: u64,
    end: u64,
    nr_accesses: u32,
    access_rate: f64,
    age_ns: u64,
    nr_unobservable: u32,
}

impl FormatWriter for Json {
    const ACTIVITIES: bool = true;

    fn begin(recording: &Recording, mut output: BufWriter<File>) -> io::Result<Self> {
        let ending = match recording.ending() {
            Ending::Whole => "whole",
            Ending::Unfinished => "unfinished",
            Ending::CutShort { .. } => "cut_short",
        };
        let format = recording.format();
        write!(output, "{{\"format\":{format},\"ending\":\"{ending}\",\"header\":")?;
        serde_json::to_writer(&mut output, recording.header())?;
        output.write_all(b",\"snapshots\":[")?;
        Ok(Self { output, snapshot: None, some: false, activities: false, known: HashMap::new() })
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        let time_ns = nanoseconds(row.time);
        if self.snapshot.as_ref().is_none_or(|snapshot| snapshot.time_ns != time_ns) {
            self.write_snapshot()?;
        }
        let target = self.target(row);
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            time_ns,
            aggregation_ns: nanoseconds(row.aggregation),
            samples: row.samples,
            cost: row.cost,
            targets: Vec::new(),
        });
        snapshot.targets.push(target);
        Ok(())
    }

    fn activity(&mut self, activity: &Activity) -> io::Result<()> {
        self.begin_activities()?;
        self.write_entry(&ActivityOut::from(activity))
    }

    fn end(mut self) -> io::Result<BufWriter<File>> {
        self.begin_activities()?;
        self.output.write_all(b"\n]}\n")?;
        Ok(self.output)
    }
}

impl Json {
    /// Writes the snapshot that is complete, one a line.
    fn write_snapshot(&mut self) -> io::Result<()> {
        let Some(snapshot) = self.snapshot.take() else {
            return Ok(());
        };
        let present: Vec<u32> = snapshot.targets.iter().map(|target| target.pid).collect();
        self.known.retain(|pid, _| present.contains(pid));
        self.write_entry(&snapshot)
    }

    /// Ends the snapshots and begins the activities, if that is still to be done.
    fn begin_activities(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.activities, true) {
            return Ok(());
        }
        self.write_snapshot()?;
        self.some = false;
        self.output.write_all(b"\n],\"activities\":[")
    }

    /// Writes an entry of a list, on a line of its own.
    fn write_entry(&mut self, entry: &impl Serialize) -> io::Result<()> {
        self.output.write_all(if self.some { b",\n" } else { b"\n" })?;
        self.some = true;
        Ok(serde_json::to_writer(&mut self.output, entry)?)
    }

    fn target(&mut self, row: &Row) -> Target {
        let pid = pid_column(row.target.id);
        let now = (Arc::clone(&row.info), Arc::clone(&row.target.mappings));
        let before = self.known.insert(pid, now);
        let (same_info, same_mappings) = before.map_or((false, false), |(info, mappings)| {
            (Arc::ptr_eq(&info, &row.info), Arc::ptr_eq(&mappings, &row.target.mappings))
        });
        let aggregation_ns = nanoseconds(row.aggregation);
        let regions = row.target.regions.iter().map(|region| RegionOut {
            start: region.range.start(),
            end: region.range.end(),
            nr_accesses: region.nr_accesses,
            access_rate: region.access_rate(row.samples),
            age_ns: aggregation_ns.saturating_mul(u64::from(region.age)),
            nr_unobservable: region.nr_unobservable,
        });
        Target {
            pid,
            target: (!same_info).then(|| TargetInfo::clone(&row.info)),
            mappings: (!same_mappings)
                .then(|| row.target.mappings.iter().map(|mapping| MappingOut::new(pid, mapping)).collect()),
            regions: regions.collect(),
        }
    }
}

impl MappingOut {
    fn new(pid: u32, mapping: &Mapping) -> Self {
        Self {
            start: mapping.range.start(),
            end: mapping.range.end(),
            permissions: permissions_column(pid, mapping.permissions),
            name: mapping.label().to_string(),
        }
    }
}
