//! Figures as people read them: sizes in KiB and up, times in seconds and up, and even steps for axes.

use std::time::Duration;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size such as `512 B`, `1.5 MiB`, `132 KiB`: three figures at most, a power of 1024 as unit.
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = "B";
    for next in UNITS {
        // What would be rounded to 1024 belongs to the next unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let text = if value < 99.95 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// A span of time such as `250 µs`, `5 ms`, `12.3 s`, `2 min 5 s`, `1 h 3 min`.
pub fn duration(d: Duration) -> String {
    let ns = d.as_nanos();
    let seconds = d.as_secs_f64();
    let trimmed = |value: f64, unit: &str| {
        let text = if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") };
        format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..999_500 => trimmed(ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => trimmed(ns as f64 / 1e6, "ms"),
        _ if seconds < 119.95 => trimmed(seconds, "s"),
        _ => {
            let whole = seconds.round() as u64;
            let (h, min, s) = (whole / 3600, whole / 60 % 60, whole % 60);
            match (h, min, s) {
                (0, min, 0) => format!("{min} min"),
                (0, min, s) => format!("{min} min {s} s"),
                (h, 0, _) => format!("{h} h"),
                (h, min, _) => format!("{h} h {min} min"),
            }
        }
    }
}

/// A span of time in nanoseconds, as [`duration`].
pub fn nanoseconds(ns: u64) -> String {
    duration(Duration::from_nanos(ns))
}

/// A share as a percentage: `0 %`, `0.3 %`, `42 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value == 0.0 || value >= 9.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}

/// A count with its thousands set apart: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Even moments for a time axis from `start` to `end`: at most `most`, each with its label.
pub fn time_ticks(start: Duration, end: Duration, most: usize) -> Vec<(Duration, String)> {
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
            let label = if to < 120.0 { format!("{t:.decimals$} s") } else { clock(t) };
            (Duration::from_secs_f64(t), label)
        })
        .collect()
}

/// Even sizes from 0 to `max`: at most `most` after the zero, in steps of a power of two.
pub fn byte_ticks(max: u64, most: usize) -> Vec<(u64, String)> {
    let rough = (max as f64 / most.max(1) as f64).max(1.0);
    let step = (rough as u64).next_power_of_two().max(1);
    let step = if (step as f64) < rough { step.saturating_mul(2) } else { step };
    let mut ticks = vec![];
    let mut at = 0_u64;
    while at <= max {
        ticks.push((at, if at == 0 { "0".into() } else { bytes(at) }));
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    ticks
}

/// Even counts from 0 to `max`: at most `most` after the zero.
pub fn count_ticks(max: f64, most: usize) -> Vec<(f64, String)> {
    let step = decimal_step((max / most.max(1) as f64).max(1e-12), &[1.0, 2.0, 5.0, 10.0]);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|&v| v <= max + step * 1e-6)
        .map(|v| (v, if decimals == 0 { count(v as u64) } else { format!("{v:.decimals$}") }))
        .collect()
}

fn decimal_step(rough: f64, factors: &[f64]) -> f64 {
    let magnitude = 10_f64.powf(rough.log10().floor());
    factors.iter().map(|f| f * magnitude).find(|&s| s >= rough * (1.0 - 1e-9)).unwrap_or(magnitude * 10.0)
}

/// `m:ss` or `h:mm:ss`.
fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let (h, min, s) = (whole / 3600, whole / 60 % 60, whole % 60);
    if h > 0 { format!("{h}:{min:02}:{s:02}") } else { format!("{min}:{s:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_at_most_three_figures_and_a_unit() {
        let shown: Vec<_> =
            [0, 1, 1023, 1024, 1536, 135_168, 1_048_575, 1 << 20, 1_288_490_189, u64::MAX].map(bytes).into();
        assert_eq!(
            shown,
            ["0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "132 KiB", "1 MiB", "1 MiB", "1.2 GiB", "16 EiB"]
        );
    }

    #[test]
    fn times_have_the_unit_a_reader_expects() {
        let shown: Vec<_> = [0, 5_000_000, 250_000, 999_999_999, 12_340_000_000, 125_000_000_000, 3_780_000_000_000]
            .map(nanoseconds)
            .into();
        assert_eq!(shown, ["0 s", "5 ms", "250 µs", "1 s", "12.3 s", "2 min 5 s", "1 h 3 min"]);
    }

    #[test]
    fn ticks_are_even_and_few() {
        for (end, most) in [(0.05, 5), (1.0, 8), (10.0, 4), (61.0, 6), (119.0, 7), (500.0, 6), (86_400.0, 9), (1e7, 3)]
        {
            let ticks = time_ticks(Duration::ZERO, Duration::from_secs_f64(end), most);
            assert!(ticks.len() >= 2 && ticks.len() <= most + 1, "{end} s: {ticks:?}");
        }
        let labels: Vec<_> =
            time_ticks(Duration::ZERO, Duration::from_secs(10), 5).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]);
        let labels: Vec<_> = byte_ticks(200 << 20, 4).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "64 MiB", "128 MiB", "192 MiB"]);
        assert_eq!(byte_ticks(u64::MAX, 4).len(), 4);
    }

    #[test]
    fn counts_have_their_thousands_set_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
