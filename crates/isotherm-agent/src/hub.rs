//! What is known of a group: the newest events of its run, and who gets the ones that follow.
//!
//! A hub is a sink of the run. It outlives the run, so that what was known stays known while a group is paused.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_core::scheme::Scheme;
use isotherm_core::{Attributes, BoxError, Pace, PanelSnapshot, chain};
use isotherm_kernel::unix_ns;
use isotherm_record::{Activity, Header, SnapshotRecord, SurveyRecord, TargetInfos};
use isotherm_run::{EndReason, Event, EventSink, Notice, RecordingSink, RunError};
use tokio::sync::broadcast;

use crate::history::HistoryWriter;
use crate::view;

/// How many events wait for a client that reads slowly.
const STREAMED: usize = 256;

/// How many notices are kept.
const NOTICES: usize = 100;

/// The newest events of a group.
#[derive(Clone, Debug, Default)]
pub struct Newest {
    /// What is true for the run. `None` before the first one.
    pub header: Option<Arc<Header>>,
    /// When the group has begun to be watched, since the start of the run.
    pub from: Duration,
    /// The processes, or the other memory that is watched.
    pub targets: TargetInfos,
    /// The attributes in force.
    pub attributes: Option<Attributes>,
    /// The schemes in force.
    pub schemes: Arc<[Scheme]>,
    /// The intervals that the run has settled on.
    pub pace: Option<Pace>,
    /// The newest snapshot.
    pub snapshot: Option<Arc<SnapshotRecord>>,
    /// The newest survey.
    pub survey: Option<Arc<SurveyRecord>>,
    /// The newest reading of the panel.
    pub panel: Option<Arc<PanelSnapshot>>,
    /// What schemes have done.
    pub activity: Option<Arc<Activity>>,
    /// The last notices, each with its time since the Unix epoch, in nanoseconds.
    pub notices: VecDeque<(u64, Notice)>,
    /// Why the run has ended. `None` while it goes on.
    pub end: Option<EndReason>,
    /// Sums over all runs of the group.
    pub sums: Sums,
}

impl Newest {
    /// The number of processes.
    pub fn processes(&self) -> usize {
        self.targets.iter().filter(|(id, _)| id.pid().is_some()).count()
    }

    /// When the run began, since the Unix epoch.
    pub fn started_unix_ns(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.started_unix_ns)
    }
}

/// Sums over all runs of a group since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// CPU time of all threads of the runs.
    pub cpu: Duration,
    /// For how long the kernel held memory maps of the processes.
    pub holds: Duration,
    /// Sampling rounds, and those of them that were late.
    pub rounds: u64,
    /// The late ones of them.
    pub late_rounds: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Surveys.
    pub surveys: u64,
    /// Events that no sink got.
    pub missed: u64,
    /// Runs that have begun.
    pub runs: u64,
}

/// The recordings that are being made of a group.
#[derive(Default)]
struct Recordings {
    /// By their names. That of the configuration has an empty one.
    named: Vec<(String, RecordingSink)>,
    history: Option<HistoryWriter>,
}

/// The hub of a group.
pub struct Hub {
    known: Mutex<Newest>,
    recordings: Mutex<Recordings>,
    stream: broadcast::Sender<Arc<view::Streamed>>,
    /// The events as they are, for those who get a recording of them.
    events: broadcast::Sender<Event>,
}

/// The events of a run from some time on, as a recording in memory.
pub struct Following {
    /// What has been recorded.
    pub recording: RecordingSink,
    /// What follows.
    pub events: broadcast::Receiver<Event>,
}

impl Hub {
    /// The hub of a group that was never watched, with the history that is kept of it.
    pub fn new(history: Option<HistoryWriter>) -> Self {
        let recordings = Recordings { named: Vec::new(), history };
        let (stream, events) = (broadcast::Sender::new(STREAMED), broadcast::Sender::new(STREAMED));
        Self { known: Mutex::default(), recordings: Mutex::new(recordings), stream, events }
    }

    /// What is known now. What is large is shared.
    pub fn known(&self) -> Newest {
        self.lock().clone()
    }

