//! What surveys have cost.

/// The number of surveys over which the cost of a survey is the median.
const RECENT: usize = 3;

/// What surveys cost, in seconds of CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SurveyCost {
    /// Each of the last whole surveys.
    recent: [f64; RECENT],
    /// A block, on the mean of the last parts.
    pub(super) block: Option<f64>,
    /// What these parts took, and their blocks, the last ones with the greatest weight.
    pub(super) parts: (f64, f64),
    /// How many parts there were.
    pub(super) count: usize,
    /// The number of blocks of a part after [`START`](super::budget::START). 0 before the first part.
    pub(super) part_blocks: f64,
    /// The last part, as far as the time until the next one pays for it.
    pub(super) last_part: f64,
    /// The survey that is under way, and the blocks that it has read.
    pub(super) so_far: f64,
    pub(super) blocks_so_far: u64,
    /// The blocks that the last survey read.
    pub(super) blocks: u64,
    /// How many have ended, and how many of them in [`START`](super::budget::START).
    ended: usize,
    started: usize,
}

impl SurveyCost {
    /// The cost of a whole survey: the median of the last ones, because a survey that takes much longer is a poor
    /// estimate of the next. `None` before the end of the first.
    pub(super) fn whole(&self) -> Option<f64> {
        let mut recent = self.recent;
        let later = self.ended - self.started;
        if later == 0 {
            // Surveys of the start clear what later ones need not clear. The cheapest of them is most like those.
            return recent[..self.ended.min(RECENT)].iter().copied().reduce(f64::min);
        }
        // The first survey has more to do than others: it stands for them only until there is one.
        let known = if self.ended > 1 { later.min(self.ended - 1) } else { later };
        let recent = &mut recent[..known.min(RECENT)];
        recent.sort_by(f64::total_cmp);
        let middle = recent.get(recent.len().saturating_sub(1) / 2)?;
        Some((middle + recent[recent.len() / 2]) / 2.0)
    }

    /// Takes in what a whole survey cost, which ended in [`START`](super::budget::START) or later.
    pub(super) fn end(&mut self, is_start: bool) {
        self.ended += 1;
        self.started += usize::from(is_start);
        self.recent.rotate_right(1);
        self.recent[0] = std::mem::take(&mut self.so_far);
        self.blocks = std::mem::take(&mut self.blocks_so_far);
    }
}
