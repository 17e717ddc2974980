//! The difference of two recordings.

use std::time::Duration;

use isotherm_report::diff::{Change, Count, Diff, Side};
use isotherm_report::{Format, Options, Selection, Terminal};
use serde_json::Value;

use crate::made::valid::assert_valid;
use crate::made::{self, MIB, Made};

/// The difference from `before` to `after`, over all of their time.
fn diff(before: &Made, after: &Made) -> Diff {
    let all = Selection::default();
    let side = |name, source| Side { name, source, selection: &all };
    Diff::new(side("old.rec", before), side("new.rec", after), None).unwrap()
}

fn written(diff: &Diff, format: Format) -> String {
    let terminal = Terminal { columns: 80, ..Terminal::default() };
    let mut out = vec![];
    diff.write(format, &Options { terminal, ..Options::default() }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn change(diff: &Diff, name: &str, quantity: Count) -> Change {
    *diff.mappings.iter().find(|changes| changes.name == name).unwrap().of(quantity)
}

/// The server of [`made::surveyed`] as another process: at other addresses, with a third of its memory.
fn smaller(seconds: u32) -> Made {
    const AT: u64 = 0x1000_0000_0000;
    let mut made = made::surveyed(seconds);
    let moved = |mappings: &[isotherm_core::Mapping]| {
        let moved = mappings.iter().map(|mapping| {
            let range = made::range(mapping.range.start() - AT, mapping.range.end() - AT);
            isotherm_core::Mapping { range, ..mapping.clone() }
        });
        moved.collect()
    };
    for row in &mut made.rows {
        row.target.id = made::process(77);
        row.target.mappings = moved(&row.target.mappings);
        for region in &mut row.target.regions {
            region.range = made::range(region.range.start() - AT, region.range.end() - AT);
        }
    }
    for record in &mut made.surveys {
        record.survey.total = None;
        for target in &mut record.survey.targets {
            target.id = made::process(77);
            target.mappings = moved(&target.mappings);
            target.by_block = [].into_iter().collect();
            for found in &mut target.by_mapping {
                found.sums.figures.present /= 2;
                found.sums.figures.touched /= 2;
                found.sums.within = found.sums.within.map(|bytes| bytes / 2);
            }
        }
        record.infos = record.infos.iter().map(|(_, info)| (made::process(77), info.clone())).collect();
    }
    made
}

#[test]
fn memory_is_matched_by_name_whatever_its_address_and_process() {
    let diff = diff(&made::surveyed(12), &smaller(20));
    let resident = change(&diff, "anonymous", Count::Resident);
    assert_eq!(resident.before.unwrap().mean_bytes, 64 * MIB);
    assert_eq!(resident.after.unwrap().mean_bytes, 32 * MIB);
    assert_eq!(resident.difference(), -32 * MIB as i64);
    assert_eq!(diff.programs.len(), 1);
    assert_eq!(diff.programs[0].name, "demo");
}

#[test]
fn peaks_and_means_are_those_of_the_window() {
    let made = made::surveyed(12);
    let diff = diff(&made, &made);
    // The shortest window that is no shorter than the survey interval.
    assert_eq!(diff.window, Duration::from_secs(1));
    let of = *diff.total.of(Count::WorkingSet);
    // The fifth of the eleven surveys that have one before them finds twice as much.
    let mean = (8.0 * 12.0 / 11.0 * MIB as f64).round() as u64;
    assert_eq!(of.before.unwrap().peak_bytes, 16 * MIB);
    assert_eq!(of.before.unwrap().mean_bytes, mean);
    assert_eq!(of.difference(), 0);
    assert_eq!(diff.warnings.iter().filter(|warning| warning.contains("compared")).count(), 0, "{:?}", diff.warnings);
}

#[test]
fn a_recording_without_surveys_is_compared_by_samples_and_mapped_bytes() {
    let diff = diff(&made::surveyed(12), &made::phases(120));
    assert!(diff.warnings[0].starts_with("new.rec has no surveys: "), "{:?}", diff.warnings);
    assert_eq!(diff.window, made::AGGREGATION);
    assert_eq!(diff.mappings.last().unwrap().name, "/dev/shm/cache");
    // The heap is mapped for all of the time, and half hot; before, there was none.
    let heap = change(&diff, "[heap]", Count::Resident);
    assert_eq!((heap.before, heap.after.unwrap().mean_bytes), (None, 48 * MIB));
    assert_eq!(change(&diff, "[heap]", Count::Hot).difference(), 20 * MIB as i64);
    // The cache appears after half of the time.
    let cache = change(&diff, "/dev/shm/cache", Count::Resident).after.unwrap();
    assert_eq!((cache.mean_bytes, cache.peak_bytes), (22 * MIB, 44 * MIB));
}

#[test]
fn figures_that_cannot_be_compared_are_told() {
    let (before, mut after) = (made::phases(20), made::phases(60));
    after.header.probe = "idle".into();
    for row in &mut after.rows {
        row.samples = 10;
    }
    let warnings = diff(&before, &after).warnings;
    for part in ["the probes differ (bpf and idle)", "(5 ms and 10 ms)", "the lengths differ much (2 s and 6 s)"] {
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{part}: {warnings:?}");
    }
}

#[test]
fn parts_of_one_recording_can_be_compared() {
    let made = made::phases(40);
    let part =
        |from, to| Selection { time: Some(Duration::from_secs(from)..Duration::from_secs(to)), ..Selection::default() };
    let (first, second) = (part(0, 2), part(2, 4));
    let side = |name, selection| Side { name, source: &made, selection };
    let diff = Diff::new(side("first", &first), side("second", &second), None).unwrap();
    assert_eq!(change(&diff, "/dev/shm/cache", Count::Resident).after.unwrap().mean_bytes, 44 * MIB);
    assert_eq!(diff.total.of(Count::Resident).difference(), 44 * MIB as i64);
}

#[test]
fn the_text_fits_80_columns_and_names_the_largest_growth_first() {
    let text = written(&diff(&made::with_heap_in_swap(12), &made::surveyed(12)), Format::Text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("diff-80", written(&diff(&made::phases(40), &made::phases(120)), Format::Text));
    insta::assert_snapshot!("diff-surveyed-80", written(&diff(&smaller(20), &made::surveyed(20)), Format::Text));
}

#[test]
fn the_json_matches_its_schema() {
    for (before, after) in [
        (made::phases(40), made::surveyed(12)),
        (smaller(12), made::surveyed(12)),
        (made::imported(made::phases(10)), made::phases(10)),
    ] {
        let json: Value = serde_json::from_str(&written(&diff(&before, &after), Format::Json)).unwrap();
        assert_valid("diff", &json);
    }
}

#[test]
fn names_of_the_watched_process_cannot_act_on_a_page_or_a_picture() {
    let mut made = made::phases(4);
    for row in &mut made.rows {
        let named = |mapping: &isotherm_core::Mapping| isotherm_core::Mapping {
            name: format!("</svg><script>alert(1)</script>{}", mapping.name).into(),
            ..mapping.clone()
        };
        row.target.mappings = row.target.mappings.iter().map(named).collect();
    }
    let diff = diff(&made::phases(4), &made);
    for format in [Format::Html, Format::Svg] {
        let text = written(&diff, format);
        assert!(!text.contains("<script") && text.contains("&lt;script"), "{format:?}");
    }
}
