//! Reading a recording: its events, in one pass and in the order of time.

use std::collections::VecDeque;
use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Allocations, PanelSnapshot};

use crate::allocations::Stacks;
use crate::batches::Batches;
use crate::decode::{Kind, Rows};
use crate::described::{Described, Part};
use crate::identities::Identities;
use crate::level::{MERGED, Merger};
use crate::snapshots::{EarlierRows, GatheredSnapshot, TargetRow};
use crate::source::Source;
use crate::surveys::{GatheredSurvey, SurveyRow};
use crate::table::Read;
use crate::target::{RawRow, description};
use crate::{Activity, Mark, Missed, RecordError, SnapshotRecord, SurveyRecord};
use crate::{activity, allocations, columns, mark, missed, panel};

/// Something that happened in a run, as its recording has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The end of an aggregation interval.
    Snapshot(SnapshotRecord),
    /// How much memory is in use, about each second.
    Panel(PanelSnapshot),
    /// The end of a survey.
    Survey(SurveyRecord),
    /// What schemes did, and how much memory is in use. Those of a recording without schemes tell the latter only.
    Activity(Activity),
    /// A moment with a name.
    Mark(Mark),
    /// Calls that mapped memory.
    Allocations(Allocations),
    /// What the recorder could not take in.
    Missed(Missed),
}

impl Event {
    /// When it happened, since the start of the run.
    pub fn time(&self) -> Duration {
        match self {
            Self::Snapshot(record) => record.snapshot.time,
            Self::Panel(panel) => panel.time,
            Self::Survey(record) => record.survey.time,
            Self::Activity(activity) => activity.time,
            Self::Mark(mark) => mark.time,
            Self::Allocations(found) => found.time,
            Self::Missed(missed) => missed.time,
        }
    }

    /// The order of events, and of those of one time: snapshots come first, readings of the panel before surveys.
    pub fn order(&self) -> (Duration, u8) {
        let rank = match self {
            Self::Snapshot(_) => 0,
            Self::Panel(_) => 1,
            Self::Survey(_) => 2,
            Self::Activity(_) | Self::Mark(_) | Self::Allocations(_) | Self::Missed(_) => 3,
        };
        (self.time(), rank)
    }
}

/// What a reader needs of a recording. Columns of what it does not need are not decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Snapshots. Without the next two they tell when they were, and what the targets and their mappings are.
    pub snapshots: bool,
    /// The regions of snapshots.
    pub regions: bool,
    /// How many regions each target has, which is known with `regions` too.
    pub region_counts: bool,
    /// The costs of snapshots.
    pub costs: bool,
    /// Surveys, with their sums by mapping.
    pub surveys: bool,
    /// The sums of surveys by block.
    pub blocks: bool,
    /// Readings of the panel.
    pub panels: bool,
    /// Activities.
    pub activities: bool,
    /// Marks.
    pub marks: bool,
    /// Calls that mapped memory.
    pub allocations: bool,
    /// What the recorder could not take in.
    pub missed: bool,
    /// Snapshots and surveys that are merged of others ([`SnapshotRecord::is_merged`], [`SurveyRecord::detail`]), with
    /// regions and blocks, beside these, which may have none. A merged snapshot covers about
    /// [`MERGED`](crate::MERGED).
    pub merged: bool,
}

impl Needs {
    /// Nothing.
    pub const NOTHING: Self = Self {
        snapshots: false,
        regions: false,
        region_counts: false,
        costs: false,
        surveys: false,
        blocks: false,
        panels: false,
        activities: false,
        marks: false,
        allocations: false,
        missed: false,
        merged: false,
    };
    /// Everything, but no snapshots that are merged of the others.
    pub const ALL: Self = Self {
        snapshots: true,
        regions: true,
        region_counts: true,
        costs: true,
        surveys: true,
        blocks: true,
        panels: true,
        activities: true,
        marks: true,
        allocations: true,
        missed: true,
        merged: false,
    };
    /// Whole snapshots.
    pub const SNAPSHOTS: Self = Self { snapshots: true, regions: true, costs: true, ..Self::NOTHING };
    /// Whole surveys.
    pub const SURVEYS: Self = Self { surveys: true, blocks: true, ..Self::NOTHING };
    /// Readings of the panel.
    pub const PANELS: Self = Self { panels: true, ..Self::NOTHING };
    /// Activities.
    pub const ACTIVITIES: Self = Self { activities: true, ..Self::NOTHING };
    /// Marks.
    pub const MARKS: Self = Self { marks: true, ..Self::NOTHING };
    /// Calls that mapped memory.
    pub const ALLOCATIONS: Self = Self { allocations: true, ..Self::NOTHING };
    /// What the recorder could not take in.
    pub const MISSED: Self = Self { missed: true, ..Self::NOTHING };

