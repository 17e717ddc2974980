//! Quantities as people write them: sizes, times, shares.

use std::time::Duration;

/// Bytes in each unit of sizes: powers of 1,024 throughout, as DAMON's tools have it.
const SIZES: [(&str, u64); 6] =
    [("B", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("P", 1 << 50)];

/// Nanoseconds in each unit of times.
const TIMES: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("m", 60e9),
    ("h", 3600e9),
    ("d", 86_400e9),
];

/// What a size looks like, for messages.
pub const A_SIZE: &str = "a size such as 4K, 2M or 1.5G (or a number of bytes)";
/// What a time looks like, for messages.
pub const A_TIME: &str = "a time such as 100ms, 5s or 2m";
/// What a share looks like, for messages.
pub const A_SHARE: &str = "a share such as 5% (0% to 100%)";

/// A size, in bytes: a number with a unit of 1,024, or of bytes without one.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text).ok_or_else(|| expected(A_SIZE, text))?;
    let short = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B').filter(|u| !u.is_empty())).unwrap_or(unit);
    let unit = SIZES.iter().find(|(name, _)| short.is_empty() && *name == "B" || name.eq_ignore_ascii_case(short));
    let (_, bytes) = unit.ok_or_else(|| expected(A_SIZE, text))?;
    // What f64 does not hold exactly is no size that people write in decimals.
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*bytes).ok_or_else(|| format!("{text} is larger than any memory"));
    }
    let product = decimal(&number).ok_or_else(|| expected(A_SIZE, text))? * *bytes as f64;
    if product < u64::MAX as f64 {
        Ok(product.round() as u64)
    } else {
        Err(format!("{text} is larger than any memory"))
    }
}

/// A time: numbers with units, one after the other. Without a unit it is `bare`, or an error.
pub fn time(text: &str, bare: Option<Duration>) -> Result<Duration, String> {
    let no_time = || expected(A_TIME, text);
    let mut nanoseconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(no_time());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(rest.len());
        let number = decimal(&rest[..digits].replace(',', "")).ok_or_else(no_time)?;
        let after = rest[digits..].trim_start();
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let unit = &after[..letters];
        nanoseconds += match TIMES.iter().find(|(name, _)| *name == unit) {
            Some((_, unit)) => number * unit,
            None if unit.is_empty() && number == 0.0 => 0.0,
            None if unit.is_empty() => match bare {
                Some(bare) => number * bare.as_nanos() as f64,
                None => return Err(format!("{text} has no unit; write {A_TIME}")),
            },
            None => return Err(no_time()),
        };
        rest = after[letters..].trim_start();
    }
    // A cast from f64 saturates; five centuries are as good as for ever.
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// A share of one: a number with a percent sign, 0 % to 100 %. Without the sign it is of `bare`, or an error.
pub fn share(text: &str, bare: Option<f64>) -> Result<f64, String> {
    let trimmed = text.trim();
    let (number, unit) = match trimmed.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => match bare {
            Some(whole) => (trimmed, whole),
            None if decimal(trimmed).is_some() => {
                return Err(format!("{text} could be a share of 1 or of 100; write it in percent, such as 5%"));
            }
            None => return Err(expected(A_SHARE, text)),
        },
    };
    let number = decimal(&number.replace(',', "")).ok_or_else(|| expected(A_SHARE, text))?;
    let share = number / unit;
    if share <= 1.0 { Ok(share) } else { Err(format!("{text} is more than all; write a share of at most 100%")) }
}

/// A number that is not below zero and finite.
pub fn decimal(text: &str) -> Option<f64> {
    // What else f64 understands (inf, nan, 1e9) is no quantity that people mean here.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// An address: hexadecimal with `0x`, or decimal.
pub fn address(text: &str) -> Result<u64, String> {
    let number = match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.trim().parse(),
    };
    number.map_err(|_| expected("an address such as 0x7f0000000000", text))
}

/// What was expected, and what was found in its place.
pub fn expected(what: &str, found: &str) -> String {
    if found.trim().starts_with('-') {
        return format!("expected {what}, and {found:?} is below zero");
    }
    format!("expected {what}, found {found:?}")
}

/// A number, without commas between its digits, and the letters after it.
fn number_and_unit(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
    let number = text[..digits].replace(',', "");
    decimal(&number)?;
    Some((number, text[digits..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("4k", 4096),
            ("4KB", 4096),
            ("4 KiB", 4096),
            ("4.000 KiB", 4096),
            ("1,024 B", 1024),
            ("1.5G", 3 << 29),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "4X", "4 5", "-4K", "4K4K", "1e3", "99999999999P", "nan", "max"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units_and_may_be_of_several() {
        for (text, millis) in [("5s", 5000), ("100 ms", 100), ("1 m 30 s", 90_000), ("1.5h", 5_400_000), ("0", 0)] {
            assert_eq!(time(text, None), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(time("7", Some(Duration::from_micros(1))), Ok(Duration::from_micros(7)));
        assert!(time("7", None).unwrap_err().contains("no unit"));
        for text in ["", "s", "5 fortnights", "-5s", "5s-", "5..5s"] {
            assert!(time(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_in_percent() {
        assert_eq!(share("5%", None), Ok(0.05));
        assert_eq!(share("100 %", None), Ok(1.0));
        assert_eq!(share("80", Some(100.0)), Ok(0.8));
        assert!(share("0.05", None).unwrap_err().contains("percent"));
        assert!(share("101%", None).unwrap_err().contains("100%"));
        assert!(share("five", None).is_err());
    }
}
