//! Candidates: the memory of a snapshot that a scheme may act on, and its order.

use std::cmp::Reverse;
use std::time::Duration;

use crate::rate::{sampling_interval, share_of_counts};
use crate::survey::{Fading, InUse, PageHistory};
use crate::tiering::{self, COOL_DOWN, EXCHANGE_IDLE, OFTEN, PATIENCE, RECENT};
use crate::{AddrRange, Mapping, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};

use super::backoff::{Asked, Backoff, Rejections};
use super::filter::{FilterContext, Verdict, filter_range};
use super::history::ActionHistory;
use super::locks::Locks;
use super::moved::{LOOK_AGAIN, Moved};
use super::priority::{heat, score};
use super::{Action, Filter, Moves, ProcessFacts, Reach, Scheme};

/// A part of a region that a scheme may act on. It lies in one mapping, has one age, and is not rejected by a
/// filter that does not need to inspect pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub score: u32,
    /// Whether the action can free its memory, as far as is known. Always true for actions that do not free memory.
    pub yields: bool,
    pub target: TargetId,
    /// The index of the target in the snapshot.
    pub target_index: usize,
    /// The index of the mapping in the target.
    pub mapping_index: usize,
    pub range: AddrRange,
    /// The index of the first filter that has to inspect its pages, if there is one.
    pub page_filter: Option<usize>,
    /// The index of a filter that is skipped for it.
    pub passed: Option<usize>,
    /// What it has to do with room in a full node.
    pub room: Room,
}

/// What a candidate has to do with room in a full node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// Nothing.
    Any,
    /// It is hot memory of this rank, and waits if there is no room.
    Waits(u32),
    /// It is cold memory that makes room for hot memory of this rank at least, whatever its age and the goals.
    MadeFor(u32),
}

/// A part of a region whose pages are alike, as far as is known.
struct Part {
    range: AddrRange,
    /// For how long it has been as it is.
    age: Duration,
    /// Whether no access was ever found in it, and it has been idle for long enough nevertheless.
    never_accessed: bool,
    /// Whether two recent surveys have found it accessed.
    repeated: bool,
    /// Whether it cannot be observed.
    unobservable: bool,
    /// The share of the last surveys that have found it accessed, if it is known.
    in_use: Option<f64>,
    /// How it was used before it became idle, if it may make room for hot memory.
    fading: Option<Fading>,
}

/// A piece of a part that was acted on as a whole at the same time.
struct Piece {
    range: AddrRange,
    /// When it was acted on last.
    at: Option<Duration>,
    /// Whether the action would undo a move that has not been repaid.
    undoes: bool,
    /// Whether the action can free its memory, by what became of it before.
    yields: bool,
}

/// Where the budget of the last application ended. The next application continues there.
pub(crate) type Cursor = Option<(TargetId, u64)>;

/// What matches the condition and is left out for another reason.
#[derive(Debug, Default)]
pub(crate) struct Excluded {
    /// Memory that a filter rejects, and did not reject before.
    pub rejected: Vec<(TargetId, AddrRange)>,
    /// Memory that a filter has rejected before, and that has changed since.
    pub changed: Vec<(TargetId, AddrRange)>,
    /// Bytes that were not observed well enough to have an access frequency.
    pub unobservable: u64,
}