    /// Whether an event is of a kind that is needed.
    pub fn has_kind_of(&self, event: &Event) -> bool {
        match event {
            Event::Snapshot(_) => self.snapshots,
            Event::Panel(_) => self.panels,
            Event::Survey(_) => self.surveys,
            Event::Activity(_) => self.activities,
            Event::Mark(_) => self.marks,
            Event::Allocations(_) => self.allocations,
            Event::Missed(_) => self.missed,
        }
    }

    /// Whether the column with this path is needed.
    pub(crate) fn has(&self, path: &str) -> bool {
        match path {
            columns::REGIONS => self.regions || self.region_counts,
            columns::COST => self.costs,
            columns::SURVEY => self.surveys,
            columns::BLOCKS => self.blocks,
            columns::PANEL => self.panels,
            columns::ACTIVITY => self.activities,
            columns::MARK => self.marks,
            columns::ALLOCATIONS => self.allocations,
            columns::MISSED => self.missed,
            columns::MERGED => self.merged,
            // What targets are: of those of snapshots and surveys, and of those that others name by an identity.
            columns::MAPPINGS => self.snapshots || self.surveys,
            columns::ID | columns::TARGET => {
                self.snapshots || self.surveys || self.panels || self.activities || self.allocations
            }
            _ => self.regions || columns::REGIONS != path.split('.').next().unwrap_or_default(),
        }
    }
}

impl BitOr for Needs {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            snapshots: self.snapshots || other.snapshots,
            regions: self.regions || other.regions,
            region_counts: self.region_counts || other.region_counts,
            costs: self.costs || other.costs,
            surveys: self.surveys || other.surveys,
            blocks: self.blocks || other.blocks,
            panels: self.panels || other.panels,
            activities: self.activities || other.activities,
            marks: self.marks || other.marks,
            allocations: self.allocations || other.allocations,
            missed: self.missed || other.missed,
            merged: self.merged || other.merged,
        }
    }
}

impl BitOrAssign for Needs {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// By how much an event may be older than a snapshot before it in the file, and still come in its order.
const DISORDER: Duration = Duration::from_secs(1);
/// The most events that wait for snapshots of their time. A recorder hands over what it gets, so that few do.
const MOST_WAITING: usize = 4096;

/// The events of a recording. After an error there is no further one.
///
/// They come in the order of time; of those of one time, snapshots come first. A recorder writes what it gets, and an
/// event that it got more than a second after it happened comes late, too. Events of one kind are always in order.
#[derive(Debug)]
pub struct Events {
    batches: Batches,
    reader: Reader,
    /// The snapshot and the survey whose rows are being gathered.
    snapshot: Option<GatheredSnapshot>,
    /// The merged snapshot whose rows are being gathered, and the surveys of its time.
    merged: Option<GatheredSnapshot>,
    merged_survey: Option<GatheredSurvey>,
    /// Merges snapshots that were not merged yet when they were recorded.
    merger: Merger,
    survey: Option<GatheredSurvey>,
    /// Events that may have to wait for older ones, in their order, and about how much memory each takes.
    waiting: VecDeque<(Event, usize)>,
    /// The memory of all of them.
    bytes: usize,
    /// The time of the last row: that of the last snapshot before it.
    now: Duration,
    /// What ends the events, after those that wait.
    end: Option<Option<RecordError>>,
}

impl Events {
    pub(crate) fn new(source: Source, needs: Needs) -> Self {
        Self {
            batches: Batches::of(source, needs),
            reader: Reader { needs, ..Reader::default() },
            snapshot: None,
            merged: None,
            merged_survey: None,
            merger: Merger::new(MERGED),
            survey: None,
            waiting: VecDeque::new(),
            bytes: 0,
            now: Duration::ZERO,
            end: None,
        }
    }

