//! Bytes and accesses by frequency.

use isotherm_core::RegionSnapshot;

use crate::row::{Row, int};

/// The lowest frequency of each class but the first, in hertz.
const CLASSES: [f64; 6] = [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Bytes and accesses by frequency.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    is_known: bool,
    unknown: i64,
    bytes: [i64; CLASSES.len() + 1],
    accesses: [f64; CLASSES.len() + 1],
}

impl Classes {
    pub(crate) fn of(regions: &[RegionSnapshot]) -> Self {
        let mut classes = Self::default();
        for region in regions {
            let Some(bytes) = region.pages.map(|figures| int(figures.present)) else { continue };
            classes.is_known = true;
            let Some(frequency) = region.frequency else {
                classes.unknown += bytes;
                continue;
            };
            let class = CLASSES.iter().filter(|lowest| frequency.hz() >= **lowest).count();
            classes.bytes[class] += bytes;
            classes.accesses[class] += frequency.hz() * 60.0 * bytes as f64 / 4096.0;
        }
        classes
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.is_known |= other.is_known;
        self.unknown += other.unknown;
        self.bytes.iter_mut().zip(other.bytes).for_each(|(sum, bytes)| *sum += bytes);
        self.accesses.iter_mut().zip(other.accesses).for_each(|(sum, accesses)| *sum += accesses);
    }

    /// Fills in the columns of a row, if there are any frequencies.
    pub(crate) fn fill(&self, row: &mut Row) {
        if !self.is_known {
            return;
        }
        row.hz_unknown_bytes = Some(self.unknown);
        let bytes = [
            &mut row.hz_0_bytes,
            &mut row.hz_001_bytes,
            &mut row.hz_01_bytes,
            &mut row.hz_1_bytes,
            &mut row.hz_10_bytes,
            &mut row.hz_100_bytes,
            &mut row.hz_1000_bytes,
        ];
        bytes.into_iter().zip(self.bytes).for_each(|(cell, bytes)| *cell = Some(bytes));
        let accesses = [
            &mut row.hz_0_accesses,
            &mut row.hz_001_accesses,
            &mut row.hz_01_accesses,
            &mut row.hz_1_accesses,
            &mut row.hz_10_accesses,
            &mut row.hz_100_accesses,
            &mut row.hz_1000_accesses,
        ];
        accesses.into_iter().zip(self.accesses).for_each(|(cell, accesses)| *cell = Some(accesses.round() as i64));
    }
}
