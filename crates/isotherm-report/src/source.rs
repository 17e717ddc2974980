//! The source of events, the selection of what a report is about, and the walk that hands each event to accumulators.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{MappingSums, SurveySnapshot, TargetSurvey};
use isotherm_core::{
    AddrRange, Allocations, BoxError, Frequency, Mapping, PanelSnapshot, RegionSnapshot, TargetId, TargetSnapshot,
    is_memory, units,
};
use isotherm_record::{
    Activity, Ending, Event, Header, Joined, Mark, Merger, Missed, Needs, Part, Recording, Row, SnapshotRecord,
    SurveyRecord, pid_column,
};

use crate::ReportError;
use crate::names::Names;
use crate::parts::{HOT_HZ, Parts};
use crate::sanitise;

/// The events of one walk over a source.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, BoxError>> + 'a>;

/// A recording, or something like it, whose events can be read several times.
pub trait Source {
    /// The header of the recording.
    fn header(&self) -> &Header;

    /// What is needed of it, in the order of time; of the events of one time, snapshots come first, and readings of the
    /// panel before surveys.
    ///
    /// # Errors
    /// If they cannot be read, at once or at any event.
    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError>;

    /// Why the recording ends before its run, if it does.
    fn cut_short(&self) -> Option<String> {
        None
    }

    /// The time of its last snapshot, if that is known without a walk.
    fn end(&self) -> Option<Duration> {
        None
    }
}

/// The events of one kind.
pub(crate) fn only<T: 'static>(
    source: &dyn Source,
    needs: Needs,
    item: fn(Event) -> Option<T>,
) -> Result<Found<'_, T>, ReportError> {
    let events = source.events(needs).map_err(ReportError::Source)?;
    Ok(Box::new(events.filter_map(move |event| event.map_err(ReportError::Source).map(item).transpose())))
}

/// Items of one kind, of one walk over a source, or why they cannot be read.
pub(crate) type Found<'a, T> = Box<dyn Iterator<Item = Result<T, ReportError>> + 'a>;

/// The surveys of a source. What they say by block is left out unless it is needed.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn surveys(source: &dyn Source, blocks: bool) -> Result<Found<'_, SurveyRecord>, ReportError> {
    only(source, Needs { surveys: true, blocks, ..Needs::NOTHING }, |event| {
        if let Event::Survey(record) = event { Some(record) } else { None }
    })
}

/// Whether a source has a survey.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn is_surveyed(source: &dyn Source) -> Result<bool, ReportError> {
    Ok(surveys(source, false)?.next().transpose()?.is_some())
}

/// The readings of the panel of a source.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn panels(source: &dyn Source) -> Result<Found<'_, PanelSnapshot>, ReportError> {
    only(source, Needs::PANELS, |event| if let Event::Panel(panel) = event { Some(panel) } else { None })
}

/// The activities of a source.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn activities(source: &dyn Source) -> Result<Found<'_, Activity>, ReportError> {
    only(source, Needs::ACTIVITIES, |event| if let Event::Activity(activity) = event { Some(activity) } else { None })
}

impl Source for Recording {
    fn header(&self) -> &Header {
        self.header()
    }

    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError> {
        Ok(Box::new(named(self.events(needs))))
    }

    fn end(&self) -> Option<Duration> {
        self.last_time()
    }

    fn cut_short(&self) -> Option<String> {
        let damaged = damaged(self);
        let cut = match self.ending() {
            Ending::Whole => None,
            Ending::Unfinished => {
                Some("the recording has no end: it is still being made, or its recorder was killed".into())
            }
            Ending::CutShort { at } => Some(format!(
                "the recording is cut short: its recorder was killed, or the file was cut; whole up to byte {at}"
            )),
        };
        match (damaged, cut) {
            (Some(damaged), Some(cut)) => Some(format!("{damaged}; {cut}")),
            (damaged, cut) => damaged.or(cut),
        }
    }
}

impl Source for Joined {
    fn header(&self) -> &Header {
        self.header()
    }

    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError> {
        Ok(Box::new(named(self.events(needs))))
    }

