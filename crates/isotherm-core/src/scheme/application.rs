//! One application of a scheme: acts on the candidates in their order, within the budget, and on single pages where
//! a filter needs it.

use std::time::Duration;

use crate::tiering::Waiting;
use crate::{AddrRange, BoxError, PAGE_SIZE, Snapshot, TargetId};

use super::backoff::{Backoff, Rejections, Resisted};
use super::budget::QuotaLimits;
use super::candidates::{Candidate, Cursor, Room, whole_granules};
use super::filter::{FilterContext, Verdict, filter_range};
use super::history::ActionHistory;
use super::locks::Locks;
use super::moved::Moved;
use super::victims::{Tally, Victims};
use super::{
    ActedRegion, Action, Actuator, Application, Elsewhere, Filter, Moves, Outcome, PageInspector, PageKind,
    ProcessFacts, Scheme, Statistics, Work,
};

/// The most bytes that are inspected or acted on before the budget is checked again. It bounds by how much a quota
/// of time can be exceeded.
const BATCH_BYTES: u64 = 32 << 20;

/// The most ranges of one call.
const BATCH_RANGES: usize = 256;

/// Ranges that wait to be acted on, and buffers whose memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    ranges: Vec<(TargetId, AddrRange)>,
    /// The size of `ranges`.
    bytes: u64,
    /// Parts of candidates whose pages have to be inspected. They are inspected together, since to look at many pages
    /// of a process costs little more than to look at one.
    waiting: Vec<(Candidate, AddrRange)>,
    /// The size of `waiting`.
    waiting_bytes: u64,
    /// Bytes whose pages were inspected, or wait for it.
    inspected: u64,
    /// Bytes of the batch that an action between nodes found in their place.
    in_place: u64,
    /// The ranges of one call, and what became of them.
    call: Vec<AddrRange>,
    outcomes: Vec<Outcome>,
    allowed: Vec<AddrRange>,
}

/// What an application works with.
pub(crate) struct SchemeApplication<'a, A, I> {
    pub scheme: &'a Scheme,
    /// The filters of the scheme, and those that hold by default.
    pub filters: &'a [Filter],
    /// How many of the first filters reject memory because it is where the scheme would move it to.
    pub by_place: usize,
    pub snapshot: &'a Snapshot,
    pub facts: &'a [Option<ProcessFacts>],
    pub actuator: &'a mut A,
    pub inspector: &'a mut I,
    pub allowance: QuotaLimits<'a>,
    /// The hot memory for which the scheme makes room, whatever its goals allow.
    pub demand: &'a mut Waiting,
    /// Whether another scheme makes room for the hot memory that this one leaves.
    pub is_waited_for: bool,
    pub history: &'a mut ActionHistory,
    pub moved: &'a mut Moved,
    /// When memory was found where the scheme would move it to.
    pub in_place: &'a mut ActionHistory,
    /// The memory that actions did not free.
    pub backoff: &'a mut Backoff,
    /// What schemes have locked and unlocked.
    pub locks: &'a mut Locks,
    /// What the filters have rejected.
    pub rejections: &'a mut Rejections,
    /// When memory was found accessed, or not accessed again, so that the action is not done before the next survey.
    pub not_again: &'a mut ActionHistory,
    pub victims: &'a mut Victims,
    /// What was freed or only unmapped, and how many bytes of each range.
    pub taken: &'a mut Vec<(TargetId, AddrRange, u64)>,
    pub total: &'a mut Statistics,
    pub last: &'a mut Application,
    pub batch: &'a mut Batch,
    /// The time of the actuator and the inspector that has been charged to the budget.
    pub charged: Duration,
}

