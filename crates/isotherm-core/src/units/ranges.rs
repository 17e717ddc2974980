//! Reading ranges: two quantities with a colon between them.

use std::ops::Range;
use std::time::Duration;

use super::parse::{QuantityError, parse_address, parse_count, parse_duration};
use crate::AddrRange;

const COUNTS: &str = "MIN:MAX, such as 10:1000";
const TIMES: &str = "FROM:TO, such as 2s:10s, :10s or 2s:";
const ADDRESSES: &str = "FROM:TO, such as 0x7f0000000000:0x7f0000100000 or 4GiB:5GiB";

/// Reads `MIN:MAX`, two counts. Their order is not checked.
///
/// # Errors
/// If the text is not of this form.
pub fn parse_count_range(text: &str) -> Result<(u64, u64), QuantityError> {
    let (min, max) = text.split_once(':').ok_or_else(|| QuantityError::form(COUNTS, text))?;
    Ok((parse_count(min)?, parse_count(max)?))
}

/// Reads `FROM:TO`, two times. Either may be left out. The second is not part of the range.
///
/// # Errors
/// If the text is not of this form, or the range is empty.
pub fn parse_time_range(text: &str) -> Result<Range<Duration>, QuantityError> {
    let (from, to) = text.split_once(':').ok_or_else(|| QuantityError::form(TIMES, text))?;
    let or = |end: &str, left_out| if end.trim().is_empty() { Ok(left_out) } else { parse_duration(end) };
    let range = or(from, Duration::ZERO)?..or(to, Duration::MAX)?;
    if range.is_empty() { Err(QuantityError::empty_range(text)) } else { Ok(range) }
}

/// Reads `FROM:TO`, two addresses. The second is not part of the range.
///
/// # Errors
/// If the text is not of this form, or the range is empty.
pub fn parse_address_range(text: &str) -> Result<AddrRange, QuantityError> {
    let (from, to) = text.split_once(':').ok_or_else(|| QuantityError::form(ADDRESSES, text))?;
    AddrRange::new(parse_address(from)?, parse_address(to)?).ok_or_else(|| QuantityError::empty_range(text))
}
