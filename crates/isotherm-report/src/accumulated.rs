//! The events of a run in bounded memory, of which each report can be made at any time.
//!
//! A report looks at its events several times: the extent of its axes, its groups and its window follow from all of
//! them. Therefore one accumulator serves all reports. It keeps events as they are until they take too much memory.
//! Then it makes a level of them, whose snapshots cover twice as much time as before, so that sums over time stay what
//! they are ([`isotherm_record::levelled`]).

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{MappingSums, TargetSurvey};
use isotherm_core::{BoxError, Mapping, RegionSnapshot, TargetId};
use isotherm_record::{Event, Header, Needs, levelled};

use crate::format::Format;
use crate::options::Options;
use crate::report::Kind;
use crate::source::{Events, Selection, Source, named};
use crate::{ReportError, write};

/// The accumulator of all reports: events of a live run, of a file or of several files in one stream.
///
/// Two accumulators of one run, of parts one after another, are merged into that of both. As long as no level was made,
/// the reports of any division are to the byte those of the whole
/// (`the_parts_of_a_stream_merge_into_the_report_of_the_whole`). After that, they have the sums of the whole, and as
/// much detail as there is room for.
#[derive(Clone, Debug)]
pub struct Accumulated {
    header: Header,
    /// In the order of time.
    events: Vec<Event>,
    /// About how many bytes they take, how many they may take, and how many are too many now: what no level shortens,
    /// such as marks, can be more than they may take.
    bytes: usize,
    most: usize,
    too_many: usize,
    /// How much time a snapshot covers at least. `None` if all are as they came.
    length: Option<Duration>,
    /// The mappings that each target had last, which its events share.
    mappings: HashMap<TargetId, Arc<[Mapping]>>,
}

impl Accumulated {
    /// The most memory of events unless another limit is given, in bytes.
    pub const MOST: usize = 64 << 20;

    /// No events yet, of a run with this header, which may take about `most` bytes of memory.
    pub fn new(header: Header, most: usize) -> Self {
        Self { header, events: Vec::new(), bytes: 0, most, too_many: most, length: None, mappings: HashMap::new() }
    }

    /// Takes in an event. One that comes late gets its place in the order of time.
    pub fn event(&mut self, event: Event) {
        self.bytes += bytes_of(&event, &mut self.mappings);
        let order = event.order();
        let later = self.events.iter().rev().take_while(|other| other.order() > order).count();
        self.events.insert(self.events.len() - later, event);
        if self.bytes > self.too_many {
            self.shorten();
        }
    }

    /// Takes in the events of the part of the run that follows.
    ///
    /// # Errors
    /// [`ReportError::NotOneStream`] if it is of another run, or has a snapshot before the end of this part. Recordings
    /// of several runs are read as one stream by [`isotherm_record::Joined`].
    pub fn merge(&mut self, later: Self) -> Result<(), ReportError> {
        let (one, two) = (snapshots(&self.events), snapshots(&later.events));
        if self.header != later.header || one.zip(two).is_some_and(|((_, end), (start, _))| start < end) {
            return Err(ReportError::NotOneStream);
        }
        self.length = self.length.max(later.length);
        later.events.into_iter().for_each(|event| self.event(event));
        Ok(())
    }

    /// Writes a report on what there is so far.
    ///
    /// # Errors
    /// As [`write`](fn@write).
    pub fn finish(
        &self,
        kind: Kind,
        format: Format,
        selection: &Selection,
        options: &Options,
        out: &mut dyn Write,
    ) -> Result<(), ReportError> {
        write(kind, format, self, selection, options, out)
    }

    /// How much time its snapshots cover at least, if a level was made of them.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// Makes levels until half of the memory suffices, or one snapshot covers all.
    fn shorten(&mut self) {
        let (first, last) = snapshots(&self.events).unwrap_or_default();
        let count = self.events.iter().filter(|event| matches!(event, Event::Snapshot(_))).count();
        let spacing = (last - first) / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        while self.bytes > self.most / 2 {
            let length = self.length.map_or(spacing, |length| length.max(spacing)) * 2;
            let events = std::mem::take(&mut self.events).into_iter().map(Ok::<_, Infallible>);
            self.events = levelled(events, length).flatten().collect();
            self.mappings.clear();
            self.bytes = self.events.iter().map(|event| bytes_of(event, &mut self.mappings)).sum();
            self.length = Some(length);
            if length.is_zero() || length > last - first {
                break;
            }
        }
        self.too_many = self.most.max(self.bytes * 2);
    }
}

impl Source for Accumulated {
    fn header(&self) -> &Header {
        &self.header
    }

    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError> {
        let needed = self.events.iter().filter(move |event| needs.has_kind_of(event)).cloned();
        Ok(Box::new(named(needed.map(Ok::<_, BoxError>))))
    }
}

/// The times of the first and the last snapshot.
fn snapshots(events: &[Event]) -> Option<(Duration, Duration)> {
    let mut times = events.iter().filter(|event| matches!(event, Event::Snapshot(_))).map(Event::time);
    let first = times.next()?;
    Some((first, times.next_back().unwrap_or(first)))
}

/// About how much memory an event takes. Mappings that the target had before take none.
fn bytes_of(event: &Event, known: &mut HashMap<TargetId, Arc<[Mapping]>>) -> usize {
    let mut mappings = |id: TargetId, mappings: &Arc<[Mapping]>| match known.get(&id) {
        Some(before) if Arc::ptr_eq(before, mappings) => 0,
        _ => {
            known.insert(id, Arc::clone(mappings));
            size_of_val::<[Mapping]>(mappings)
        }
    };
    let more: usize = match event {
        Event::Snapshot(record) => record
            .snapshot
            .targets
            .iter()
            .map(|target| {
                size_of_val(target)
                    + size_of_val::<[RegionSnapshot]>(&target.regions)
                    + mappings(target.id, &target.mappings)
            })
            .sum(),
        Event::Survey(record) => record
            .survey
            .targets
            .iter()
            .map(|target| {
                let TargetSurvey { id, by_mapping, by_block, .. } = target;
                let sums = size_of_val::<[MappingSums]>(by_mapping) + by_block.own_bytes();
                size_of_val(target) + sums + mappings(*id, &target.mappings)
            })
            .sum(),
        Event::Panel(panel) => {
            panel.targets.iter().map(|target| size_of_val(target) + size_of_val(&target.by_mapping[..])).sum()
        }
        Event::Activity(activity) => size_of_val(&activity.schemes[..]) + size_of_val(&activity.memory[..]),
        Event::Allocations(found) => size_of_val(&found.calls[..]),
        Event::Mark(_) | Event::Missed(_) => 0,
    };
    size_of::<Event>() + more
}
