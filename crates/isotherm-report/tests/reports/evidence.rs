//! What reports say of memory of which nothing, or little, is known.

use isotherm_core::Figures;
use std::time::Duration;

use isotherm_core::survey::{BlockSums, MappingSums};
use isotherm_record::{Missed, MissedKind};
use isotherm_report::{Colour, Format, Kind, Measure, Options, Terminal};
use serde_json::{Value, json};

use crate::made::checked::{json_of, report, text};
use crate::made::{self, MIB, Made, surveyed};

/// What [`surveyed`] has, where the first 16 MiB could not be observed, and nothing is known of the next 16 MiB.
fn in_the_dark(seconds: u32) -> Made {
    let mut source = surveyed(seconds);
    for target in source.surveys.iter_mut().flat_map(|record| &mut record.survey.targets) {
        let blocks = (0..).zip(target.by_block.iter()).map(|(nth, block)| {
            let part = |here: bool| if here { block.pages.present } else { 0 };
            let (unobservable, unknown) = (part(nth < 8), part((8..16).contains(&nth)));
            let touched = if nth < 8 { 0 } else { block.pages.touched };
            BlockSums { pages: Figures { touched, unobservable, unknown, ..block.pages }, ..block }
        });
        target.by_block = blocks.collect();
    }
    source
}

#[test]
fn memory_without_evidence_is_not_shown_as_idle_or_in_use() {
    let source = in_the_dark(6);
    for measure in [Measure::Touched, Measure::IdleTime] {
        let options = |colour| {
            let terminal = Terminal { columns: 150, rows: 30, colour, ..Terminal::default() };
            Options { measure: Some(measure), terminal, cells: Some((6, 48)), ..Options::default() }
        };
        let target = json_of(Kind::Heatmap, &source, &options(Colour::None))["targets"][0].clone();
        let matrix = if measure == Measure::Touched { "touched" } else { "idle_s" };
        let mut found = [(0, 0); 3];
        for (row, place) in target["rows"].as_array().unwrap().iter().enumerate() {
            let cell = |matrix: &str| target[matrix][row][4].clone();
            // Rows at a border have both sides of it.
            let (part, shares) = match place["end"].as_u64().unwrap().saturating_sub(made::ANON) / MIB {
                0..16 => (0, [1.0, 0.0]),
                18..32 => (1, [0.0, 1.0]),
                34..60 => (2, [0.0, 0.0]),
                _ => continue,
            };
            assert_eq!([cell("unobservable"), cell("unknown")], shares.map(|share| json!(share)), "{place}");
            found[part].0 += 1;
            found[part].1 += usize::from(cell(matrix).is_null());
        }
        let [unobservable, unknown, known] = found;
        assert!(unobservable.0 > 0 && unobservable.0 == unobservable.1, "{matrix}: {found:?}");
        assert!(unknown.0 > 0 && unknown.0 == unknown.1, "{matrix}: {found:?}");
        assert!(known.0 > 0 && known.1 == 0, "{matrix}: {found:?}");

        let text = report(Kind::Heatmap, Format::Text, &source, &options(Colour::None));
        assert!(text.contains("????????") && text.contains("uuuuuuuu"), "{text}");
        assert!(text.contains("?: could not be observed; u: not known yet"), "{text}");
        let picture = report(Kind::Heatmap, Format::Svg, &source, &options(Colour::None));
        assert!(picture.contains("not observable</text>") && picture.contains("unknown</text>"), "{measure:?}");
        // A legend has only what is shown.
        let all = report(Kind::Heatmap, Format::Text, &surveyed(6), &options(Colour::None));
        assert!(!all.contains("could not be observed") && !all.contains("not known yet"), "{all}");
    }
}

