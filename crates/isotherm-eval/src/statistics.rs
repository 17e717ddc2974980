//! Means, deviations, and changes with their confidence intervals.

use serde::Serialize;

/// The change from a baseline, in per cent of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The change of the mean.
    pub percent: f64,
    /// The interval in which it lies with 95 % confidence, if runs differ as by the normal distribution. `None` of a
    /// single pair of runs.
    pub interval: Option<[f64; 2]>,
}

/// Quantiles of Student's t-distribution for 95 %, two-sided, by degrees of freedom from 1 on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The quantile for so many degrees of freedom. Beyond the table: the first term of its series around the normal
/// distribution (Abramowitz and Stegun, 26.7.5).
fn t(freedom: usize) -> f64 {
    T.get(freedom.wrapping_sub(1)).copied().unwrap_or_else(|| 1.96 + (1.96_f64.powi(3) + 1.96) / 4.0 / freedom as f64)
}

/// The mean; 0 of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of the population that these are a sample of. `None` of less than two.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (sum / (values.len() - 1) as f64).sqrt())
}

impl Change {
    /// The change of pairs: a value of the baseline, and one of the same round. The interval is that of the mean of the
    /// logarithms of their ratios; it is moved to the change of the means. `None` without pairs, or if a value of the
    /// baseline is not above 0.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.is_empty() || pairs.iter().any(|(before, _)| *before <= 0.0) {
            return None;
        }
        let (before, after): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let ratio = mean(&after) / mean(&before);
        let logs: Vec<f64> = pairs.iter().map(|(before, after)| (after / before).ln()).collect();
        let spread = deviation(&logs).filter(|deviation| deviation.is_finite());
        let interval = spread.map(|deviation| {
            let half = t(logs.len() - 1) * deviation / (logs.len() as f64).sqrt();
            [-half, half].map(|half| (ratio * half.exp() - 1.0) * 100.0)
        });
        Some(Self { percent: (ratio - 1.0) * 100.0, interval })
    }

    /// Whether chance explains it.
    pub fn may_be_chance(&self) -> bool {
        self.interval.is_none_or(|[low, high]| low <= 0.0 && high >= 0.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_an_interval_that_becomes_narrow_with_pairs() {
        assert_eq!(Change::of(&[]), None);
        assert_eq!(Change::of(&[(0.0, 1.0)]), None);
        let one = Change::of(&[(100.0, 110.0)]).unwrap();
        assert!((one.percent - 10.0).abs() < 1e-9 && one.interval.is_none() && one.may_be_chance());
        let pairs = [(100.0, 101.0), (100.0, 101.2), (100.0, 100.8), (100.0, 101.1), (100.0, 100.9)];
        let [two, five] = [2, 5].map(|count| Change::of(&pairs[..count]).unwrap());
        let width = |change: &Change| change.interval.map(|[low, high]| high - low).unwrap();
        assert!(width(&five) < 0.5 && width(&two) > 1.0, "{two:?} {five:?}");
        assert!(!five.may_be_chance() && two.may_be_chance());
    }

    #[test]
    fn the_interval_covers_the_truth_nineteen_times_in_twenty() {
        // Pairs with normal noise of 2 % (sums of uniform numbers), and a true change of 1 %.
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut noise = || 0.02 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0);
        let covered = (0..4000)
            .filter(|_| {
                let pairs: Vec<_> = (0..5).map(|_| (noise().exp(), 1.01 * noise().exp())).collect();
                let [low, high] = Change::of(&pairs).unwrap().interval.unwrap();
                low <= 1.0 && high >= 1.0
            })
            .count();
        assert!((0.93..0.97).contains(&(covered as f64 / 4000.0)), "{covered}");
    }

    #[test]
    fn quantiles_go_over_into_the_normal_distribution() {
        assert!((t(4) - 2.776).abs() < 1e-9);
        assert!(t(31) < t(30) && (t(31) - t(30)).abs() < 0.01 && t(10_000) < 1.961);
    }

    #[test]
    fn deviations_are_of_samples() {
        assert_eq!(deviation(&[1.0]), None);
        assert!((deviation(&[1.0, 3.0]).unwrap() - 2.0_f64.sqrt()).abs() < 1e-9);
    }
}
