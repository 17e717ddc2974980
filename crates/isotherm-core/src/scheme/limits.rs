//! Limits of all schemes together, which hold whatever their quotas allow: bytes in a second, and memory that is out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use crate::survey::PageHistory;
use crate::{AddrRange, Mapping, PAGE_SIZE, Snapshot, TargetId, TargetSnapshot};

use super::Action;

/// At most this time is made up for at once, where nothing was done before.
const SAVED: Duration = Duration::from_secs(1);

/// The most ranges of a target that are kept apart. If there are more, neighbours become one range, of which all absent
/// memory counts as out.
const MOST_RANGES: usize = 1 << 16;

/// What all schemes together may do at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The bytes in a second that actions are called for, on the mean. No more than that is done at once.
    pub bytes_per_second: Option<u64>,
    /// The most bytes that may be [out](TakenOut). Schemes that free memory keep to it.
    pub most_out: Option<u64>,
}

/// The memory of the targets that is out: what they have in swap, and what schemes have freed or unmapped that is
/// neither in swap nor in the memory of its target again, as memory of a file.
///
/// It follows from the last survey and from what was taken since. What was taken less than two surveys ago may count
/// twice. Without surveys, what comes back is not seen, and counts until it is unmapped or its target ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenOut {
    /// The ranges of which schemes have taken memory.
    taken: BTreeMap<TargetId, RangeSet<u64>>,
    /// Bytes that the last survey has found out.
    found: u64,
    /// Bytes that were taken before the last survey, since the one before it, and since the last.
    recent: [u64; 2],
    /// The time of the last survey.
    surveyed: Option<Duration>,
}

impl TakenOut {
    /// How many bytes are out, at most.
    pub fn bytes(&self) -> u64 {
        self.recent.iter().fold(self.found, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Takes in what a snapshot shows.
    fn look(&mut self, snapshot: &Snapshot) {
        let surveyed = snapshot.histories.iter().map(|(_, history)| history.time()).max();
        if surveyed.is_some() && surveyed == self.surveyed {
            return;
        }
        self.surveyed = surveyed;
        // A target that is not there yet has lost nothing.
        if !snapshot.targets.is_empty() {
            self.taken.retain(|id, _| snapshot.targets.iter().any(|target| target.id == *id));
        }
        let swapped = snapshot.histories.iter().filter_map(|(_, history)| history.swapped());
        let swapped = swapped.fold(0, u64::saturating_add).saturating_mul(PAGE_SIZE);
        let of_target = |(id, ranges): (&TargetId, &mut RangeSet<u64>)| {
            let target = snapshot.targets.iter().find(|target| target.id == *id);
            target.map_or(0, |target| look_at(ranges, target, snapshot.history(*id)))
        };
        self.found = self.taken.iter_mut().map(of_target).fold(swapped, u64::saturating_add);
        // Without surveys, what was taken is in the ranges.
        self.recent = if surveyed.is_some() { [self.recent[1], 0] } else { [0, 0] };
    }

    /// Takes in that an action has taken `bytes` of `range` from its target.
    fn take(&mut self, target: TargetId, range: AddrRange, bytes: u64) {
        let ranges = self.taken.entry(target).or_default();
        ranges.insert(range.into());
        if ranges.len() > MOST_RANGES {
            *ranges = in_pairs(ranges);
        }
        self.recent[1] = self.recent[1].saturating_add(bytes);
    }
}

/// How many bytes of these ranges of a target are mapped and neither in memory nor in swap. Ranges of which all are in
/// memory, or unmapped, are dropped.
fn look_at(ranges: &mut RangeSet<u64>, target: &TargetSnapshot, history: Option<&PageHistory>) -> u64 {
    let mut out = 0_u64;
    let mut is_over = |range: &Range<u64>| {
        let Some(range) = AddrRange::new(range.start, range.end) else { return true };
        let mut absent = 0;
        for part in mapped(&target.mappings, range) {
            let pages = history.map(|history| history.pages_in(part)).unwrap_or_default();
            let swapped = pages.swapped.known().unwrap_or(0);
            absent += part.size().saturating_sub(pages.present);
            out += part.size().saturating_sub(pages.present).saturating_sub(swapped);
        }
        absent == 0
    };
    let over: Vec<Range<u64>> = ranges.iter().filter(|range| is_over(range)).cloned().collect();
    over.into_iter().for_each(|range| ranges.remove(range));
    out
}

/// The mapped parts of a range.
fn mapped(mappings: &[Mapping], range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let first = mappings.partition_point(|mapping| mapping.range.end() <= range.start());
    mappings[first..].iter().map_while(move |mapping| mapping.range.intersection(range))
}

/// Half as many ranges: two neighbours each, with what lies between them.
fn in_pairs(ranges: &RangeSet<u64>) -> RangeSet<u64> {
    let all: Vec<&Range<u64>> = ranges.iter().collect();
    all.chunks(2).filter_map(|pair| Some(pair.first()?.start..pair.last()?.end)).collect()
}

/// Keeps all schemes within their limits.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    limits: Limits,
    out: TakenOut,
    /// Bytes that may be acted on now.
    saved: u64,
    /// When `saved` was added to last.
    at: Option<Duration>,
}

/// What an application may do at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Bytes that are left.
    pub left: u64,
    /// Bytes that all schemes may act on in a second. `None` for no limit.
    pub whole: Option<u64>,
}

