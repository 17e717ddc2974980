//! The panel: a part of the blocks that stands for the rest where clearing all would cost the targets too much, or
//! would leave too little of the budget for reading.
//!
//! Each page that was cleared costs its target the time to set the accessed bit again, once it is accessed. If a target
//! accesses more memory in turn than it may set accessed bits for, only a part of it can be known. That part must not
//! depend on when memory is accessed. For example, if a program streams through its memory, the pages that are still
//! clear are those that it accesses next. Therefore the blocks have a fixed order, the panel is the first part of them,
//! and each survey clears all accessed pages of the panel.
//!
//! The place of block *n* in the order is the fractional part of *n* times the golden ratio, from a start that is
//! random for each target. So each block belongs to the panel with the same probability, and the panel has about the
//! same share of any run of neighbouring blocks. The error for a run is one or two blocks; if each place were chosen
//! independently, the error would be the square root of the number of blocks (Kuipers and Niederreiter, Uniform
//! Distribution of Sequences, 1974, chapter 2.3).

use std::time::Duration;

use super::BLOCK_SIZE;
use crate::TargetId;
use crate::order::{GOLDEN, first_place};

/// The blocks that are cleared in each survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Panel {
    /// The share of the blocks that belong to it, above 0 and at most 1.
    pub share: f64,
    /// The target of the blocks. Targets have different orders.
    pub target: TargetId,
}

impl Default for Panel {
    /// All blocks.
    fn default() -> Self {
        Self::ALL
    }
}

impl Panel {
    /// All blocks.
    pub const ALL: Self = Self { share: 1.0, target: TargetId::PhysicalMemory };

    /// Whether all blocks belong to it.
    pub(super) fn is_all(&self) -> bool {
        self.share >= 1.0
    }

    /// Whether the block that begins at `start` belongs to it.
    pub(super) fn contains(&self, start: u64) -> bool {
        self.is_all() || {
            let first = first_place(self.target);
            let place = first.wrapping_add((start / BLOCK_SIZE).wrapping_mul(GOLDEN));
            (place as f64) < self.share * u64::MAX as f64
        }
    }
}

/// The time over which the accessed bits that are set again are a mean.
const MEAN: f64 = 5.0;

/// The panel is made so large that it takes this part of what is allowed.
const PLANNED: f64 = 0.85;

/// The panel becomes larger if it takes less than this part of what is allowed, at most by this factor at a time.
const LITTLE: f64 = 0.7;
const GROWTH: f64 = 2.0;

/// The least share of the blocks in the panel.
const LEAST: f64 = 1e-4;

/// How large the panel is.
#[derive(Clone, Copy, Debug)]
pub(super) struct PanelSize {
    share: f64,
    /// How many accessed bits the targets set again in the panel, a second.
    rate: f64,
}

impl Default for PanelSize {
    fn default() -> Self {
        Self { share: 1.0, rate: 0.0 }
    }
}

impl PanelSize {
    /// The share of the blocks in the panel.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Takes in that the targets have set so many accessed bits of the panel again in `time`. They may set `allowed` of
    /// them in a second on the mean, and a survey may clear `clears` of them at once.
    pub(super) fn learn(&mut self, again: f64, time: Duration, allowed: f64, clears: f64) {
        let seconds = time.as_secs_f64();
        if seconds <= 0.0 || allowed <= 0.0 {
            return;
        }
        let allowed = allowed.min(clears / seconds);
        if again > clears {
            // The next survey would take too long.
            self.rate = self.rate.max(again / seconds);
        }
        self.rate += (again / seconds - self.rate) * (1.0 - (-seconds / MEAN).exp());
        let fits = allowed * PLANNED / self.rate.max(1e-9);
        let factor = if self.rate > allowed {
            fits
        } else if self.rate < allowed * LITTLE {
            fits.min(GROWTH)
        } else {
            1.0
        };
        let share = (self.share * factor).clamp(LEAST, 1.0);
        self.rate *= share / self.share;
        self.share = share;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;

    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearLimits, PageBits, PageHistory, WINDOWS};
    use crate::{AddrRange, Mapping};

    /// A program that accesses `blocks` blocks in turn, the same number each tenth of a second.
    struct Stream {
        blocks: usize,
        a_tenth: usize,
        /// The accessed bits.
        accessed: Vec<PageBits>,
        /// How many accessed bits it has set.
        set: usize,
    }

    impl Stream {
        fn run(&mut self, tenth: usize) {
            for block in (tenth * self.a_tenth..).take(self.a_tenth) {
                let bits = &mut self.accessed[block % self.blocks];
                self.set += BLOCK_PAGES - bits.count();
                *bits = PageBits::ALL;
            }
        }
    }

    /// What surveys say of a program that streams.
    struct Surveyed {
        /// The time in tenths of a second, and what was found to be accessed within 5 s, as a share of what was.
        found: Vec<(usize, f64)>,
        /// How many accessed bits the program has set, by tenth of a second.
        set: Vec<usize>,
        /// How many it may set in a second.
        allowed: f64,
    }

