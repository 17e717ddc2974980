//! The walk over a source, which hands each event to accumulators.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use isotherm_core::survey::{MappingSums, TargetSurvey};
use isotherm_core::{Allocations, PanelSnapshot, RegionSnapshot, TargetId, units};
use isotherm_record::{
    Activity, Event, Header, MERGED as STORED, Mark, Merger, Missed, Needs, Row, SnapshotRecord, SurveyDetail,
    SurveyRecord, pid_column,
};

use super::{Selection, Source, Visit};
use crate::ReportError;

/// An event on a walk. A snapshot comes target by target.
pub enum Seen<'a> {
    /// One target in a snapshot of the selected time.
    Row(&'a Visit<'a>),
    /// How much memory is in use.
    Panel(&'a PanelSnapshot),
    /// The end of a survey.
    Survey(&'a SurveyRecord),
    /// What schemes did, and how much memory is in use.
    Activity(&'a Activity),
    /// A moment with a name.
    Mark(&'a Mark),
    /// Calls that mapped memory.
    Allocations(&'a Allocations),
    /// What the recorder could not take in.
    Missed(&'a Missed),
}

/// Something that is computed from the events of one walk, as they come.
///
/// Of snapshots, an accumulator gets those of the selected time; of the other events it gets all, because what comes
/// before the selected time can matter to what is in it.
pub trait Accumulator {
    /// What it needs of the recording.
    fn needs(&self) -> Needs;

    /// Which snapshots it takes of a recording of so many that each of them says little, and which blocks of surveys.
    fn takes(&self) -> Takes {
        Takes::Each
    }

    /// Takes in an event. What it did not ask for it may get as well, and parts that nobody asked for are missing.
    ///
    /// # Errors
    /// If it writes to an output that cannot be written to, or has too much to keep.
    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError>;
}

/// Which snapshots an accumulator takes of a long recording, some of whose snapshots are merged into one. What takes
/// merged ones gets the blocks of surveys merged, too, and then the surveys without blocks beside them
/// ([`SurveyDetail`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Each.
    Each,
    /// The merged ones.
    Merged,
    /// Each without its regions, and the merged ones with theirs.
    Both,
}

/// What a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All that a snapshot has of its target.
    Whole,
    /// All but the regions: those of merged snapshots take their place.
    Bare,
    /// The regions of a merged snapshot, whose other figures those that it is merged of have.
    Merged,
}

impl Detail {
    /// Whether an accumulator that takes these snapshots gets such a row.
    fn is_for(self, takes: Takes) -> bool {
        match self {
            Self::Whole => true,
            Self::Bare => takes != Takes::Merged,
            Self::Merged => takes != Takes::Each,
        }
    }
}

impl Seen<'_> {
    /// Hands it to those accumulators that get it.
    fn hand_to(&self, accumulators: &mut [&mut dyn Accumulator]) -> Result<(), ReportError> {
        let mut takers = accumulators.iter_mut().filter(|accumulator| self.is_for(&***accumulator));
        takers.try_for_each(|accumulator| accumulator.event(self))
    }

    /// Whether an accumulator gets it.
    fn is_for(&self, accumulator: &dyn Accumulator) -> bool {
        match self {
            Self::Row(visit) => visit.detail.is_for(accumulator.takes()),
            Self::Survey(record) if record.detail == SurveyDetail::Merged => {
                accumulator.needs().blocks && accumulator.takes() != Takes::Each
            }
            Self::Survey(_)
            | Self::Panel(_)
            | Self::Activity(_)
            | Self::Mark(_)
            | Self::Allocations(_)
            | Self::Missed(_) => true,
        }
    }
}

/// The contents of a source, for error messages.
#[derive(Clone, Debug, Default)]
struct Contents {
    rows: u64,
    first: Duration,
    last: Duration,
    targets: BTreeSet<TargetId>,
    low: u64,
    high: u64,
}

impl Contents {
    fn add(&mut self, row: &Row<'_>) {
        if self.rows == 0 {
            self.first = row.time;
            self.low = u64::MAX;
        }
        self.rows += 1;
        self.last = row.time;
        self.targets.insert(row.target.id);
        if let (Some(low), Some(high)) = (row.target.mappings.first(), row.target.mappings.last()) {
            self.low = self.low.min(low.range.start());
            self.high = self.high.max(high.range.end());
        }
    }

    fn describe(&self) -> String {
        const SHOWN: usize = 8;
        let mut targets: Vec<_> = self.targets.iter().take(SHOWN).map(|&id| pid_column(id).to_string()).collect();
        if self.targets.len() > SHOWN {
            targets.push(format!("{} others", self.targets.len() - SHOWN));
        }
        format!(
            "snapshots from {} to {} of target{} {}, at addresses {:#x} to {:#x}",
            units::duration(self.first),
            units::duration(self.last),
            if self.targets.len() == 1 { "" } else { "s" },
            targets.join(", "),
            self.low.min(self.high),
            self.high,
        )
    }
}

/// Reads `source` once, and hands its events to each of `accumulators`.
///
/// # Errors
/// If the source cannot be read, is empty, or has nothing in the selection.
pub fn walk(
    source: &dyn Source,
    selection: &Selection,
    accumulators: &mut [&mut dyn Accumulator],
) -> Result<(), ReportError> {
    Walks { source, selection, later: None, kept: None }.walk(accumulators)
}

/// About how much memory an event takes.
fn bytes(event: &Event) -> usize {
    let more = match event {
        Event::Snapshot(record) => {
            record.snapshot.targets.iter().map(|target| size_of_val::<[RegionSnapshot]>(&target.regions)).sum()
        }
        Event::Survey(record) => {
            let of =
                |target: &TargetSurvey| size_of_val::<[MappingSums]>(&target.by_mapping) + target.by_block.own_bytes();
            record.survey.targets.iter().map(of).sum()
        }
        Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => 0,
    };
    size_of::<Event>() + more
}

/// About how many snapshots those of a long recording are merged to, for accumulators that take them.
const MERGED: u32 = 8192;
/// How many snapshots are merged at least.
const FEWEST_MERGED: u32 = 8;

/// The least merged snapshots of a recording that are enough, so that the others need no regions.
const ENOUGH: u32 = 256;

/// The merged snapshots of a walk.
#[derive(Clone, Copy)]
struct Merging {
    /// How much time each covers.
    length: Duration,
    /// Whether they are those that the recording has.
    stored: bool,
}

impl Merging {
    /// `None` if the selected part of `source` is so short that none are merged.
    fn of(source: &dyn Source, selection: &Selection) -> Option<Self> {
        let aggregation = Duration::from_nanos(source.header().aggregation_ns);
        let end = source.end()?;
        let time = selection.time.as_ref().map_or(end, |time| time.end.min(end).saturating_sub(time.start));
        let length = time / MERGED;
        let stored = source.has_merged() && time >= STORED * ENOUGH;
        (!aggregation.is_zero() && length >= aggregation * FEWEST_MERGED).then_some(Self { length, stored })
    }
}

/// The most memory of the events that are kept for a further walk.
const MOST_KEPT: usize = 32 << 20;

/// Several walks over one source. What the first one reads is kept for the others, unless it is much.
pub(crate) struct Walks<'a> {
    source: &'a dyn Source,
    selection: &'a Selection,
    /// What the walks after the first need. `None` if nothing is kept for them.
    later: Option<Needs>,
    kept: Option<Vec<Event>>,
}

impl<'a> Walks<'a> {
    /// Walks of which those after the first need no more than the first and `later`.
    pub(crate) const fn new(source: &'a dyn Source, selection: &'a Selection, later: Needs) -> Self {
        Self { source, selection, later: Some(later), kept: None }
    }

    /// As [`walk`].
    ///
    /// # Errors
    /// As [`walk`].
    pub(crate) fn walk(&mut self, accumulators: &mut [&mut dyn Accumulator]) -> Result<(), ReportError> {
        let mut rows = Rows::of(Detail::Whole);
        let (header, selection) = (self.source.header(), self.selection);
        if let Some(kept) = &self.kept {
            kept.iter().try_for_each(|event| rows.hand(header, selection, event, accumulators))?;
            return rows.end(header, selection);
        }
        let mut needs = accumulators.iter().fold(Needs::NOTHING, |needs, accumulator| needs | accumulator.needs());
        // Whether there is something at the selected addresses, only regions tell.
        needs.snapshots = true;
        needs.regions |= selection.address.is_some();
        let later = self.later.take();
        let takes_merged = accumulators.iter().any(|accumulator| accumulator.takes() != Takes::Each);
        if takes_merged && let Some(merging) = Merging::of(self.source, selection) {
            return self.walk_merged(merging, needs | later.unwrap_or_default(), accumulators);
        }
        let (mut kept, mut kept_bytes) = (later.map(|_| Vec::new()), 0);
        for event in self.source.events(needs | later.unwrap_or_default()).map_err(ReportError::Source)? {
            let event = event.map_err(ReportError::Source)?;
            rows.hand(header, selection, &event, accumulators)?;
            if let Some(kept) = &mut kept {
                kept_bytes += bytes(&event);
                kept.push(event);
            }
            kept.take_if(|_| kept_bytes > MOST_KEPT);
        }
        self.kept = kept;
        rows.end(header, selection)
    }

    /// A walk over a long recording: accumulators that take merged snapshots get those, and the others get all.
    fn walk_merged(
        &self,
        merging: Merging,
        needs: Needs,
        accumulators: &mut [&mut dyn Accumulator],
    ) -> Result<(), ReportError> {
        let (header, selection) = (self.source.header(), self.selection);
        // Beside merged snapshots of the recording, the others have no regions, and surveys no blocks.
        let each = |of: &&mut dyn Accumulator| of.takes() == Takes::Each && (of.needs().regions || of.needs().blocks);
        let stored = merging.stored && !accumulators.iter().any(each);
        let mut merger = Merger::new(merging.length);
        let (mut rows, mut merged_rows) = (Rows::of(Detail::Bare), Rows::of(Detail::Merged));
        for event in self.source.events(Needs { merged: stored, ..needs }).map_err(ReportError::Source)? {
            let event = event.map_err(ReportError::Source)?;
            if let Event::Snapshot(record) = &event {
                if record.is_merged == stored
                    && let Some(merged) = merger.add(record)
                {
                    merged_rows.hand_rows(header, selection, &merged, accumulators)?;
                }
                if record.is_merged {
                    continue;
                }
            }
            rows.hand(header, selection, &event, accumulators)?;
        }
        if let Some(merged) = merger.end() {
            merged_rows.hand_rows(header, selection, &merged, accumulators)?;
        }
        rows.matched |= merged_rows.matched;
        rows.end(header, selection)
    }
}

/// A walk without an end: events are handed to accumulators as they come.
pub(crate) struct Feed {
    header: Header,
    selection: Selection,
    rows: Rows,
}

impl Feed {
    /// That of a selection of what follows a recording with this header.
    pub(crate) fn new(header: &Header, selection: &Selection) -> Self {
        Self { header: header.clone(), selection: selection.clone(), rows: Rows::of(Detail::Whole) }
    }

    /// Hands an event to each of `accumulators`, as [`walk`] does.
    ///
    /// # Errors
    /// That of an accumulator.
    pub(crate) fn hand(&mut self, event: &Event, accumulators: &mut [&mut dyn Accumulator]) -> Result<(), ReportError> {
        self.rows.hand(&self.header, &self.selection, event, accumulators)
    }
}

/// The rows of a walk so far.
struct Rows {
    /// What they have.
    detail: Detail,
    contents: Contents,
    /// Whether one of them is selected.
    matched: bool,
    /// The time of the last row of each target, of the current snapshot, and of the previous one.
    last_of: HashMap<TargetId, Duration>,
    current: Option<Duration>,
    previous: Duration,
}

impl Rows {
    fn of(detail: Detail) -> Self {
        let (last_of, current, previous) = (HashMap::new(), None, Duration::ZERO);
        Self { detail, contents: Contents::default(), matched: false, last_of, current, previous }
    }

    /// Hands an event to each of `accumulators`, a snapshot row by row.
    fn hand(
        &mut self,
        header: &Header,
        selection: &Selection,
        event: &Event,
        accumulators: &mut [&mut dyn Accumulator],
    ) -> Result<(), ReportError> {
        let seen = match event {
            Event::Snapshot(record) => return self.hand_rows(header, selection, record, accumulators),
            Event::Panel(panel) => Seen::Panel(panel),
            Event::Survey(record) => Seen::Survey(record),
            Event::Activity(activity) => Seen::Activity(activity),
            Event::Mark(mark) => Seen::Mark(mark),
            Event::Allocations(found) => Seen::Allocations(found),
            Event::Missed(missed) => Seen::Missed(missed),
        };
        seen.hand_to(accumulators)
    }

    /// Hands those rows of a snapshot to each of `accumulators` that are of the selected time.
    fn hand_rows(
        &mut self,
        header: &Header,
        selection: &Selection,
        record: &SnapshotRecord,
        accumulators: &mut [&mut dyn Accumulator],
    ) -> Result<(), ReportError> {
        for row in record.rows() {
            if let Some(visit) = self.visit(header, selection, row) {
                Seen::Row(&visit).hand_to(accumulators)?;
            }
        }
        Ok(())
    }

    /// The end of a walk.
    ///
    /// # Errors
    /// If there was no row, or none of the selection.
    fn end(self, header: &Header, selection: &Selection) -> Result<(), ReportError> {
        if self.contents.rows == 0 {
            return Err(ReportError::NothingRecorded { aggregation: Duration::from_nanos(header.aggregation_ns) });
        }
        if !self.matched {
            return Err(ReportError::NothingMatches { asked: selection.describe(), holds: self.contents.describe() });
        }
        Ok(())
    }

    /// The visit of the next row, if it is of the selected time.
    fn visit<'a>(&mut self, header: &Header, selection: &Selection, row: Row<'a>) -> Option<Visit<'a>> {
        let first_of_snapshot = row.cost.is_some() || self.current != Some(row.time);
        if self.current != Some(row.time) {
            self.previous = self.current.replace(row.time).unwrap_or_default();
        }
        self.contents.add(&row);
        let since = since(&row, self.last_of.insert(row.target.id, row.time));
        if !selection.holds_time(row.time) {
            return None;
        }
        let visit = Visit {
            detail: self.detail,
            since: selection.time.as_ref().map_or(since, |range| since.max(range.start).min(row.time)),
            first_of_snapshot,
            elapsed: header.recorded(self.previous, row.time),
            chosen: selection.holds_target(row.target.id),
            address: selection.address,
            hot: selection.hot(),
            known: OnceCell::new(),
            row,
        };
        // Without surveys, regions cover all that is mapped.
        let is_mapped = || visit.mapped().next().is_some() || visit.pieces().next().is_some();
        self.matched |= visit.chosen && (selection.address.is_none() || is_mapped());
        Some(visit)
    }
}

/// The start of the time that a row covers: the previous row of its target, unless rows are missing in between.
fn since(row: &Row<'_>, before: Option<Duration>) -> Duration {
    let aggregation = row.time.saturating_sub(row.aggregation);
    match before {
        Some(before) if row.time.saturating_sub(before) <= row.aggregation.saturating_mul(2) => before,
        Some(before) => aggregation.max(before),
        // The first snapshot of a run covers the time from its start.
        None if row.time <= row.aggregation.saturating_mul(2) => Duration::ZERO,
        None => aggregation,
    }
}