    /// The events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<view::Streamed>> {
        self.stream.subscribe()
    }

    /// The events of the run as they are, from now on, and when the run began, since the Unix epoch.
    pub fn events(&self) -> (broadcast::Receiver<Event>, u64) {
        let known = self.lock();
        (self.events.subscribe(), known.started_unix_ns())
    }

    /// A recording of all events from now on. It begins with the newest snapshot and survey.
    ///
    /// # Errors
    /// If there is no run.
    pub fn follow(&self) -> Result<Following, RecordError> {
        let (events, known) = (self.events.subscribe(), self.known());
        let header = known.header.filter(|_| known.end.is_none()).ok_or(RecordError::NotWatched)?;
        let from = known
            .snapshot
            .as_ref()
            .map_or(known.from, |record| record.snapshot.time.saturating_sub(record.snapshot.aggregation));
        let mut recording = RecordingSink::in_memory((*header).clone(), from)?;
        let newest = known.snapshot.map(Event::Snapshot).into_iter().chain(known.survey.map(Event::Survey));
        for event in newest {
            recording.event(&event).map_err(RecordError::Encode)?;
        }
        Ok(Following { recording, events })
    }

    /// The group is watched from now on, by a run whose recordings have this header and that has run for this time.
    pub fn begin(&self, header: Header, from: Duration) {
        let mut known = self.lock();
        let Newest { ref notices, mut sums, .. } = *known;
        sums.runs += 1;
        let notices = notices.clone();
        *known = Newest { header: Some(header.into()), from, notices, sums, ..Newest::default() };
    }

    /// Starts to record to `path`.
    ///
    /// # Errors
    /// If there is no run, or the file cannot be written.
    pub fn record(&self, name: &str, path: &Path) -> Result<(), RecordError> {
        let known = self.known();
        let header = known.header.filter(|_| known.end.is_none()).ok_or(RecordError::NotWatched)?;
        let mut recordings = self.recordings();
        if recordings.named.iter().any(|(known, _)| known == name) {
            return Err(RecordError::Running);
        }
        let from = known.snapshot.map_or(known.from, |record| record.snapshot.time);
        let usage = known.schemes.is_empty();
        recordings.named.push((name.into(), RecordingSink::create(path, (*header).clone(), from, usage)?));
        Ok(())
    }

    /// Starts the recording that the configuration names. The group is watched without it if that fails.
    pub fn record_all(&self, path: &Path) {
        if let Err(error) = self.record("", path) {
            let text = format!("there is no recording {}: {}", path.display(), chain(&error));
            self.note(Notice::new(isotherm_run::Severity::Warning, &text));
        }
    }

    /// Ends a recording. Returns whether there was one of this name.
    ///
    /// # Errors
    /// If its end cannot be written.
    pub fn end_recording(&self, name: &str) -> Result<bool, BoxError> {
        let mut recordings = self.recordings();
        let Some(nth) = recordings.named.iter().position(|(known, _)| known == name) else { return Ok(false) };
        let (_, mut sink) = recordings.named.swap_remove(nth);
        sink.event(&Event::End(EndReason::Stopped))?;
        Ok(true)
    }

    /// The names of the recordings that are being made.
    pub fn recording_names(&self) -> Vec<String> {
        let recordings = self.recordings();
        recordings.named.iter().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()).collect()
    }

    /// Why there is no history at the moment, if it was asked for.
    pub fn history_failure(&self) -> Option<String> {
        self.recordings().history.as_ref().and_then(|history| history.failure().map(str::to_owned))
    }

    /// Notes something that the user may want to know.
    pub fn note(&self, notice: Notice) {
        crate::journal::tell(&notice);
        let mut known = self.lock();
        if known.notices.len() == NOTICES {
            known.notices.pop_front();
        }
        known.notices.push_back((unix_ns(), notice));
    }

    fn lock(&self) -> MutexGuard<'_, Newest> {
        // Each change leaves it whole, so a panic of another thread does not spoil it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recordings(&self) -> MutexGuard<'_, Recordings> {
        self.recordings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, event: &Event) {
        if let Event::Notice(notice) = event {
            return self.note(notice.clone());
        }
        let mut known = self.lock();
        match event {
            Event::Targets(infos) => known.targets = Arc::clone(infos),
            Event::Attributes(attributes) => known.attributes = Some(*attributes),
            Event::Schemes(schemes) => known.schemes = Arc::clone(schemes),
            Event::Snapshot(record) => {
                known.sums.snapshots += 1;
                if let Some(cost) = &record.cost {
                    known.sums.cpu += cost.cpu_time();
                    known.sums.holds += Duration::from_nanos(cost.holds_ns.unwrap_or(0));
                    known.sums.rounds += u64::from(cost.rounds);
                    known.sums.late_rounds += u64::from(cost.late_rounds);
                }
                known.snapshot = Some(Arc::clone(record));
            }
            Event::Survey(record) => {
                known.sums.surveys += 1;
                // One that began before the first targets had joined says nothing of them. Later, it says that those of
                // the survey before have ended, or that no page cache is left.
                if !record.survey.targets.is_empty() || known.targets.is_empty() || known.survey.is_some() {
                    known.survey = Some(Arc::clone(record));
                }
            }
            Event::Panel(panel) => known.panel = Some(Arc::clone(panel)),
            Event::Activity(activity) => known.activity = Some(Arc::clone(activity)),
            Event::Pace { pace, .. } => known.pace = Some(*pace),
            Event::Missed(missed) => {
                known.sums.missed += missed.counts.iter().map(|missed| missed.count).sum::<u64>();
            }
            Event::End(reason) => known.end = Some(reason.clone()),
            Event::Mark(_) | Event::Allocations(_) | Event::Notice(_) => {}
        }
    }

    /// Writes the event to the recordings. One that fails is given up, and the history is tried again later.
    fn record_event(&self, event: &Event) {
        let (header, from, usage) = {
            let known = self.lock();
            (known.header.clone(), known.from, known.schemes.is_empty())
        };
        let mut failed = Vec::new();
        let mut recordings = self.recordings();
        recordings.named.retain_mut(|(name, sink)| match sink.event(event) {
            Ok(()) => !matches!(event, Event::End(_)),
            Err(error) => {
                let path = sink.path().map(|path| path.display().to_string()).unwrap_or_default();
                let name = if name.is_empty() { &path } else { name };
                failed.push(format!("the recording {name} ended early: {}", chain(&*error)));
                false
            }
        });
        if let (Some(history), Some(header)) = (&mut recordings.history, &header) {
            failed.extend(history.event(event, (header, from), usage));
        }
        drop(recordings);
        for text in failed {
            self.note(Notice::new(isotherm_run::Severity::Warning, &text));
        }
    }
}

