//! What a scheme wants of a snapshot, and in which order.

use std::cmp::Reverse;

use crate::{AddrRange, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};

use super::filter::{FilterContext, Verdict, filter_range};
use super::history::ActionHistory;
use super::priority::score;
use super::{ActionKind, ProcessFacts, Scheme};

/// A piece of a region that a scheme wants: within one mapping, of one age, and not rejected by what can be told without
/// looking at pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub score: u32,
    pub target: TargetId,
    /// Indices in the snapshot.
    pub target_index: usize,
    pub mapping_index: usize,
    pub range: AddrRange,
    /// The filter from which on its pages must be looked at.
    pub ask: Option<usize>,
}

/// Where one period's quota ended, and the next goes on.
pub(crate) type Cursor = Option<(TargetId, u64)>;

/// Bytes that a scheme does not want for another reason than its condition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excluded {
    pub rejected: u64,
    pub unobservable: u64,
}

/// Collects what `scheme` wants, in the order of targets and addresses, and returns what its filters rejected, and what could not
/// be observed: that is neither hot nor cold, and no scheme that asks for a temperature may take it for one.
///
/// `facts` has an entry for each target of the snapshot; a target without facts that the filters need has gone, and is left out.
pub(crate) fn collect(
    scheme: &Scheme,
    snapshot: &Snapshot,
    history: &ActionHistory,
    facts: &[Option<ProcessFacts>],
    candidates: &mut Vec<Candidate>,
) -> Excluded {
    candidates.clear();
    let needs_process = scheme.filters.iter().any(|filter| filter.kind.needs_process());
    let kind = scheme.action.kind();
    let mut excluded = Excluded::default();
    let asks = scheme.condition.asks_for_temperature();
    for (target_index, target) in snapshot.targets.iter().enumerate() {
        let process = facts.get(target_index).and_then(Option::as_ref);
        if needs_process && process.is_none() {
            continue;
        }
        mapped(target, |region, mapping_index, range| {
            if asks && u64::from(region.nr_unobservable) * 2 > u64::from(snapshot.samples) {
                if scheme.condition.size.contains(region.range.size()) {
                    excluded.unobservable += range.size();
                }
                return;
            }
            let context = FilterContext { target: target.id, mapping: &target.mappings[mapping_index], process };
            history.pieces(target.id, range, |piece, acted_at| {
                let stays = snapshot.aggregation.saturating_mul(region.age);
                let age = acted_at.map_or(stays, |at| stays.min(snapshot.time.saturating_sub(at)));
                let rate = region.access_rate(snapshot.samples);
                if !scheme.condition.holds(region.range.size(), rate, age) {
                    return;
                }
                let Some(piece) = whole_granules(piece, kind) else {
                    return;
                };
                let weights = scheme.quota.weights();
                let score = score(kind.order(), weights, region.range.size(), rate, age);
                filter_range(&scheme.filters, 0, context, piece, &mut |part, verdict| {
                    let ask = match verdict {
                        Verdict::Allowed => None,
                        Verdict::Ask(nth) => Some(nth),
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
                            ask,
                        });
                    }
                });
            });
        });
    }
    excluded
}

/// Each part of a region that lies within one mapping, with that mapping's index.
fn mapped(target: &TargetSnapshot, mut tell: impl FnMut(&RegionSnapshot, usize, AddrRange)) {
    let mut first = 0;
    for region in &target.regions {
        first += target.mappings[first..].iter().take_while(|m| m.range.end() <= region.range.start()).count();
        for (nth, mapping) in target.mappings.iter().enumerate().skip(first) {
            match mapping.range.intersection(region.range) {
                Some(range) => tell(region, nth, range),
                None => break,
            }
        }
    }
}

/// What of `range` an action can be carried out on: whole huge pages for those that make them.
pub(crate) fn whole_granules(range: AddrRange, kind: ActionKind) -> Option<AddrRange> {
    if !kind.whole_granules_only() {
        return Some(range);
    }
    let granule = kind.granule();
    let start = range.start().checked_next_multiple_of(granule)?;
    AddrRange::new(start, range.end() - range.end() % granule)
}

/// Puts the best first; among equals, what lies at `cursor` and above it comes before what lies below.
pub(crate) fn sort_by_priority(candidates: &mut Vec<Candidate>, cursor: Cursor) {
    if let Some((target, addr)) = cursor
        && let Some(cut) = candidates.iter().position(|w| w.target == target && w.range.split_at(addr).is_some())
        && let Some((below, above)) = candidates[cut].range.split_at(addr)
    {
        let whole = candidates[cut];
        candidates[cut].range = below;
        candidates.push(Candidate { range: above, ..whole });
    }
    let place = |w: &Candidate| (w.target, w.range.start());
    candidates.sort_unstable_by_key(|w| (Reverse(w.score), cursor.is_some_and(|cursor| place(w) < cursor), place(w)));
}
