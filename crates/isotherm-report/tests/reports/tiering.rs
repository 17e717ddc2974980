//! Trials of two tiers on made recordings whose truth is known.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::Mapping;
use isotherm_report::tiering::{FastSize, TierTrial, TrialOptions, Tried};
use isotherm_report::{Format, Options, Selection, Terminal};
use proptest::prelude::*;

use crate::made::{self, ANON, MIB, Made, made, mapping, region, row, surveyed};

/// A process with 128 MiB without surveys, of which `hot` tells the first hot MiB in each of `seconds`; 32 MiB are hot.
fn process(seconds: u32, hot: impl Fn(u32) -> u64) -> Made {
    let mappings: Arc<[Mapping]> = vec![mapping(ANON, ANON + 128 * MIB, "")].into();
    let rows = (1..=seconds * 10).map(|i| {
        let start = ANON + hot((i - 1) / 10) * MIB;
        let parts = [(ANON, start, 0), (start, start + 32 * MIB, 20), (start + 32 * MIB, ANON + 128 * MIB, 0)];
        let parts = parts.into_iter().filter(|(from, to, _)| from < to);
        row(i, 1234, &mappings, parts.map(|(from, to, nr)| region(from, to, nr, 3)).collect())
    });
    made(rows.collect())
}

fn trial(source: &Made, options: &TrialOptions) -> TierTrial {
    TierTrial::new(source, &Selection::default(), options).unwrap()
}

fn fast(source: &Made, mib: u64) -> Tried {
    trial(source, &TrialOptions { fast: vec![FastSize::Bytes(mib * MIB)], ..TrialOptions::default() }).sizes[0]
}

fn near(share: f64, wanted: f64) -> bool {
    (share - wanted).abs() < 0.01
}

#[test]
fn a_hot_set_that_was_placed_slow_is_promoted_once_idle_memory_has_made_room() {
    // The fast tier is filled by the 48 MiB at the lowest addresses.
    let tried = fast(&process(40, |_| 64), 48);
    assert!(near(tried.first_touch.slow_share, 1.0), "{tried:?}");
    assert!(near(tried.best.slow_share, 0.0), "{tried:?}");
    // Of 40 looks, 3 pass until two have found memory idle, and it makes room for what goes up after that.
    assert!((3.0..5.0).contains(&(tried.isotherm.slow_share * 40.0)), "{tried:?}");
    assert!(near(tried.isotherm.late_slow_share, 0.0), "{tried:?}");
    assert_eq!(tried.promoted_bytes, 32 * MIB);
    assert!((32 * MIB..34 * MIB).contains(&tried.demoted_bytes), "{tried:?}");
}

#[test]
fn first_touch_serves_the_part_of_the_hot_set_that_was_placed_slow() {
    // The hot set is at 16 to 48 MiB, and 24 MiB are fast: 8 of 32 MiB.
    let tried = fast(&process(40, |_| 16), 24);
    assert!(near(tried.first_touch.slow_share, 0.75), "{tried:?}");
    // The best is 24 of 32 MiB.
    assert!(near(tried.best.slow_share, 0.25), "{tried:?}");
    // More than 99 % of the fast tier are filled.
    assert!(near(tried.isotherm.late_slow_share, 0.25), "{tried:?}");
}

#[test]
fn a_hot_set_that_moves_is_followed() {
    let tried = fast(&process(120, |second| u64::from(second / 30) * 32), 40);
    assert!(near(tried.first_touch.slow_share, 2.75 / 4.0), "{tried:?}");
    assert!(near(tried.best.slow_share, 0.0), "{tried:?}");
    // Of each phase of 30 s, 2 to 4 s pass until what was hot has made room.
    assert!((0.06..0.13).contains(&tried.isotherm.slow_share), "{tried:?}");
    assert!(tried.promoted_bytes >= 60 * MIB && tried.promoted_bytes <= 96 * MIB, "{tried:?}");
}

#[test]
fn a_lower_rate_follows_more_slowly() {
    let share = |rate| {
        let options = TrialOptions { fast: vec![FastSize::Bytes(32 * MIB)], rate, ..TrialOptions::default() };
        trial(&process(40, |_| 64), &options).sizes[0].isotherm.slow_share
    };
    assert!(share(4 * MIB) > share(200 * MIB) + 0.1, "{} {}", share(4 * MIB), share(200 * MIB));
    assert!(near(share(0), 1.0));
}

#[test]
fn the_curve_says_how_much_suffices() {
    let found = trial(&process(60, |_| 64), &TrialOptions { slow_price: Some(1.2), ..TrialOptions::default() });
    assert_eq!((found.peak_resident_bytes, found.curve.len(), found.sizes.len()), (128 * MIB, 13, 0));
    let last = found.curve[12];
    assert_eq!((last.fast_bytes, last.first_touch.slow_share, last.best.slow_share), (128 * MIB, 0.0, 0.0));
    let first = found.curve[0].best;
    assert!((first.modelled_time.unwrap() - (1.0 + 0.2 * first.slow_share)).abs() < 1e-9);
    let best = |pair: &[Tried]| pair[1].best.slow_share <= pair[0].best.slow_share;
    assert!(found.curve.windows(2).all(best));
    // The last 32 MiB are hot. They are slow at first only. Hardly any of the fast tier stays free.
    let last = trial(&process(60, |_| 96), &TrialOptions::default()).sentences();
    assert!(last[0].starts_with("With 32 MiB of fast memory (25 % of 128 MiB), "), "{last:?}");
    assert!(last[0].contains(" if isotherm moves memory, 0.2 % in the second half of the time; "), "{last:?}");
    // Other memory is hot each second, and none is idle for 10 s.
    let all = trial(&process(60, |second| u64::from(second % 4 * 32)), &TrialOptions::default()).sentences();
    assert!(all[0].starts_with("With less fast memory than the 128 MiB"), "{all:?}");
    // The first 32 MiB are hot, and 25 % of the memory.
    let found = trial(&process(60, |_| 0), &TrialOptions::default());
    assert!(found.sentences()[0].starts_with("With 32 MiB of fast memory (25 % of 128 MiB), 0 %"), "{found:?}");
}

