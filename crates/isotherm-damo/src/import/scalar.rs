//! Numbers in the forms that damo writes: plain, as text, with separated thousands, with units.
//!
//! `4096`, `"4096"`, `"4,096"` and `"4 KiB"` are the same size; `100000`, `"100000"` and `"100 ms"` are the same
//! interval, because an interval without a unit is in microseconds. A point in time without a unit is in nanoseconds.

use std::fmt::{self, Display};
use std::time::Duration;

use isotherm_core::units::{self, QuantityError};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

const A_PERCENTAGE: &str = "a percentage";

/// A size or an address, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

/// A point in time, in nanoseconds from an unspecified start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) i64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval(pub(super) u64);

/// A number without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) i64);

/// A share, in thousandths of a per cent. It can be over 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u32);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = |text: &str| if text == "max" { Ok(u64::MAX) } else { units::parse_bytes(text) };
        scalar(deserializer, "a size or an address in bytes", bytes).map(Self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, "a time in nanoseconds", |text| {
            signed(text, "a time in nanoseconds", |text| {
                units::parse_duration_or(text, Duration::from_nanos(1)).map(|time| time.as_nanos())
            })
        })
        .map(Self)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, "an interval in microseconds", |text| {
            let interval = units::parse_duration_or(text, Duration::from_micros(1))?;
            // The parser refuses times that do not fit.
            Ok(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX))
        })
        .map(Self)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, "a number", |text| {
            signed(text, "a number", |text| units::parse_count(text).map(u128::from))
        })
        .map(Self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, A_PERCENTAGE, |text| {
            let number = units::parse_decimal(text.strip_suffix('%').unwrap_or(text));
            let thousandths = number.map(|percent| (percent * 1000.0).round());
            let fitting = thousandths.filter(|value| *value <= f64::from(u32::MAX));
            fitting.map(|value| value as u32).ok_or_else(|| QuantityError::form(A_PERCENTAGE, text))
        })
        .map(Self)
    }
}

/// Reads a number that may be negative.
fn signed(
    text: &str,
    expected: &'static str,
    read: impl FnOnce(&str) -> Result<u128, QuantityError>,
) -> Result<i64, QuantityError> {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let value = i128::try_from(read(digits)?).ok().and_then(|value| i64::try_from(sign * value).ok());
    value.ok_or_else(|| QuantityError::form(expected, text))
}

/// Reads a number or a text with `read`, which gets either as text.
fn scalar<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    read: impl FnOnce(&str) -> Result<T, QuantityError>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Scalar { expected, read })
}

struct Scalar<R> {
    expected: &'static str,
    read: R,
}

impl<R> Scalar<R> {
    fn number<T, E: Error>(self, number: impl Display, unexpected: Unexpected<'_>) -> Result<T, E>
    where
        R: FnOnce(&str) -> Result<T, QuantityError>,
    {
        (self.read)(&number.to_string()).map_err(|_| E::invalid_value(unexpected, &self.expected))
    }
}

impl<T, R: FnOnce(&str) -> Result<T, QuantityError>> Visitor<'_> for Scalar<R> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        self.number(value, Unexpected::Unsigned(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.number(value, Unexpected::Signed(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        // The text of a float has no exponent.
        self.number(value, Unexpected::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).map_err(|_| {
            // The message stays short, whatever the file holds.
            let start: String = text.chars().take(40).collect();
            E::invalid_value(Unexpected::Str(&start), &self.expected)
        })
    }
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
