//! The survey of a probe that sees whole mappings: how much of each was accessed, but not which pages.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::windows::LONGEST_WINDOW;
use super::{Kinds, PageSums, WINDOWS};
use crate::{AddrRange, BoxError, Figures, TargetId, TargetSpace};

/// What a survey has read of a mapping, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingRead {
    /// The addresses of the mapping.
    pub range: AddrRange,
    /// What is known of it. The touched bytes are those that were accessed since they were cleared, or since they were
    /// mapped if they were never cleared.
    pub figures: Figures,
    /// Bytes in memory that count in another mapping, as [`PageSums::mapped_again`].
    pub mapped_again: u64,
    /// Bytes by kind.
    pub kinds: Kinds,
}

impl MappingRead {
    /// Limits the bytes to those of `range`, which begins at the same address.
    pub(crate) fn limit_to(&mut self, range: AddrRange) {
        self.range = range;
        self.figures = self.figures.limited_to(range.size());
        self.mapped_again = self.mapped_again.min(range.size());
    }
}

/// A way to learn how many bytes of each mapping were accessed.
pub trait MappingSurvey {
    /// Reads all mappings of `target` that have memory or swap, in the order of addresses, and clears all accessed bits
    /// of the target.
    ///
    /// # Errors
    /// Fails only if the run cannot continue. A target that has just ended has no mappings.
    fn read_and_clear(&mut self, target: &TargetSpace) -> Result<Vec<MappingRead>, BoxError>;

    /// Why a target was left out of the last survey, and which option has it observed, in a sentence. `None`, the
    /// default, if none was.
    fn left_out(&self) -> Option<String> {
        None
    }
}

/// What surveys have found in each mapping, as far back as the longest window.
#[derive(Clone, Debug, Default)]
pub(crate) struct MappingHistories {
    targets: HashMap<TargetId, MappingHistory>,
}

/// The mappings of one target.
#[derive(Clone, Debug, Default)]
struct MappingHistory {
    /// When the last survey was.
    last: Option<Duration>,
    /// The intervals of each mapping by its first address, the last one first.
    touched: BTreeMap<u64, VecDeque<Touched>>,
}

/// What was accessed from one survey to the next.
#[derive(Clone, Copy, Debug)]
struct Touched {
    began: Duration,
    bytes: u64,
}

impl MappingHistories {
    /// Forgets the targets for which `lives` is false.
    pub(crate) fn retain(&mut self, lives: impl Fn(TargetId) -> bool) {
        self.targets.retain(|&id, _| lives(id));
    }

    /// The time since the last survey of a target. Zero before the first one.
    pub(crate) fn interval(&self, target: TargetId, now: Duration) -> Duration {
        let last = self.targets.get(&target).and_then(|target| target.last);
        last.map_or(Duration::ZERO, |last| now.saturating_sub(last))
    }

    /// Takes what the survey of a target at `now` has read. Returns the sums of each mapping.
    /// Memory that the first survey finds accessed was accessed at an unknown time. It is not known which pages were
    /// accessed. So a window of several intervals counts the most that was accessed in one of them, which is a lower
    /// bound.
    pub(crate) fn take(&mut self, target: TargetId, read: &[MappingRead], now: Duration) -> Vec<PageSums> {
        let history = self.targets.entry(target).or_default();
        let mut before = std::mem::take(&mut history.touched);
        let mut sums = Vec::with_capacity(read.len());
        for mapping in read {
            let MappingRead { range, figures, mapped_again, kinds } = *mapping;
            let found = PageSums { kinds, mapped_again, ..PageSums::of(figures) };
            let Some(began) = history.last else {
                let figures = Figures { touched: 0, unknown: figures.touched, ..figures };
                sums.push(PageSums { figures, ..found });
                continue;
            };
            let mut intervals = before.remove(&range.start()).unwrap_or_default();
            intervals.push_front(Touched { began, bytes: figures.touched });
            let longest = now.saturating_sub(LONGEST_WINDOW);
            let kept = intervals.iter().take_while(|interval| interval.began >= longest).count().max(1);
            intervals.truncate(kept);
            let within = |window: Duration| {
                let inside =
                    intervals.iter().take_while(|interval| interval.began + SLACK >= now.saturating_sub(window));
                let most = inside.map(|interval| interval.bytes).max().unwrap_or_default();
                most.max(figures.touched).min(figures.present)
            };
            sums.push(PageSums { within: WINDOWS.map(within), ..found });
            history.touched.insert(range.start(), intervals);
        }
        history.last = Some(now);
        sums
    }
}

/// An interval that began this much before a window counts as one that began with it.
const SLACK: Duration = Duration::from_millis(100);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_the_most_of_one_interval() {
        let id = TargetId::process(1, Duration::ZERO);
        let second = Duration::from_secs(1);
        let mut histories = MappingHistories::default();
        let mut survey = |at: u32, accessed: u64| {
            let range = AddrRange::new(0x1000, 0x10_0000).unwrap();
            let figures = Figures { present: 100, touched: accessed, ..Figures::default() };
            let read = MappingRead { range, figures, mapped_again: 0, kinds: Kinds::default() };
            histories.take(id, &[read], second * at)[0]
        };
        let first = survey(0, 80);
        assert_eq!((first.figures.unknown, first.figures.touched, first.within), (80, 0, [0; WINDOWS.len()]));
        assert_eq!(survey(1, 50).within, [50; WINDOWS.len()]);
        for at in 2..4 {
            survey(at, 10);
        }
        let last = survey(4, 20);
        // Within 1, 2 and 5 s.
        assert_eq!((last.figures.touched, last.figures.unknown, &last.within[..3]), (20, 0, &[20, 20, 50][..]));
    }
}
