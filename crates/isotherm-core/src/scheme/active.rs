//! A scheme in force.

use std::time::Duration;

use crate::Snapshot;
use crate::tiering::Waiting;

use super::backoff::Rejections;
use super::budget::QuotaUse;
use super::candidates::Cursor;
use super::cgroup_limit::InUse;
use super::history::ActionHistory;
use super::returned::CameBack;
use super::victims::Victims;
use super::watermarks::WatermarkState;
use super::{Report, Scheme};

/// A scheme that takes idle pages is applied this often between two surveys, at least.
const BETWEEN_SURVEYS: Duration = Duration::from_secs(1);

/// A scheme in force, and what it has done.
pub(super) struct ActiveScheme {
    pub(super) scheme: Scheme,
    /// The index of the scheme whose quota it shares.
    pub(super) owner: Option<usize>,
    /// The indices of the schemes for whose memory it makes room.
    pub(super) makes_room_for: Vec<usize>,
    /// The hot memory that its last application had to leave for want of room.
    pub(super) waiting: Waiting,
    pub(super) watermarks: WatermarkState,
    pub(super) budget: QuotaUse,
    pub(super) cursor: Cursor,
    pub(super) applied_at: Option<Duration>,
    pub(super) victims: Victims,
    /// What has come back recently of the memory that it freed.
    pub(super) returned: CameBack,
    /// When memory was found where the scheme would move it to.
    pub(super) in_place: ActionHistory,
    /// When memory was checked once more: hot memory that was not accessed again, and cold memory that was.
    pub(super) not_again: ActionHistory,
    /// What its filters have rejected.
    pub(super) rejections: Rejections,
    /// How much memory its targets use, if it sets limits of cgroups.
    pub(super) in_use: InUse,
    /// Whether too much of the memory that it freed came back recently.
    pub(super) returning: bool,
    pub(super) report: Report,
}

impl ActiveScheme {
    pub(super) fn new(scheme: Scheme) -> Self {
        let report = Report::new(scheme.name.clone(), scheme.action);
        let budget = QuotaUse::new(&scheme.quota);
        Self {
            scheme,
            owner: None,
            makes_room_for: Vec::new(),
            waiting: Waiting::default(),
            watermarks: WatermarkState::NEW,
            budget,
            cursor: None,
            applied_at: None,
            victims: Victims::default(),
            returned: CameBack::default(),
            in_place: ActionHistory::default(),
            not_again: ActionHistory::default(),
            rejections: Rejections::default(),
            in_use: InUse::default(),
            returning: false,
            report,
        }
    }

    /// Puts another scheme of the same name in its place. The report continues, and so does the use of the quota in
    /// this period.
    pub(super) fn replace(&mut self, scheme: Scheme) {
        if scheme.quota != self.scheme.quota {
            self.budget.replace(&scheme.quota);
        }
        if scheme.watermarks != self.scheme.watermarks {
            self.watermarks = WatermarkState::NEW;
        }
        if scheme.action != self.scheme.action {
            self.in_place = ActionHistory::default();
            self.not_again = ActionHistory::default();
        }
        if scheme.filters != self.scheme.filters {
            self.rejections = Rejections::default();
        }
        self.report.action = scheme.action.into();
        self.scheme = scheme;
    }

    /// Whether the apply interval has passed. Half an aggregation is added, since snapshots come at a distance of one.
    ///
    /// Between two surveys, the same pages are idle. So a scheme that takes idle pages is applied after each survey,
    /// and in between once a second or as often as its quota begins anew.
    pub(super) fn is_due(&self, snapshot: &Snapshot) -> bool {
        let surveyed = snapshot.histories.iter().map(|(_, history)| history.time()).max();
        let takes_idle_pages = self.scheme.action.takes_away() && !self.scheme.unobserved;
        let between = surveyed.filter(|_| takes_idle_pages).is_some_and(|surveyed| self.applied_at > Some(surveyed));
        let by_itself = between.then(|| BETWEEN_SURVEYS.min(self.scheme.quota.period()));
        let (Some(last), Some(interval)) = (self.applied_at, self.scheme.apply_interval.or(by_itself)) else {
            return true;
        };
        snapshot.time + snapshot.aggregation / 2 >= last.saturating_add(interval)
    }
}
