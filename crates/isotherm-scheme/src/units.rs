//! Quantities of the scheme languages. Core's parser reads them; the wrappers turn its errors into messages.

use std::time::Duration;

pub use isotherm_core::units::{A_SHARE, A_SIZE, A_TIME};
use isotherm_core::units::{
    QuantityError, parse_address, parse_bytes, parse_decimal, parse_duration, parse_duration_or, parse_share_of,
};

/// A size in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// A time. A number without a unit counts `bare`, or is an error.
///
/// A time over 2⁶⁴ − 1 ns (584 years) is read as that: damo writes such times for "no bound".
pub fn time(text: &str, bare: Option<Duration>) -> Result<Duration, String> {
    let time = match bare {
        Some(bare) => parse_duration_or(text, bare),
        None => parse_duration(text),
    };
    match time {
        Err(QuantityError::TooLarge { .. }) => Ok(Duration::from_nanos(u64::MAX)),
        time => time.map_err(|error| error.to_string()),
    }
}

/// A share of 1, 0 to 1. A number without a percent sign is a share of `bare`, which is 1 if it is not given.
pub fn share(text: &str, bare: Option<f64>) -> Result<f64, String> {
    parse_share_of(text, bare.unwrap_or(1.0)).map_err(|error| error.to_string())
}

/// A number that is not below zero.
pub fn decimal(text: &str) -> Option<f64> {
    parse_decimal(text)
}

/// An address.
pub fn address(text: &str) -> Result<u64, String> {
    parse_address(text).map_err(|error| error.to_string())
}

/// What was expected, and what was found in its place.
pub fn expected(what: &'static str, found: &str) -> String {
    QuantityError::form(what, found).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_over_584_years_is_read_as_584_years() {
        let most = Duration::from_nanos(u64::MAX);
        assert_eq!(time("18446744073709551615", Some(Duration::from_micros(1))), Ok(most));
        assert_eq!(time("300000d", None), Ok(most));
        assert!(time("7", None).unwrap_err().contains("no unit"));
    }

    #[test]
    fn a_share_without_a_sign_is_of_1_unless_the_form_says_otherwise() {
        assert_eq!(share("0.8", None), Ok(0.8));
        assert_eq!(share("80", Some(100.0)), Ok(0.8));
        assert_eq!(share("80%", Some(1000.0)), Ok(0.8));
    }
}
