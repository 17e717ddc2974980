//! The scale of access rates: steps of 1, 2 and 5 times the powers of ten.

/// The multiples of a power of ten at which steps begin.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// A rate that is below a step by no more than this part of it belongs to the step: rates are quotients.
const TOLERANCE: f64 = 1e-6;

/// The step that a rate in Hz, above 0, belongs to. Step 0 begins at 1 Hz.
pub(super) fn step(hz: f64) -> i32 {
    let hz = hz * (1.0 + TOLERANCE);
    let power = hz.log10().floor() as i32;
    let multiple = hz / 10_f64.powi(power);
    let nth = STEPS.iter().rposition(|&step| step <= multiple).unwrap_or(0);
    power * STEPS.len() as i32 + nth as i32
}

/// The rate in Hz at which a step begins.
pub(super) fn start(step: i32) -> f64 {
    let count = STEPS.len() as i32;
    let power = 10_f64.powi(step.div_euclid(count).abs());
    let multiple = STEPS[step.rem_euclid(count) as usize];
    if step < 0 { multiple / power } else { multiple * power }
}

/// The start of a step as text: `0.05 Hz`, `200 Hz`.
pub(super) fn hertz(start: f64) -> String {
    format!("{start} Hz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_belongs_to_the_step_that_begins_at_or_below_it() {
        for (hz, begins) in [
            (1.0, 1.0),
            (1.99, 1.0),
            (2.0, 2.0),
            (1.0 / 0.005, 200.0),
            (199.999_999_9, 200.0),
            (0.05, 0.05),
            (0.049, 0.02),
            (7.0, 5.0),
            (9.9, 5.0),
            (10.0, 10.0),
        ] {
            assert_eq!(start(step(hz)), begins, "{hz} Hz");
        }
        assert_eq!(
            [-4, -3, -2, -1, 0, 3].map(start).map(hertz),
            ["0.05 Hz", "0.1 Hz", "0.2 Hz", "0.5 Hz", "1 Hz", "10 Hz"]
        );
    }
}