impl Share {
    const ALL: Self = Self { left: u64::MAX, whole: None };
}

impl Limiter {
    pub(crate) fn new(limits: Limits, out: TakenOut) -> Self {
        Self { limits, out, ..Self::default() }
    }

    pub(crate) fn out(&self) -> &TakenOut {
        &self.out
    }

    /// Begins the applications to a snapshot.
    pub(crate) fn begin(&mut self, snapshot: &Snapshot) {
        if self.limits.most_out.is_some() {
            self.out.look(snapshot);
        }
        if let Some(bytes) = self.limits.bytes_per_second {
            let passed = self.at.map_or(Duration::ZERO, |at| snapshot.time.saturating_sub(at)).min(SAVED);
            let more = u128::from(bytes) * passed.as_nanos() / SAVED.as_nanos();
            self.saved = u64::try_from(more).unwrap_or(u64::MAX).saturating_add(self.saved).min(bytes);
            self.at = Some(snapshot.time);
        }
    }

    /// What a scheme with this action may do. It leaves an equal part for each of `others` that follow.
    pub(crate) fn share(&self, action: Action, others: u64) -> Share {
        let Limits { bytes_per_second, most_out } = self.limits;
        if !action.changes_memory() {
            return Share::ALL;
        }
        let of_rate = bytes_per_second.map_or(u64::MAX, |_| self.saved);
        let of_out = most_out.filter(|_| action.frees()).map_or(u64::MAX, |most| most.saturating_sub(self.out.bytes()));
        let left = match of_rate.min(of_out) {
            u64::MAX => u64::MAX,
            left => left / others.saturating_add(1),
        };
        Share { left, whole: bytes_per_second }
    }

    /// Takes in that an application was charged so many bytes, and has taken these from their targets.
    pub(crate) fn take(&mut self, charged: u64, taken: impl Iterator<Item = (TargetId, AddrRange, u64)>) {
        self.saved = self.saved.saturating_sub(charged);
        let is_limited = self.limits.most_out.is_some();
        taken.filter(|_| is_limited).for_each(|(target, range, bytes)| self.out.take(target, range, bytes));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::survey::{BlockPages, PageBits};

    const TARGET: TargetId = TargetId::process(1, Duration::ZERO);

    fn pages(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()
    }

    /// A survey of this time that found pages 0 to 99 in memory and some in swap, in mappings of these pages.
    fn surveyed(time: u64, swapped: std::ops::Range<usize>, mapped: &[(u64, u64)]) -> Snapshot {
        let mappings: Arc<[Mapping]> = mapped.iter().map(|(a, b)| Mapping::anonymous(pages(*a, *b))).collect();
        let block =
            BlockPages { present: PageBits::of(0..100), swapped: PageBits::of(swapped), ..BlockPages::default() };
        let update = Arc::new(PageHistory::default()).update(Duration::ZERO).take(&[block]).end(&mappings);
        let (history, ..) = update.finish_with_sums(Duration::from_secs(time), (TARGET, &mappings), true);
        let target = TargetSnapshot { id: TARGET, regions: Vec::new(), mappings };
        Snapshot { targets: vec![target], histories: vec![(TARGET, history)], ..Snapshot::default() }
    }

    #[test]
    fn what_is_out_is_what_is_in_swap_and_what_was_freed_and_is_mapped_and_absent() {
        let mut out = TakenOut::default();
        let found = |out: &mut TakenOut, time, swapped, mapped: &[(u64, u64)]| {
            out.look(&surveyed(time, swapped, mapped));
            out.bytes() / PAGE_SIZE
        };
        assert_eq!(found(&mut out, 1, 300..310, &[(0, 512)]), 10, "the kernel has put them there");
        out.take(TARGET, pages(90, 150), 50 * PAGE_SIZE);
        out.take(TARGET, pages(150, 160), 10 * PAGE_SIZE);
        assert_eq!(out.taken[&TARGET].len(), 1, "ranges that touch are one");
        assert_eq!(out.bytes() / PAGE_SIZE, 70);
        assert_eq!(found(&mut out, 2, 300..310, &[(0, 512)]), 130, "the survey may have read before it was freed");
        assert_eq!(found(&mut out, 2, 0..0, &[(0, 512)]), 130, "the same survey");
        assert_eq!(found(&mut out, 3, 300..310, &[(0, 512)]), 70);
        assert_eq!(found(&mut out, 4, 110..120, &[(0, 512)]), 60, "a part of it is in swap");
        assert_eq!(found(&mut out, 5, 0..0, &[(0, 130), (155, 512)]), 35, "a part of it was unmapped");
        assert_eq!(found(&mut out, 6, 0..0, &[(0, 90)]), 0);
        assert!(out.taken[&TARGET].is_empty());
    }

    #[test]
    fn ranges_that_are_too_many_become_fewer_and_lose_nothing() {
        let mut out = TakenOut::default();
        for page in 0..=MOST_RANGES as u64 {
            out.take(TARGET, pages(page * 2, page * 2 + 1), PAGE_SIZE);
        }
        let ranges = &out.taken[&TARGET];
        assert!(ranges.len() <= MOST_RANGES / 2 + 1, "{}", ranges.len());
        let size: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(size >= MOST_RANGES as u64 * PAGE_SIZE, "{size}");
    }
}