/// What a scheme is applied to.
pub(crate) struct Seen<'a> {
    pub snapshot: &'a Snapshot,
    /// The sampling interval that access rates are compared over. Samples over another one would find another share.
    pub interval: Duration,
    /// What is known of the processes: an entry for each target of the snapshot, if the filters need one. A target
    /// without facts has ended.
    pub facts: &'a [Option<ProcessFacts>],
    /// What schemes have acted on.
    pub history: &'a ActionHistory,
    /// What schemes have moved between nodes.
    pub moved: &'a Moved,
    /// What schemes have tried to free.
    pub backoff: &'a Backoff,
    /// What schemes have locked and unlocked.
    pub locks: &'a Locks,
    /// What the filters of the scheme have rejected.
    pub rejections: &'a Rejections,
    /// When the scheme found memory where it would move it to.
    pub in_place: &'a ActionHistory,
    /// When the scheme checked memory once more: hot memory that was not accessed since the survey, and cold memory
    /// that was.
    pub not_again: &'a ActionHistory,
    /// The index of the filter that checks memory once more, if there is one.
    pub second_look: Option<usize>,
    /// Whether hot memory waits for the room that the scheme makes.
    pub makes_room: bool,
    /// How many times as much evidence as at first it takes to make room, and how many times the age of the condition.
    pub patience: f64,
    /// Whether nothing is done, so that memory that counts as freed is present still.
    pub is_dry: bool,
}

impl Seen<'_> {
    /// Whether memory that was freed at a time would be absent still: since the survey, or because it was not accessed
    /// since, as far as that is known, if nothing was done to it.
    fn is_freed(&self, pages: &PageHistory, range: AddrRange, at: Duration) -> bool {
        let idle_since = || {
            let since = pages.time().saturating_sub(at);
            let idle = pages.idle_ranges(range, since).into_iter().map(|(idle, _)| idle);
            let unseen = pages.unobservable_ranges(range, since).into_iter();
            idle.chain(unseen).map(AddrRange::size).sum::<u64>() == range.size()
        };
        at >= pages.time() || self.is_dry && idle_since()
    }

    /// Cuts `range`, which was accessed last at the time `accessed`, where the time of the last action changes, and
    /// calls `each` with the parts that may be acted on. These parts are left out: memory that resisted to be freed
    /// recently, and that was found in use since the survey; memory that was locked or unlocked already; and for
    /// actions that would move memory: memory that was moved recently, was found on its node, or was found not to be
    /// accessed again.
    fn pieces(
        &self,
        action: Action,
        target: TargetId,
        range: AddrRange,
        accessed: Duration,
        mut each: impl FnMut(Piece),
    ) {
        let now = self.snapshot.time;
        let surveyed = self.snapshot.history(target).map_or(Duration::ZERO, PageHistory::time);
        let Some(direction) = action.moves() else {
            return self.not_again.pieces(target, range, |range, at| {
                if at.is_some_and(|at| at > surveyed) {
                    return;
                }
                let mut each = |range, yields| {
                    self.history.pieces(target, range, |range, at| each(Piece { range, at, undoes: false, yields }));
                };
                match action.frees() {
                    true => self.backoff.pieces(target, range, now, accessed, |range, unmapped| each(range, !unmapped)),
                    false => self.locks.pieces(action, target, range, now, |range| each(range, true)),
                }
            });
        };
        self.in_place.pieces(target, range, |range, at| {
            if at.is_none_or(|at| now >= at.saturating_add(LOOK_AGAIN)) {
                self.not_again.pieces(target, range, |range, at| {
                    if at.is_none_or(|at| is_time_to_look_again(now, at, surveyed)) {
                        self.moved.free_to_move(direction, target, range, now, |range, undoes| {
                            let each = |range, at| each(Piece { range, at, undoes, yields: true });
                            self.history.pieces(target, range, each);
                        });
                    }
                });
            }
        });
    }
}

/// Whether to look again at memory that was not accessed from the survey to the look `at`: after another survey, or
/// when twice that time has passed since the survey. So there are few looks at memory that is not accessed, and memory
/// that is accessed is found so within twice the time.
fn is_time_to_look_again(now: Duration, at: Duration, surveyed: Duration) -> bool {
    at <= surveyed || now.saturating_sub(surveyed) >= (at - surveyed) * 2
}