    /// Goes on with what follows in a source with the same columns, after the end of the one before.
    pub(crate) fn resume(&mut self, source: Source) {
        self.batches = Batches::of(source, self.reader.needs);
        self.end = None;
    }

    /// Reads the next row.
    fn read(&mut self) {
        let Self { batches, reader, now, .. } = self;
        let found = batches.find(|rows, index, after_gap| {
            *now = Duration::from_nanos(rows.time_ns(index)).max(*now);
            reader.read(rows, index, after_gap)
        });
        // The rows of a merged snapshot follow each other.
        if !matches!(found, Some(Ok(Item::Merged(..)))) {
            self.end_merged();
        }
        match found {
            Some(Ok(Item::Target(row, is_beside_merged))) => match &mut self.snapshot {
                Some(gathered) if gathered.takes(&row) => gathered.add(*row),
                _ => {
                    self.end_snapshot();
                    let mut gathered = GatheredSnapshot::new(*row);
                    gathered.is_beside_merged = is_beside_merged;
                    self.snapshot = Some(gathered);
                }
            },
            Some(Ok(Item::Merged(row, surveys))) => {
                match &mut self.merged {
                    Some(gathered) if gathered.takes(&row) => gathered.add(*row),
                    _ => {
                        self.end_merged();
                        self.merged = Some(GatheredSnapshot::new(*row));
                    }
                }
                match (surveys, &mut self.merged_survey) {
                    (Some(row), Some(gathered)) if gathered.takes(&row) => gathered.add(*row),
                    (Some(row), _) => {
                        self.end_merged_survey();
                        self.merged_survey = Some(GatheredSurvey::new(*row));
                    }
                    (None, _) => {}
                }
            }
            Some(Ok(Item::Survey(row))) => match &mut self.survey {
                Some(gathered) if gathered.takes(&row) => gathered.add(*row),
                _ => {
                    self.end_survey();
                    self.survey = Some(GatheredSurvey::new(*row));
                }
            },
            Some(Ok(Item::Event(event))) => self.wait(*event, 0),
            None | Some(Err(_)) if self.end.is_some() => {}
            None => self.end_with(None),
            Some(Err(error)) => self.end_with(Some(error)),
        }
        let most = self.batches.most_bytes();
        let is_too_large = |bytes: Option<usize>| bytes.is_some_and(|bytes| bytes as u64 > most);
        let of_snapshots = self.snapshot.iter().chain(&self.merged).map(|gathered| gathered.bytes).max();
        if is_too_large(of_snapshots) {
            (self.snapshot, self.merged) = (None, None);
            let error = self.batches.too_large("a snapshot");
            self.end_with(Some(error));
        } else if is_too_large(self.survey.iter().chain(&self.merged_survey).map(|gathered| gathered.bytes).max()) {
            (self.survey, self.merged_survey) = (None, None);
            let error = self.batches.too_large("a survey");
            self.end_with(Some(error));
        }
    }

    fn end_with(&mut self, error: Option<RecordError>) {
        self.end_snapshot();
        let last = self.merger.end();
        last.into_iter().for_each(|record| self.wait_merged(record, 0));
        self.end_survey();
        self.end = Some(error);
    }

    fn end_snapshot(&mut self) {
        if let Some(gathered) = self.snapshot.take() {
            let bytes = gathered.bytes;
            let is_to_be_merged = self.reader.needs.merged && !gathered.is_beside_merged;
            let record = gathered.finish(&mut self.reader.targets);
            if is_to_be_merged && let Some(merged) = self.merger.add(&record) {
                self.wait_merged(merged, 0);
            }
            self.wait(Event::Snapshot(record), bytes);
        }
    }

