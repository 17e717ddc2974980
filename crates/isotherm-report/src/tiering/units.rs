//! The memory of a target in units of one size, as the trial places it.

use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_core::tiering::IDLE;

use super::place::{Part, Size, resize, share, transfer};

/// One unit: a range of addresses of a target, in two parts.
///
/// A survey says how many bytes of a unit were touched, but not which. The model assumes the same bytes each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// Its first address, divided by the size of a unit.
    pub(super) index: u64,
    /// The part in use: as many bytes as a survey of the last seconds has found touched. Without surveys, all bytes.
    pub(super) used: Part,
    /// The part that is not in use.
    pub(super) rest: Part,
    /// The most bytes that were found touched recently, and when.
    most: (f64, Duration),
}

/// The new state of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UnitState {
    pub(super) index: u64,
    pub(super) present: f64,
    /// Bytes that the survey found touched. `None` without a survey.
    pub(super) touched: Option<f64>,
    /// Accesses to pages in a second.
    pub(super) surveyed: f64,
    pub(super) unknown: f64,
}

impl Unit {
    /// A unit without memory, for this many sizes of the fast tier.
    pub(super) fn new(index: u64, sizes: usize) -> Self {
        Self { index, used: Part::new(sizes), rest: Part::new(sizes), ..Self::default() }
    }

    /// Bytes in memory.
    pub(super) fn present(&self) -> u64 {
        self.used.present + self.rest.present
    }

    /// Frees all of its memory.
    pub(super) fn free(&mut self, sizes: &mut [Size]) {
        [&mut self.used, &mut self.rest].into_iter().for_each(|part| resize(part, 0, sizes));
    }

    /// The part that samples look at.
    pub(super) fn sampled(&mut self) -> &mut Part {
        if self.used.present > 0 { &mut self.used } else { &mut self.rest }
    }

    /// Gives the unit the memory that was found at `time`.
    pub(super) fn take(&mut self, found: UnitState, time: Duration, sizes: &mut [Size]) {
        let (before, present) = (self.present(), found.present.round() as u64);
        if present >= before {
            // Memory that appears is in use.
            let grown = self.used.present + (present - before);
            resize(&mut self.used, grown, sizes);
        } else {
            let rest = share(self.rest.present, present, before);
            resize(&mut self.rest, rest, sizes);
            resize(&mut self.used, present - rest, sizes);
        }
        let used = found.touched.map_or(present, |touched| self.most_touched(touched, time).min(present));
        let used_before = self.used.present;
        if used > used_before {
            transfer(&mut self.rest, &mut self.used, used - used_before);
        } else {
            transfer(&mut self.used, &mut self.rest, used_before - used);
        }
        self.used.surveyed = found.surveyed;
        // Where something was touched, all of the unit counts as known.
        self.rest.unknown = if found.surveyed > 0.0 { 0.0 } else { found.unknown.min(self.rest.present as f64) };
        self.used.unknown = 0.0;
    }

    /// The most bytes that were touched within the time after which memory is idle, about.
    fn most_touched(&mut self, touched: f64, time: Duration) -> u64 {
        if touched >= self.most.0 || time.saturating_sub(self.most.1) >= IDLE {
            self.most = (touched, time);
        }
        self.most.0.round() as u64
    }
}

/// The parts of a range that lie in one unit each: the index of the unit, and bytes.
pub(super) fn parts(range: AddrRange, unit: u64) -> impl Iterator<Item = (u64, u64)> {
    let (first, last) = (range.start() / unit, (range.end() - 1) / unit);
    (first..=last).map(move |index| {
        let start = range.start().max(index * unit);
        let end = range.end().min((index + 1).saturating_mul(unit));
        (index, end - start)
    })
}

/// Adds what was found to the last unit, or as a new one. Units come in the order of addresses.
pub(super) fn push(units: &mut Vec<UnitState>, found: UnitState) {
    match units.last_mut() {
        Some(last) if last.index == found.index => {
            last.present += found.present;
            last.touched = last.touched.zip(found.touched).map(|(a, b)| a + b);
            last.surveyed += found.surveyed;
            last.unknown += found.unknown;
        }
        _ => units.push(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_range_is_cut_at_the_borders_of_units() {
        let range = AddrRange::new(0x3000, 0x9000).unwrap();
        assert_eq!(parts(range, 0x4000).collect::<Vec<_>>(), [(0, 0x1000), (1, 0x4000), (2, 0x1000)]);
    }

    #[test]
    fn what_was_touched_in_the_last_ten_seconds_is_in_use() {
        let mut sizes = [Size { bytes: 60, ..Size::default() }];
        let mut unit = Unit::new(0, 1);
        let mut used = |second, present, touched| {
            let found = UnitState { present, touched, ..UnitState::default() };
            unit.take(found, SECOND * second, &mut sizes);
            assert_eq!(unit.present(), present as u64);
            // Each part keeps its share of the fast tier.
            let fast = [&unit.used, &unit.rest].map(|part| part.places[0].first);
            assert_eq!(fast[0] + fast[1], sizes[0].first_used);
            (unit.used.present, fast[0])
        };
        assert_eq!(used(1, 100.0, Some(50.0)), (50, 30));
        assert_eq!(used(2, 100.0, Some(10.0)), (50, 30));
        assert_eq!(used(11, 100.0, Some(10.0)), (10, 6));
        assert_eq!(used(12, 100.0, Some(20.0)), (20, 12));
        assert_eq!(used(13, 50.0, Some(20.0)), (20, 12), "what goes is taken from both parts");
        assert_eq!(used(14, 50.0, None), (50, 30), "without a survey, all of it may be in use");
    }
}