#[test]
fn surveys_tell_what_is_there_and_what_is_not_known() {
    let found = trial(&surveyed(20), &TrialOptions::default());
    // Swapped, absent and reserved memory is not resident.
    assert_eq!(found.peak_resident_bytes, 64 * MIB);
    assert!(found.unknown_share > 0.05 && found.unknown_share < 0.13, "{}", found.unknown_share);
    assert!(found.notes.iter().any(|note| note.contains("whether it is accessed")), "{:?}", found.notes);
    // Samples find nothing. The 8 MiB that each survey finds touched lie first, and most of the accesses are theirs.
    let tried = fast(&surveyed(20), 8);
    assert!(tried.first_touch.slow_share > 0.0 && tried.first_touch.slow_share < 0.1, "{tried:?}");
}

#[test]
fn memory_that_is_read_once_a_minute_takes_no_place_of_memory_in_use() {
    let tried = fast(&process(300, |second| if second % 60 == 5 { 64 } else { 0 }), 48);
    // A little of what was idle for two minutes is replaced.
    assert!(tried.promoted_bytes < 2 * MIB, "{tried:?}");
}

#[test]
fn a_recording_without_accesses_or_surveys_says_so() {
    let mappings: Arc<[Mapping]> = vec![mapping(ANON, ANON + 128 * MIB, "")].into();
    let idle = (1..=30).map(|i| row(i, 1234, &mappings, vec![region(ANON, ANON + 128 * MIB, 0, 3)]));
    let found = trial(&made(idle.collect()), &TrialOptions::default());
    assert!(!found.has_accesses() && found.sentences().is_empty());
    assert!(found.warnings.iter().any(|warning| warning.contains("nothing found an access")));
    assert!(found.notes.iter().any(|note| note.contains("without surveys")));
}

#[test]
fn a_target_that_ends_gives_its_memory_back() {
    let mappings: Arc<[Mapping]> = vec![mapping(ANON, ANON + 64 * MIB, "")].into();
    let of = |i, pid| row(i, pid, &mappings, vec![region(ANON, ANON + 64 * MIB, 20, 3)]);
    let rows = (1..=100).map(|i| of(i, 1)).chain((131..=300).map(|i| of(i, 2)));
    let tried = fast(&made(rows.collect()), 64);
    // The second process finds the fast tier empty.
    assert!(near(tried.first_touch.slow_share, 0.0), "{tried:?}");
}

#[test]
fn a_part_of_the_time_is_tried_alone() {
    let source = process(60, |second| if second < 30 { 64 } else { 0 });
    let time = Some(Duration::from_secs(30)..Duration::from_secs(60));
    let options = TrialOptions { fast: vec![FastSize::Share(0.25)], ..TrialOptions::default() };
    let found = TierTrial::new(&source, &Selection { time, ..Selection::default() }, &options).unwrap();
    assert_eq!((found.from_ns, found.to_ns), (30_000_000_000, 60_000_000_000));
    assert!(near(found.sizes[0].first_touch.slow_share, 0.0), "{found:?}");
}

#[test]
fn every_format_has_the_figures() {
    let options = TrialOptions { fast: vec![FastSize::Bytes(32 * MIB)], curve: true, ..TrialOptions::default() };
    let found = trial(&process(20, |_| 64), &options);
    let written = |format| {
        let mut out = vec![];
        found.write(format, &Options::default(), &mut out).unwrap();
        out
    };
    for format in [Format::Text, Format::Svg, Format::Html] {
        let text = String::from_utf8(written(format)).unwrap();
        assert!(text.contains("With 32 MiB of fast memory (25 % of 128 MiB), "), "{text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&written(Format::Json)).unwrap();
    made::valid::assert_valid("tier-try", &json);
    assert_eq!(json["sizes"][0]["fast_bytes"], 32 * MIB);
    assert_eq!(json["curve"].as_array().unwrap().len(), 13);
    assert!(written(Format::Png).starts_with(b"\x89PNG"));
    let narrow = Options { terminal: Terminal { columns: 40, ..Terminal::default() }, ..Options::default() };
    let mut out = vec![];
    found.write(Format::Text, &narrow, &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().lines().all(|line| line.chars().count() <= 40));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn no_placement_beats_the_best(places in prop::collection::vec(0..96_u64, 2..12), mib in 0..140_u64) {
        let tried = fast(&process(places.len() as u32, |second| places[second as usize]), mib);
        let least = tried.best.slow_share - 1e-9;
        prop_assert!(tried.first_touch.slow_share >= least && tried.isotherm.slow_share >= least, "{:?}", tried);
        prop_assert!(tried.promoted_bytes <= 200_000_000 * places.len() as u64);
    }
}
