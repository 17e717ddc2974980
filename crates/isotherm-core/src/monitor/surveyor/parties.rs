//! What a survey adds up: the memory of all targets, or of those of each party, with each page counted once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::survey::{
    Accessed, Begun, BlockFrames, ByNode, CountedOnce, NodeSums, PageSums, PartUpdate, PartySums, TargetSurvey,
    TotalSums, Windows,
};
use crate::{TargetId, TargetSpace};

/// The number of a party. `None` stands for all targets together.
type Number = Option<u32>;

/// What each party has seen of page frames. Between surveys, it keeps the memory for that.
pub(super) type FramesSeen = BTreeMap<Number, CountedOnce>;

/// The sums of some targets. A page that several of them share counts for each.
#[derive(Default)]
struct TargetSums {
    sums: PageSums,
    by_node: ByNode,
    /// The part of the sums that is estimated.
    uncertain: Accessed,
    begun: Begun,
    targets: usize,
}

impl TargetSums {
    fn add(&mut self, target: &TargetSurvey) {
        self.sums += target.total();
        self.by_node.add_all(&target.by_node);
        target.by_block.uncertain().iter().for_each(|uncertain| self.uncertain.add(uncertain));
        target.by_block.begun().into_iter().for_each(|begun| self.begun.add_target(begun));
        self.targets += 1;
    }
}

/// What the parties of a survey have so far.
#[derive(Default)]
pub(super) struct Parties {
    /// The parties of each target, if there are parties.
    of: Option<BTreeMap<TargetId, Arc<[u32]>>>,
    /// Which page frames were seen. A party without an entry has one target, or its frames are not known.
    once: FramesSeen,
    /// What was found in targets that have ended since they were read.
    ended: BTreeMap<Number, TargetSums>,
}

/// What a survey has added up.
pub(super) struct Added {
    /// All targets together. `None` if that is not known.
    pub(super) total: Option<TotalSums>,
    pub(super) by_node: Vec<NodeSums>,
    pub(super) by_party: Vec<PartySums>,
    /// For each party, how many bytes count more than once in the sums of the targets.
    pub(super) counted_again: BTreeMap<Number, u64>,
}

impl Parties {
    /// Begins a survey of these targets, each with its parties if there are parties. `once` is what the survey before
    /// has [returned](Self::end).
    pub(super) fn begin(
        spaces: &[TargetSpace],
        of: Option<BTreeMap<TargetId, Arc<[u32]>>>,
        mut once: FramesSeen,
    ) -> Self {
        let mut targets: BTreeMap<Number, Vec<&TargetSpace>> = BTreeMap::new();
        for space in spaces {
            match &of {
                Some(of) => {
                    let parties = of.get(&space.id).into_iter().flat_map(|parties| parties.iter());
                    parties.for_each(|party| targets.entry(Some(*party)).or_default().push(space));
                }
                None => targets.entry(None).or_default().push(space),
            }
        }
        targets.retain(|_, spaces| spaces.len() > 1);
        once.retain(|party, _| targets.contains_key(party));
        for (party, spaces) in targets {
            once.entry(party).or_default().begin(spaces);
        }
        Self { of, once, ended: BTreeMap::new() }
    }

    /// The parties of a target.
    fn of(&self, target: TargetId) -> Vec<Number> {
        match &self.of {
            Some(of) => of.get(&target).into_iter().flat_map(|parties| parties.iter().copied().map(Some)).collect(),
            None => vec![None],
        }
    }

    /// Takes in the parties of a target that has joined.
    pub(super) fn join(&mut self, target: TargetId, parties: impl FnOnce() -> Arc<[u32]>) {
        if let Some(of) = &mut self.of {
            of.entry(target).or_insert_with(parties);
        }
    }

    /// Whether page frames are counted for this target.
    pub(super) fn counts(&self, target: TargetId) -> bool {
        self.of(target).iter().any(|party| self.once.contains_key(party))
    }

    /// Adds the page frames of a block of a target.
    pub(super) fn add_frames(
        &mut self,
        space: &TargetSpace,
        part: &PartUpdate,
        windows: &Windows,
        frames: &BlockFrames<'_>,
    ) {
        for party in self.of(space.id) {
            if let Some(once) = self.once.get_mut(&party) {
                part.count_once(once, windows, frames, &space.mappings);
            }
        }
    }

    /// Page frames are not known.
    pub(super) fn forget_frames(&mut self) {
        self.once.clear();
    }

    /// Takes in what was found in a target that has ended. Its page frames were counted, too.
    pub(super) fn ended(&mut self, found: &TargetSurvey) {
        for party in self.of(found.id) {
            self.ended.entry(party).or_default().add(found);
        }
    }

    /// Adds up what was found in the targets. Returns it with the memory for the next survey.
    pub(super) fn end(mut self, targets: &[TargetSurvey]) -> (Added, FramesSeen) {
        let mut all = std::mem::take(&mut self.ended);
        for target in targets {
            self.of(target.id).into_iter().for_each(|party| all.entry(party).or_default().add(target));
        }
        let mut added =
            Added { total: None, by_node: Vec::new(), by_party: Vec::new(), counted_again: BTreeMap::new() };
        for (party, found) in all {
            let by_node = found.by_node.into_sums();
            let (total, by_node) = match self.once.get(&party) {
                Some(once) => {
                    let total = once.total(found.sums, &found.uncertain, &found.begun);
                    let on_node = |sums| once.on_node(sums, &found.uncertain, &found.begun);
                    (Some(total), by_node.into_iter().map(on_node).collect())
                }
                None if found.targets > 1 => (None, Vec::new()),
                None => (Some(TotalSums { sums: found.sums, shared: 0 }), by_node),
            };
            let again = total.map_or(0, |total| found.sums.figures.present.saturating_sub(total.sums.figures.present));
            added.counted_again.insert(party, again);
            match party {
                Some(party) => added.by_party.push(PartySums { party, total, by_node }),
                None => (added.total, added.by_node) = (total, by_node),
            }
        }
        if self.of.is_none() && targets.is_empty() && added.total.is_none() {
            added.total = Some(TotalSums::default());
        }
        (added, self.once)
    }
}
