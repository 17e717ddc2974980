//! The ticks of axes: even steps, each with its label.

use std::time::Duration;

use isotherm_core::units;

/// Times from `start` to `end`: at most `most` + 1.
pub fn time(start: Duration, end: Duration, most: usize) -> Vec<(Duration, String)> {
    const SECONDS: [f64; 14] = [
        60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0, 172_800.0,
        604_800.0,
    ];
    let (from, to) = (start.as_secs_f64(), end.as_secs_f64());
    let rough = (to - from).max(1e-9) / most.max(1) as f64;
    let step = if rough <= 30.0 {
        decimal_step(rough, &[1.0, 2.0, 5.0, 10.0]).min(if rough <= 20.0 && rough > 10.0 { 20.0 } else { 30.0 })
    } else {
        SECONDS.into_iter().find(|&s| s >= rough).unwrap_or_else(|| decimal_step(rough, &[1.0, 2.0, 5.0, 10.0]))
    };
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let first = (from / step - 1e-6).ceil() as u64;
    (first..)
        .map(|i| i as f64 * step)
        .take_while(|&t| t <= to + step * 1e-6)
        .map(|t| {
            let label = if to < 120.0 { format!("{t:.decimals$} s") } else { clock(t, decimals) };
            (Duration::from_secs_f64(t), label)
        })
        .collect()
}

/// Sizes from 0 to `max`, in steps of a power of two: at most `most` after the zero.
pub fn bytes(max: u64, most: usize) -> Vec<(u64, String)> {
    let rough = (max as f64 / most.max(1) as f64).max(1.0);
    let step = (rough as u64).next_power_of_two().max(1);
    let step = if (step as f64) < rough { step.saturating_mul(2) } else { step };
    let mut ticks = vec![];
    let mut at = 0_u64;
    while at <= max {
        ticks.push((at, if at == 0 { "0".into() } else { units::bytes(at) }));
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    ticks
}

/// Counts from 0 to `max`: at most `most` after the zero.
pub fn count(max: f64, most: usize) -> Vec<(f64, String)> {
    let step = decimal_step((max / most.max(1) as f64).max(1e-12), &[1.0, 2.0, 5.0, 10.0]);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|&v| v <= max + step * 1e-6)
        .map(|v| (v, if decimals == 0 { units::count(v as u64) } else { format!("{v:.decimals$}") }))
        .collect()
}

fn decimal_step(rough: f64, factors: &[f64]) -> f64 {
    let magnitude = 10_f64.powf(rough.log10().floor());
    factors.iter().map(|f| f * magnitude).find(|&s| s >= rough * (1.0 - 1e-9)).unwrap_or(magnitude * 10.0)
}

/// `m:ss` or `h:mm:ss`, with decimals of the seconds.
fn clock(seconds: f64, decimals: usize) -> String {
    let scale = 10_u64.pow(decimals as u32);
    let parts = (seconds * scale as f64).round() as u64;
    let (whole, part) = (parts / scale, parts % scale);
    let (h, min, s) = (whole / 3600, whole / 60 % 60, whole % 60);
    let part = if decimals > 0 { format!(".{part:0decimals$}") } else { String::new() };
    if h > 0 { format!("{h}:{min:02}:{s:02}{part}") } else { format!("{min}:{s:02}{part}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_of_a_short_time_is_another_one() {
        for (start, end) in [(300.0, 302.0), (3_600.0, 3_600.05), (119.9, 120.3), (0.001, 0.0011), (86_400.0, 86_403.0)]
        {
            let (start, end) = (Duration::from_secs_f64(start), Duration::from_secs_f64(end));
            let labels: Vec<_> = time(start, end, 9).into_iter().map(|(_, label)| label).collect();
            let distinct: std::collections::BTreeSet<_> = labels.iter().collect();
            assert!(labels.len() > 2 && distinct.len() == labels.len(), "{labels:?}");
        }
    }

    #[test]
    fn ticks_are_even_and_few() {
        for (end, most) in [(0.05, 5), (1.0, 8), (10.0, 4), (61.0, 6), (119.0, 7), (500.0, 6), (86_400.0, 9), (1e7, 3)]
        {
            let ticks = time(Duration::ZERO, Duration::from_secs_f64(end), most);
            assert!(ticks.len() >= 2 && ticks.len() <= most + 1, "{end} s: {ticks:?}");
        }
        let labels: Vec<_> =
            time(Duration::ZERO, Duration::from_secs(10), 5).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]);
        let labels: Vec<_> = bytes(200 << 20, 4).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "64 MiB", "128 MiB", "192 MiB"]);
        assert_eq!(bytes(u64::MAX, 4).len(), 4);
    }
}