    fn cut_short(&self) -> Option<String> {
        let each = self.recordings().iter().filter_map(|recording| {
            Some(format!("{}: {}", sanitise(&recording.path().display().to_string()), recording.cut_short()?))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join("; "))
    }
}

/// The events with as many names of mappings as reports tell apart.
fn named<E: Into<BoxError>>(
    events: impl Iterator<Item = Result<Event, E>>,
) -> impl Iterator<Item = Result<Event, BoxError>> {
    let (mut of_snapshots, mut of_surveys) = (Names::default(), Names::default());
    events.map(move |event| {
        let mut event = event.map_err(Into::into)?;
        let time = event.time();
        match &mut event {
            Event::Snapshot(record) => record.snapshot.targets.iter_mut().for_each(|target| {
                target.mappings = of_snapshots.tell(time, target.id, &target.mappings);
            }),
            Event::Survey(record) => record.survey.targets.iter_mut().for_each(|target| {
                target.mappings = of_surveys.tell(time, target.id, &target.mappings);
            }),
            Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {}
        }
        Ok(event)
    })
}

/// What of a recording is missing because it is damaged.
fn damaged(recording: &Recording) -> Option<String> {
    let damage = recording.damage();
    let bytes: u64 = damage.iter().map(|part| part.end - part.start).sum();
    let parts = if damage.len() == 1 { "part" } else { "parts" };
    (!damage.is_empty()).then(|| {
        format!(
            "the recording is damaged: {} {parts} with {bytes} bytes cannot be read, and what they hold is missing; \
             `isotherm check` says where",
            damage.len()
        )
    })
}

/// The part of a recording that a report is about. `None` selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Time since the start of the recording. A snapshot covers the time before it, so a snapshot at `t` belongs to a
    /// range with `start < t <= end` (one at 0 to a range from 0).
    pub time: Option<Range<Duration>>,
    /// Addresses. Regions and mappings are cut to them.
    pub address: Option<AddrRange>,
    /// One target. If several processes had the process ID one after another, all of these.
    pub target: Option<SelectedTarget>,
    /// The frequency in hertz from which on memory is hot. `None` is [`HOT_HZ`](crate::HOT_HZ).
    pub hot_hz: Option<f64>,
}

/// A target as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedTarget {
    /// The processes with this process ID.
    Process(u32),
    /// Physical memory.
    PhysicalMemory,
}

impl SelectedTarget {
    pub(crate) fn holds(self, id: TargetId) -> bool {
        match self {
            Self::Process(pid) => id.pid() == Some(pid),
            Self::PhysicalMemory => id == TargetId::PhysicalMemory,
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Process(pid) => pid,
            Self::PhysicalMemory => 0,
        }
    }
}

impl Selection {
    /// The frequency in hertz from which on memory is hot.
    pub fn hot(&self) -> f64 {
        self.hot_hz.unwrap_or(HOT_HZ)
    }

    /// The selection without what a recording that was cut has from before and after its part.
    pub(crate) fn within_part(&self, header: &Header) -> Self {
        let Some(Part { from_ns, to_ns }) = header.part else { return self.clone() };
        let part = Duration::from_nanos(from_ns)..to_ns.map_or(Duration::MAX, Duration::from_nanos);
        let time = match &self.time {
            Some(time) => time.start.max(part.start)..time.end.min(part.end),
            None => part,
        };
        Self { time: Some(time), ..self.clone() }
    }

    pub(crate) fn holds_target(&self, id: TargetId) -> bool {
        self.target.is_none_or(|wanted| wanted.holds(id))
    }

    /// Whether the selection has all memory of all targets of a survey.
    pub(crate) fn holds_all(&self, survey: &SurveySnapshot) -> bool {
        self.address.is_none() && survey.targets.iter().all(|target| self.holds_target(target.id))
    }

    pub(crate) fn holds_time(&self, t: Duration) -> bool {
        self.time.as_ref().is_none_or(|range| Part::holds_from(range.start, t) && t <= range.end)
    }

    /// The selected part of a range.
    pub(crate) fn clip(&self, range: AddrRange) -> Option<AddrRange> {
        self.address.map_or(Some(range), |wanted| wanted.intersection(range))
    }

