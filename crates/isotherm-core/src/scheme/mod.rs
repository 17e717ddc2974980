//! Schemes: act on memory by its temperature.
//!
//! A [`Scheme`] is a [`Condition`] on regions and an [`Action`], with a [`Quota`], [`Watermarks`] and [`Filter`]s. [`Schemes`] is a
//! [`Sink`](crate::Sink) that owns an [`Actuator`]: it takes snapshots and acts, and tells in [`Report`]s what it did. It never
//! touches the monitor: that the age of memory starts again after an action is remembered here.
//!
//! What always holds: no period sees more bytes than the quota; nothing outside the mappings of the snapshot is acted on, and
//! no page that a filter rejects; the same snapshots and answers make the same actions.

mod action;
mod actuator;
mod application;
mod budget;
mod candidates;
mod condition;
mod dry_run;
mod engine;
mod filter;
mod gauge;
mod history;
mod inspector;
mod priority;
mod quota;
mod refusal;
mod report;
mod tuner;
mod watermarks;

use std::sync::Arc;
use std::time::Duration;

pub use action::{Action, ActionKind, HUGE_PAGE_SIZE, Order};
pub use actuator::{Actuator, Outcome, Work};
pub use condition::{ClosedInterval, Condition};
pub use dry_run::{DryRunActuator, DryRunInspector};
pub use engine::{Schemes, Unsupported};
pub use filter::{Filter, FilterKind, Pattern};
pub use gauge::{Gauges, Metric, NoGauges};
pub use inspector::{PageInspector, PageKind, ProcessFacts};
pub use quota::{Goal, GoalError, Quota, QuotaError, Weights};
pub use refusal::{Refusal, RefusalReason};
pub use report::{ActedRegion, Application, RefusalCount, Report, ReportedAction, Statistics};
pub use watermarks::{Watermarks, WatermarksError};

/// What memory is wanted, what is to be done to it, and within which bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    /// What it is called in reports.
    pub name: Arc<str>,
    /// Which regions it wants.
    pub condition: Condition,
    /// What it does to them.
    pub action: Action,
    /// Whether the action may be carried out by a call made inside the target.
    pub inside: bool,
    /// The least time between two applications; none for each aggregation.
    pub apply_interval: Option<Duration>,
    /// How much it may do.
    pub quota: Quota,
    /// When it sleeps; none for never.
    pub watermarks: Option<Watermarks>,
    /// Which memory it may act on, by other properties than temperature.
    pub filters: Vec<Filter>,
}

impl Scheme {
    /// A scheme without quota, watermarks or filters, applied at each aggregation.
    pub fn new(name: &str, condition: Condition, action: Action) -> Self {
        Self {
            name: name.into(),
            condition,
            action,
            inside: false,
            apply_interval: None,
            quota: Quota::UNLIMITED,
            watermarks: None,
            filters: Vec::new(),
        }
    }

    /// The kinds of pages that its filters ask for.
    pub fn page_kinds(&self) -> impl Iterator<Item = PageKind> {
        self.filters.iter().filter_map(|filter| filter.kind.pages())
    }

    /// The metrics that its goals and watermarks go by.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.quota.goals().iter().map(Goal::metric).chain(self.watermarks.iter().map(Watermarks::metric))
    }
}
