//! Pages of processes whose accessed bits are set and cannot be cleared.

use std::collections::BTreeMap;

use isotherm_core::TargetId;
use isotherm_core::survey::PageBits;

/// The stuck pages of all processes.
#[derive(Debug, Default)]
pub(super) struct StuckPages {
    processes: BTreeMap<TargetId, OfProcess>,
    survey: u64,
}

/// The stuck pages of one process.
#[derive(Debug, Default)]
pub(super) struct OfProcess {
    /// The identity of its address space.
    space: u64,
    /// The last survey in which the process was there.
    survey: u64,
    /// By the first address of each block.
    blocks: BTreeMap<u64, PageBits>,
}

impl StuckPages {
    /// Begins a survey. Forgets processes that the survey before has not met.
    pub(super) fn begin(&mut self) {
        let last = self.survey;
        self.processes.retain(|_, process| process.survey == last);
        self.survey += 1;
    }

    /// The stuck pages of a process, none if it has another address space than before.
    pub(super) fn of(&mut self, process: TargetId, space: u64) -> &mut OfProcess {
        let of = self.processes.entry(process).or_default();
        if of.space != space {
            *of = OfProcess { space, ..OfProcess::default() };
        }
        of.survey = self.survey;
        of
    }
}

impl OfProcess {
    /// The pages of a block that are stuck and still `accessed`. Others are not stuck any more.
    pub(super) fn still(&mut self, start: u64, accessed: PageBits) -> PageBits {
        let Some(pages) = self.blocks.get_mut(&start) else { return PageBits::NONE };
        *pages &= accessed;
        let pages = *pages;
        if pages.is_empty() {
            self.blocks.remove(&start);
        }
        pages
    }

    /// Sets the stuck pages of a block.
    pub(super) fn set(&mut self, start: u64, pages: PageBits) {
        if pages.is_empty() {
            self.blocks.remove(&start);
        } else {
            self.blocks.insert(start, pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_page_is_stuck_until_its_bit_is_seen_clear_or_its_process_is_another() {
        let mut stuck = StuckPages::default();
        let [one, other] = [1, 2].map(|pid| TargetId::process(pid, Duration::ZERO));
        stuck.begin();
        stuck.of(one, 7).set(0, PageBits::of(0..8));
        stuck.of(other, 8).set(0, PageBits::of(0..8));
        stuck.begin();
        assert_eq!(stuck.of(one, 7).still(0, PageBits::of(4..100)), PageBits::of(4..8));
        assert_eq!(stuck.of(one, 7).still(0, PageBits::ALL), PageBits::of(4..8));
        assert_eq!(stuck.of(one, 9).still(0, PageBits::ALL), PageBits::NONE, "after an exec");
        stuck.begin();
        assert_eq!(stuck.of(other, 8).still(0, PageBits::ALL), PageBits::NONE, "it was not there");
    }
}