    pub(crate) fn describe(&self) -> String {
        let mut parts = vec![];
        if let Some(time) = &self.time {
            parts.push(format!("time {} to {}", units::duration(time.start), units::duration(time.end)));
        }
        if let Some(range) = self.address {
            parts.push(format!("addresses {:#x} to {:#x}", range.start(), range.end()));
        }
        if let Some(target) = self.target {
            parts.push(format!("target {}", target.number()));
        }
        parts.join(", ")
    }
}

/// A row on a walk.
pub struct Visit<'a> {
    /// The row.
    pub row: &'a Row,
    /// The start of the time that the row covers. The end is the time of the row.
    pub since: Duration,
    /// Whether it is the first row of its snapshot.
    pub first_of_snapshot: bool,
    /// The recorded time since the previous snapshot, or since the start of the run: the time in which the cost arose.
    /// Several recorders have snapshots of one time, with a cost each, if their recordings were merged.
    pub elapsed: Duration,
    /// Whether the target is selected. Rows of other targets are visited too, because costs are those of all targets.
    pub chosen: bool,
    address: Option<AddrRange>,
    /// The frequency in hertz from which on memory is hot.
    hot: f64,
    /// What [`known`](Self::known) has computed.
    known: OnceCell<Vec<Known<'a>>>,
}

impl<'a> Visit<'a> {
    /// What is known of the mapped and selected memory, piece by piece in the order of addresses. It is computed once
    /// for all accumulators.
    pub(crate) fn known(&self) -> &[Known<'a>] {
        self.known.get_or_init(|| {
            let Row { samples, aggregation, ref target, .. } = *self.row;
            let mut all = Vec::with_capacity(target.regions.len() + 16);
            for (region, places) in target.mapped_regions() {
                let share = Share::of(region, samples, aggregation);
                let parts = Parts::of(region, share, self.hot);
                for piece in pieces_of(target, region, places, self.address) {
                    all.push(Known { bytes: piece.present(), piece, parts, share });
                }
            }
            all
        })
    }

    /// The selected addresses.
    pub(crate) fn address(&self) -> Option<AddrRange> {
        self.address
    }

    /// The frequency in hertz from which on memory is hot.
    pub(crate) fn hot(&self) -> f64 {
        self.hot
    }

    /// The length of the time that the row covers.
    pub fn span(&self) -> Duration {
        self.row.time.saturating_sub(self.since)
    }

    /// The mapped and selected pieces of the regions, in the order of addresses.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        pieces(self.row, self.address)
    }

    /// The pieces with their bytes in memory.
    pub fn present_pieces(&self) -> impl Iterator<Item = (Piece<'_>, u64)> {
        self.pieces().map(|piece| (piece, piece.present()))
    }

    /// The selected part of a range.
    pub fn clip(&self, range: AddrRange) -> Option<AddrRange> {
        self.address.map_or(Some(range), |wanted| wanted.intersection(range))
    }

    /// The selected parts of the mappings with their names, in the order of addresses.
    pub fn mapped(&self) -> impl Iterator<Item = (AddrRange, Arc<str>)> {
        let mappings = &self.row.target.mappings;
        let memory = mappings.iter().filter(|mapping| is_memory(mappings, mapping));
        memory.filter_map(|mapping| Some((self.clip(mapping.range)?, mapping.label())))
    }
}

/// The part of one region that lies in one mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece<'a> {
    /// The addresses.
    pub range: AddrRange,
    /// The region.
    pub region: &'a RegionSnapshot,
    /// The mapping.
    pub mapping: &'a Mapping,
    /// The place of the mapping among those of the target.
    pub nth_mapping: usize,
    /// The bytes of all pieces of the region, selected or not. What is in memory of a region lies in them: a region of
    /// a survey can span large gaps between mappings.
    pub whole: u64,
}

impl Piece<'_> {
    /// Its bytes in memory. The present bytes of a region are divided among its mapped parts by their size. Without a
    /// survey, all mapped bytes count.
    pub fn present(&self) -> u64 {
        let size = self.range.size();
        match self.region.pages {
            None => size,
            // Most regions lie in one mapping.
            Some(pages) if size == self.whole => pages.present,
            Some(pages) => (u128::from(pages.present) * u128::from(size) / u128::from(self.whole.max(1))) as u64,
        }
    }
}