    fn end_merged(&mut self) {
        if let Some(gathered) = self.merged.take() {
            let before = self.merger.end();
            before.into_iter().for_each(|record| self.wait_merged(record, 0));
            let bytes = gathered.bytes;
            let record = gathered.finish(&mut self.reader.merged);
            self.wait_merged(record, bytes);
        }
        self.end_merged_survey();
    }

    fn end_merged_survey(&mut self) {
        if let Some(gathered) = self.merged_survey.take() {
            self.wait_survey(gathered);
        }
    }

    fn wait_survey(&mut self, gathered: GatheredSurvey) {
        let bytes = gathered.bytes;
        self.wait(Event::Survey(gathered.finish()), bytes);
    }

    fn wait_merged(&mut self, record: SnapshotRecord, bytes: usize) {
        self.wait(Event::Snapshot(SnapshotRecord { is_merged: true, ..record }), bytes);
    }

    fn end_survey(&mut self) {
        if let Some(gathered) = self.survey.take() {
            self.wait_survey(gathered);
        }
    }

    /// Puts an event in its place among those that wait.
    fn wait(&mut self, event: Event, bytes: usize) {
        let order = event.order();
        let later = self.waiting.iter().rev().take_while(|(waiting, _)| waiting.order() > order).count();
        self.waiting.insert(self.waiting.len() - later, (event, bytes));
        self.bytes += bytes;
    }
}

impl Iterator for Events {
    type Item = Result<Event, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let is_full = self.waiting.len() > MOST_WAITING || self.bytes as u64 > self.batches.most_bytes();
            if let Some((first, _)) = self.waiting.front()
                && (self.end.is_some() || is_full || first.time().saturating_add(DISORDER) <= self.now)
            {
                let (event, bytes) = self.waiting.pop_front()?;
                self.bytes -= bytes;
                return Some(Ok(event));
            }
            if let Some(end) = &mut self.end {
                return end.take().map(Err);
            }
            self.read();
        }
    }
}

/// What a row is: of a target, with whether merged snapshots have its regions; or of merged snapshots, with the surveys
/// of their time.
enum Item {
    Target(Box<TargetRow>, bool),
    Merged(Box<TargetRow>, Option<Box<SurveyRow>>),
    Survey(Box<SurveyRow>),
    Event(Box<Event>),
}

impl From<Event> for Item {
    fn from(event: Event) -> Self {
        Self::Event(Box::new(event))
    }
}

/// Reads rows, with what the rows before have said.
#[derive(Debug, Default)]
struct Reader {
    needs: Needs,
    targets: EarlierRows,
    /// The targets of merged snapshots.
    merged: EarlierRows,
    described: Described,
    identities: Identities,
    stacks: Stacks,
    /// The times of the last events of each kind but snapshots.
    surveys: Last,
    activities: Last,
    marks: Last,
    allocations: Last,
    missed: Last,
    panels: Last,
}

/// The time of the last event of a kind.
#[derive(Debug, Default)]
struct Last(Duration);