/// Collects the candidates of `scheme` in the order of targets and addresses, and returns what was left out.
///
/// Where there is a survey, nothing is done to a region that has no page in memory or is unknown. An
/// action that takes memory away is done only to pages that the survey has found idle for the age asked for, and their
/// age is that of the page: a sample speaks for its region, a survey for each page. An action that frees memory is done
/// to a page once between two surveys, and more and more rarely to memory that it does not free. An action that moves
/// hot memory is done to pages that two recent surveys have found accessed, or one survey and the check just before the
/// action. The pages that most surveys have found accessed come first.
///
/// Memory in which no access was ever found may be moved as cold memory before it has the age asked for.
///
/// If two surveys have not found a page accessed, an action that moves hot memory is done only after the condition has
/// held for two aggregations. If the scheme asks for one look, one survey and one aggregation are enough.
///
/// A move is undone within [`REPAID`](crate::tiering::REPAID) only if half of the last surveys have found the memory
/// accessed, or if it was idle for three times as long as asked for.
///
/// Where hot memory waits for room that the scheme makes, pages that two surveys have found idle are candidates
/// whatever their age, for memory that is hotter ([`Fading::makes_room_for`]). While much of what was moved comes back,
/// such a scheme asks for a greater age in any case.
///
/// Memory that could not be observed is neither hot nor cold: a scheme whose condition asks for a frequency or an age
/// leaves it out, and an action that takes memory away does, too, unless the scheme allows it. A target without facts
/// is left out if a filter needs them.
pub(crate) fn collect(
    scheme: &Scheme,
    filters: &[Filter],
    seen: &Seen<'_>,
    mut can_free: impl FnMut(&Mapping) -> bool,
    candidates: &mut Vec<Candidate>,
) -> Excluded {
    candidates.clear();
    let Seen { snapshot, interval, facts, .. } = *seen;
    let sampling = sampling_interval(snapshot.aggregation, snapshot.samples);
    let needs_process = filters.iter().any(|filter| filter.kind.needs_process());
    let action = scheme.action;
    let least_age = match action.moves() {
        Some(Moves::Hot) => snapshot.aggregation.saturating_mul(scheme.looks),
        Some(Moves::Cold) | None => Duration::ZERO,
    };
    let least_idle = scheme.condition.age.min();
    // Memory that is demoted for its age may come back, too.
    let patience = if scheme.makes_room_for.is_empty() { 1.0 } else { seen.patience };
    let idle_enough = Duration::try_from_secs_f64(least_idle.as_secs_f64() * patience).unwrap_or(Duration::MAX);
    let mut excluded = Excluded::default();
    let allows_unobserved = scheme.unobserved && action.takes_away();
    for (target_index, target) in snapshot.targets.iter().enumerate() {
        let process = facts.get(target_index).and_then(Option::as_ref);
        if needs_process && process.is_none() {
            continue;
        }
        let pages = snapshot.history(target.id);
        let surveyed = pages.is_some() && action.takes_away();
        // Of a surveyed target, only pages that are known to be idle are taken.
        let takes_unseen = action.takes_away() && !surveyed;
        let needs_frequency = !allows_unobserved && (scheme.condition.needs_frequency() || takes_unseen);
        let mut parts = Vec::new();
        mapped(target, |region, mapping_index, range| {
            if region.pages.is_some_and(|pages| pages.present == 0) {
                return;
            }
            if !has_evidence(region, snapshot.samples, needs_frequency, surveyed) {
                if scheme.condition.size.contains(region.size()) {
                    excluded.unobservable += pages.map_or(range.size(), |pages| pages.pages_in(range).present);
                }
                return;
            }
            parts.clear();
            let monitored = age(region, snapshot, pages.map(|pages| (pages, range)));
            let part = |range| Part {
                range,
                age: monitored,
                never_accessed: false,
                repeated: false,
                unobservable: false,
                in_use: None,
                fading: None,
            };
            let mut of_region = |ranges: &[AddrRange]| parts.extend(ranges.iter().copied().map(part));
            match (pages, action.reach()) {
                (Some(pages), Reach::IdlePages) => {
                    let idle = pages.idle_ranges(range, idle_enough).into_iter();
                    parts.extend(idle.map(|(range, age)| Part { age, ..part(range) }));
                    if allows_unobserved {
                        let unseen = pages.unobservable_ranges(range, least_idle).into_iter();
                        parts.extend(unseen.map(|range| Part { age: least_idle, unobservable: true, ..part(range) }));
                    }
                    if let Some(enough) = scheme.never_accessed.filter(|enough| *enough < idle_enough) {
                        let idle = pages.never_accessed_ranges(range, enough..idle_enough).into_iter();
                        parts.extend(idle.map(|(range, age)| Part { age, never_accessed: true, ..part(range) }));
                    }
                    if seen.makes_room {
                        let fading = pages.fading(range, EXCHANGE_IDLE).into_iter();
                        parts.extend(fading.map(|(range, age, fading)| Part {
                            age,
                            fading: Some(fading),
                            ..part(range)
                        }));
                    }
                }
                (Some(pages), Reach::PagesInUse) => {
                    let in_use = pages.in_use(range, RECENT).into_iter();
                    let used = |InUse { range, repeated, share }| Part { repeated, in_use: share, ..part(range) };
                    parts.extend(in_use.map(used));
                }
                (Some(pages), Reach::PresentPages) => of_region(&pages.present_ranges(range)),
                (Some(pages), Reach::PresentBlocks) => of_region(&pages.present_blocks(range)),
                (Some(_), Reach::Region) | (None, _) => of_region(&[range]),
            }
            let mapping = &target.mappings[mapping_index];
            let frees = !action.frees() || can_free(mapping);
            let rate = share_of_counts(region.nr_accesses, snapshot.samples, sampling, interval);
            let hz = region.access_hz(snapshot.aggregation);
            for &Part { range, age: known, never_accessed, repeated, unobservable, in_use, fading } in &parts {
                let passed = seen.second_look.filter(|_| repeated || unobservable);
                let context = FilterContext { target: target.id, mapping, process, passed };
                let known_at = pages.map_or(snapshot.time, PageHistory::time);
                let accessed = known_at.saturating_sub(known);
                seen.pieces(action, target.id, range, accessed, |piece| {
                    let Piece { range: piece, at: acted_at, undoes, yields } = piece;
                    // What was freed since the survey is absent, until a survey finds it in memory again.
                    let is_freed = |pages| acted_at.is_some_and(|at| seen.is_freed(pages, piece, at));
                    if action.frees() && pages.is_some_and(is_freed) {
                        return;
                    }
                    let since = acted_at.map_or(Duration::MAX, |at| snapshot.time.saturating_sub(at));
                    let age = known.min(since);
                    // Two surveys are two looks.
                    let hot_for = if repeated { since } else { age };
                    let counts_as = if never_accessed && acted_at.is_none() { least_idle.max(age) } else { age };
                    let is_sure = || match action.moves() {
                        Some(Moves::Hot) => pages.is_none() || in_use.is_some_and(|share| share >= OFTEN),
                        Some(Moves::Cold) | None => age >= idle_enough.saturating_mul(PATIENCE),
                    };
                    let holds = |age| hot_for >= least_age && scheme.condition.holds(region.size(), rate, hz, age);
                    let is_old = holds(counts_as) && (!undoes || is_sure());
                    let room = match fading {
                        None if !is_old => return,
                        None => {
                            in_use.filter(|_| repeated).map_or(Room::Any, |share| Room::Waits(tiering::rank(share)))
                        }
                        Some(_) if since < COOL_DOWN || !holds(least_idle) => return,
                        Some(fading) => {
                            let Some(least) = fading.makes_room_for(patience, undoes) else { return };
                            Room::MadeFor(least)
                        }
                    };
                    let Some(piece) = whole_granules(piece, action) else {
                        return;
                    };
                    let heat = in_use.unwrap_or_else(|| heat(rate, age));
                    let score = score(action.order(), scheme.quota.weights(), region.size(), rate, heat);
                    filter_range(filters, 0, context, piece, &mut |part, verdict| {
                        let page_filter = match verdict {
                            Verdict::Allowed | Verdict::Rejected => None,
                            Verdict::Pages(nth) => Some(nth),
                        };
                        let mut add = |part: AddrRange| {
                            candidates.extend(whole_granules(part, action).map(|range| Candidate {
                                score,
                                yields: yields && frees,
                                target: target.id,
                                target_index,
                                mapping_index,
                                range,
                                page_filter,
                                passed,
                                room,
                            }));
                        };
                        if verdict == Verdict::Allowed {
                            return add(part);
                        }
                        seen.rejections.pieces(target.id, part, snapshot.time, accessed, |part, asked| {
                            if asked == Asked::Before {
                                excluded.changed.push((target.id, part));
                            }
                            match (verdict, asked) {
                                (_, Asked::Unchanged { is_due: false })
                                | (Verdict::Rejected, Asked::Unchanged { is_due: true }) => {}
                                (Verdict::Rejected, Asked::Never | Asked::Before) => {
                                    excluded.rejected.push((target.id, part));
                                }
                                (Verdict::Pages(_) | Verdict::Allowed, _) => add(part),
                            }
                        });
                    });
                });
            }
        });
    }
    excluded
}