#[test]
fn a_bar_has_a_part_for_what_is_not_known() {
    let source = surveyed(6);
    let summary = text(Kind::Summary, &source, 110);
    assert!(summary.contains("?u"), "{summary}");
    let picture = report(Kind::Summary, Format::Svg, &source, &Options::default());
    assert!(picture.contains("unknown</text>") && picture.contains("MiB unknown</title>"), "{picture}");
    let all_known = report(Kind::Summary, Format::Svg, &made::phases(5), &Options::default());
    assert!(!all_known.contains("unknown</text>"), "{all_known}");
}

#[test]
fn little_evidence_is_said_first() {
    let blind = Made { surveys: vec![], ..surveyed(3) };
    for kind in [Kind::Wss, Kind::Summary, Kind::Heatmap, Kind::Regions] {
        let first = text(kind, &blind, 110).lines().next().unwrap().to_owned();
        assert!(first.starts_with("! little evidence: none of the samples"), "{first}");
    }
    let mut once = surveyed(3);
    once.surveys.truncate(1);
    assert!(text(Kind::Wss, &once, 110).starts_with("! little evidence: there was only one survey"));
    assert!(!text(Kind::Wss, &surveyed(3), 110).starts_with('!'));
    assert!(!text(Kind::Wss, &made::phases(10), 110).starts_with('!'));
}

#[test]
fn why_much_memory_could_not_be_observed_is_said_first() {
    let mut source = surveyed(4);
    // The last survey could observe all of it, and the others little.
    for record in source.surveys.iter_mut().take(3) {
        let sums = record.survey.targets.iter_mut().flat_map(|target| &mut target.by_mapping);
        sums.for_each(|MappingSums { sums, .. }| sums.figures.unobservable = sums.figures.present);
    }
    let first = |source: &Made| {
        let text = text(Kind::Wss, source, 110);
        let lines = text.lines().take_while(|line| line.starts_with("! ") || line.starts_with("  "));
        lines.map(|line| line[2..].to_owned()).collect::<Vec<_>>().join(" ")
    };
    let doctor = first(&source);
    assert!(doctor.starts_with("little evidence: on the mean, 77 % of the resident memory"), "{doctor}");
    assert!(doctor.contains("isotherm doctor"), "{doctor}");
    source.surveys[1].survey.left_out = Some("9 MiB are unobservable: \u{1b}[2J (--shared-hold 9ms)".into());
    let why = first(&source);
    assert!(why.contains("9 MiB are unobservable: ") && why.contains("(--shared-hold 9ms)"), "{why}");
    assert!(!why.contains('\u{1b}'), "{why}");
}

#[test]
fn memory_of_which_no_sample_was_taken_is_unknown_unless_a_survey_found_it_idle() {
    let pages = |touched| Figures { present: 4 * MIB, touched, ..Figures::default() };
    let (first, second, end) = (made::ANON, made::ANON + 4 * MIB, made::ANON + 8 * MIB);
    let mappings = vec![made::mapping(first, second, "touched"), made::mapping(second, end, "idle")].into();
    let region = |start, nr_samples, touched| isotherm_core::RegionSnapshot {
        nr_samples,
        pages: Some(pages(touched)),
        ..made::region(start, start + 4 * MIB, 0, 1)
    };
    let of = |nr_samples| vec![region(first, nr_samples, 4 * MIB), region(second, nr_samples, 0)];
    let source = made::made(vec![made::row(1, 7, &mappings, of(0)), made::row(2, 7, &mappings, of(20))]);
    let options = Options { cells: Some((2, 2)), ..Options::default() };
    let heatmap = &json_of(Kind::Heatmap, &source, &options)["targets"][0];
    assert_eq!(heatmap["rates_hz"], json!([[null, 0.0], [0.0, 0.0]]), "{heatmap}");
    assert_eq!(heatmap["unknown"], json!([[1.0, 0.0], [0.0, 0.0]]), "{heatmap}");
    let text = report(Kind::Heatmap, Format::Text, &source, &options);
    assert!(text.contains("u: no sample"), "{text}");
    let regions = report(Kind::Regions, Format::Text, &source, &Options::default());
    let unsampled = regions.lines().filter(|line| line.contains('–')).count();
    assert_eq!(unsampled, 2, "{regions}");
}