    /// Surveys a program that comes round in ten seconds, at this interval, in tenths of a second. A fifth of its
    /// accesses may find a clear accessed bit. At first the pages of all blocks that are `accessed` are so.
    fn survey_stream(accessed: PageBits, seconds: usize, interval: usize) -> Surveyed {
        let mut stream = Stream { blocks: 1000, a_tenth: 10, accessed: vec![accessed; 1000], set: 0 };
        let allowed = 0.2 * (10 * stream.a_tenth * BLOCK_PAGES) as f64;
        let elapsed = Duration::from_millis(100 * interval as u64);
        let mappings: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(0, 1000 * BLOCK_SIZE).unwrap())].into();
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let (mut size, mut history) = (PanelSize::default(), Arc::new(PageHistory::default()));
        let (mut found, mut set) = (Vec::new(), Vec::new());
        for tenth in 0..10 * seconds {
            stream.run(tenth);
            set.push(stream.set);
            if tenth % interval != 0 {
                continue;
            }
            let time = Duration::from_millis(100 * tenth as u64);
            let panel = Panel { share: size.share(), target: TargetId::PhysicalMemory };
            let update = Arc::clone(&history).update(time).with_panel(panel);
            let read = |(nth, &accessed): (usize, &PageBits)| BlockPages {
                start: nth as u64 * BLOCK_SIZE,
                present: PageBits::ALL,
                accessed,
                ..BlockPages::default()
            };
            let mut part = update.take(&stream.accessed.iter().enumerate().map(read).collect::<Vec<_>>());
            let again = elapsed.as_secs_f64() * allowed * if size.share() < 1.0 { 0.1 } else { 1.0 };
            let chosen = part.choose(ClearLimits { again, unknown: 0.0, clears: f64::INFINITY }, &mut rng);
            for block in &chosen.blocks {
                stream.accessed[(block.start / BLOCK_SIZE) as usize] &= !block.pages;
            }
            part.note_cleared(&chosen.blocks);
            size.learn(chosen.set_again, elapsed, allowed, f64::INFINITY);
            history = Arc::new(part.end(&mappings).finish(time));
            let sums = history.sums(TargetId::PhysicalMemory, &mappings).total();
            found.push((tenth, sums.within[2] as f64 / (BLOCK_SIZE as f64 * 500.0)));
        }
        assert_eq!(WINDOWS[2], Duration::from_secs(5));
        Surveyed { found, set, allowed }
    }

    #[test]
    fn a_program_that_streams_is_known_by_a_part_of_its_memory() {
        let Surveyed { found, set, allowed } = survey_stream(PageBits::ALL, 300, 30);
        let mut late: Vec<f64> = found.iter().filter(|(tenth, _)| *tenth >= 600).map(|(_, share)| *share).collect();
        late.sort_by(f64::total_cmp);
        let median = late[late.len() / 2];
        assert!((0.9..1.1).contains(&median), "{median} of what was accessed within 5 s, {late:.2?}");
        let set = (set[2999] - set[600]) as f64 / 240.0;
        assert!(set < allowed * 1.1, "{set} accessed bits a second, {allowed} allowed");
        assert!(set > allowed * 0.5, "{set} accessed bits a second, {allowed} allowed");
    }

    #[test]
    fn what_was_accessed_before_there_was_a_panel_is_not_taken_to_be_accessed_again() {
        // Before it is known that the program streams, all that it accesses is cleared, and the next survey finds it
        // where it was not.
        let Surveyed { found, .. } = survey_stream(PageBits::NONE, 30, 30);
        let early: Vec<f64> = found.iter().filter(|(tenth, _)| *tenth >= 60).map(|(_, share)| *share).collect();
        let mean = early.iter().sum::<f64>() / early.len() as f64;
        assert!((0.9..1.15).contains(&mean), "{mean} of what was accessed within 5 s, {early:.2?}");
    }

    #[test]
    fn the_first_turns_of_a_program_that_streams_are_known_whatever_the_interval() {
        for interval in [17, 20, 23, 26, 30, 35] {
            let Surveyed { found, .. } = survey_stream(PageBits::NONE, 16, interval);
            let early: Vec<f64> = found.iter().filter(|(tenth, _)| *tenth >= 60).map(|(_, share)| *share).collect();
            assert!(early.iter().all(|share| (0.93..1.07).contains(share)), "every {interval}: {early:.2?}");
        }
    }

    #[test]
    fn the_panel_is_all_memory_while_that_is_allowed() {
        let mut size = PanelSize::default();
        let mut after = |again: f64, surveys: u32| {
            (0..surveys).for_each(|_| size.learn(again * size.share(), Duration::from_secs(1), 1000.0, f64::INFINITY));
            size.share()
        };
        assert_eq!(after(900.0, 100), 1.0);
        let share = after(10_000.0, 100);
        assert!((0.07..0.1).contains(&share), "{share}");
        assert_eq!(after(10_000.0, 1), share);
        assert_eq!(after(600.0, 100), 1.0);
    }

    #[test]
    fn a_share_of_the_blocks_belongs_to_the_panel() {
        let blocks = |share| {
            let panel = Panel { share, target: TargetId::PhysicalMemory };
            (0..10_000).filter(|nth| panel.contains(nth * BLOCK_SIZE)).collect::<Vec<_>>()
        };
        let (few, many) = (blocks(0.1), blocks(0.5));
        assert!((900..1100).contains(&few.len()) && (4800..5200).contains(&many.len()));
        assert!(few.iter().all(|block| many.contains(block)));
    }

    #[test]
    fn the_panel_has_about_its_share_of_any_run_of_blocks() {
        for pid in 1..20 {
            let panel = Panel { share: 0.2, target: TargetId::process(pid, Duration::ZERO) };
            for (first, count) in [(0, 100), (12_345, 250), (1 << 26, 500), (7, 1000)] {
                let found = (first..first + count).filter(|nth| panel.contains(nth * BLOCK_SIZE)).count();
                let expected = count as f64 * 0.2;
                assert!((found as f64 - expected).abs() <= 3.0, "{found} of {expected}");
            }
        }
    }
}
