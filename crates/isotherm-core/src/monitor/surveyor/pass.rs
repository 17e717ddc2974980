//! A survey that is under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::parties::Parties;
use crate::survey::{
    ClearPages, Credit, HistoryUpdate, Learned, Memos, PageHistory, PartUpdate, SurveyCost, TargetSurvey, Windows,
};
use crate::{TargetId, TargetSpace};

/// A target that was read to its end.
pub(super) struct Surveyed {
    pub(super) space: TargetSpace,
    pub(super) history: Arc<PageHistory>,
    /// What the survey has found in it.
    pub(super) found: TargetSurvey,
}

/// A survey that has begun.
pub(super) struct Pass {
    /// The targets that no part has begun to read.
    pub(super) waiting: VecDeque<TargetSpace>,
    /// The target that is being read.
    pub(super) reading: Option<Reading>,
    /// The targets that were read to their end.
    pub(super) surveyed: Vec<Surveyed>,
    /// How many pages of them are present, and how many there were of all targets at the survey before.
    pub(super) present: u64,
    pub(super) present_before: u64,
    /// How many targets that join are read, too.
    pub(super) joins: usize,
    /// Whether nothing was known before.
    pub(super) is_first: bool,
    pub(super) learned: Learned,
    pub(super) memos: Memos,
    /// What is added up.
    pub(super) parties: Parties,
    pub(super) cost: SurveyCost,
    /// How many of the pages that are cleared from now on may be accessed again.
    pub(super) credit: Credit,
    /// How many pages may be cleared from now on.
    pub(super) clears: f64,
    /// How many pages of the waiting targets may have to be cleared, as the previous survey says.
    pub(super) wanted_waiting: f64,
}

/// A target that is being read.
pub(super) struct Reading {
    pub(super) space: TargetSpace,
    pub(super) stage: Stage,
    /// The windows of the survey.
    pub(super) windows: Windows,
    /// How many pages it had at the survey before.
    pub(super) before: u64,
}

/// How far a target was read.
pub(super) enum Stage {
    /// The part that begins here is read next.
    Between(HistoryUpdate, u64),
    /// A part was read, and these pages of it are still to be cleared.
    Part(PartUpdate, Vec<ClearPages>, Next),
    /// The target was read to its end.
    Read(HistoryUpdate),
}

/// Where the part after the one under way begins. `None` if that is the last one.
pub(super) type Next = Option<u64>;

impl Stage {
    /// After a part.
    pub(super) fn after(update: HistoryUpdate, next: Next) -> Self {
        match next {
            Some(from) => Self::Between(update, from),
            None => Self::Read(update),
        }
    }
}

impl Pass {
    /// Whether all targets were read.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_none()
    }

    /// Takes in the targets as they are now: drops those that have ended, and reads next those that have joined.
    ///
    /// If they join as fast as they are read, the survey would never end. So a part of them waits for the next one.
    pub(super) fn follow(&mut self, spaces: Vec<TargetSpace>) {
        let mut living: BTreeMap<TargetId, TargetSpace> = spaces.into_iter().map(|space| (space.id, space)).collect();
        let mut renew = |space: &mut TargetSpace| living.remove(&space.id).map(|now| *space = now).is_some();
        self.waiting.retain_mut(&mut renew);
        let ended = self.surveyed.extract_if(.., |surveyed| !renew(&mut surveyed.space));
        ended.for_each(|surveyed| self.parties.ended(&surveyed.found));
        self.reading.take_if(|reading| !renew(&mut reading.space));
        self.join(living.into_values());
    }

    /// Reads next these targets, which have joined, as far as they may be read in this survey.
    pub(super) fn join(&mut self, joined: impl IntoIterator<Item = TargetSpace>) {
        for joined in joined.into_iter().take(self.joins) {
            self.waiting.push_front(joined);
            self.joins -= 1;
        }
    }
}