/// A piece, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) piece: Piece<'a>,
    /// Its bytes in memory.
    pub(crate) bytes: u64,
    /// Into which parts its memory falls, and which share of its samples found an access.
    pub(crate) parts: Parts,
    pub(crate) share: Share,
}

/// The mapped pieces of the regions of a row inside `address`, in the order of addresses. Address space without access
/// permission has none, unless a region has more in memory or in swap than fits into its other parts.
pub fn pieces(row: &Row, address: Option<AddrRange>) -> impl Iterator<Item = Piece<'_>> {
    let regions = row.target.mapped_regions();
    regions.flat_map(move |(region, places)| pieces_of(&row.target, region, places, address))
}

/// The pieces of a region in the mappings at these places.
fn pieces_of<'a>(
    target: &'a TargetSnapshot,
    region: &'a RegionSnapshot,
    places: Range<usize>,
    address: Option<AddrRange>,
) -> impl Iterator<Item = Piece<'a>> {
    let mappings = &*target.mappings;
    let parts = places.filter_map(move |nth| Some((nth, mappings[nth].range.intersection(region.range)?)));
    let parts = parts.map(move |(nth, range)| (nth, range, is_memory(mappings, &mappings[nth])));
    let (fits, all) = parts.clone().fold((0, 0), |(fits, all): (u64, u64), (_, range, is_memory)| {
        (fits + if is_memory { range.size() } else { 0 }, all + range.size())
    });
    let has_more = region.pages.is_some_and(|pages| pages.kept() > fits);
    let whole = if has_more { all } else { fits };
    parts.filter_map(move |(nth_mapping, range, is_memory)| {
        let range = address.map_or(Some(range), |wanted| wanted.intersection(range))?;
        let mapping = &mappings[nth_mapping];
        (is_memory || has_more).then_some(Piece { range, region, mapping, nth_mapping, whole })
    })
}

/// If a smaller share of the samples can be observed, surveys tell what is known.
const MOST: f64 = 0.5;

/// Shares of the samples of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The share of samples that could be observed, 0 to 1.
    pub observed: f64,
    /// The share of samples that found an access, 0 to `observed`.
    pub accessed: f64,
    /// The share of the memory that was not sampled, and that no survey found idle. It is no part of
    /// `observed`.
    pub unknown: f64,
    /// How often a page of the observed memory is accessed, in hertz.
    pub hz: f64,
}

impl Share {
    /// The shares of a region. Of memory that samples cannot observe, a survey tells the frequency, or that it does not
    /// know.
    pub fn of(region: &RegionSnapshot, samples: u32, aggregation: Duration) -> Self {
        let by_samples = (1.0 - region.unobservable_share(samples)).clamp(0.0, 1.0);
        let (known, not_known) = region.pages.map_or((0.0, 0.0), |pages| {
            let rest = pages.present.saturating_sub(pages.unobservable.saturating_add(pages.unknown));
            let of = |bytes: u64| bytes as f64 / pages.present.max(1) as f64;
            (of(rest), of(pages.unknown))
        });
        let by_survey = if region.frequency.is_some() { known } else { 0.0 };
        let observed = by_samples.max(by_survey);
        if region.nr_samples == 0 && region.nr_accesses == 0 && by_survey == 0.0 {
            let idle = region.pages.map_or(0.0, |pages| {
                let other = pages.touched.saturating_add(pages.unobservable).saturating_add(pages.unknown);
                pages.present.saturating_sub(other) as f64 / pages.present.max(1) as f64
            });
            let known = observed.min(idle);
            return Self { observed: known, accessed: 0.0, unknown: observed - known, hz: 0.0 };
        }
        let accessed = region.access_rate(samples).min(observed);
        let unknown = if by_samples < MOST { not_known.min(1.0 - observed) } else { 0.0 };
        let share = Self { observed, accessed, unknown, hz: 0.0 };
        // Without a frequency, each sample has found one access at most.
        let found = || share.rate().unwrap_or(0.0) * f64::from(samples) / aggregation.as_secs_f64().max(1e-9);
        Self { hz: region.frequency.map_or_else(found, Frequency::hz), ..share }
    }

