//! Reading a recording: its surveys.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BlockSums, MappingSums, NodeSums, SurveySnapshot, TargetSurvey, TotalSums};
use isotherm_core::{Mapping, TargetId};

use crate::batches::Batches;
use crate::decode::{Kind, Rows};
use crate::described::{Described, Part};
use crate::id::StoredId;
use crate::source::Source;
use crate::survey::{self, Cost};
use crate::target::mappings;
use crate::time::nanoseconds;
use crate::{RecordError, SurveyRecord, TargetInfo, check, columns};

/// The surveys of a recording, in the order of time. After an error there is no further one.
///
/// Surveys share what a target is and its mappings, as long as these do not change.
#[derive(Debug)]
pub struct Surveys {
    rows: SurveyRows,
    /// The first row of the next survey.
    next: Option<Result<SurveyRow, RecordError>>,
}

/// One target in one survey.
#[derive(Debug)]
struct SurveyRow {
    time: Duration,
    interval: Duration,
    cost: Option<Cost>,
    total: Option<TotalSums>,
    /// All targets together on each node.
    by_node: Vec<NodeSums>,
    left_out: Option<Arc<str>>,
    target: TargetSurvey,
    info: Arc<TargetInfo>,
}

/// The rows of surveys.
#[derive(Debug)]
struct SurveyRows {
    /// `None` if the recording has no column for surveys.
    batches: Option<Batches>,
    reader: SurveyReader,
}

/// Reads the rows of surveys.
#[derive(Debug, Default)]
struct SurveyReader {
    described: Described,
    /// The time of the last survey.
    time: Duration,
}

/// A survey whose rows are being gathered.
struct Gathered {
    record: SurveyRecord,
    infos: Vec<(TargetId, Arc<TargetInfo>)>,
    targets: HashSet<TargetId>,
    bytes: usize,
}

impl Gathered {
    fn new(mut first: SurveyRow) -> Self {
        let (cost, cpu) = first.cost.unwrap_or_default();
        let (time, interval, total) = (first.time, first.interval, first.total);
        let by_node = std::mem::take(&mut first.by_node);
        let left_out = first.left_out.take();
        let survey = SurveySnapshot { time, interval, cost, targets: Vec::new(), total, by_node, left_out };
        let bytes = survey.left_out.as_deref().map_or(0, str::len);
        let record = SurveyRecord { survey, cpu, infos: Arc::default() };
        let mut gathered = Self { record, infos: Vec::new(), targets: HashSet::new(), bytes };
        gathered.add(first);
        gathered
    }

    /// Whether `row` is of the same survey.
    fn takes(&self, row: &SurveyRow) -> bool {
        let SurveySnapshot { time, interval, .. } = self.record.survey;
        row.cost.is_none() && (row.time, row.interval) == (time, interval) && !self.targets.contains(&row.target.id)
    }

    fn add(&mut self, row: SurveyRow) {
        self.bytes += size_of_val::<[MappingSums]>(&row.target.by_mapping);
        self.bytes += row.target.by_block.len() * size_of::<BlockSums>();
        self.bytes += size_of_val::<[NodeSums]>(&row.target.by_node);
        self.bytes += size_of_val::<[Mapping]>(&row.target.mappings);
        self.targets.insert(row.target.id);
        self.infos.push((row.target.id, row.info));
        self.record.survey.targets.push(row.target);
    }
}

impl Surveys {
    pub(crate) fn new(source: Source) -> Self {
        let batches = Batches::with(columns::SURVEY, source);
        let mut rows = SurveyRows { batches, reader: SurveyReader::default() };
        let next = rows.next();
        Self { rows, next }
    }
}

impl SurveyReader {
    /// The survey in row `index`, if it is one.
    fn read(&mut self, rows: &Rows, index: usize) -> Result<Option<SurveyRow>, &'static str> {
        match rows.kind(index) {
            Kind::Survey => self.read_survey(rows.row(index)),
            Kind::Target => {
                let (id, info) = rows.target(index);
                if let Some(id) = StoredId::read(&id.ok_or("the row of a target has no identity")?)? {
                    let info = info.map(|info| Arc::new(TargetInfo::from(info)));
                    let mappings = rows.mappings(index).map(mappings).transpose()?.map(Arc::from);
                    // A row that leaves out what no row has said is refused where snapshots are read.
                    drop(self.described.add(Part::Snapshot(rows.time_ns(index)), id, info, mappings));
                }
                Ok(None)
            }
            Kind::Activity | Kind::Mark | Kind::Allocations | Kind::Missed | Kind::Panel | Kind::Unknown => Ok(None),
        }
    }

    fn read_survey(&mut self, row: columns::Row) -> Result<Option<SurveyRow>, &'static str> {
        let found = row.survey.ok_or("the row of a survey has none")?;
        let Some(id) = StoredId::read(&row.id.ok_or("the row of a survey has no identity")?)? else {
            return Ok(None);
        };
        let time = Duration::from_nanos(found.time_ns);
        if time < self.time {
            return Err("the time of surveys goes backwards");
        }
        self.time = time;
        let info = row.target.map(|info| Arc::new(TargetInfo::from(info)));
        let mappings = row.mappings.map(mappings).transpose()?.map(Arc::from);
        let (info, mappings) = self.described.add(Part::Survey(nanoseconds(time)), id, info, mappings)?;
        let target = survey::read(&found, id.target(&info), mappings)?;
        check::survey(&target)?;
        let interval = Duration::from_nanos(found.interval_ns);
        let (total, by_node) = survey::total(&found)?;
        if let Some(total) = &total {
            check::total(total)?;
        }
        check::nodes(&by_node)?;
        let (cost, left_out) = (survey::cost(&found), found.left_out);
        Ok(Some(SurveyRow { time, interval, cost, total, by_node, left_out, target, info }))
    }
}

impl Iterator for SurveyRows {
    type Item = Result<SurveyRow, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = &mut self.reader;
        self.batches.as_mut()?.find(|rows, index, after_gap| match reader.read(rows, index) {
            // It may rely on what a row says that is missing.
            Err(_) if after_gap && rows.kind(index) == Kind::Survey => Ok(None),
            read => read,
        })
    }
}

impl Iterator for Surveys {
    type Item = Result<SurveyRecord, RecordError>;

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
            let batches = self.rows.batches.as_mut()?;
            if gathered.bytes as u64 > batches.most_bytes() {
                return Some(Err(batches.too_large("a survey")));
            }
        };
        Some(Ok(SurveyRecord { infos: gathered.infos.into(), ..gathered.record }))
    }
}