#[test]
fn memory_that_samples_cannot_observe_has_the_frequency_that_surveys_tell_or_is_unknown() {
    let (known, unknown, end) = (made::ANON, made::ANON + 4 * MIB, made::ANON + 8 * MIB);
    let mappings = vec![made::mapping(known, end, "shared")].into();
    let region = |start, pages: Figures, frequency| isotherm_core::RegionSnapshot {
        nr_unobservable: 20,
        frequency,
        pages: Some(Figures { present: 4 * MIB, ..pages }),
        ..made::region(start, start + 4 * MIB, 0, 1)
    };
    let touched = Figures { touched: 4 * MIB, ..Figures::default() };
    let not_known = Figures { unknown: 4 * MIB, ..Figures::default() };
    let regions =
        vec![region(known, touched, Some(isotherm_core::Frequency::new(0.25, None))), region(unknown, not_known, None)];
    let source = made::made(vec![made::row(1, 7, &mappings, regions)]);
    let heatmap =
        &json_of(Kind::Heatmap, &source, &Options { cells: Some((1, 2)), ..Options::default() })["targets"][0];
    assert_eq!(heatmap["rates_hz"], json!([[0.25], [null]]), "{heatmap}");
    assert_eq!((&heatmap["unknown"], &heatmap["unobservable"]), (&json!([[0.0], [1.0]]), &json!([[0.0], [0.0]])));
}

#[test]
fn a_heatmap_of_rates_says_how_much_of_the_memory_in_use_looks_cold() {
    let pages = |touched| Figures { present: 4 * MIB, touched, ..Figures::default() };
    let (first, second, end) = (made::ANON, made::ANON + 4 * MIB, made::ANON + 8 * MIB);
    let mappings = vec![made::mapping(first, end, "")].into();
    let region = |start, nr_accesses, touched| isotherm_core::RegionSnapshot {
        pages: Some(pages(touched)),
        ..made::region(start, start + 4 * MIB, nr_accesses, 1)
    };
    let picture = |unseen| {
        let regions = vec![region(first, 20, 4 * MIB), region(second, 0, unseen)];
        report(Kind::Heatmap, Format::Svg, &made::made(vec![made::row(1, 7, &mappings, regions)]), &Options::default())
    };
    assert!(picture(MIB).contains("20 % of what surveys found touched has a frequency of 0"), "{}", picture(MIB));
    assert!(!picture(MIB / 8).contains("has a frequency of 0"));
}

#[test]
fn what_is_missing_is_the_first_thing_that_every_report_says() {
    let mut source = surveyed(12);
    source.activities = made::schemed(12).activities;
    let missed = |kind, count| Missed { time: Duration::from_secs(3), kind, count };
    source.missed = vec![missed(MissedKind::Snapshots, 1200), missed(MissedKind::Surveys, 1)];
    let says = "missing from the recording: 1,200 snapshots and 1 survey, because the recorder could not keep up";
    let options = Options { terminal: Terminal { columns: 200, ..Terminal::default() }, ..Options::default() };
    for kind in Kind::ALL {
        if kind != Kind::Html {
            let text = report(kind, Format::Text, &source, &options);
            assert_eq!(text.lines().next().unwrap(), format!("! {says}"), "{kind:?}");
            let json = report(kind, Format::Json, &source, &options);
            let first: Value = serde_json::Deserializer::from_str(&json).into_iter().next().unwrap().unwrap();
            assert_eq!(first["warnings"][0], says, "{kind:?}");
        }
    }
    assert!(report(Kind::Html, Format::Html, &source, &options).contains(says));
    assert!(!report(Kind::Summary, Format::Text, &surveyed(12), &options).contains("missing"));
}