    /// The access rate of the observed samples, 0 to 1. None if there are none.
    pub fn rate(self) -> Option<f64> {
        (self.observed > 0.0).then(|| self.accessed / self.observed)
    }
}

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

    /// Whether it takes snapshots that are merged of others, in a recording of so many that each of them says little.
    fn takes_merged(&self) -> bool {
        false
    }

    /// Takes in an event. What it did not ask for it may get as well, and parts that nobody asked for are missing.
    ///
    /// # Errors
    /// If it writes to an output that cannot be written to, or has too much to keep.
    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError>;
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
    fn add(&mut self, row: &Row) {
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

/// An event of a walk: of a snapshot, one of its rows.
enum Item {
    Row(Row),
    /// Another event.
    Event(Event),
}

impl Item {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let more = match self {
            Self::Row(row) => size_of_val::<[RegionSnapshot]>(&row.target.regions),
            Self::Event(Event::Survey(record)) => {
                let of = |target: &TargetSurvey| {
                    size_of_val::<[MappingSums]>(&target.by_mapping) + target.by_block.own_bytes()
                };
                record.survey.targets.iter().map(of).sum()
            }
            Self::Event(_) => 0,
        };
        size_of::<Self>() + more
    }
}

/// About how many snapshots those of a long recording are merged to, for accumulators that take them.
const MERGED: u32 = 8192;
/// How many snapshots are merged at least.
const FEWEST_MERGED: u32 = 8;

/// How much time a merged snapshot covers, if the selected part of `source` has so many that they are merged.
fn merged_length(source: &dyn Source, selection: &Selection) -> Option<Duration> {
    let aggregation = Duration::from_nanos(source.header().aggregation_ns);
    let end = source.end()?;
    let time = selection.time.as_ref().map_or(end, |time| time.end.min(end).saturating_sub(time.start));
    let length = time / MERGED;
    (!aggregation.is_zero() && length >= aggregation * FEWEST_MERGED).then_some(length)
}

/// The most memory of the events that are kept for a further walk.
const MOST_KEPT: usize = 32 << 20;

/// Several walks over one source. What the first one reads is kept for the others, unless it is much.
pub(crate) struct Walks<'a> {
    source: &'a dyn Source,
    selection: &'a Selection,
    /// What the walks after the first need. `None` if nothing is kept for them.
    later: Option<Needs>,
    kept: Option<Vec<Item>>,
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
        let mut rows = Rows::default();
        let (header, selection) = (self.source.header(), self.selection);
        if let Some(kept) = &self.kept {
            kept.iter().try_for_each(|item| rows.hand(header, selection, item, accumulators))?;
            return rows.end(header, selection);
        }
        let mut needs = accumulators.iter().fold(Needs::NOTHING, |needs, accumulator| needs | accumulator.needs());
        // Whether there is something at the selected addresses, only regions tell.
        needs.snapshots = true;
        needs.regions |= selection.address.is_some();
        let later = self.later.take();
        let length = accumulators
            .iter()
            .any(|accumulator| accumulator.takes_merged())
            .then(|| merged_length(self.source, selection))
            .flatten();
        if let Some(length) = length {
            return self.walk_merged(length, needs | later.unwrap_or_default(), accumulators);
        }
        let (mut kept, mut bytes) = (later.map(|_| Vec::new()), 0);
        let mut take = |item: Item, rows: &mut Rows| {
            rows.hand(header, selection, &item, accumulators)?;
            bytes += item.bytes();
            kept.take_if(|_| bytes > MOST_KEPT);
            if let Some(kept) = &mut kept {
                kept.push(item);
            }
            Ok::<_, ReportError>(())
        };
        for event in self.source.events(needs | later.unwrap_or_default()).map_err(ReportError::Source)? {
            match event.map_err(ReportError::Source)? {
                Event::Snapshot(record) => record.into_rows().try_for_each(|row| take(Item::Row(row), &mut rows))?,
                event => take(Item::Event(event), &mut rows)?,
            }
        }
        self.kept = kept;
        rows.end(header, selection)
    }

    /// A walk over a long recording: accumulators that take merged snapshots get those, and the others get all.
    fn walk_merged(
        &self,
        length: Duration,
        needs: Needs,
        accumulators: &mut [&mut dyn Accumulator],
    ) -> Result<(), ReportError> {
        let (header, selection) = (self.source.header(), self.selection);
        let (mut each, mut of_merged): (Vec<&mut dyn Accumulator>, Vec<&mut dyn Accumulator>) =
            (Vec::new(), Vec::new());
        for accumulator in accumulators.iter_mut() {
            if accumulator.takes_merged() { of_merged.push(&mut **accumulator) } else { each.push(&mut **accumulator) }
        }
        let (mut rows, mut merged_rows, mut merger) = (Rows::default(), Rows::default(), Merger::new(length));
        let mut hand_merged = |record: SnapshotRecord, of_merged: &mut [&mut dyn Accumulator]| {
            record.into_rows().try_for_each(|row| merged_rows.hand(header, selection, &Item::Row(row), of_merged))
        };
        for event in self.source.events(needs).map_err(ReportError::Source)? {
            match event.map_err(ReportError::Source)? {
                Event::Snapshot(record) => {
                    if let Some(merged) = merger.add(&record) {
                        hand_merged(merged, &mut of_merged)?;
                    }
                    let mut all = record.into_rows().map(Item::Row);
                    all.try_for_each(|row| rows.hand(header, selection, &row, &mut each))?;
                }
                event => {
                    let event = Item::Event(event);
                    rows.hand(header, selection, &event, &mut each)?;
                    rows.hand(header, selection, &event, &mut of_merged)?;
                }
            }
        }
        if let Some(merged) = merger.end() {
            hand_merged(merged, &mut of_merged)?;
        }
        rows.end(header, selection)
    }
}

