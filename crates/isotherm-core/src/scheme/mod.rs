//! Schemes: actions on memory by its access frequency and age.
//!
//! A [`Scheme`] is a [`Condition`] on regions and an [`Action`], with a [`Quota`], [`Watermarks`] and [`Filter`]s.
//! [`Schemes`] is a [`Sink`](crate::Sink) that takes snapshots, acts through an [`Actuator`], and reports in a
//! [`Report`] for each scheme what it did. It asks a [`PageInspector`] for properties of pages and processes, and
//! [`Gauges`] for figures of the system. It never changes the monitor: it keeps its own record of the memory whose age
//! starts again after an action.
//!
//! Guarantees:
//! - In no period is an action called for more bytes than the quota allows, and all schemes together keep to their
//!   [`Limits`].
//! - In no period that begins with too much pressure, too many refaults or returns, by its goals, does a scheme act.
//!   The limits of cgroups that it has let down are raised then.
//! - While more than a tenth of the memory that a scheme frees or moves comes back soon, less of its quota is in force.
//! - Memory that was moved to another node is not moved back at once.
//! - Memory that cannot be freed is tried again after twice the time, each time.
//! - No action is called for memory outside the mappings of the snapshot, or for a page that a filter rejects.
//! - The same snapshots and the same answers give the same actions.

mod action;
mod active;
mod actuator;
mod application;
mod backoff;
mod budget;
mod candidates;
mod cgroup_limit;
mod condition;
mod destination;
mod dry_run;
mod effective;
mod elsewhere;
mod engine;
mod filter;
mod gauge;
mod history;
mod inspector;
mod limits;
mod locks;
mod moved;
mod priority;
mod quota;
mod refusal;
mod report;
mod returned;
mod slowdown;
mod tuner;
mod victims;
mod watermarks;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::tiering::LOOKS;

pub(crate) use action::Reach;
pub use action::{Action, First, Moves, Order, Reclaim};
pub use actuator::{Actuator, CacheWork, Outcome, Work};
pub use cgroup_limit::{CgroupLimit, TargetUse, WantedLimits};
pub use condition::{ClosedInterval, Condition};
pub use destination::{DestinationError, Destinations, HUGE_PAGE_SIZE, MOST_DESTINATIONS};
pub use dry_run::{DryRunActuator, DryRunInspector};
pub use elsewhere::{Elsewhere, IdlePlace};
pub use engine::{Schemes, Unsupported};
pub use filter::{Filter, FilterKind, Pattern};
pub use gauge::{CgroupPressure, Feed, Gauges, Metric, NoGauges, NodePart, PressureWindow, WORKING_SET, Waiting};
pub use inspector::{PageInspector, PageKind, ProcessFacts};
pub use limits::{Limits, TakenOut};
pub use quota::{Goal, GoalError, Quota, QuotaError, SharedQuotaError, Weights};
pub use refusal::{Refusal, RefusalReason};
pub use report::{ActedRegion, Application, RefusalCount, Report, ReportedAction, Returns, Statistics, Wake};
pub use returned::CameBack;
pub use watermarks::{Watermarks, WatermarksError};

/// Which memory is acted on, by which action, and within which limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    /// The name in reports. It is unique among the schemes of a run.
    pub name: Arc<str>,
    /// Which regions the scheme acts on.
    pub condition: Condition,
    /// What the scheme does to them.
    pub action: Action,
    /// How many looks must have found hot memory accessed before it is moved to another node: 1 or 2.
    pub looks: u32,
    /// For how long memory must be idle in which no access was ever found, before it is moved to another node as cold
    /// memory. `None` if its age must match as that of other memory.
    pub never_accessed: Option<Duration>,
    /// The names of schemes that move hot memory. Where it has to wait for room, this scheme moves memory that two
    /// surveys have found idle, whatever its age and the goals, if the hot memory is used more by a margin.
    pub makes_room_for: Vec<Arc<str>>,
    /// Whether an action that takes memory away may also take memory that could not be observed. Then it counts as idle
    /// for as long as its region.
    pub unobserved: bool,
    /// Whether the action may be carried out by a call made inside the target.
    pub inside: bool,
    /// The least time from one application to the next. `None` applies the scheme at each aggregation.
    pub apply_interval: Option<Duration>,
    /// How much the scheme may do.
    pub quota: Quota,
    /// When the scheme sleeps. `None` for never.
    pub watermarks: Option<Watermarks>,
    /// Which memory the scheme may act on, by other properties than access frequency and age.
    pub filters: Vec<Filter>,
}

/// The longest aggregation interval of a run with schemes.
const MOST_AGGREGATION: Duration = Duration::from_secs(1);

/// An age is known to an aggregation. It is to be known to this part of the age that a condition is about.
const AGE_PARTS: u32 = 5;

impl Scheme {
    /// A scheme without quota, watermarks and filters. It is applied at each aggregation, and not by calls inside
    /// the target.
    pub fn new(name: &str, condition: Condition, action: Action) -> Self {
        Self {
            name: name.into(),
            condition,
            action,
            looks: LOOKS,
            never_accessed: None,
            makes_room_for: Vec::new(),
            unobserved: false,
            inside: false,
            apply_interval: None,
            quota: Quota::UNLIMITED,
            watermarks: None,
            filters: Vec::new(),
        }
    }

    /// The longest aggregation interval with which the scheme still acts in time, if the sampling interval changes with
    /// it. `None` if the scheme compares access rates, which are about the sampling interval that it was written for.
    pub fn longest_aggregation(&self) -> Option<Duration> {
        (!self.condition.compares_rates()).then(|| self.longest_in_time())
    }

    /// The longest aggregation interval with which the scheme still acts in time: a second, or less if its times are
    /// short.
    pub fn longest_in_time(&self) -> Duration {
        let age = self.condition.age;
        let ages = [age.min(), age.max()].into_iter().filter(|age| !age.is_zero()).map(|age| age / AGE_PARTS);
        let others = self.apply_interval.into_iter().chain([self.quota.period(), MOST_AGGREGATION]);
        ages.chain(others).min().unwrap_or(MOST_AGGREGATION)
    }

    /// The kinds of pages that the filters need.
    pub fn page_kinds(&self) -> impl Iterator<Item = PageKind> {
        self.filters.iter().filter_map(|filter| filter.kind.pages())
    }

    /// The metrics that the goals and the watermarks need.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.quota.goals().iter().map(Goal::metric).chain(self.watermarks.iter().map(Watermarks::metric))
    }
}

/// Why a scheme cannot make room for another one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MakesRoomError {
    /// There is no scheme of this name before the one that is to make room for it.
    #[error("no scheme before this one has the name {0:?}; a scheme makes room for earlier schemes only")]
    NotBefore(Arc<str>),
    /// The scheme of this name does not move hot memory to another node.
    #[error("the scheme {0:?} does not move hot memory to another node; name one with promote or migrate_hot")]
    NotHot(Arc<str>),
}

impl MakesRoomError {
    /// The index of the scheme of this name among those that come before the one that makes room for it.
    ///
    /// # Errors
    /// If it is not among them, or does not move hot memory.
    pub fn check<'a>(name: &Arc<str>, before: impl IntoIterator<Item = &'a Scheme>) -> Result<usize, Self> {
        let named = before.into_iter().enumerate().find(|(_, scheme)| scheme.name == *name);
        let (index, scheme) = named.ok_or_else(|| Self::NotBefore(name.clone()))?;
        (scheme.action.moves() == Some(Moves::Hot)).then_some(index).ok_or_else(|| Self::NotHot(name.clone()))
    }
}
