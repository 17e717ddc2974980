//! A part of a recording, as a recording of its own.
//!
//! Times keep counting from the start of the run. What reports on the part need of the rest is kept, too: the last
//! snapshot, survey and activity before it, the first ones after it, and the time of the first survey. The header says
//! where the part begins and ends, so that reports do not count these.

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Allocations, PanelSnapshot, TargetId};

use super::recording::used;
use super::{ConvertError, of_output, open};
use crate::time::nanoseconds;
use crate::{
    Activity, Ending, Event, Header, Needs, Part, RecordError, Recorder, Recording, SnapshotRecord, SurveyRecord,
    pid_column, recording_at,
};

/// Which part of a recording is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The time since the start of the run. As snapshots cover the time before them, one at `t` is in the part if
    /// `start < t <= end`. `None` is all of the time.
    pub time: Option<Range<Duration>>,
    /// The process IDs of the targets, 0 for physical memory. Empty for all targets.
    pub targets: BTreeSet<u32>,
}

impl Cut {
    fn holds(&self, id: TargetId) -> bool {
        self.targets.is_empty() || self.targets.contains(&pid_column(id))
    }

    /// The wanted time of a recording with this header. A part of a part lies in both.
    fn part_of(&self, header: &Header) -> Range<Duration> {
        let Part { from_ns, to_ns } = header.part.unwrap_or_default();
        let end = to_ns.map_or(Duration::MAX, Duration::from_nanos);
        let time = self.time.clone().unwrap_or(Duration::ZERO..Duration::MAX);
        time.start.max(Duration::from_nanos(from_ns))..time.end.min(end)
    }

    /// The event with the wanted targets. `None` if it is a snapshot or a survey of others alone.
    fn event(&self, event: Event) -> Option<Event> {
        Some(match event {
            Event::Snapshot(record) => Event::Snapshot(self.snapshot(record)?),
            Event::Survey(record) => Event::Survey(self.survey(record)?),
            Event::Panel(panel) => Event::Panel(self.panel(panel)),
            Event::Activity(activity) => Event::Activity(self.activity(activity)),
            Event::Allocations(found) => Event::Allocations(self.allocations(found)),
            Event::Mark(_) | Event::Missed(_) => event,
        })
    }

    /// The snapshot with the wanted targets. `None` if there are none.
    fn snapshot(&self, mut record: SnapshotRecord) -> Option<SnapshotRecord> {
        record.snapshot.targets.retain(|target| self.holds(target.id));
        (!record.snapshot.targets.is_empty()).then_some(record)
    }

    /// The survey with the wanted targets. What it knows of all targets together is left out if some are not wanted.
    fn survey(&self, mut record: SurveyRecord) -> Option<SurveyRecord> {
        let targets = record.survey.targets.len();
        record.survey.targets.retain(|target| self.holds(target.id));
        if record.survey.targets.len() < targets {
            record.survey.forget_total();
        }
        (!record.survey.targets.is_empty()).then_some(record)
    }

    fn panel(&self, mut panel: PanelSnapshot) -> PanelSnapshot {
        let before = panel.targets.len();
        panel.targets.retain(|target| self.holds(target.id));
        if panel.targets.len() < before {
            // Which memory they share with the others is not known: both bounds are wider than they need to be.
            panel.total = Default::default();
            for target in &panel.targets {
                panel.total.iter_mut().zip(target.within).for_each(|(sum, of)| *sum += of);
            }
        }
        panel
    }

    fn activity(&self, mut activity: Activity) -> Activity {
        let before = activity.memory.len();
        activity.memory.retain(|(id, _)| self.holds(*id));
        let left_out = before - activity.memory.len();
        activity.surroundings = activity.surroundings.map(|found| found.without(left_out));
        activity
    }

    fn allocations(&self, mut found: Allocations) -> Allocations {
        found.calls.retain(|call| self.holds(call.target));
        found
    }
}

