//! Reports: what each scheme did, beside the snapshot.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, NodeId, TargetId};

use super::{Action, Refusal};

/// What one scheme has done since the start of the run, and what its last application was.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The scheme's name.
    pub name: Arc<str>,
    /// What it does.
    pub action: ReportedAction,
    /// Whether its watermarks let it work.
    pub awake: bool,
    /// How much the quota allows in a period now, in bytes, all limits together; none if nothing limits it.
    pub quota: Option<u64>,
    /// How far its goals are reached, 1 being just so; none without goals, or as long as their metrics are not known.
    pub goal_score: Option<f64>,
    /// Since the start of the run.
    pub total: Statistics,
    /// The last application; the default if there was none yet.
    pub last: Application,
}

/// An action as a report names it. It need not be one that this version can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAction {
    /// The name of its kind.
    pub name: Cow<'static, str>,
    /// The node that it moves memory to, if it moves any.
    pub target_node: Option<NodeId>,
}

impl From<Action> for ReportedAction {
    fn from(action: Action) -> Self {
        Self { name: Cow::Borrowed(action.kind().name()), target_node: None }
    }
}

impl fmt::Display for ReportedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a scheme did, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How often it was applied: how often regions were looked for.
    pub applications: u64,
    /// Regions, or pieces of them, that it wanted, that the quota allowed, and that no filter rejected whole.
    pub tried_regions: u64,
    /// Bytes of them, before filters looked at their pages.
    pub tried_bytes: u64,
    /// Bytes of them that all filters let pass: what the action was called for. The quota holds for these.
    pub passed_bytes: u64,
    /// Ranges that the action was carried out on, at least in part.
    pub applied_regions: u64,
    /// Bytes that it was carried out on.
    pub applied_bytes: u64,
    /// Bytes that it wanted and a filter rejected.
    pub rejected_bytes: u64,
    /// What was refused, by reason.
    pub refusals: Vec<RefusalCount>,
    /// In how many periods the quota did not suffice.
    pub quota_exceeded: u64,
    /// Time that its actions took, and looking at pages for its filters.
    pub time: Duration,
}

/// What was refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCount {
    /// Why.
    pub refusal: Refusal,
    /// The name of a reason that this version does not know. The reason of `refusal` is then [`RefusalReason::Other`].
    ///
    /// [`RefusalReason::Other`]: super::RefusalReason::Other
    pub unknown_reason: Option<Arc<str>>,
    /// Ranges that were refused, at least in part.
    pub regions: u64,
    /// Bytes of them.
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

    /// Bytes that were refused, for whatever reason.
    pub fn refused_bytes(&self) -> u64 {
        self.refusals.iter().map(|count| count.bytes).sum()
    }
}

/// One application of a scheme.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Application {
    /// When, since the start of the run.
    pub time: Duration,
    /// What it acted on, in the order in which it did.
    pub regions: Vec<ActedRegion>,
    /// Bytes that it wanted and the quota held back; what filters would have said of pages in them is not known.
    pub held_back_bytes: u64,
    /// Mapped bytes of regions of a size that it wants that were left alone because their temperature could not be observed.
    pub unobservable_bytes: u64,
}

/// A range that a scheme acted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActedRegion {
    /// Whose memory.
    pub target: TargetId,
    /// Where.
    pub range: AddrRange,
    /// Bytes of it that the action was carried out on.
    pub applied: u64,
}
