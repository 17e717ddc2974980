//! The score of a run: precision and recall of hot bytes, error of the access rate, time to find hot memory.

use std::time::Duration;

use serde::Serialize;

use crate::truth::{HOT, PhaseTruth};
use crate::{Monitored, TakenSnapshot};

/// A phase counts as settled after this share of it. Until then the monitor may still be finding what changed.
const SETTLED_AFTER: f64 = 0.5;

/// Hot memory counts as found when this share of its bytes is found hot.
const FOUND: f64 = 0.9;

/// The accuracy of a run of the monitor, within the pattern's areas.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Score {
    /// The share of the bytes found hot in settled phases that are hot.
    pub precision: Option<f64>,
    /// The share of the hot bytes in settled phases that are found hot.
    pub recall: Option<f64>,
    /// The mean absolute error of the access rate in settled phases, weighted by bytes.
    pub error: f64,
    /// For each phase that makes memory hot, the seconds from its start until that memory is found; nothing if it is
    /// not found.
    pub found_after_s: Vec<Option<f64>>,
    /// For the same phases, how many surveys there were from the start of the phase until then. 0 if samples found the
    /// memory before the first.
    pub found_after_surveys: Vec<Option<usize>>,
}

#[derive(Default)]
struct Bytes {
    found: u64,
    right: u64,
    hot: u64,
    error: f64,
    all: u64,
}

impl Score {
    /// Compares what a run found with the truth.
    pub fn new(monitored: &Monitored) -> Self {
        let mut sum = Bytes::default();
        let (mut found_after_s, mut found_after_surveys) = (Vec::new(), Vec::new());
        let phases = &monitored.phases;
        for (nth, phase) in phases.iter().enumerate() {
            let length = phase.end - phase.start;
            // A snapshot covers the aggregation before it. All of that must lie in the phase.
            let within = |from: Duration| {
                let begin = move |taken: &&TakenSnapshot| {
                    taken.time.saturating_sub(taken.aggregation) >= from && taken.time <= phase.end
                };
                monitored.snapshots.iter().filter(begin)
            };
            for taken in within(phase.start + length.mul_f64(SETTLED_AFTER)) {
                sum.add(taken, phase);
            }
            let Some(sampling) = within(phase.start).next().map(TakenSnapshot::sampling) else { continue };
            if phase.warms_up(nth.checked_sub(1).map(|before| &phases[before]), sampling) {
                let found = within(phase.start).find(|taken| {
                    let mut bytes = Bytes::default();
                    bytes.add(taken, phase);
                    bytes.right as f64 >= FOUND * bytes.hot as f64
                });
                found_after_s.push(found.map(|taken| (taken.time - phase.start).as_secs_f64()));
                found_after_surveys.push(found.map(|taken| {
                    let until = |survey: &&Duration| **survey >= phase.start && **survey <= taken.time;
                    monitored.surveys.iter().filter(until).count()
                }));
            }
        }
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        Self {
            precision: share(sum.right, sum.found),
            recall: share(sum.right, sum.hot),
            error: sum.error / sum.all.max(1) as f64,
            found_after_s,
            found_after_surveys,
        }
    }
}

impl Bytes {
    fn add(&mut self, taken: &TakenSnapshot, phase: &PhaseTruth) {
        for area in phase.areas(taken.sampling()).iter() {
            self.hot += area.hot_bytes(area.range);
            for region in &taken.regions {
                let Some(range) = region.range.intersection(area.range) else {
                    continue;
                };
                let rate = region.access_rate(taken.samples);
                if rate >= HOT {
                    self.found += range.size();
                    self.right += area.hot_bytes(range);
                }
                self.error += area.error_bytes(range, rate);
                self.all += range.size();
            }
        }
    }
}