impl Last {
    /// Takes in the time of the next event.
    ///
    /// # Errors
    /// `backwards`, if it is before the last one.
    fn take(&mut self, time: Duration, backwards: &'static str) -> Result<(), &'static str> {
        if time < self.0 {
            return Err(backwards);
        }
        self.0 = time;
        Ok(())
    }
}

impl Reader {
    /// What row `index` is, if it is needed and known to this version. `after_gap` says whether rows before it may be
    /// missing.
    fn read(&mut self, rows: &Rows, index: usize, after_gap: bool) -> Result<Option<Item>, &'static str> {
        let needs = self.needs;
        match rows.kind(index) {
            Kind::Target => self.target(rows, index, after_gap),
            Kind::Survey if needs.surveys => match self.survey(rows, index) {
                // It may rely on what a row says that is missing.
                Err(_) if after_gap => Ok(None),
                read => read,
            },
            Kind::Survey => self.identities.take(rows, index).map(|()| None),
            Kind::Activity if needs.activities => {
                let found = rows.columns().activity(index)?;
                let activity = activity::read(found, &self.identities)?;
                self.activities.take(activity.time, "the time of activities goes backwards")?;
                Ok(Some(Event::Activity(activity).into()))
            }
            Kind::Mark if needs.marks => {
                let mark = mark::read(rows.columns().mark(index)?)?;
                self.marks.take(mark.time, "the time of marks goes backwards")?;
                Ok(Some(Event::Mark(mark).into()))
            }
            Kind::Allocations if needs.allocations => {
                let found = rows.columns().allocations(index)?;
                self.allocations.take(Duration::from_nanos(found.time_ns), "the time of calls goes backwards")?;
                let found = allocations::read(found, &mut self.stacks, &self.identities)?;
                Ok(Some(Event::Allocations(found).into()))
            }
            Kind::Missed if needs.missed => {
                let found = rows.columns().missed(index)?;
                let backwards = "the time of what is missing goes backwards";
                self.missed.take(Duration::from_nanos(found.time_ns), backwards)?;
                Ok(missed::read(&found).map(|missed| Event::Missed(missed).into()))
            }
            Kind::Panel if needs.panels => {
                let panel = panel::read(rows.columns().panel(index)?, &self.identities)?;
                self.panels.take(panel.time, "the time of the panel goes backwards")?;
                Ok(Some(Event::Panel(panel).into()))
            }
            Kind::Merged if needs.merged => {
                let missing = "the row of merged snapshots has no identity";
                let Some(description) = description(rows.columns(), index, missing)? else { return Ok(None) };
                let raw = RawRow::merged(rows.columns(), index, description)?;
                let row = self.merged.complete(raw, after_gap)?;
                let surveys = rows.columns().merged.set(index).filter(|_| needs.blocks);
                let surveys = surveys.and_then(|merged| merged.surveys.at(index));
                let surveys = surveys.map(|found| SurveyRow::merged(&found, &row)).transpose()?;
                Ok(Some(Item::Merged(Box::new(row), surveys.map(Box::new))))
            }
            Kind::Activity
            | Kind::Mark
            | Kind::Allocations
            | Kind::Missed
            | Kind::Panel
            | Kind::Merged
            | Kind::Unknown => Ok(None),
        }
    }

    fn target(&mut self, rows: &Rows, index: usize, after_gap: bool) -> Result<Option<Item>, &'static str> {
        let Needs { snapshots, surveys, .. } = self.needs;
        self.identities.take(rows, index)?;
        if !snapshots && !surveys {
            return Ok(None);
        }
        let missing = "the row of a target has no identity";
        let Some(description) = description(rows.columns(), index, missing)? else { return Ok(None) };
        if surveys {
            // A row that leaves out what no row has said is refused where snapshots are read.
            let (part, (id, info, mappings)) = (Part::Snapshot(rows.time_ns(index)), description.clone());
            drop(self.described.add(part, id, info, mappings));
        }
        if !snapshots {
            return Ok(None);
        }
        let regions = self.needs.regions && !rows.has_merged;
        let raw = RawRow::read(rows.columns(), index, description, Needs { regions, ..self.needs })?;
        Ok(Some(Item::Target(Box::new(self.targets.complete(raw, after_gap)?), rows.has_merged)))
    }

    fn survey(&mut self, rows: &Rows, index: usize) -> Result<Option<Item>, &'static str> {
        self.identities.take(rows, index)?;
        let found = rows.columns().survey(index)?;
        let missing = "the row of a survey has no identity";
        let Some(description) = description(rows.columns(), index, missing)? else { return Ok(None) };
        self.surveys.take(Duration::from_nanos(found.time_ns), "the time of surveys goes backwards")?;
        let row = SurveyRow::read(found, description, &mut self.described)?;
        let is_bare = self.needs.blocks && rows.has_merged;
        Ok(Some(Item::Survey(Box::new(if is_bare { row.bare() } else { row }))))
    }
}

/// What a row says of a target: its identity, what it is, and its mappings.
pub(crate) type Said = (crate::id::StoredId, Option<Arc<crate::TargetInfo>>, Option<Arc<[isotherm_core::Mapping]>>);
