//! JSON: one document with the header, the snapshots, the activities, the surveys, the marks, the calls that mapped
//! memory, what is missing, and the readings of the panel.
//!
//! What a target is and its mappings are in the first snapshot that has the target, and in those where they change; in
//! surveys likewise. All but snapshots has the form of the columns of the recording.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use isotherm_core::{Allocations, Mapping, PanelSnapshot, TargetId};
use serde::Serialize;

use super::{FormatWriter, flat};
use crate::id::{StoredId, pid_column};
use crate::target::mapping_columns;
use crate::time::nanoseconds;
use crate::{
    Activity, Cost, Ending, FORMAT, Mark, Missed, Recording, Row, SurveyRecord, TargetInfo, activity, allocations,
    columns, panel, survey,
};

pub(super) struct Json {
    output: BufWriter<File>,
    /// The snapshot that rows are being added to.
    snapshot: Option<Snapshot>,
    /// Whether the list that is being written has an entry.
    some: bool,
    /// What that list is of.
    list: List,
    /// The last survey.
    survey: Option<SurveyRecord>,
    /// What the last snapshots said of each target.
    known: HashMap<TargetId, (Arc<TargetInfo>, Arc<[Mapping]>)>,
    /// Whether starts of processes are counted from the boot.
    from_boot: bool,
}

/// The lists of the document, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Snapshots,
    Activities,
    Surveys,
    Marks,
    Allocations,
    Missed,
    Panel,
}

#[derive(Serialize)]
struct Snapshot {
    time_ns: u64,
    aggregation_ns: u64,
    samples: u32,
    cost: Option<Cost>,
    targets: Vec<TargetOut>,
}

#[derive(Serialize)]
struct TargetOut {
    /// Which target it is; `id` says so to readers.
    #[serde(skip)]
    which: TargetId,
    pid: u32,
    id: columns::Id,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Vec<columns::Mapping>>,
    regions: Vec<RegionOut>,
}

#[derive(Serialize)]
struct RegionOut {
    start: u64,
    end: u64,
    nr_accesses: u32,
    access_rate: f64,
    access_hz: f64,
    age_ns: u64,
    nr_unobservable: u32,
    nr_samples: u32,
    #[serde(flatten)]
    pages: Option<PagesOut>,
}

/// What the last survey found in a region. A region without a survey does not have these fields.
#[derive(Serialize)]
struct PagesOut {
    #[serde(flatten)]
    figures: columns::Figures,
    absent_bytes: Option<u64>,
}

/// One target in one survey.
#[derive(Serialize)]
struct Surveyed {
    id: columns::Id,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<columns::Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Vec<columns::Mapping>>,
    survey: columns::Survey,
}

impl FormatWriter for Json {
    const ALL: bool = true;

    fn begin(recording: &Recording, mut output: BufWriter<File>) -> io::Result<Self> {
        let ending = match recording.ending() {
            Ending::Whole => "whole",
            Ending::Unfinished => "unfinished",
            Ending::CutShort { .. } => "cut_short",
        };
        write!(output, "{{\"format\":{FORMAT},\"ending\":\"{ending}\",\"header\":")?;
        serde_json::to_writer(&mut output, recording.header())?;
        output.write_all(b",\"snapshots\":[")?;
        let from_boot = recording.header().host.counts_from_boot();
        Ok(Self {
            output,
            snapshot: None,
            some: false,
            list: List::Snapshots,
            survey: None,
            known: HashMap::new(),
            from_boot,
        })
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
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
        self.begin(List::Activities)?;
        self.write_entry(&activity::to_columns(activity, self.from_boot))
    }