/// The sink of a run that hands everything to a hub.
pub struct HubSink(pub Arc<Hub>);

impl EventSink for HubSink {
    fn event(&mut self, event: &Event) -> Result<(), BoxError> {
        let Self(hub) = self;
        hub.take_in(event);
        hub.record_event(event);
        if hub.events.receiver_count() > 0 {
            // All receivers may have gone meanwhile.
            let _ = hub.events.send(event.clone());
        }
        // What nobody reads is not made.
        if hub.stream.receiver_count() > 0
            && let Some(streamed) = view::Streamed::new(event, hub.lock().started_unix_ns())
        {
            // All receivers may have gone meanwhile.
            let _ = hub.stream.send(Arc::new(streamed));
        }
        Ok(())
    }
}

/// Why a group cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It has no run.
    #[error("the group is not watched now; resume it first")]
    NotWatched,
    /// A recording of this name is being made.
    #[error("a recording of this name is being made; give another name")]
    Running,
    /// The file cannot be written.
    #[error(transparent)]
    Failed(#[from] RunError),
    /// An event cannot be recorded.
    #[error("what is known of the group cannot be recorded")]
    Encode(#[source] BoxError),
}

#[cfg(test)]
mod tests {
    use isotherm_core::TargetId;
    use isotherm_core::survey::{BlockList, TargetSurvey};
    use isotherm_record::{SurveyRecord, TargetInfo};

    use super::*;

    #[test]
    fn a_first_survey_of_no_target_says_nothing_of_those_that_have_joined_since_and_a_later_one_that_none_is_left() {
        let id = TargetId::process(7, Duration::ZERO);
        let of_target = TargetSurvey {
            id,
            mappings: [].into(),
            by_mapping: vec![],
            by_block: BlockList::default(),
            by_node: vec![],
        };
        let hub = Hub::new(None);
        hub.take_in(&Event::Targets([(id, Arc::new(TargetInfo::default()))].into()));
        let known_after = |targets| {
            let mut record = SurveyRecord::default();
            record.survey.targets = targets;
            hub.take_in(&Event::Survey(Arc::new(record)));
            let known = hub.known();
            (known.sums.surveys, known.survey.map(|record| record.survey.targets.len()))
        };
        assert_eq!(known_after(vec![]), (1, None));
        assert_eq!(known_after(vec![of_target]), (2, Some(1)));
        assert_eq!(known_after(vec![]), (3, Some(0)));
    }
}
