//! Quantities: those that people type, and the time by the clock.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isotherm_core::AddrRange;

/// A time such as `5ms`, `1s`, `2m 30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number and a unit, such as 5ms, 10s or 2m"))
}

/// `MIN:MAX`, two numbers of regions.
pub fn bounds(text: &str) -> Result<(usize, usize), String> {
    let (min, max) = text.split_once(':').ok_or("write MIN:MAX, such as 10:1000")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number of regions"));
    Ok((number(min)?, number(max)?))
}

/// `A:B`, times since the recording's start, of which either may be left out.
pub fn time_range(text: &str) -> Result<Range<Duration>, String> {
    let (from, to) = text.split_once(':').ok_or("write FROM:TO, such as 2s:10s, :10s or 2s:")?;
    let from = if from.is_empty() { Duration::ZERO } else { duration(from)? };
    let to = if to.is_empty() { Duration::MAX } else { duration(to)? };
    if from < to {
        Ok(from..to)
    } else {
        Err(format!("{text} is empty or reversed; the first time must be the earlier"))
    }
}

/// `A:B`, addresses, hexadecimal with `0x`, decimal, or with a unit such as `4GiB`; B is not part of it.
pub fn address_range(text: &str) -> Result<AddrRange, String> {
    let (from, to) = text.split_once(':').ok_or("write FROM:TO, such as 0x7f0000000000:0x7f0000100000")?;
    AddrRange::new(address(from)?, address(to)?)
        .ok_or_else(|| format!("{text} is empty or reversed; the first address must be the lower"))
}

fn address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let or_size = |_| text.parse::<bytesize::ByteSize>().map(|size| size.as_u64());
    number.or_else(or_size).map_err(|_| {
        format!("{text:?} is not an address; write it in hexadecimal with 0x, in decimal, or with a unit such as 4GiB")
    })
}

/// A share of one, 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("{text} is not between 0 and 1")) }
}

/// A size such as `4KiB` or `1.5 GiB`; a bare number is bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let size: bytesize::ByteSize = text.parse().map_err(|_| format!("{text:?} is not a size such as 64KiB or 2GiB"))?;
    Ok(size.as_u64())
}

/// The time by the clock, in nanoseconds since the Unix epoch.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_end_of_a_time_range_may_be_left_out() {
        assert_eq!(time_range("1s:2s"), Ok(Duration::from_secs(1)..Duration::from_secs(2)));
        assert_eq!(time_range(":2s"), Ok(Duration::ZERO..Duration::from_secs(2)));
        assert_eq!(time_range("1s:"), Ok(Duration::from_secs(1)..Duration::MAX));
    }

    #[test]
    fn reversed_and_empty_ranges_are_refused() {
        assert!(time_range("2s:1s").unwrap_err().contains("reversed"));
        assert!(time_range("2s:2s").unwrap_err().contains("empty"));
        assert!(address_range("0x2000:0x1000").unwrap_err().contains("reversed"));
    }

    #[test]
    fn addresses_are_hexadecimal_or_decimal_or_sizes() {
        assert_eq!(address_range("0x1000:8192"), Ok(AddrRange::new(4096, 8192).unwrap()));
        assert_eq!(address_range("1.5MiB:4GiB"), Ok(AddrRange::new(3 << 19, 4 << 30).unwrap()));
        assert!(address_range("0x1000g:2").unwrap_err().contains("not an address"));
        assert!(address_range("1000h:2").unwrap_err().contains("not an address"));
    }
}
