//! Candidates: the memory of a snapshot that a scheme may act on, and its order.

use std::cmp::Reverse;

use crate::{AddrRange, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};

use super::filter::{FilterContext, Verdict, filter_range};
use super::history::ActionHistory;
use super::priority::score;
use super::{ActionKind, Filter, ProcessFacts, Scheme};

/// A part of a region that a scheme may act on. It lies in one mapping, has one age, and is not rejected by a
/// filter that does not need to inspect pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub score: u32,
    pub target: TargetId,
    /// The index of the target in the snapshot.
    pub target_index: usize,
    /// The index of the mapping in the target.
    pub mapping_index: usize,
    pub range: AddrRange,
    /// The index of the first filter that has to inspect its pages, if there is one.
    pub page_filter: Option<usize>,
}

/// Where the budget of the last application ended. The next application goes on there.
pub(crate) type Cursor = Option<(TargetId, u64)>;

/// Bytes of regions that match the condition and are left out for another reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excluded {
    /// Rejected by a filter.
    pub rejected: u64,
    /// Not observed well enough to have an access frequency.
    pub unobservable: u64,
}

/// Collects the candidates of `scheme` in the order of targets and addresses, and returns what was left out.
///
/// An action that takes memory away is done only to pages that a survey has found idle for the age asked for, where
/// there is a survey: a sample speaks for its region, a survey for each page.
///
/// Memory that could not be observed is neither hot nor cold: a scheme whose condition asks for a frequency or an
/// age leaves it out. `facts` has an entry for each target of the snapshot, if the filters need one. A target
/// without facts has ended and is left out.
pub(crate) fn collect(
    scheme: &Scheme,
    filters: &[Filter],
    snapshot: &Snapshot,
    history: &ActionHistory,
    facts: &[Option<ProcessFacts>],
    candidates: &mut Vec<Candidate>,
) -> Excluded {
    candidates.clear();
    let needs_process = filters.iter().any(|filter| filter.kind.needs_process());
    let kind = scheme.action.kind();
    let mut excluded = Excluded::default();
    let needs_frequency = scheme.condition.needs_frequency();
    for (target_index, target) in snapshot.targets.iter().enumerate() {
        let process = facts.get(target_index).and_then(Option::as_ref);
        if needs_process && process.is_none() {
            continue;
        }
        let surveyed = snapshot.history(target.id).filter(|_| kind.takes_away());
        let mut idle = Vec::new();
        mapped(target, |region, mapping_index, range| {
            if needs_frequency && !is_observed(region, snapshot.samples) {
                if scheme.condition.size.contains(region.size()) {
                    excluded.unobservable += range.size();
                }
                return;
            }
            idle.clear();
            match surveyed {
                Some(pages) => idle.extend(pages.idle_ranges(range, scheme.condition.age.min())),
                None => idle.push(range),
            }
            let context = FilterContext { target: target.id, mapping: &target.mappings[mapping_index], process };
            let monitored = snapshot.aggregation.saturating_mul(region.age);
            let known = if surveyed.is_some() { monitored.max(scheme.condition.age.min()) } else { monitored };
            let rate = region.access_rate(snapshot.samples);
            for &range in &idle {
                history.pieces(target.id, range, |piece, acted_at| {
                    let age = acted_at.map_or(known, |at| known.min(snapshot.time.saturating_sub(at)));
                    if !scheme.condition.holds(region.size(), rate, age) {
                        return;
                    }
                    let Some(piece) = whole_granules(piece, kind) else {
                        return;
                    };
                    let score = score(kind.order(), scheme.quota.weights(), region.size(), rate, age);
                    filter_range(filters, 0, context, piece, &mut |part, verdict| {
                        let page_filter = match verdict {
                            Verdict::Allowed => None,
                            Verdict::Pages(nth) => Some(nth),
                            Verdict::Rejected => {
                                excluded.rejected += part.size();
                                return;
                            }
                        };
                        if let Some(range) = whole_granules(part, kind) {
                            candidates.push(Candidate {
                                score,
                                target: target.id,
                                target_index,
                                mapping_index,
                                range,
                                page_filter,
                            });
                        }
                    });
                });
            }
        });
    }
    excluded
}

/// Whether at least half of a region could be observed. What was not sampled is not known either, unless a survey has
/// looked at it.
fn is_observed(region: &RegionSnapshot, samples: u32) -> bool {
    match region.pages {
        Some(pages) => (pages.unobservable + pages.unknown) * 2 <= pages.present,
        None => u64::from(region.nr_unobservable) * 2 <= u64::from(samples),
    }
}

/// Calls `each` with every part of a region that lies in one mapping, and with the index of that mapping.
fn mapped(target: &TargetSnapshot, mut each: impl FnMut(&RegionSnapshot, usize, AddrRange)) {
    target.mapped_parts().for_each(|part| each(part.region, part.mapping_index, part.range));
}

/// The part of `range` that an action can be carried out on: whole huge pages for actions that make them, else all
/// of it.
pub(crate) fn whole_granules(range: AddrRange, kind: ActionKind) -> Option<AddrRange> {
    if !kind.whole_granules_only() {
        return Some(range);
    }
    let granule = kind.granule();
    let start = range.start().checked_next_multiple_of(granule)?;
    AddrRange::new(start, range.end() - range.end() % granule)
}

/// Sorts by falling score. Among equal scores, memory from `cursor` on comes before memory below it.
pub(crate) fn sort_by_priority(candidates: &mut Vec<Candidate>, cursor: Cursor) {
    if let Some((target, addr)) = cursor
        && let Some(cut) = candidates.iter().position(|c| c.target == target && c.range.split_at(addr).is_some())
        && let Some((below, above)) = candidates[cut].range.split_at(addr)
    {
        let whole = candidates[cut];
        candidates[cut].range = below;
        candidates.push(Candidate { range: above, ..whole });
    }
    candidates.sort_unstable_by_key(|candidate| {
        let position = (candidate.target, candidate.range.start());
        (Reverse(candidate.score), cursor.is_some_and(|cursor| position < cursor), position)
    });
}