    fn survey(&mut self, record: SurveyRecord) -> io::Result<()> {
        self.begin(List::Surveys)?;
        let before = self.survey.take();
        let mut cost = Some((record.survey.cost, record.cpu));
        for (found, info) in record.described() {
            let known = before.iter().flat_map(SurveyRecord::described).find(|(known, _)| known.id == found.id);
            let same_info = known.as_ref().is_some_and(|(_, known)| *known == info);
            let same_mappings = known.is_some_and(|(known, _)| known.mappings == found.mappings);
            self.write_entry(&Surveyed {
                id: StoredId::new(found.id, self.from_boot).column(),
                target: (!same_info).then(|| columns::Target::from(&**info)),
                mappings: (!same_mappings).then(|| mapping_columns(found.id, &found.mappings)),
                survey: survey::to_column(&record.survey, found, cost.take()),
            })?;
        }
        self.survey = Some(record);
        Ok(())
    }

    fn mark(&mut self, mark: &Mark) -> io::Result<()> {
        self.begin(List::Marks)?;
        self.write_entry(&mark.to_column())
    }

    fn allocations(&mut self, found: &Allocations) -> io::Result<()> {
        self.begin(List::Allocations)?;
        self.write_entry(&allocations::to_columns(found, self.from_boot))
    }

    fn missed(&mut self, missed: &Missed) -> io::Result<()> {
        self.begin(List::Missed)?;
        self.write_entry(&missed.to_column())
    }

    fn panel(&mut self, found: &PanelSnapshot) -> io::Result<()> {
        self.begin(List::Panel)?;
        self.write_entry(&panel::to_column(found, self.from_boot))
    }

    fn end(mut self) -> io::Result<BufWriter<File>> {
        self.begin(List::Marks)?;
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
        let present: HashSet<TargetId> = snapshot.targets.iter().map(|target| target.which).collect();
        self.known.retain(|id, _| present.contains(id));
        self.write_entry(&snapshot)
    }

    /// Begins a list, and ends those before it, if that is still to be done.
    fn begin(&mut self, list: List) -> io::Result<()> {
        self.write_snapshot()?;
        let lists = [
            (List::Activities, "activities"),
            (List::Surveys, "surveys"),
            (List::Marks, "marks"),
            (List::Allocations, "allocations"),
            (List::Missed, "missed"),
            (List::Panel, "panel"),
        ];
        for (next, name) in lists {
            if self.list < next && next <= list {
                self.list = next;
                self.some = false;
                write!(self.output, "\n],\"{name}\":[")?;
            }
        }
        Ok(())
    }

    /// Writes an entry of a list, on a line of its own.
    fn write_entry(&mut self, entry: &impl Serialize) -> io::Result<()> {
        self.output.write_all(if self.some { b",\n" } else { b"\n" })?;
        self.some = true;
        Ok(serde_json::to_writer(&mut self.output, entry)?)
    }

    fn target(&mut self, row: &Row<'_>) -> TargetOut {
        let id = row.target.id;
        let now = (Arc::clone(row.info), Arc::clone(&row.target.mappings));
        let before = self.known.insert(id, now);
        let (same_info, same_mappings) = before.map_or((false, false), |(info, mappings)| {
            (Arc::ptr_eq(&info, row.info), Arc::ptr_eq(&mappings, &row.target.mappings))
        });
        let aggregation_ns = nanoseconds(row.aggregation);
        let regions = row.target.regions_with_mappings().map(|(region, mappings)| RegionOut {
            start: region.range.start(),
            end: region.range.end(),
            nr_accesses: region.nr_accesses,
            access_rate: region.access_rate(row.samples),
            access_hz: region.access_hz(row.aggregation),
            age_ns: aggregation_ns.saturating_mul(u64::from(region.age)),
            nr_unobservable: region.nr_unobservable,
            nr_samples: region.nr_samples,
            pages: region.pages.map(|pages| PagesOut {
                figures: (&pages).into(),
                absent_bytes: flat::absent_bytes(row, region, mappings),
            }),
        });
        TargetOut {
            which: id,
            pid: pid_column(id),
            id: StoredId::new(id, self.from_boot).column(),
            target: (!same_info).then(|| TargetInfo::clone(row.info)),
            mappings: (!same_mappings).then(|| mapping_columns(id, &row.target.mappings)),
            regions: regions.collect(),
        }
    }
}
