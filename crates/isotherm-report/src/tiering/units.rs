//! The memory of a target in units of one size, as the trial places it.

use isotherm_core::AddrRange;

/// One unit: a range of addresses of a target that is placed by its bytes in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// Its first address, divided by the size of a unit.
    pub(super) index: u64,
    /// Bytes in memory.
    pub(super) present: u64,
    /// Accesses to pages in a second, as the last survey tells: each page that it found touched counts once.
    pub(super) surveyed: f64,
    /// Bytes of which nothing tells whether they are accessed.
    pub(super) unknown: f64,
    /// Accesses to pages that samples found since the start of the look.
    pub(super) sampled: f64,
    /// The mean of the accesses per byte in a second, which forgets. `None` before the first look.
    pub(super) temperature: Option<f64>,
    /// Where it lies, for each size of the fast tier.
    pub(super) places: Box<[Place]>,
}

/// Where a unit lies with one size of the fast tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// Its bytes in the fast tier by first touch.
    pub(super) first: u64,
    /// Its bytes in the fast tier as isotherm moves them.
    pub(super) moved: u64,
    /// When it was moved last, in seconds.
    pub(super) at: Option<f32>,
    /// The number of looks, one after another, that found it hot.
    pub(super) hot_looks: u8,
}

/// What a unit is to become.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) index: u64,
    pub(super) present: f64,
    pub(super) surveyed: f64,
    pub(super) unknown: f64,
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
pub(super) fn push(units: &mut Vec<Found>, found: Found) {
    match units.last_mut() {
        Some(last) if last.index == found.index => {
            last.present += found.present;
            last.surveyed += found.surveyed;
            last.unknown += found.unknown;
        }
        _ => units.push(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_borders_of_units() {
        let range = AddrRange::new(0x3000, 0x9000).unwrap();
        assert_eq!(parts(range, 0x4000).collect::<Vec<_>>(), [(0, 0x1000), (1, 0x4000), (2, 0x1000)]);
    }
}
