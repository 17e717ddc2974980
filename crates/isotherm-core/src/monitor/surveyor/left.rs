//! What a part of a survey may still do.

use std::time::Duration;

use crate::survey::{CLEAR_BLOCK, ClearPages, SurveySettings};

/// What is left to do in this part of a survey, as a number of blocks to read. Clearing counts in proportion to the
/// time that it takes.
pub(super) struct Left {
    blocks: f64,
    /// What was read.
    pub(super) read: f64,
    /// What was cleared.
    pub(super) cleared: f64,
    /// How many blocks a page to be cleared counts as.
    clear_page: f64,
    /// The CPU time that the part may take, and that it has taken. `None` if it is not measured.
    time: Option<(Duration, Duration)>,
}

impl Left {
    pub(super) fn new(settings: &SurveySettings, is_measured: bool) -> Self {
        Self {
            blocks: settings.part_blocks.max(1) as f64,
            read: 0.0,
            cleared: 0.0,
            clear_page: settings.clear_page,
            time: is_measured.then_some((settings.part_time, Duration::ZERO)),
        }
    }

    /// Takes in the CPU time that the part has taken so far.
    pub(super) fn spent(&mut self, cpu: Option<Duration>) {
        if let (Some((_, spent)), Some(cpu)) = (&mut self.time, cpu) {
            *spent = cpu;
        }
    }

    /// How many blocks are read before some of their pages are cleared: half of what is left to do, so that what was
    /// read now is cleared now. Accesses in between would be lost.
    pub(super) fn piece(&self) -> usize {
        let left = self.blocks.ceil().max(1.0) as usize;
        left.div_ceil(2).min(self.affordable()).max(LEAST_PIECE).min(left)
    }

    /// How many blocks can be read, and cleared in part, in the time of a piece, or in the time that is left if that is
    /// less, at the price of the blocks that this part has read so far. Pieces grow from small ones, because the price
    /// can be another one than in the part before.
    fn affordable(&self) -> usize {
        let Some((time, spent)) = self.time else { return usize::MAX };
        let price = spent.as_secs_f64() / self.read.max(1.0);
        let by_time = time.saturating_sub(spent).min(time / PIECES).as_secs_f64() / price.max(1e-12);
        by_time.min(self.read * PIECE_GROWTH) as usize
    }

    /// How many pages of `blocks` blocks can be cleared with what is left to do.
    pub(super) fn clears(&self, blocks: usize) -> f64 {
        let left = self.blocks - CLEAR_BLOCK * self.clear_page * blocks as f64;
        left.max(self.blocks / 2.0).max(LEAST_PIECE as f64 / 2.0) / self.clear_page
    }

    pub(super) fn is_over(&self) -> bool {
        self.blocks <= 0.0 || self.time.is_some_and(|(time, spent)| spent >= time)
    }

    /// Takes in that blocks were read.
    pub(super) fn read(&mut self, blocks: usize) {
        self.blocks -= blocks as f64;
        self.read += blocks as f64;
    }

    /// Takes in that pages of some of these blocks are cleared. Returns of how many: at least of one.
    pub(super) fn clear(&mut self, chosen: &[ClearPages]) -> usize {
        let mut count = 0;
        let most = if self.time.is_some() { LEAST_PIECE } else { usize::MAX };
        for block in chosen.iter().take(most) {
            if count > 0 && self.is_over() {
                break;
            }
            let blocks = (CLEAR_BLOCK + block.pages.count() as f64) * self.clear_page;
            self.blocks -= blocks;
            self.cleared += blocks;
            count += 1;
        }
        count
    }
}

/// The least number of blocks of a piece. If the CPU time is measured, it is also the largest number of blocks that are
/// cleared before the time is read again.
const LEAST_PIECE: usize = 64;

/// If the CPU time is measured, a part has at least so many pieces, and each of them has at most so many times as many
/// blocks as those before it. So the price of a block can rise within a part.
const PIECES: u32 = 16;
const PIECE_GROWTH: f64 = 2.0;