/// For how long a region has been as it is. Where the last survey has found it idle, and no sample has found an access
/// since, that is as long as its pages have been idle, exact to the survey interval.
fn age(region: &RegionSnapshot, snapshot: &Snapshot, surveyed: Option<(&PageHistory, AddrRange)>) -> Duration {
    let monitored = snapshot.aggregation.saturating_mul(region.age);
    let is_idle = region.pages.is_some_and(|pages| pages.touched == 0 && pages.unknown == 0) && region.nr_accesses == 0;
    let idle =
        surveyed.filter(|_| is_idle).and_then(|(pages, range)| Some((pages.pages_and_idle(range).1?, pages.time())));
    idle.map_or(monitored, |(idle, at)| idle + snapshot.time.saturating_sub(at))
}

/// Whether enough is known of a region to act on it. A scheme that asks for a temperature needs at least half of the
/// region to be observed. A survey that knows nothing of a region is no evidence for any scheme. `by_page` says that
/// the scheme takes single pages whose idle time a survey knows.
fn has_evidence(region: &RegionSnapshot, samples: u32, needs_frequency: bool, by_page: bool) -> bool {
    match region.pages {
        Some(pages) if pages.unknown >= pages.present => false,
        _ if !needs_frequency => true,
        Some(pages) => {
            // Without samples, memory that was touched has no frequency. Memory that was not touched has: it is zero.
            let has_frequency = by_page || region.nr_samples > 0 || pages.touched == 0;
            has_frequency && (pages.unobservable + pages.unknown) * 2 <= pages.present
        }
        None => u64::from(region.nr_unobservable) * 2 <= u64::from(samples),
    }
}

/// Calls `each` with every part of a region that lies in one mapping, and with the index of that mapping.
fn mapped(target: &TargetSnapshot, mut each: impl FnMut(&RegionSnapshot, usize, AddrRange)) {
    target.mapped_parts().for_each(|part| each(part.region, part.mapping_index, part.range));
}

/// The part of `range` that an action can be carried out on: whole huge pages for actions that make them, else all
/// of it.
pub(crate) fn whole_granules(range: AddrRange, action: Action) -> Option<AddrRange> {
    if !action.whole_granules_only() {
        return Some(range);
    }
    let granule = action.granule();
    let start = range.start().checked_next_multiple_of(granule)?;
    AddrRange::new(start, range.end() - range.end() % granule)
}

/// Sorts by falling score, after memory that an action can free, and that before memory that only makes room. The
/// latter comes in the order of the ranks that it makes room for. Among equal scores, memory from `cursor` on comes
/// before memory below it.
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
        let for_rank = match candidate.room {
            Room::MadeFor(least) => Some(least),
            Room::Any | Room::Waits(_) => None,
        };
        let by_score = Reverse((candidate.yields, candidate.score));
        (for_rank, by_score, cursor.is_some_and(|cursor| position < cursor), position)
    });
}
