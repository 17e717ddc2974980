//! Which pages of simulated memory are resident: all of them at first, without those that were reclaimed and have not
//! been touched since.

use std::time::Duration;

use isotherm_core::{AddrRange, PAGE_SIZE};

/// The pages that are not resident. The list has an entry for each area of the pattern.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Whether each page was reclaimed and is not resident.
    pub(crate) reclaimed: Vec<Vec<bool>>,
    /// Touches up to this time have been turned into faults.
    pub(crate) faulted_until: Duration,
    /// Touches of pages that had been reclaimed.
    pub(crate) faults: u64,
}

impl Presence {
    /// All pages of these areas are resident.
    pub(crate) fn new(areas: impl Iterator<Item = AddrRange>, now: Duration) -> Self {
        let reclaimed = areas.map(|range| vec![false; (range.size() / PAGE_SIZE) as usize]).collect();
        Self { reclaimed, faulted_until: now, faults: 0 }
    }
}
