//! Which pages of simulated memory are resident: all of them at first, without those that were reclaimed and have not
//! been touched since.

use std::time::Duration;

use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::SimMemory;

/// The pages that are not resident. The list has an entry for each area of the pattern.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Whether each page was reclaimed and is not resident.
    pub(crate) reclaimed: Vec<Vec<bool>>,
    /// Touches up to this time have been turned into faults.
    faulted_until: Duration,
    /// Touches of pages that had been reclaimed.
    pub(crate) faults: u64,
}

impl Presence {
    /// All pages of these areas are resident.
    pub(crate) fn new(areas: impl Iterator<Item = AddrRange>, now: Duration) -> Self {
        let reclaimed = areas.map(|range| vec![false; (range.size() / PAGE_SIZE) as usize]).collect();
        Self { reclaimed, faulted_until: now, faults: 0 }
    }

    /// Makes reclaimed pages resident that have been touched since this function was called last.
    pub(crate) fn read_back(&mut self, memory: &SimMemory) {
        let now = memory.clock().now();
        let since = std::mem::replace(&mut self.faulted_until, now);
        if since == now {
            return;
        }
        for (area, reclaimed) in self.reclaimed.iter_mut().enumerate() {
            let pages = reclaimed.len() as u64;
            for touch in memory.touches(area) {
                for (page, reclaimed) in (0..).zip(reclaimed.iter_mut()).filter(|(_, reclaimed)| **reclaimed) {
                    if memory.touched(touch, page, pages, since) {
                        *reclaimed = false;
                        self.faults += 1;
                    }
                }
            }
        }
    }
}
