//! Frequencies as recordings have them.

use isotherm_core::Frequency;

/// Frequencies that are right within this factor keep their two digits, and the factor its tenths.
const EXACT: f64 = 1.5;

/// Larger factors are rounded up to one of these.
const FACTORS: [f64; 11] = [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];

/// The frequency with the digits that its error leaves. The error of regions with few samples changes with each
/// snapshot, and with it digits that say nothing: they would take a third of the bytes of a recording.
///
/// The factor is rounded up, and the frequency to one of 12, 6 or 3 in each decade: by less than a third of the factor
/// on the logarithmic scale. What was rounded stays as it is.
pub(crate) fn recorded(frequency: Frequency) -> Frequency {
    let Some(factor) = frequency.factor().filter(|factor| *factor > EXACT && frequency.hz() > 0.0) else {
        return frequency;
    };
    let factor = FACTORS.into_iter().find(|rounded| *rounded >= factor).unwrap_or(factor);
    let in_a_decade = match factor {
        ..=2.0 => 12.0,
        ..=10.0 => 6.0,
        _ => 3.0,
    };
    let hz = 10_f64.powf((frequency.hz().log10() * in_a_decade).round() / in_a_decade);
    Frequency::new(hz, Some(factor))
}

/// Ten times a factor.
pub(crate) fn tenths(factor: f64) -> u16 {
    (factor * 10.0).round().min(u16::MAX.into()) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rounding_is_within_the_error_and_rounds_once(
            hz in 0.01..1e6_f64,
            factor in prop::option::of(1.0..6000.0_f64),
        ) {
            let exact = Frequency::new(hz, factor);
            let rounded = recorded(exact);
            prop_assert_eq!(recorded(rounded), rounded);
            // The file has single precision, and tenths.
            let factor = rounded.factor().map(|factor| f64::from(tenths(factor)) / 10.0);
            prop_assert_eq!(Frequency::new((rounded.hz() as f32).into(), factor), rounded);
            prop_assert!(rounded.factor() >= exact.factor());
            let moved = (rounded.hz() / exact.hz()).ln().abs();
            prop_assert!(moved <= exact.factor().unwrap_or(1.0).ln() / 3.0, "{exact:?} {rounded:?}");
        }
    }
}
