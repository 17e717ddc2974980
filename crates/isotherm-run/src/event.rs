//! The events that a run sends to its sinks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Returns, Scheme};
use isotherm_core::{Allocations, Attributes, Pace, PanelSnapshot};
use isotherm_record::{Activity, Cost, Mark, MissedKind, NotAfforded, SnapshotRecord, SurveyRecord, TargetInfos};

use crate::RunError;

/// One thing that happened in a run. Cloning is cheap: what is large is shared.
#[derive(Clone, Debug)]
pub enum Event {
    /// The targets that are watched from here on: at the start and whenever one joins, leaves or changes its command.
    /// Those that have ended and that the next snapshot still has are among them.
    Targets(TargetInfos),
    /// The attributes in force from here on: at the start and after each change.
    Attributes(Attributes),
    /// The schemes in force from here on, in the order in which activities list them.
    Schemes(Arc<[Scheme]>),
    /// The end of one aggregation interval: all regions, the cost of finding them, and the descriptions of the targets.
    /// In a live run, the histories of pages are left out: surveys have them.
    Snapshot(Arc<SnapshotRecord>),
    /// What a survey of all pages found, about once a survey interval; none if there are no surveys.
    Survey(Arc<SurveyRecord>),
    /// How much memory is in use, with bounds, about once a second from the first second on; none without surveys, or
    /// if the probe cannot read single pages.
    Panel(Arc<PanelSnapshot>),
    /// What the schemes have done since the start, and the memory in use; about once a second while schemes run.
    Activity(Arc<Activity>),
    /// A named moment of the run ([`Control::mark`](crate::Control::mark)).
    Mark(Mark),
    /// Calls of the targets that mapped memory, with their call stacks; none unless the run records them.
    Allocations(Arc<Allocations>),
    /// The intervals that the run has settled on to keep its budget, and the work that the budget does not suffice for,
    /// when one of them has changed.
    Pace {
        /// The intervals that the run has settled on.
        pace: Pace,
        /// The work that the budget does not suffice for. [`Cost`] has it for each snapshot.
        not_afforded: NotAfforded,
    },
    /// Something that the user of the run may want to know.
    Notice(Notice),
    /// Events that this sink did not get, because its queue was full. Comes in the place of the events.
    Missed(Missed),
    /// The run is over. No event follows.
    End(EndReason),
}

impl Event {
    /// When it happened, since the start of the run, if it has a time.
    pub(crate) fn time(&self) -> Option<Duration> {
        match self {
            Self::Snapshot(record) => Some(record.snapshot.time),
            Self::Survey(record) => Some(record.survey.time),
            Self::Panel(panel) => Some(panel.time),
            Self::Activity(activity) => Some(activity.time),
            Self::Mark(mark) => Some(mark.time),
            Self::Allocations(batch) => Some(batch.time),
            Self::Targets(_)
            | Self::Attributes(_)
            | Self::Schemes(_)
            | Self::Pace { .. }
            | Self::Notice(_)
            | Self::Missed(_)
            | Self::End(_) => None,
        }
    }

    /// Calls `change` with each time since the start of the run that it has.
    pub(crate) fn each_time(&mut self, mut change: impl FnMut(&mut Duration)) {
        match self {
            Self::Snapshot(record) => change(&mut Arc::make_mut(record).snapshot.time),
            Self::Survey(record) => change(&mut Arc::make_mut(record).survey.time),
            Self::Panel(panel) => change(&mut Arc::make_mut(panel).time),
            Self::Activity(activity) => {
                let activity = Arc::make_mut(activity);
                change(&mut activity.time);
                activity.schemes.iter_mut().for_each(|report| change(&mut report.last.time));
            }
            Self::Mark(mark) => change(&mut mark.time),
            Self::Allocations(batch) => {
                let batch = Arc::make_mut(batch);
                change(&mut batch.time);
                batch.calls.iter_mut().for_each(|call| change(&mut call.time));
            }
            Self::Targets(_)
            | Self::Attributes(_)
            | Self::Schemes(_)
            | Self::Pace { .. }
            | Self::Notice(_)
            | Self::Missed(_)
            | Self::End(_) => {}
        }
    }
}

/// A message to the user of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How serious it is.
    pub severity: Severity,
    /// What happened, in a sentence.
    pub text: Arc<str>,
    /// What it is about, for a program.
    pub kind: NoticeKind,
}

/// What a notice is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Nothing beyond its text.
    Other,
    /// Too much of the memory that a scheme freed came back soon, or no longer does.
    Returns(Returns),
    /// An optional sink failed, and gets no further events ([`Need::Optional`](crate::Need::Optional)).
    Detached {
        /// The name of the sink.
        sink: Arc<str>,
    },
}

impl NoticeKind {
    /// Whether it is about a sink that failed.
    pub fn is_detached(&self) -> bool {
        matches!(self, Self::Detached { .. })
    }
}

impl Notice {
    /// A notice that has no more to say than its text.
    pub fn new(severity: Severity, text: &str) -> Self {
        Self { severity, text: text.into(), kind: NoticeKind::Other }
    }

    /// The notice that an optional sink failed, and why.
    pub(crate) fn detached(sink: &str, why: &str) -> Self {
        let text = format!("{why}; the run goes on without it");
        Self { kind: NoticeKind::Detached { sink: sink.into() }, ..Self::new(Severity::Warning, &text) }
    }
}

/// How serious a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something went as it was asked for.
    Info,
    /// Something went differently than it was asked for.
    Warning,
}

/// The events that one sink did not get, and the processes that were not observed.
///
/// What is in force (targets, attributes, schemes, the pace) is not among them: the newest of each follows. Neither is
/// what schemes did: activities are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// How many of each kind, with the time of the last of the kind.
    pub counts: Vec<isotherm_record::Missed>,
    /// The sum of the costs of the missed snapshots, so that sums over a run stay right.
    pub cost: Cost,
}

impl Missed {
    /// Counts further things of a kind, the last of which was at `time`.
    pub(crate) fn count(&mut self, kind: MissedKind, time: Duration, count: u64) {
        match self.counts.iter_mut().find(|known| known.kind == kind) {
            Some(known) => (known.time, known.count) = (known.time.max(time), known.count.saturating_add(count)),
            None => self.counts.push(isotherm_record::Missed { time, kind, count }),
        }
    }

    /// Adds what another one has missed.
    pub(crate) fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|other| self.count(other.kind, other.time, other.count));
        self.cost.add(&other.cost);
    }

    /// Whether nothing was missed.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// What was missed, by kind: `3 snapshots, 1 survey`.
impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.counts.iter().map(|missed| missed.kind.counted(missed.count));
        f.write_str(&counted.collect::<Vec<_>>().join(", "))
    }
}

/// Why a run is over.
#[derive(Clone, Debug)]
pub enum EndReason {
    /// The last target has ended, the simulation or the recording is over.
    Finished,
    /// The duration that was asked for is over.
    DurationOver,
    /// [`Control::stop`](crate::Control::stop) was called.
    Stopped,
    /// The run failed.
    Failed(Arc<RunError>),
}

impl EndReason {
    /// Whether the run failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("no target is left"),
            Self::DurationOver => f.write_str("the time is over"),
            Self::Stopped => f.write_str("the run was stopped"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}
