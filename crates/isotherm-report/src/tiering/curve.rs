//! The sentences of a trial.

use isotherm_core::units::{bytes, percent};

use super::{TierTrial, Tried};

/// Fast memory suffices if the slow tier serves no more than this share of the accesses. It is a choice: with slow
/// memory that costs a program 21 % of its time, this share costs it 0.2 %.
const SUFFICES: f64 = 0.01;

impl TierTrial {
    /// How much fast memory suffices, or what each size that was asked for gives.
    pub fn sentences(&self) -> Vec<String> {
        if !self.has_accesses() {
            return vec![];
        }
        let mut sentences: Vec<String> = self.sizes.iter().map(|tried| self.sentence(tried)).collect();
        // At first, memory is where it was touched first, however large the fast tier is.
        match self.curve.iter().find(|tried| tried.isotherm.late_slow_share <= SUFFICES) {
            Some(enough) if enough.fast_share < 1.0 => sentences.push(self.sentence(enough)),
            _ if self.curve.is_empty() => {}
            _ => sentences.push(format!(
                "With less fast memory than the {} that are resident at most, isotherm leaves more than {} of the \
                 accesses to the slow tier, in the second half of the time, too.",
                bytes(self.peak_resident_bytes),
                percent(SUFFICES)
            )),
        }
        sentences
    }

    fn sentence(&self, tried: &Tried) -> String {
        format!(
            "With {} of fast memory ({} of {}), {} of the accesses go to the slow tier if isotherm moves memory, {} in \
             the second half of the time; {} by first touch, {} at best.",
            bytes(tried.fast_bytes),
            percent(tried.fast_share),
            bytes(self.peak_resident_bytes),
            percent(tried.isotherm.slow_share),
            percent(tried.isotherm.late_slow_share),
            percent(tried.first_touch.slow_share),
            percent(tried.best.slow_share),
        )
    }
}
