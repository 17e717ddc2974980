//! Reports: what each scheme has done.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, NodeId, TargetId};

use super::{Action, Destinations, Refusal, Watermarks};

/// What a scheme has done since the start of the run, and its last application.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The name of the scheme.
    pub name: Arc<str>,
    /// The action of the scheme.
    pub action: ReportedAction,
    /// Whether the scheme is awake by its watermarks.
    pub awake: bool,
    /// How many bytes the quota allows in a period now, by all its limits. `None` if nothing limits it.
    pub quota: Option<u64>,
    /// How far the goals are reached; 1 is exactly. `None` without goals, or if no metric of theirs has a value.
    pub goal_score: Option<f64>,
    /// The share of the quota that is in force, above 0 and below 1, because too much of what the scheme freed came
    /// back soon. `None` if all of it is in force, or nothing limits the scheme.
    pub quota_share: Option<f64>,
    /// The sums since the start of the run.
    pub total: Statistics,
    /// The last application; default values if there was none.
    pub last: Application,
}

impl Report {
    /// That of a scheme that has done nothing yet.
    pub fn new(name: impl Into<Arc<str>>, action: impl Into<ReportedAction>) -> Self {
        Self {
            name: name.into(),
            action: action.into(),
            awake: true,
            quota: None,
            goal_score: None,
            quota_share: None,
            total: Statistics::default(),
            last: Application::default(),
        }
    }
}

/// An action as a report names it. It need not be one that this version can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAction {
    /// The name of its kind.
    pub name: Cow<'static, str>,
    /// The node that it moves memory to, if it moves memory to one node that the scheme names.
    pub target_node: Option<NodeId>,
}

impl From<Action> for ReportedAction {
    fn from(action: Action) -> Self {
        let target_node = action.destinations().and_then(Destinations::single);
        Self { name: Cow::Borrowed(action.name()), target_node }
    }
}

impl fmt::Display for ReportedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Sums of what a scheme has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How often the scheme was applied to a snapshot.
    pub applications: u64,
    /// Regions, or parts of regions, that matched the condition, that no filter rejected as a whole, and that the
    /// quota allowed.
    pub tried_regions: u64,
    /// Bytes of these regions, before filters inspected their pages.
    pub tried_bytes: u64,
    /// Bytes of these regions that all filters allowed. For these the action was called, and these count for the quota,
    /// except those that an action between nodes found in their place.
    pub passed_bytes: u64,
    /// Ranges that the action was carried out on, wholly or in part.
    pub applied_regions: u64,
    /// Bytes that the action was carried out on.
    pub applied_bytes: u64,
    /// Bytes that the action unmapped from their target, and that are in memory nevertheless, for example because they
    /// are changed pages of a file. Zero for actions that do not free memory.
    pub unmapped_bytes: u64,
    /// The freed or moved bytes that were watched until the end of their time. Zero for actions that do neither.
    pub watched_bytes: u64,
    /// The part of `watched_bytes` that was in memory again, or moved back by another scheme, within its time.
    pub returned_bytes: u64,
    /// Bytes that matched the condition and that a filter rejected. Memory that stays as it is counts once.
    pub rejected_bytes: u64,
    /// Bytes that the system refused to act on, by reason.
    pub refusals: Vec<RefusalCount>,
    /// The number of periods in which the quota did not suffice.
    pub quota_exceeded: u64,
    /// The time of the actions and of inspecting pages for the filters.
    pub time: Duration,
}

/// How much of what a scheme freed or moved came back, when that began or ceased to be too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returns {
    /// The name of the scheme.
    pub scheme: Arc<str>,
    /// Whether the scheme moves memory between nodes, so that what came back was moved back.
    pub moved: bool,
    /// Whether too much came back: more than a tenth.
    pub too_much: bool,
    /// Bytes that the scheme freed or moved, and whose time is over since the last judgement.
    pub freed: u64,
    /// How many of them came back within their time.
    pub returned: u64,
    /// That time: a minute for memory that was moved, else the least age that the scheme asks for, at most a minute.
    pub window: Duration,
    /// Whether the scheme has a quota, and less than that is in force now.
    pub slowed: bool,
}

/// A scheme that its watermarks have put to sleep, or woken.
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    /// The name of the scheme.
    pub scheme: Arc<str>,
    /// Whether it is awake now.
    pub awake: bool,
    /// The value of the metric.
    pub value: f64,
    /// Its watermarks.
    pub watermarks: Watermarks,
}

/// What was refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCount {
    /// The reason.
    pub refusal: Refusal,
    /// The name of a reason that this version does not know. The reason of `refusal` is then [`RefusalReason::Other`].
    ///
    /// [`RefusalReason::Other`]: super::RefusalReason::Other
    pub unknown_reason: Option<Arc<str>>,
    /// Ranges that were refused, wholly or in part.
    pub regions: u64,
    /// Bytes that were refused.
    pub bytes: u64,
}

impl Statistics {
    pub(crate) fn refuse(&mut self, refusal: Refusal, bytes: u64) {
        match self.refusals.iter_mut().find(|known| known.refusal == refusal) {
            Some(known) => {
                known.regions += 1;
                known.bytes += bytes;
            }
            None => self.refusals.push(RefusalCount { refusal, unknown_reason: None, regions: 1, bytes }),
        }
    }

    /// Bytes that were refused, for all reasons.
    pub fn refused_bytes(&self) -> u64 {
        self.refusals.iter().map(|count| count.bytes).sum()
    }
}

/// One application of a scheme to a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Application {
    /// The time of the snapshot, since the start of the run.
    pub time: Duration,
    /// The ranges that the scheme acted on, in this order.
    pub regions: Vec<ActedRegion>,
    /// Bytes that the quota held back. Filters have not inspected their pages.
    pub held_back_bytes: u64,
    /// Mapped bytes that were left out because they could not be observed, of regions whose size matches the condition.
    pub unobservable_bytes: u64,
}

/// A range that a scheme acted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActedRegion {
    /// The target.
    pub target: TargetId,
    /// The range.
    pub range: AddrRange,
    /// Bytes of the range that the action was carried out on.
    pub applied: u64,
}
