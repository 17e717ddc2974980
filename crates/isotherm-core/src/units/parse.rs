//! Reading quantities.

use std::time::Duration;

use thiserror::Error;

use super::number::Number;

/// What a size looks like, for messages.
pub const A_SIZE: &str = "a size such as 4K, 2M or 1.5G (or a number of bytes)";
/// What a time looks like, for messages.
pub const A_TIME: &str = "a time such as 100ms, 5s or 2m";
/// What a frequency looks like, for messages.
pub const A_FREQUENCY: &str = "a frequency such as 5Hz or 0.2Hz";
/// What a share looks like, for messages.
pub const A_SHARE: &str = "a share such as 5% or 0.05 (0% to 100%, or 0 to 1)";
/// What a count looks like, for messages.
pub const A_COUNT: &str = "a whole number such as 1000";

const AN_ADDRESS: &str = "an address such as 0x7f0000000000 or 4GiB (or a decimal number)";

/// The letters of sizes: the nth is 1,024 to the power of n + 1.
const SIZES: &str = "KMGTPE";

/// Nanoseconds in each unit of time. The micro sign and the Greek letter look alike, and keyboards have either.
const TIMES: [(&str, u128); 10] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Characters of a text that a message repeats.
const MOST_REPEATED: usize = 60;

/// Why a text is not a quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not have the form of the quantity.
    #[error("expected {expected}, found {found:?}")]
    Form {
        /// What the quantity looks like.
        expected: &'static str,
        /// The text.
        found: String,
    },
    /// The number is negative.
    #[error("expected {expected}, and {found:?} is below zero")]
    Negative {
        /// What the quantity looks like.
        expected: &'static str,
        /// The text.
        found: String,
    },
    /// A time has no unit.
    #[error("{found} has no unit; write {A_TIME}")]
    NoUnit {
        /// The text.
        found: String,
    },
    /// The quantity does not fit in 64 bits.
    #[error("{found} is too large: the most is {most}")]
    TooLarge {
        /// The largest quantity of this kind.
        most: &'static str,
        /// The text.
        found: String,
    },
    /// A share is over the whole.
    #[error("{found} is more than all; write a share of at most 100%, or of at most 1")]
    OverWhole {
        /// The text.
        found: String,
    },
    /// The end of a range is not after its start.
    #[error("{found} is empty or reversed; write the smaller value first")]
    EmptyRange {
        /// The text.
        found: String,
    },
}

impl QuantityError {
    /// The text is not what `expected` describes.
    pub fn form(expected: &'static str, found: &str) -> Self {
        let shown = shortened(found);
        if found.trim_start().starts_with('-') {
            Self::Negative { expected, found: shown }
        } else {
            Self::Form { expected, found: shown }
        }
    }

    pub(super) fn empty_range(found: &str) -> Self {
        Self::EmptyRange { found: shortened(found) }
    }

    fn too_large(most: &'static str, found: &str) -> Self {
        Self::TooLarge { most, found: shortened(found) }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_REPEATED).collect()
}

/// Reads a size in bytes: a number and a unit of 1,024, or a number of bytes.
///
/// # Errors
/// If the text is not a size, or the size is over 2⁶⁴ − 1 bytes.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let form = || QuantityError::form(A_SIZE, text);
    let (number, unit) = Number::read(text.trim()).ok_or_else(form)?;
    let unit = size_unit(unit.trim_start()).ok_or_else(form)?;
    let bytes = number.times(unit).and_then(|bytes| u64::try_from(bytes).ok());
    bytes.ok_or_else(|| QuantityError::too_large("2^64 - 1 bytes", text))
}

/// Bytes in the unit that these letters name.
fn size_unit(letters: &str) -> Option<u128> {
    if letters.is_empty() || letters.eq_ignore_ascii_case("B") {
        return Some(1);
    }
    let letter = letters.chars().next()?.to_ascii_uppercase();
    let power = SIZES.find(letter)? + 1;
    let rest = &letters[letter.len_utf8()..];
    ["", "B", "iB"].iter().any(|suffix| rest.eq_ignore_ascii_case(suffix)).then(|| 1 << (10 * power))
}

/// Reads a time: a number and a unit (ns, us, ms, s, m or min, h, d), or several of them, as in `2m 30s`.
///
/// # Errors
/// If the text is not a time, or has no unit, or the time is over 2⁶⁴ − 1 ns (584 years).
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    time(text, None)
}

/// Reads a time. A number without a unit is a multiple of `bare`.
///
/// # Errors
/// As [`parse_duration`], but for the missing unit.
pub fn parse_duration_or(text: &str, bare: Duration) -> Result<Duration, QuantityError> {
    time(text, Some(bare))
}