/// The rows of a walk so far.
#[derive(Default)]
struct Rows {
    contents: Contents,
    /// Whether one of them is selected.
    matched: bool,
    /// The time of the last row of each target, of the current snapshot, and of the previous one.
    last_of: HashMap<TargetId, Duration>,
    current: Option<Duration>,
    previous: Duration,
}

impl Rows {
    /// Hands an event to each of `accumulators`, unless it is a row that is not of the selected time.
    fn hand(
        &mut self,
        header: &Header,
        selection: &Selection,
        item: &Item,
        accumulators: &mut [&mut dyn Accumulator],
    ) -> Result<(), ReportError> {
        let visit;
        let seen = match item {
            Item::Row(row) => match self.visit(header, selection, row) {
                Some(visited) => {
                    visit = visited;
                    Seen::Row(&visit)
                }
                None => return Ok(()),
            },
            Item::Event(Event::Panel(panel)) => Seen::Panel(panel),
            Item::Event(Event::Survey(record)) => Seen::Survey(record),
            Item::Event(Event::Activity(activity)) => Seen::Activity(activity),
            Item::Event(Event::Mark(mark)) => Seen::Mark(mark),
            Item::Event(Event::Allocations(found)) => Seen::Allocations(found),
            Item::Event(Event::Missed(missed)) => Seen::Missed(missed),
            // Snapshots come row by row.
            Item::Event(Event::Snapshot(_)) => return Ok(()),
        };
        accumulators.iter_mut().try_for_each(|accumulator| accumulator.event(&seen))
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
    fn visit<'a>(&mut self, header: &Header, selection: &Selection, row: &'a Row) -> Option<Visit<'a>> {
        let first_of_snapshot = row.cost.is_some() || self.current != Some(row.time);
        if self.current != Some(row.time) {
            self.previous = self.current.replace(row.time).unwrap_or_default();
        }
        self.contents.add(row);
        let since = since(row, self.last_of.insert(row.target.id, row.time));
        if !selection.holds_time(row.time) {
            return None;
        }
        let visit = Visit {
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
fn since(row: &Row, before: Option<Duration>) -> Duration {
    let aggregation = row.time.saturating_sub(row.aggregation);
    match before {
        Some(before) if row.time.saturating_sub(before) <= row.aggregation.saturating_mul(2) => before,
        Some(before) => aggregation.max(before),
        // The first snapshot of a run covers the time from its start.
        None if row.time <= row.aggregation.saturating_mul(2) => Duration::ZERO,
        None => aggregation,
    }
}
