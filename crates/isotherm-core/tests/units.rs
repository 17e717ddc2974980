//! Quantities as text: what is accepted, what is written, and that the one is read back from the other.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_core::units::{
    bounded, bytes, count, counted, duration, nanoseconds, parse_address, parse_address_range, parse_bytes,
    parse_count, parse_count_range, parse_decimal, parse_duration, parse_duration_or, parse_share, parse_share_of,
    parse_time_range, percent, setting,
};
use proptest::prelude::*;

#[test]
fn units_of_sizes_are_powers_of_1024_in_either_case() {
    for (n, letter) in "KMGTPE".chars().enumerate() {
        let unit = 1 << (10 * (n + 1));
        for suffix in ["", "B", "b", "iB", "IB", "ib"] {
            for letter in [letter, letter.to_ascii_lowercase()] {
                for space in ["", " ", "  "] {
                    let text = format!("2{space}{letter}{suffix}");
                    assert_eq!(parse_bytes(&text), Ok(2 * unit), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_size_without_a_unit_is_in_bytes() {
    for (text, bytes) in [("0", 0), ("4096", 4096), (" 4096 ", 4096), ("512B", 512), ("512 b", 512), ("1,024 B", 1024)]
    {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
    }
}

#[test]
fn fractions_of_a_size_are_exact_or_rounded_to_the_nearest_byte() {
    for (text, bytes) in [
        ("1.5G", 3 << 29),
        ("4.000 KiB", 4096),
        (".5K", 512),
        ("5.K", 5120),
        ("1.3K", 1331),
        ("0.0001K", 0),
        ("8191.9999999999999999999P", 8192 << 50),
    ] {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
    }
}

#[test]
fn whole_sizes_lose_no_precision_up_to_the_largest() {
    assert_eq!(parse_bytes("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(parse_bytes("9007199254740993"), Ok((1 << 53) + 1));
    assert_eq!(parse_bytes("18014398509481983K"), Ok(u64::MAX - 1023));
    for text in ["18446744073709551616", "16E", "99999999999P", "340282366920938463463374607431768211456", "1e99"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
    assert_eq!(parse_bytes("16E").unwrap_err().to_string(), "16E is too large: the most is 2^64 - 1 bytes");
}

#[test]
fn what_is_no_size_is_refused_with_what_is_accepted() {
    for text in
        ["", "K", "iB", "4X", "4 5", "4K4K", "1e3", "nan", "inf", "max", "0x10", "4KKB", "1..5K", "1.5.5K", "+4K"]
    {
        let error = parse_bytes(text).unwrap_err().to_string();
        assert_eq!(error, format!("expected a size such as 4K, 2M or 1.5G (or a number of bytes), found {text:?}"));
    }
    assert!(parse_bytes("-4K").unwrap_err().to_string().contains("\"-4K\" is below zero"));
}

#[test]
fn a_comma_separates_thousands_and_nothing_else() {
    assert_eq!(parse_count("1,234,567"), Ok(1_234_567));
    for text in ["1,5", "1,5G", "1,2345", ",100", "1,,000", "1000,000", "1.000,5", "100,"] {
        assert!(parse_bytes(text).is_err(), "{text}");
        assert!(parse_count(text).is_err(), "{text}");
    }
}

#[test]
fn times_have_units_and_may_be_sums() {
    for (text, ns) in [
        ("7ns", 7),
        ("100us", 100_000),
        ("100 µs", 100_000),
        ("100μs", 100_000),
        ("5ms", 5_000_000),
        ("1.5s", 1_500_000_000),
        ("2m", 120_000_000_000),
        ("2 min", 120_000_000_000),
        ("2m 30s", 150_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("2d", 172_800_000_000_000),
        ("0", 0),
        ("18446744073709551615ns", u64::MAX),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
    }
    for text in ["", "s", "5 fortnights", "-5s", "5s-", "5..5s", "5M", "5S", "5s 5", "5 5s", "5s,"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert_eq!(parse_duration("300000d").unwrap_err().to_string(), "300000d is too large: the most is 584 years");
}

#[test]
fn a_time_without_a_unit_is_refused_with_a_hint_or_counts_what_the_caller_says() {
    assert_eq!(parse_duration("5").unwrap_err().to_string(), "5 has no unit; write a time such as 100ms, 5s or 2m");
    assert_eq!(parse_duration_or("5", Duration::from_micros(1)), Ok(Duration::from_micros(5)));
    assert_eq!(parse_duration_or("5s", Duration::from_micros(1)), Ok(Duration::from_secs(5)));
    assert!(parse_duration_or("18446744073709551615", Duration::from_micros(1)).is_err());
}

#[test]
fn a_share_is_of_one_or_in_per_cent() {
    for (text, share) in [("0", 0.0), ("0.05", 0.05), ("5%", 0.05), ("1", 1.0), ("100 %", 1.0), ("99.7%", 0.997)] {
        assert_eq!(parse_share(text), Ok(share), "{text}");
    }
    assert_eq!(parse_share_of("80", 100.0), Ok(0.8));
    assert_eq!(parse_share_of("80%", 1000.0), Ok(0.8));
    assert_eq!(parse_share_of("80", 1000.0), Ok(0.08));
    for text in ["2", "5", "101%", "1.0001"] {
        let error = parse_share(text).unwrap_err().to_string();
        assert_eq!(error, format!("{text} is more than all; write a share of at most 100%, or of at most 1"));
    }
    for text in ["", "%", "five", "5%%", "5 % 5", "-1%", "nan"] {
        assert!(parse_share(text).unwrap_err().to_string().contains("5% or 0.05"), "{text}");
    }
}

#[test]
fn decimals_have_no_unit_and_no_sign() {
    assert_eq!(parse_decimal("2.5"), Some(2.5));
    for text in ["", "-2", "2s", "inf", "1e9"] {
        assert_eq!(parse_decimal(text), None, "{text}");
    }
}

#[test]
fn addresses_are_hexadecimal_or_decimal_or_have_a_unit() {
    for (text, address) in [("0x1000", 4096), ("0XfFf", 4095), ("8192", 8192), ("1.5MiB", 3 << 19), ("4GiB", 4 << 30)] {
        assert_eq!(parse_address(text), Ok(address), "{text}");
    }
    assert_eq!(parse_address("0xffffffffffffffff"), Ok(u64::MAX));
    for text in ["", "0x", "0x1000g", "1000h", "zero", "0x+10", "0x-10", "0x1ffffffffffffffff"] {
        assert!(parse_address(text).unwrap_err().to_string().contains("an address such as 0x7f0000000000"), "{text}");
    }
}

#[test]
fn ranges_have_a_colon_and_are_not_empty() {
    let s = Duration::from_secs;
    assert_eq!(parse_time_range("1s:2s"), Ok(s(1)..s(2)));
    assert_eq!(parse_time_range(":2s"), Ok(s(0)..s(2)));
    assert_eq!(parse_time_range("1s:"), Ok(s(1)..Duration::MAX));
    assert_eq!(parse_address_range("0x1000:8192"), Ok(AddrRange::new(4096, 8192).unwrap()));
    assert_eq!(parse_count_range("10:1,000"), Ok((10, 1000)));
    for text in ["2s:1s", "2s:2s"] {
        assert!(parse_time_range(text).unwrap_err().to_string().contains("empty or reversed"), "{text}");
    }
    assert!(parse_address_range("0x2000:0x1000").unwrap_err().to_string().contains("empty or reversed"));
    assert!(parse_address_range("0x2000").unwrap_err().to_string().contains("FROM:TO"));
    assert!(parse_time_range("2s").unwrap_err().to_string().contains("FROM:TO"));
    assert!(parse_count_range("10").unwrap_err().to_string().contains("MIN:MAX"));
}

#[test]
fn measured_sizes_have_three_digits_and_a_unit() {
    let shown: Vec<_> =
        [0, 1, 1023, 1024, 1536, 135_168, 1_048_575, 1 << 20, 1_288_490_189, u64::MAX].map(bytes).into();
    assert_eq!(shown, ["0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "132 KiB", "1 MiB", "1 MiB", "1.2 GiB", "16 EiB"]);
}

#[test]
fn a_size_has_its_bounds_unless_they_look_the_same() {
    let mib = |tenths: u64| (tenths << 20) / 10;
    assert_eq!(bounded(mib(640), mib(610), mib(672)), "64.0 MiB (61.0 to 67.2 MiB)");
    assert_eq!(bounded(mib(640), mib(640), mib(640) + 4096), bytes(mib(640)));
}

#[test]
fn measured_times_have_the_unit_a_reader_expects() {
    let shown: Vec<_> = [0, 7, 250_000, 5_000_000, 999_999_999, 12_340_000_000, 125_000_000_000, 3_780_000_000_000]
        .map(nanoseconds)
        .into();
    assert_eq!(shown, ["0 s", "7 ns", "250 µs", "5 ms", "1 s", "12.3 s", "2 min 5 s", "1 h 3 min"]);
}

#[test]
fn counts_and_measured_shares() {
    assert_eq!([0, 1, 12_345].map(|n| counted(n, "page")), ["0 pages", "1 page", "12,345 pages"]);
    assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(
        [0.0, 0.003, 0.0994, 0.0996, 0.42, 1.0].map(percent),
        ["0 %", "0.3 %", "9.9 %", "10 %", "42 %", "100 %"]
    );
}

#[test]
fn settings_are_shown_as_they_are_written() {
    assert_eq!([512, 4096, 5 << 28, u64::MAX].map(setting::bytes), ["512 B", "4 KiB", "1.25 GiB", "16 EiB"]);
    let shown = [0, 7, 1_500, 1_250_000, 90_000_000_000, 5_400_000_000_000, 9_000_000_000_000];
    let shown = shown.map(|ns| setting::duration(Duration::from_nanos(ns)));
    assert_eq!(shown, ["0 s", "7 ns", "1.5 µs", "1.25 ms", "90 s", "90 min", "2.5 h"]);
    assert_eq!([0.0005, 0.997, 1.0].map(setting::percent), ["0.05 %", "99.7 %", "100 %"]);
}

/// Texts that look like quantities, and some that do not.
fn texts() -> impl Strategy<Value = String> {
    let number = "[0-9]{1,22}(\\.[0-9]{0,22})?[ ]?[a-zA-Zµ%]{0,3}";
    let close = "[-+]?[0-9,.]{0,30}[ \u{a0}]?[kKmMgGtTpPeEiIbBnuµμsinhdx%:]{0,4}[ ]?[0-9.,]{0,4}[a-zµ%:]{0,3}";
    prop_oneof![number, close, ".*", "0x[0-9a-fA-F+-]{0,20}"]
}

/// That `a` is within this share of `b`.
fn close(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= b.abs() * share
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in texts()) {
        let _ = (parse_bytes(&text), parse_count(&text), parse_decimal(&text), parse_address(&text));
        let _ = (parse_duration(&text), parse_duration_or(&text, Duration::MAX));
        let _ = (parse_share(&text), parse_share_of(&text, 1000.0));
        let _ = (parse_time_range(&text), parse_address_range(&text), parse_count_range(&text));
    }

    #[test]
    fn a_whole_number_of_any_unit_is_read_exactly(n in 0..=u64::MAX, unit in 0..7_u32) {
        let whole = n >> (10 * unit);
        let text = format!("{whole}{}", ["", "k", "MB", "GiB", "T", "P", "E"][unit as usize]);
        prop_assert_eq!(parse_bytes(&text), Ok(whole << (10 * unit)));
    }

    // From 15.95 EiB on, a size is shown as 16 EiB, which is 2^64.
    #[test]
    fn a_size_is_read_back(exponent in 0..64_u32, n in 0..u64::MAX - (1 << 57)) {
        let n = n >> exponent;
        let read = parse_bytes(&bytes(n)).unwrap();
        prop_assert!(close(read as f64, n as f64, 0.05), "{n} {read}");
        let read = parse_bytes(&setting::bytes(n)).unwrap();
        prop_assert!(close(read as f64, n as f64, 0.005), "{n} {read}");
    }

    #[test]
    fn a_time_is_read_back(exponent in 0..64_u32, ns: u64) {
        let time = Duration::from_nanos(ns >> exponent);
        let read = parse_duration(&duration(time)).unwrap();
        prop_assert!(close(read.as_secs_f64(), time.as_secs_f64(), 0.05), "{time:?} {read:?}");
        let read = parse_duration(&setting::duration(time)).unwrap();
        prop_assert!(close(read.as_secs_f64(), time.as_secs_f64(), 0.005), "{time:?} {read:?}");
    }

    #[test]
    fn a_share_and_a_count_are_read_back(share in 0.0..=1.0_f64, n: u64) {
        prop_assert!((parse_share(&percent(share)).unwrap() - share).abs() <= 0.00501);
        prop_assert!((parse_share(&setting::percent(share)).unwrap() - share).abs() <= 0.0000501);
        prop_assert_eq!(parse_count(&count(n)), Ok(n));
    }

    #[test]
    fn a_setting_of_two_decimals_is_shown_as_written(hundredths in 100..100_000_u64, unit in 1..7_usize) {
        let written = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        let text = format!("{} {}iB", written.trim_end_matches('0').trim_end_matches('.'), &"BKMGTPE"[unit..=unit]);
        // What rounding to bytes changes is no setting of two decimals, and 16 EiB are too large.
        prop_assume!(unit > 1 && !(unit == 6 && hundredths >= 1600));
        prop_assert_eq!(setting::bytes(parse_bytes(&text).unwrap()), text);
    }
}