fn time(text: &str, bare: Option<Duration>) -> Result<Duration, QuantityError> {
    let form = || QuantityError::form(A_TIME, text);
    let too_large = || QuantityError::too_large("584 years", text);
    let in_u64 = |ns: u128| u64::try_from(ns).map(Duration::from_nanos).map_err(|_| too_large());

    let trimmed = text.trim();
    if let Some((number, "")) = Number::read(trimmed) {
        return match bare {
            _ if number.is_zero() => Ok(Duration::ZERO),
            Some(unit) => in_u64(number.times(unit.as_nanos()).ok_or_else(too_large)?),
            None => Err(QuantityError::NoUnit { found: shortened(trimmed) }),
        };
    }
    let mut sum: u128 = 0;
    let mut rest = trimmed;
    loop {
        let (number, after) = Number::read(rest).ok_or_else(form)?;
        let after = after.trim_start();
        let (letters, after) = after.split_at(after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len()));
        let (_, unit) = TIMES.iter().find(|(name, _)| *name == letters).ok_or_else(form)?;
        sum = number.times(*unit).and_then(|ns| sum.checked_add(ns)).ok_or_else(too_large)?;
        rest = after.trim_start();
        if rest.is_empty() {
            return in_u64(sum);
        }
    }
}

/// Reads a share of a whole, 0 to 1: `5%` or `0.05`.
///
/// # Errors
/// If the text is not a share, or the share is over the whole.
pub fn parse_share(text: &str) -> Result<f64, QuantityError> {
    parse_share_of(text, 1.0)
}

/// Reads a share of a whole, 0 to 1. A number without a percent sign counts parts of `whole`: with 100, `5` is
/// `5%`.
///
/// # Errors
/// If the text is not a share, or the share is over the whole.
pub fn parse_share_of(text: &str, whole: f64) -> Result<f64, QuantityError> {
    let form = || QuantityError::form(A_SHARE, text);
    let (number, sign) = Number::read(text.trim()).ok_or_else(form)?;
    let whole = match sign.trim_start() {
        "" => whole,
        "%" => 100.0,
        _ => return Err(form()),
    };
    let share = number.to_f64() / whole;
    if share <= 1.0 { Ok(share) } else { Err(QuantityError::OverWhole { found: shortened(text) }) }
}

/// Reads a frequency in hertz: `5Hz`, `0.2 Hz`, `1kHz`.
///
/// # Errors
/// If the text is not a frequency, or has no unit.
pub fn parse_hertz(text: &str) -> Result<f64, QuantityError> {
    let form = || QuantityError::form(A_FREQUENCY, text);
    let (number, unit) = Number::read(text.trim()).ok_or_else(form)?;
    let times = [("hz", 1.0), ("khz", 1e3), ("mhz", 1e-3)];
    let unit = unit.trim_start();
    // As always, M is for mega and m for milli.
    let of = |&&(name, _): &&(&str, f64)| unit.eq_ignore_ascii_case(name) && !unit.starts_with('M');
    let (_, times) = times.iter().find(of).ok_or_else(form)?;
    Ok(number.to_f64() * times)
}

/// Reads a whole number, in which commas may separate thousands.
///
/// # Errors
/// If the text is not a whole number, or the number is over 2⁶⁴ − 1.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    match Number::read(text.trim()) {
        Some((number, "")) if number.is_whole() => {
            let count = number.times(1).and_then(|count| u64::try_from(count).ok());
            count.ok_or_else(|| QuantityError::too_large("2^64 - 1", text))
        }
        _ => Err(QuantityError::form(A_COUNT, text)),
    }
}

/// Reads a number without a unit. None if the text is not one, or the number is negative.
pub fn parse_decimal(text: &str) -> Option<f64> {
    match Number::read(text.trim()) {
        Some((number, "")) => Some(number.to_f64()),
        _ => None,
    }
}

/// Reads an address: hexadecimal with `0x`, decimal, or with a unit as in `4GiB`.
///
/// # Errors
/// If the text is not an address, or the address is over 2⁶⁴ − 1.
pub fn parse_address(text: &str) -> Result<u64, QuantityError> {
    let form = || QuantityError::form(AN_ADDRESS, text);
    let trimmed = text.trim();
    match trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X")) {
        // `from_str_radix` accepts a sign, which no address has.
        Some(digits) if digits.starts_with('+') => Err(form()),
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| form()),
        None => parse_bytes(trimmed).map_err(|error| match error {
            QuantityError::TooLarge { .. } => error,
            _ => form(),
        }),
    }
}