impl<A: Actuator, I: PageInspector> SchemeApplication<'_, A, I> {
    /// Acts on `candidates` in their order until the budget ends. Returns where that was, and the hot memory that is
    /// left.
    pub(crate) fn run(mut self, candidates: &[Candidate]) -> Result<(Cursor, Waiting), BoxError> {
        let mut ended: Cursor = None;
        let mut left = Vec::new();
        let by_age = candidates.partition_point(|candidate| !matches!(candidate.room, Room::MadeFor(_)));
        let (candidates, makes_room) = candidates.split_at(by_age);
        for candidate in candidates {
            let mut rest = Some(candidate.range);
            let mut tried = false;
            // What is neither acted on nor inspected takes no time, however large it is: it is not cut.
            let is_free = self.scheme.action == Action::Stat && candidate.page_filter.is_none();
            let most = if is_free { u64::MAX } else { BATCH_BYTES };
            while let Some(range) = rest {
                if ended.is_none() {
                    if let Some(part) = self.within_budget(range, most, candidate.room)? {
                        self.total.tried_regions += u64::from(!std::mem::replace(&mut tried, true));
                        self.total.tried_bytes += part.size();
                        self.take(candidate, part);
                        rest = AddrRange::new(part.end(), range.end());
                        continue;
                    }
                    ended = Some((candidate.target, range.start()));
                }
                self.last.held_back_bytes += range.size();
                if self.is_waited_for && matches!(candidate.room, Room::Waits(_)) {
                    left.push((candidate, range));
                }
                rest = None;
            }
        }
        self.flush()?;
        if ended.is_some() && self.allowance.exceed(self.scheme.action.granule()) {
            self.total.quota_exceeded += 1;
        }
        self.make_room(makes_room)?;
        let waiting = self.waiting(&left);
        self.flush()?;
        Ok((ended, waiting))
    }

    /// Acts on cold memory in its order as long as there is hot memory that waits for its place.
    fn make_room(&mut self, candidates: &[Candidate]) -> Result<(), BoxError> {
        for candidate in candidates {
            let mut rest = Some(candidate.range);
            while let Some(range) = rest
                && let Some(part) = self.within_budget(range, BATCH_BYTES, candidate.room)?
            {
                self.total.tried_regions += u64::from(range == candidate.range);
                self.total.tried_bytes += part.size();
                self.take(candidate, part);
                rest = AddrRange::new(part.end(), range.end());
            }
        }
        self.flush()
    }

    /// How much of the memory that is left waits for room, because it is not in its place and no filter rejects it: no
    /// more than the quota allows in a period.
    fn waiting(&mut self, left: &[(&Candidate, AddrRange)]) -> Waiting {
        let mut waiting = Waiting::default();
        let most = self.allowance.limit_without_goals().unwrap_or(u64::MAX);
        let mut left = left.iter().copied();
        let mut rest = left.next();
        while waiting.bytes() < most && rest.is_some() {
            while let Some((candidate, range)) = rest
                && self.batch.waiting_bytes < BATCH_BYTES
                && self.batch.waiting.len() < BATCH_RANGES
            {
                let part = cut(range, BATCH_BYTES, PAGE_SIZE).unwrap_or(range);
                self.wait_for_inspection(candidate, part);
                rest = AddrRange::new(part.end(), range.end()).map(|range| (candidate, range)).or_else(|| left.next());
            }
            self.inspect_waiting(|_, candidate, range| {
                if let Room::Waits(rank) = candidate.room {
                    waiting.add(rank, range.size().min(most.saturating_sub(waiting.bytes())));
                }
            });
        }
        waiting
    }

    /// The part of `range`, from its start on, of at most `most` bytes, that the budget still allows. `None` if that is
    /// nothing.
    fn within_budget(&mut self, range: AddrRange, most: u64, room: Room) -> Result<Option<AddrRange>, BoxError> {
        let granule = self.granule();
        // All that waits may be acted on.
        let used = |batch: &Batch| (batch.bytes + batch.waiting_bytes).max(batch.inspected);
        let ranges = self.batch.ranges.len() + self.batch.waiting.len();
        if used(self.batch) >= BATCH_BYTES || ranges >= BATCH_RANGES {
            self.flush()?;
        }
        loop {
            let left = self.left(granule, room).saturating_sub(used(self.batch));
            let part = cut(range, left.min(most), granule);
            if part.is_some() || used(self.batch) == 0 {
                return Ok(part);
            }
            // The batch shows how long its actions take and how much the filters allow. That may leave more of the
            // budget.
            self.flush()?;
        }
    }

    /// The bytes that may still be acted on: what the goals allow, or what makes room for hot memory that waits.
    fn left(&self, granule: u64, room: Room) -> u64 {
        match room {
            Room::MadeFor(least) => self.demand.left(least).min(self.allowance.left_without_goals(granule)),
            Room::Any | Room::Waits(_) => self.allowance.left(granule),
        }
    }

    /// A range may be cut at multiples of this many bytes. A quota that is smaller than a huge page moves small pages,
    /// and no huge page.
    fn granule(&self) -> u64 {
        let action = self.scheme.action;
        let demand = self.demand.left(0).min(self.allowance.limit_without_goals().unwrap_or(u64::MAX));
        let is_small = self.allowance.limit().is_some_and(|limit| limit.max(demand) < action.granule());
        if action.moves().is_some() && is_small { PAGE_SIZE } else { action.granule() }
    }

    /// Adds `range` to the batch, or to what has to be inspected first.
    fn take(&mut self, candidate: &Candidate, range: AddrRange) {
        if candidate.page_filter.is_none() {
            return self.push(candidate.target, range);
        }
        self.wait_for_inspection(candidate, range);
    }

    fn wait_for_inspection(&mut self, candidate: &Candidate, range: AddrRange) {
        self.batch.inspected += range.size();
        self.batch.waiting_bytes += range.size();
        self.batch.waiting.push((*candidate, range));
    }

    /// Inspects what waits for it, and calls `allow` with what the filters allow.
    fn inspect_waiting(&mut self, mut allow: impl FnMut(&mut Self, &Candidate, AddrRange)) {
        let mut waiting = std::mem::take(&mut self.batch.waiting);
        let mut allowed = std::mem::take(&mut self.batch.allowed);
        let together = |(candidate, _): &(Candidate, AddrRange)| {
            let Candidate { target_index, mapping_index, page_filter, passed, room, .. } = *candidate;
            (target_index, mapping_index, page_filter, passed, room)
        };
        waiting.sort_unstable_by_key(|part| (together(part), part.1));
        for parts in waiting.chunk_by(|a, b| together(a) == together(b)) {
            let candidate = parts[0].0;
            let context = FilterContext {
                target: candidate.target,
                mapping: &self.snapshot.targets[candidate.target_index].mappings[candidate.mapping_index],
                process: self.facts.get(candidate.target_index).and_then(Option::as_ref),
                passed: candidate.passed,
            };
            let ranges: Vec<AddrRange> = parts.iter().map(|(_, range)| *range).collect();
            allowed.clear();
            // What no filter has to inspect is allowed already.
            match candidate.page_filter {
                Some(from) => self.examine(from, context, &ranges, &mut allowed),
                None => allowed.extend(&ranges),
            }
            allowed.sort_unstable();
            for range in allowed.drain(..) {
                if let Some(range) = whole_granules(range, self.scheme.action) {
                    allow(self, &candidate, range);
                }
            }
        }
        waiting.clear();
        self.batch.waiting_bytes = 0;
        (self.batch.waiting, self.batch.allowed) = (waiting, allowed);
    }

    /// Passes `ranges`, which are sorted and disjoint, through the filters from index `from` on, and inspects their
    /// pages where a filter needs it.
    fn examine(&mut self, from: usize, context: FilterContext<'_>, ranges: &[AddrRange], allowed: &mut Vec<AddrRange>) {
        let mut parts = Vec::new();
        for &range in ranges {
            filter_range(self.filters, from, context, range, &mut |part, verdict| match verdict {
                Verdict::Allowed => allowed.push(part),
                Verdict::Rejected => {
                    self.total.rejected_bytes += self.rejections.reject(context.target, part, self.snapshot.time);
                }
                Verdict::Pages(nth) => parts.push((nth, part)),
            });
        }
        parts.sort_unstable();
        for of_one in parts.chunk_by(|(a, _), (b, _)| a == b) {
            let ranges: Vec<AddrRange> = of_one.iter().map(|(_, part)| *part).collect();
            self.inspect_pages(of_one[0].0, context, &ranges, allowed);
        }
    }

    /// Decides on the pages that the filter of index `nth` matches. All others go on to the next filter.
    fn inspect_pages(
        &mut self,
        nth: usize,
        context: FilterContext<'_>,
        ranges: &[AddrRange],
        allowed: &mut Vec<AddrRange>,
    ) {
        let filters = self.filters;
        let filter = &filters[nth];
        let Some(kind) = filter.kind.pages() else {
            return;
        };
        let mut found = Vec::new();
        if let Err(refusal) = self.inspector.pages(context.target, ranges, kind, &mut found) {
            match ranges {
                [range] => self.total.refuse(refusal, range.size()),
                ranges => ranges.iter().for_each(|&range| self.inspect_pages(nth, context, &[range], allowed)),
            }
            return;
        }
        // An action on hot memory seeks young pages, and one that takes memory away seeks others. Until the next survey
        // clears accessed bits, another check would find the same.
        let action = self.scheme.action;
        let seeks_young = action.moves() == Some(Moves::Hot);
        let is_surveyed = !self.snapshot.histories.is_empty();
        let is_lasting = kind == PageKind::Young && (seeks_young || action.takes_away() && is_surveyed);
        let mut others = Vec::new();
        let mut decide = |part: Option<AddrRange>, is_of_kind: bool| match part {
            Some(part) if is_of_kind != filter.matching => others.push(part),
            Some(part) if filter.allow => allowed.push(part),
            Some(part) if nth < self.by_place => self.in_place.mark(context.target, part, self.snapshot.time),
            // Absent memory does not count as rejected.
            Some(_) if kind == PageKind::Present => {}
            Some(part) => {
                let now = self.snapshot.time;
                let looks_again = kind == PageKind::Young && seeks_young;
                // How often hot memory is checked once more has a rule of its own.
                let counted = if looks_again { part.size() } else { self.rejections.reject(context.target, part, now) };
                self.total.rejected_bytes += counted;
                if is_lasting && is_of_kind != seeks_young {
                    self.not_again.mark(context.target, part, now);
                }
            }
            None => {}
        };
        let mut later = found.as_slice();
        for range in ranges {
            let mut at = range.start();
            later = &later[later.partition_point(|pages| pages.end() <= at)..];
            for pages in later.iter().map_while(|pages| pages.intersection(*range)) {
                decide(AddrRange::new(at, pages.start()), false);
                decide(Some(pages), true);
                at = pages.end();
            }
            decide(AddrRange::new(at, range.end()), false);
        }
        self.examine(nth + 1, context, &others, allowed);
    }

    fn push(&mut self, target: TargetId, range: AddrRange) {
        self.total.passed_bytes += range.size();
        self.batch.bytes += range.size();
        // A range that was cut becomes one range again, also if its first part had to be inspected.
        if let Some((last_target, last)) = self.batch.ranges.last_mut()
            && *last_target == target
            && (last.touches(range) || range.touches(*last))
            && let Some(both) = AddrRange::new(last.start().min(range.start()), last.end().max(range.end()))
        {
            *last = both;
            return;
        }
        self.batch.ranges.push((target, range));
    }

    /// Inspects what waits for it, acts on the batch, target by target, and charges both to the budget.
    fn flush(&mut self) -> Result<(), BoxError> {
        self.inspect_waiting(|this, candidate, range| this.push(candidate.target, range));
        let mut ranges = std::mem::take(&mut self.batch.ranges);
        ranges.sort_unstable();
        for of_one in ranges.chunk_by(|(a, _), (b, _)| a == b) {
            let target = of_one[0].0;
            for calls in of_one.chunks(BATCH_RANGES) {
                self.batch.call.clear();
                self.batch.call.extend(calls.iter().map(|(_, range)| *range));
                self.act(target)?;
            }
        }
        ranges.clear();
        self.batch.ranges = ranges;

        let spent = self.actuator.time_spent() + self.inspector.time_inspecting();
        let time = spent.saturating_sub(self.charged);
        self.charged = spent;
        self.total.time += time;
        let (bytes, inspected) = (std::mem::take(&mut self.batch.bytes), std::mem::take(&mut self.batch.inspected));
        let in_place = std::mem::take(&mut self.batch.in_place);
        if bytes > 0 || inspected > 0 {
            let charged = bytes.saturating_sub(in_place);
            self.demand.serve(charged);
            self.allowance.charge(charged, inspected.max(bytes), time);
        }
        Ok(())
    }

    /// Makes one call and counts its outcomes.
    fn act(&mut self, target: TargetId) -> Result<(), BoxError> {
        let action = self.scheme.action;
        let Batch { call, outcomes, in_place, .. } = &mut *self.batch;
        outcomes.clear();
        match action {
            Action::Stat => outcomes.extend(call.iter().map(|range| Outcome::all(*range))),
            _ => {
                outcomes.resize(call.len(), Outcome::default());
                let elsewhere = Some(Elsewhere::new(self.snapshot, self.scheme.condition.age.min()));
                let work = Work { action, inside: self.scheme.inside, target, ranges: call, elsewhere };
                self.actuator.apply(&work, outcomes)?;
            }
        }
        // A page frame that was freed soon holds other memory, which has not come back.
        let watches = target != TargetId::PhysicalMemory;
        for (&range, outcome) in call.iter().zip(outcomes) {
            let applied = outcome.applied.min(range.size());
            self.total.applied_bytes += applied;
            self.total.applied_regions += u64::from(applied > 0);
            if let Some(refusal) = outcome.refusal {
                self.total.refuse(refusal, outcome.refused.min(range.size() - applied));
            }
            if action.frees() {
                let unmapped = outcome.unmapped.min(range.size() - applied);
                self.total.unmapped_bytes += unmapped;
                // What was only unmapped comes back without having been freed, and what has come back was freed.
                let left = outcome
                    .resident
                    .map_or(range.size() - applied, |resident| (resident + unmapped).saturating_sub(outcome.returned));
                // What was freed elsewhere in the cgroup comes back elsewhere.
                let here = match action.reclaim() {
                    Some(_) => applied.min(range.size().saturating_sub(left)),
                    None => applied,
                };
                if watches {
                    let tally = Tally { freed: here, returned: outcome.returned.min(here) };
                    self.victims.freed(target, range, tally, left, self.snapshot.time);
                }
                self.taken.extend((here + unmapped > 0).then_some((target, range, here + unmapped)));
                match (applied, unmapped) {
                    (0, 0) => self.backoff.failed(Resisted::Mapped, target, range, self.snapshot.time),
                    (0, _) => self.backoff.failed(Resisted::Unmapped, target, range, self.snapshot.time),
                    _ => self.backoff.freed(target, range),
                }
            }
            if applied > 0 {
                self.locks.mark(action, target, range, self.snapshot.time);
            }
            let moves = action.moves();
            // Memory in its place was not changed.
            let is_in_place = moves.is_some() && applied == 0 && outcome.refused == 0;
            if let Some(direction) = moves {
                *in_place += range.size().saturating_sub(applied + outcome.refused);
                if is_in_place {
                    self.in_place.mark(target, range, self.snapshot.time);
                } else if applied > 0 {
                    self.moved.mark(direction, target, range, self.snapshot.time);
                    let tally = Tally { freed: applied, returned: 0 };
                    self.victims.freed(target, range, tally, 0, self.snapshot.time);
                }
            }
            // Refused memory is of age 0 as well, so that it is not tried again at once.
            if action.restarts_age() && !is_in_place {
                self.history.mark(target, range, self.snapshot.time);
            }
            self.last.regions.push(ActedRegion { target, range, applied });
        }
        Ok(())
    }
}

/// The part of `range`, from its start on, that has at most `most` bytes and ends at the end of `range` or at a
/// multiple of `granule`.
fn cut(range: AddrRange, most: u64, granule: u64) -> Option<AddrRange> {
    if range.size() <= most {
        return Some(range);
    }
    let end = range.start() + most;
    AddrRange::new(range.start(), end - end % granule)
}
