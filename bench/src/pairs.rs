//! Pairs of measurements, without and with a monitor, and how sure the change between them is.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// The change that pairs are to tell apart: 1 %.
const TOLD: f64 = 0.01;

/// An interval of fewer pairs than this says nothing.
pub const LEAST_PAIRS: u32 = 5;

/// How often pairs are drawn again for the interval.
const DRAWS: usize = 4000;

/// How many pairs to measure.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// At least so many.
    pub least: u32,
    /// At most so many, until they tell 1 % apart.
    pub most: u32,
}

impl Pairs {
    /// Always so many.
    pub const fn fixed(count: u32) -> Self {
        Self { least: count, most: count }
    }

    /// Whether to measure another pair.
    pub fn want_more(&self, changes: &Changes) -> bool {
        let count = changes.0.len() as u32;
        count < self.least || count < self.most && !changes.tell()
    }
}

/// The change of each pair, as the logarithm of the time with the monitor divided by the time without.
#[derive(Clone, Debug, Default)]
pub struct Changes(Vec<f64>);

/// The change between the measurements of the pairs, in per cent of the time without a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Of single pairs: median, minimum, maximum.
    pub pairs: [f64; 3],
    /// The mean of the pairs.
    pub mean: f64,
    /// The interval in which the mean lies with 95 % confidence. `None` of fewer than [`LEAST_PAIRS`] pairs.
    pub interval: Option<[f64; 2]>,
    /// How many pairs there are.
    pub count: usize,
    /// How many pairs would tell 1 % apart, by the deviation of these. `None` of fewer than [`LEAST_PAIRS`] pairs.
    pub needed: Option<f64>,
}

impl Change {
    /// Whether the pairs tell 1 % apart.
    pub fn tells(&self) -> bool {
        self.needed.is_some_and(|needed| needed <= self.count as f64)
    }
}

impl Changes {
    /// Adds a pair.
    pub fn add(&mut self, without: f64, with: f64) {
        self.0.push((with / without).ln());
    }

    fn tell(&self) -> bool {
        self.needed().is_some_and(|needed| needed <= self.0.len() as f64)
    }

    /// By the normal distribution of the mean.
    fn needed(&self) -> Option<f64> {
        let count = self.0.len();
        if count < LEAST_PAIRS as usize {
            return None;
        }
        let mean = mean(&self.0);
        let variance = self.0.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        Some((1.96 * variance.sqrt() / TOLD.ln_1p()).powi(2).ceil())
    }

    /// By resampling of the pairs.
    fn interval(&self) -> Option<[f64; 2]> {
        let count = self.0.len();
        if count < LEAST_PAIRS as usize {
            return None;
        }
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut means: Vec<f64> = (0..DRAWS)
            .map(|_| (0..count).map(|_| self.0[random.random_range(0..count)]).sum::<f64>() / count as f64)
            .collect();
        means.sort_by(f64::total_cmp);
        Some([DRAWS / 40, DRAWS - 1 - DRAWS / 40].map(|at| per_cent(means[at])))
    }

    /// The change. There must be a pair.
    pub fn change(&self) -> Change {
        let mut logs = self.0.clone();
        let median = median(&mut logs);
        Change {
            pairs: [median, logs[0], logs[logs.len() - 1]].map(per_cent),
            mean: per_cent(mean(&self.0)),
            interval: self.interval(),
            count: self.0.len(),
            needed: self.needed(),
        }
    }
}

/// The median of `values`, which are not empty.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn per_cent(log: f64) -> f64 {
    log.exp_m1() * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(percents: &[f64]) -> Changes {
        let mut changes = Changes::default();
        percents.iter().for_each(|percent| changes.add(100.0, 100.0 + percent));
        changes
    }

    #[test]
    fn steady_pairs_tell_one_per_cent_apart_and_end_the_measurement() {
        let steady = changes(&[1.0, 1.2, 0.9, 1.1, 1.0]);
        let change = steady.change();
        let [low, high] = change.interval.unwrap();
        assert!(0.9 < low && low < change.mean && change.mean < high && high < 1.2, "{change:?}");
        assert!(change.tells(), "{change:?}");
        assert!(!Pairs { least: 5, most: 20 }.want_more(&steady));
        assert!(Pairs { least: 6, most: 20 }.want_more(&steady));
    }

    #[test]
    fn pairs_that_differ_much_are_measured_up_to_the_limit() {
        let wild = changes(&[-10.0, 10.0, -5.0, 8.0, 0.0, 3.0]);
        let change = wild.change();
        assert!(!change.tells() && change.needed.unwrap() > 100.0, "{change:?}");
        assert_eq!([change.pairs[1], change.pairs[2]].map(f64::round), [-10.0, 10.0]);
        assert!(Pairs { least: 5, most: 7 }.want_more(&wild));
        assert!(!Pairs { least: 5, most: 6 }.want_more(&wild));
    }

    #[test]
    fn few_pairs_have_no_interval() {
        let change = changes(&[1.0, 1.0]).change();
        assert_eq!((change.interval, change.needed, change.tells()), (None, None, false));
    }
}
