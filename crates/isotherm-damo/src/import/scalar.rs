//! Numbers as damo writes them: plain, as text, with thousands separated, with units.
//!
//! `4096`, `"4096"`, `"4,096"` and `"4 KiB"` are the same size to damo; `100000`, `"100000"` and `"100 ms"` the same
//! interval, because an interval is plain in microseconds; a point in time is plain in nanoseconds. Times with units may be sums,
//! as in `5 s 300 ms`.

use std::time::Duration;

use isotherm_core::units::{parse_bytes, parse_count, parse_decimal, parse_duration_or};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A quantity: what it is called, what a plain number of it is a multiple of, and how a text of it is read that is not
/// negative.
struct Kind {
    expected: &'static str,
    plain: i128,
    read: fn(&str) -> Option<i128>,
}

const SIZE: Kind =
    Kind { expected: "a size or an address in bytes", plain: 1, read: |text| parse_bytes(text).ok().map(i128::from) };
const TIME: Kind =
    Kind { expected: "a time in nanoseconds", plain: 1, read: |text| nanoseconds(text, Duration::from_nanos(1)) };
const INTERVAL: Kind = Kind {
    expected: "an interval in microseconds",
    plain: 1_000,
    read: |text| nanoseconds(text, Duration::from_micros(1)),
};
const COUNT: Kind = Kind {
    expected: "a number",
    plain: 1,
    read: |text| parse_count(text).ok().map(i128::from).or_else(|| rounded(parse_decimal(text)?, 1)),
};
const THOUSANDTHS: Kind = Kind {
    expected: "a percentage",
    plain: 1_000,
    read: |text| rounded(parse_decimal(text.strip_suffix('%').unwrap_or(text))?, 1_000),
};

/// A time with units, or a number of `plain`, in nanoseconds.
fn nanoseconds(text: &str, plain: Duration) -> Option<i128> {
    parse_duration_or(text, plain).ok().map(|time| time.as_nanos() as i128)
}

/// A size or an address, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

/// A point in time, in nanoseconds since whatever it is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) i64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval(pub(super) u64);

/// A number without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) i64);

/// A share, in thousandths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u32);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, &SIZE).map(Self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, &TIME).map(Self)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, &INTERVAL).map(Self)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, &COUNT).map(Self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, &THOUSANDTHS).map(Self)
    }
}

/// Reads a quantity that must fit into `T`.
fn number<'de, D: Deserializer<'de>, T: TryFrom<i128>>(deserializer: D, kind: &'static Kind) -> Result<T, D::Error> {
    let value = deserializer.deserialize_any(Scalar(kind))?;
    T::try_from(value).map_err(|_| D::Error::custom(format_args!("{value} is out of range for {}", kind.expected)))
}

struct Scalar(&'static Kind);

impl Visitor<'_> for Scalar {
    type Value = i128;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.expected)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i128, E> {
        Ok(i128::from(value) * self.0.plain)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i128, E> {
        Ok(i128::from(value) * self.0.plain)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<i128, E> {
        rounded(value, self.0.plain).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i128, E> {
        parse(text, self.0).ok_or_else(|| {
            // A name of any length is not to fill the screen.
            let start: String = text.chars().take(40).collect();
            E::invalid_value(Unexpected::Str(&start), &self)
        })
    }
}

fn parse(text: &str, kind: &Kind) -> Option<i128> {
    match text {
        "min" => return Some(0),
        "max" => return Some(u64::MAX.into()),
        _ => {}
    }
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(magnitude) => (kind.read)(magnitude).map(|value| -value),
        None => (kind.read)(text),
    }
}

/// To the nearest; nothing of what is no number, or is beyond all that damo could mean.
fn rounded(value: f64, multiple: i128) -> Option<i128> {
    let value = value * multiple as f64;
    (value.abs() < 1e30).then_some(value.round() as i128)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: for<'de> Deserialize<'de>>(value: Value) -> Option<T> {
        serde_json::from_value(value).ok()
    }

    #[test]
    fn a_size_is_read_in_all_its_forms() {
        for value in [json!(4096), json!(4096.0), json!("4096"), json!("4,096"), json!("4 KiB"), json!("4.0KiB")] {
            assert_eq!(read(value.clone()), Some(Bytes(4096)), "{value}");
        }
        assert_eq!(read(json!("18446744073709551615")), Some(Bytes(u64::MAX)));
        assert_eq!(read(json!("max")), Some(Bytes(u64::MAX)));
        assert_eq!(read(json!("1.500 GiB")), Some(Bytes(3 << 29)));
    }

    #[test]
    fn a_plain_interval_is_in_microseconds_and_a_plain_time_in_nanoseconds() {
        for value in [json!(100_000), json!("100000"), json!("100,000"), json!("100 ms"), json!("0.1 s")] {
            assert_eq!(read(value.clone()), Some(Interval(100_000_000)), "{value}");
        }
        assert_eq!(read(json!("5 s 300 ms")), Some(Interval(5_300_000_000)));
        assert_eq!(read(json!("1 m 40 s")), Some(Interval(100_000_000_000)));
        assert_eq!(read(json!("82877315633000")), Some(Time(82_877_315_633_000)));
        assert_eq!(read(json!("-5 ms 2 us")), Some(Time(-5_002_000)));
        assert_eq!(read(json!("0 ns")), Some(Time(0)));
    }

    #[test]
    fn a_percentage_keeps_three_digits() {
        for value in [json!(12.345), json!("12.345"), json!("12.345%"), json!("12.345 %")] {
            assert_eq!(read(value.clone()), Some(Percent(12_345)), "{value}");
        }
    }

    #[test]
    fn what_is_no_number_or_does_not_fit_is_refused() {
        for value in [
            json!(null),
            json!(true),
            json!([4096]),
            json!({"bytes": 1}),
            json!(""),
            json!("-"),
            json!("a lot"),
            json!("4 parsec"),
            json!("KiB"),
            json!("1 KiB and a half"),
            json!(-1),
            json!("-4096"),
            json!("18446744073709551616"),
            json!(1e300),
            json!("1e300"),
            json!("nan"),
            json!("inf"),
            json!("170141183460469231731687303715884105727 EiB"),
        ] {
            assert_eq!(read::<Bytes>(value.clone()), None, "{value}");
        }
        assert_eq!(read::<Time>(json!("9223372036854775808")), None);
        assert_eq!(read::<Count>(json!("5 samples")), None);
    }
}
