//! Writing what a user has set: one unit, and up to two decimals, so that the text says what was written.

use std::time::Duration;

const SIZES: [(&str, u64); 6] =
    [("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// The units of times, each with the least number of seconds that is shown in it. A time under two minutes is shown in
/// seconds, and one under two hours in minutes.
const TIMES: [(&str, f64, f64); 6] = [
    ("h", 7200.0, 3600.0),
    ("min", 120.0, 60.0),
    ("s", 1.0, 1.0),
    ("ms", 1e-3, 1e-3),
    ("µs", 1e-6, 1e-6),
    ("ns", 0.0, 1e-9),
];

/// A size such as `4 KiB` or `1.25 GiB`.
pub fn bytes(n: u64) -> String {
    match SIZES.iter().find(|(_, unit)| n >= *unit) {
        Some((name, unit)) => format!("{} {name}", decimal(n as f64 / *unit as f64)),
        None => format!("{n} B"),
    }
}

/// A time such as `1.25 ms`, `90 s` or `2.5 h`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match TIMES.iter().find(|(_, least, _)| seconds >= *least) {
        Some((name, _, unit)) if seconds > 0.0 => format!("{} {name}", decimal(seconds / unit)),
        _ => "0 s".into(),
    }
}

/// A share of 1 in per cent: `0.05 %`, `99.7 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", decimal(share * 100.0))
}

/// At most two decimals, without zeros at the end.
fn decimal(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
