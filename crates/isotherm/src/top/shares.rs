//! How much of a region was accessed: by samples, or by the last survey in a run without samples.

use std::collections::HashMap;

use isotherm_core::RegionSnapshot;
use isotherm_record::Row;
use isotherm_report::{HOT_HZ, Parts, Share, pieces};

/// What the regions of a row tell.
pub struct Shares<'a> {
    row: Row<'a>,
    sampled: bool,
    /// The mapped bytes of each region, by its start.
    mapped: HashMap<u64, u64>,
}

impl<'a> Shares<'a> {
    pub fn new(row: &Row<'a>) -> Self {
        // In a run with samples, each region is sampled at least once in an aggregation.
        let sampled = row.target.regions.iter().any(|region| region.nr_samples > 0 || region.pages.is_none());
        let mapped = pieces(row, None).map(|piece| (piece.region.range.start(), piece.whole)).collect();
        Self { row: *row, sampled, mapped }
    }

    /// Whether there are samples.
    pub fn sampled(&self) -> bool {
        self.sampled
    }

    /// The shares of a region that could be observed, that were accessed, and that nothing is known of. Without
    /// samples, the accessed share is what the last survey found touched.
    pub fn of(&self, region: &RegionSnapshot) -> Share {
        let Some(pages) = region.pages.filter(|_| !self.sampled) else {
            return Share::of(region, self.row.samples, self.row.aggregation);
        };
        let share = |bytes: u64| bytes as f64 / pages.present.max(1) as f64;
        let observed = (1.0 - share(pages.unobservable + pages.unknown)).clamp(0.0, 1.0);
        let unknown = share(pages.unknown).min(1.0 - observed);
        Share { observed, accessed: share(pages.touched).min(observed), unknown, hz: 0.0 }
    }

    /// The parts of a region by temperature. Without samples, what is touched is warm.
    pub fn parts(&self, region: &RegionSnapshot) -> Parts {
        if self.sampled {
            return Parts::of(region, self.of(region), HOT_HZ);
        }
        let Share { observed, accessed, unknown, .. } = self.of(region);
        let unobservable = 1.0 - observed - unknown;
        Parts { hot: 0.0, warm: accessed, cold: observed - accessed, unobservable, unknown }
    }

    /// The part of the mapped bytes of a region that counts as memory: with surveys, what is in memory.
    pub fn weight(&self, region: &RegionSnapshot) -> f64 {
        let mapped = self.mapped.get(&region.range.start()).copied().unwrap_or(region.range.size());
        region.pages.map_or(1.0, |pages| pages.present as f64 / mapped.max(1) as f64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::{AddrRange, Figures, Mapping, Quantity};

    use super::*;
    use crate::top::figures::TargetFigures;
    use crate::top::fixtures::record;

    #[test]
    fn without_samples_what_was_touched_counts_and_only_what_is_in_memory() {
        let mut record = record(1, &[7]);
        let target = &mut record.snapshot.targets[0];
        target.regions.truncate(1);
        let region = &mut target.regions[0];
        let present = region.range.size() / 2;
        let part = |tenths: u64| present / 10 * tenths;
        region.pages = Some(Figures {
            present,
            touched: part(2),
            unobservable: part(1),
            unknown: part(4),
            swapped: Quantity::unknown(),
        });
        let row = record.rows().next().unwrap();
        let sampled = Shares::new(&row).of(&row.target.regions[0]);
        assert_eq!(sampled, Share::of(&row.target.regions[0], row.samples, row.aggregation));
        record.snapshot.targets[0].regions[0].nr_samples = 0;
        let row = record.rows().next().unwrap();
        let (shares, region) = (Shares::new(&row), &row.target.regions[0]);
        let Share { observed, accessed, unknown, .. } = shares.of(region);
        let found = [observed, accessed, unknown];
        assert!(found.iter().zip([0.5, 0.2, 0.4]).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        assert_eq!(shares.weight(region), 0.5);
        let Parts { unobservable, unknown, .. } = shares.parts(region);
        assert!((unobservable - 0.1).abs() < 1e-6 && (unknown - 0.4).abs() < 1e-6, "{unobservable} {unknown}");
    }

    #[test]
    fn scattered_memory_counts_whole_however_large_the_gaps_in_a_region_are() {
        let mut record = record(1, &[7]);
        let target = &mut record.snapshot.targets[0];
        let areas = (0..900_u64).map(|nth| AddrRange::new(nth << 30, (nth << 30) + (512 << 10)).unwrap());
        target.mappings = areas.map(Mapping::anonymous).collect();
        target.regions.truncate(1);
        let region = &mut target.regions[0];
        region.range = AddrRange::new(0, 900 << 30).unwrap();
        let (present, touched) = (900 * (512 << 10), 100 * (512 << 10));
        region.pages = Some(Figures { present, touched, ..Figures::default() });
        let figures = TargetFigures::of_whole(&record.rows().next().unwrap());
        let found = [figures.total.size, figures.resident.unwrap(), figures.total.working_set];
        let expected = [present, present, touched].map(|bytes| bytes as f64);
        assert!(found.iter().zip(expected).all(|(found, of)| (found - of).abs() < 1.0), "{found:?}, {expected:?}");
    }

    #[test]
    fn with_samples_and_surveys_only_what_was_touched_is_in_use() {
        let mut record = record(1, &[7]);
        let target = &mut record.snapshot.targets[0];
        target.regions.truncate(1);
        let region = &mut target.regions[0];
        (region.nr_accesses, region.frequency) = (0, None);
        let present = region.range.size() / 2;
        let pages =
            Figures { present, touched: present / 4, unobservable: 0, unknown: 0, swapped: Quantity::unknown() };
        region.pages = Some(pages);
        let size = region.range.size() as f64;
        let figures = TargetFigures::of_whole(&record.rows().next().unwrap());
        assert_eq!((figures.total.size, figures.total.working_set), (size / 2.0, size / 8.0));
        assert_eq!((figures.total.warm, figures.total.cold), (size / 8.0, size * 3.0 / 8.0));
    }
}
