//! The part of an event that is about some of the targets.

use std::sync::Arc;

use isotherm_core::survey::{SurveyCost, SurveySnapshot, TargetSurvey};
use isotherm_core::{PanelSnapshot, Snapshot, TargetId};
use isotherm_record::{Cost, SnapshotRecord, SurveyRecord, TargetInfos};

/// Which targets the part is about.
pub(crate) type Holds<'a> = &'a dyn Fn(TargetId) -> bool;

/// The descriptions of these targets. They are `last` if that has the same.
pub(super) fn infos(all: &TargetInfos, last: &TargetInfos, holds: Holds<'_>) -> TargetInfos {
    let own = || all.iter().filter(|(id, _)| holds(*id));
    let is_same = |((id, info), (known, before)): ((_, _), &(_, _))| id == known && Arc::ptr_eq(info, before);
    let pairs = own().map(|(id, info)| (id, info));
    if own().count() == last.len() && pairs.zip(last.iter()).all(is_same) {
        return Arc::clone(last);
    }
    own().cloned().collect()
}

/// The regions and pages of these targets.
pub(crate) fn snapshot(all: &Snapshot, holds: Holds<'_>) -> Snapshot {
    Snapshot {
        targets: all.targets.iter().filter(|target| holds(target.id)).cloned().collect(),
        histories: all.histories.iter().filter(|(id, _)| holds(*id)).cloned().collect(),
        ..*all
    }
}

/// The part of a snapshot with this share of its cost.
pub(super) fn record(all: &SnapshotRecord, infos: &TargetInfos, share: f64, holds: Holds<'_>) -> SnapshotRecord {
    let snapshot = snapshot(&all.snapshot, holds);
    let unobservable_bytes = snapshot.targets.iter().map(|target| target.unobservable_bytes(snapshot.samples)).sum();
    let cost = all.cost.map(|cost| Cost { unobservable_bytes, ..shared_cost(&cost, share) });
    SnapshotRecord { snapshot, cost, infos: Arc::clone(infos), ..SnapshotRecord::default() }
}

/// A share of a cost. Rounds are those of all.
pub(super) fn shared_cost(cost: &Cost, share: f64) -> Cost {
    let part = |whole: u64| (whole as f64 * share) as u64;
    Cost {
        reads: part(cost.reads),
        clears: part(cost.clears),
        cpu_ns: part(cost.cpu_ns),
        other_cpu_ns: cost.other_cpu_ns.map(part),
        holds_ns: cost.holds_ns.map(part),
        ..*cost
    }
}

/// The bytes of these targets in memory.
pub(super) fn present(targets: &[TargetSurvey]) -> u64 {
    targets.iter().map(|target| target.total().figures.present).sum()
}

/// The part of a survey that is about the targets of a party. Its cost is in proportion to what was read, of
/// `all_present` bytes in all.
pub(super) fn survey(
    all: &SurveyRecord,
    all_present: u64,
    infos: &TargetInfos,
    party: u32,
    holds: Holds<'_>,
) -> SurveyRecord {
    let targets: Vec<_> = all.survey.targets.iter().filter(|target| holds(target.id)).cloned().collect();
    let share = present(&targets) as f64 / all_present.max(1) as f64;
    let part = |whole: u64| (whole as f64 * share) as u64;
    let sums = all.survey.by_party.iter().find(|sums| sums.party == party);
    let cost = SurveyCost { reads: part(all.survey.cost.reads), clears: part(all.survey.cost.clears) };
    let survey = SurveySnapshot {
        time: all.survey.time,
        interval: all.survey.interval,
        cost,
        targets,
        total: sums.and_then(|sums| sums.total),
        by_node: sums.map(|sums| sums.by_node.clone()).unwrap_or_default(),
        by_party: Vec::new(),
        left_out: all.survey.left_out.clone(),
    };
    SurveyRecord { survey, cpu: all.cpu.map(|cpu| cpu.mul_f64(share)), infos: Arc::clone(infos), detail: all.detail }
}

/// The part of a reading of the panel that is about the targets of a party.
pub(super) fn panel(all: &PanelSnapshot, party: u32, holds: Holds<'_>) -> PanelSnapshot {
    let total = all.by_party.iter().find(|(number, _)| *number == party).map(|(_, total)| *total);
    PanelSnapshot {
        total: total.unwrap_or_default(),
        by_party: Vec::new(),
        targets: all.targets.iter().filter(|target| holds(target.id)).cloned().collect(),
        ..*all
    }
}