/// Writes a part of `recording` to `output`. Returns the number of snapshots of the part.
///
/// The output appears when it is whole. A recording that is replaced is kept. It has an end mark if `recording` has
/// one, or goes on after the part.
///
/// # Errors
/// [`ConvertError::NothingToCut`] if the part has neither a snapshot nor a survey. When the output is the recording,
/// the recording is damaged, or the output cannot be written.
pub fn cut(recording: &Recording, wanted: &Cut, output: &Path) -> Result<u64, ConvertError> {
    let part = wanted.part_of(recording.header());
    let file = open(recording, recording_at(output))?;
    let write = || {
        let recorder = Recorder::begin(file, &header(recording.header(), &part), used(recording))?;
        let mut writer = Writer { recorder: recorder.appearing_whole(), first: None, before: vec![], after: vec![] };
        let (mut snapshots, mut surveys) = (0, 0);
        for event in recording.events(Needs::ALL) {
            let Some(event) = wanted.event(event?) else { continue };
            if event.time() > part.end {
                if writer.after(event)? {
                    break;
                }
            } else if holds(&part, event.time()) {
                snapshots += u64::from(matches!(event, Event::Snapshot(_)));
                surveys += u64::from(matches!(event, Event::Survey(_)));
                writer.inside(&event)?;
            } else {
                writer.before(event)?;
            }
        }
        if snapshots + surveys == 0 {
            return Ok(None);
        }
        let goes_on = !writer.after.is_empty();
        match recording.ending() {
            Ending::Unfinished | Ending::CutShort { .. } if !goes_on => writer.recorder.break_off()?,
            Ending::Whole | Ending::Unfinished | Ending::CutShort { .. } => writer.recorder.finish().map(drop)?,
        }
        Ok(Some(snapshots))
    };
    let written = write().map_err(|error| of_output(output, error))?;
    written.ok_or_else(|| ConvertError::NothingToCut { path: recording.path().into() })
}

/// Writes the events of a part, with those around it that it needs.
struct Writer {
    recorder: Recorder,
    /// The first survey of the recording without its memory, unless the last one before the part is the first.
    first: Option<SurveyRecord>,
    /// The last snapshot, survey and activity before the part, until they are written.
    before: Vec<Event>,
    /// The kinds of events that were after the part.
    after: Vec<Discriminant<Event>>,
}

impl Writer {
    /// Takes in an event before the part.
    fn before(&mut self, event: Event) -> Result<(), RecordError> {
        match &event {
            // What was mapped before the part belongs to the same calls in it.
            Event::Allocations(_) => return self.recorder.write_event(&event),
            Event::Panel(_) | Event::Mark(_) | Event::Missed(_) => return Ok(()),
            Event::Snapshot(_) | Event::Survey(_) | Event::Activity(_) => {}
        }
        let earlier = self.before.iter().position(|known| discriminant(known) == discriminant(&event));
        if let Some(earlier) = earlier.map(|nth| self.before.remove(nth))
            && let Event::Survey(record) = &earlier
        {
            self.first.get_or_insert_with(|| without_memory(record));
        }
        self.before.push(event);
        Ok(())
    }

    /// Writes an event of the part.
    fn inside(&mut self, event: &Event) -> Result<(), RecordError> {
        if let Some(first) = self.first.take() {
            self.recorder.write_survey(&first)?;
        }
        self.before.drain(..).try_for_each(|before| self.recorder.write_event(&before))?;
        self.recorder.write_event(event)
    }

    /// Writes an event after the part if it is the first of a kind that the part needs. Returns whether all of these
    /// were there.
    fn after(&mut self, event: Event) -> Result<bool, RecordError> {
        match &event {
            Event::Panel(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => return Ok(false),
            Event::Snapshot(_) | Event::Survey(_) | Event::Activity(_) => {}
        }
        if !self.after.contains(&discriminant(&event)) {
            self.after.push(discriminant(&event));
            self.inside(&event)?;
        }
        Ok(self.after.len() == 3)
    }
}

/// Whether an item at this time is in the part.
fn holds(part: &Range<Duration>, time: Duration) -> bool {
    Part::holds_from(part.start, time) && time <= part.end
}

/// The header of this part of a recording.
fn header(header: &Header, part: &Range<Duration>) -> Header {
    let to_ns = (part.end != Duration::MAX).then(|| nanoseconds(part.end));
    let part = Part { from_ns: nanoseconds(part.start), to_ns };
    Header { part: (part != Part::default()).then_some(part), ..header.clone() }
}

/// The survey without the memory that it found: it says only when it was.
fn without_memory(record: &SurveyRecord) -> SurveyRecord {
    let mut record = record.clone();
    for target in &mut record.survey.targets {
        target.by_mapping.clear();
        target.by_block = Default::default();
        target.by_node.clear();
    }
    record.survey.forget_total();
    record
}
