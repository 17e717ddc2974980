//! Writing measured figures.

use std::time::Duration;

const SIZES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size such as `512 B`, `1.5 MiB`, `132 KiB`: at most four digits, with a power of 1,024 as unit.
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = "B";
    for next in SIZES {
        // A value that rounds to 1024 is shown in the next unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    with_unit(value, unit)
}

/// Two sizes as the bounds of a figure, in one unit: `243 to 269 MiB`, `0.95 to 1.06 GiB`. Three digits, so that bounds
/// that are near each other differ.
pub fn bounds(low: u64, high: u64) -> String {
    let ([low, high], unit) = in_one_unit([low, high]);
    format!("{low} to {high} {unit}")
}

/// A size and its bounds, in one unit and with as many digits: `2.25 GiB (2.23 to 2.27 GiB)`.
/// Bounds that look the same are left out.
pub fn bounded(value: u64, low: u64, high: u64) -> String {
    match in_one_unit([value, low, high]) {
        ([_, low, high], _) if low == high => bytes(value),
        ([value, low, high], unit) => format!("{value} {unit} ({low} to {high} {unit})"),
    }
}

/// Sizes in the unit of the last one, which is the largest, with three digits of it. The second is the unit.
fn in_one_unit<const N: usize>(sizes: [u64; N]) -> ([String; N], &'static str) {
    let largest = sizes.last().copied().unwrap_or_default() as f64;
    let unit = (1..=SIZES.len() as u32).rev().find(|unit| largest >= 1024_f64.powi(*unit as i32) * 0.9995);
    let Some(unit) = unit else { return (sizes.map(|bytes| bytes.to_string()), "B") };
    let one = 1024_f64.powi(unit as i32);
    let decimals = match largest / one {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let figure = |bytes: u64| if bytes == 0 { "0".to_owned() } else { format!("{:.decimals$}", bytes as f64 / one) };
    (sizes.map(figure), SIZES[unit as usize - 1])
}

/// A size for a column of a table: as [`bytes`], but 0 has no unit.
pub fn table_bytes(n: u64) -> String {
    if n == 0 { "0".into() } else { bytes(n) }
}

/// A time such as `250 µs`, `5 ms`, `12.3 s`, `2 min 5 s`, `1 h 3 min`.
pub fn duration(d: Duration) -> String {
    let ns = d.as_nanos();
    let seconds = d.as_secs_f64();
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..999_500 => with_unit(ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => with_unit(ns as f64 / 1e6, "ms"),
        _ if seconds < 119.95 => with_unit(seconds, "s"),
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

/// A time in nanoseconds, in the form of [`duration`].
pub fn nanoseconds(ns: u64) -> String {
    duration(Duration::from_nanos(ns))
}

/// A share of 1 in per cent: `0 %`, `0.3 %`, `42 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value == 0.0 || value >= 9.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}

/// A frequency in hertz: `0 Hz`, `0.25 Hz`, `3.5 Hz`, `180 Hz`.
pub fn hertz(value: f64) -> String {
    format!("{} Hz", table_hertz(value))
}

/// A frequency in hertz without its unit, for columns that have it in their title.
pub fn table_hertz(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..0.00095 => format!("{value:.4}"),
        ..0.0095 => format!("{value:.3}"),
        ..0.995 => format!("{value:.2}"),
        ..9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A count with separated thousands: `12,345`.
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

/// A number of things, whose name gets an s unless there is one: `12,345 regions`.
pub fn counted(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// The value with one decimal, unless that is zero or there are three digits before it.
fn with_unit(value: f64, unit: &str) -> String {
    let text = if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}
