//! Formats for people: texts at several widths, errors, pictures and the page, also with hostile names.

use std::sync::Arc;
use std::time::Duration;

use isotherm_record::{Mark, MarkText, Sight, TargetInfo};
use isotherm_report::{
    Colour, Format, Kind, Limits, Options, RegionOptions, ReportError, Selection, Sort, Source, Terminal, write,
};
use proptest::prelude::*;

use crate::made::{self, Made};

fn report(kind: Kind, format: Format, source: &dyn Source, options: &Options) -> Result<Vec<u8>, ReportError> {
    let mut out = vec![];
    write(kind, format, source, &Selection::default(), options, &mut out)?;
    Ok(out)
}

fn text(kind: Kind, source: &dyn Source, terminal: Terminal) -> String {
    let regions = RegionOptions { at: Some(Duration::from_secs(2)), ..RegionOptions::default() };
    let options = Options { terminal, regions, ..Options::default() };
    String::from_utf8(report(kind, Format::Text, source, &options).unwrap()).unwrap()
}

const TEXTS: [Kind; 9] = [
    Kind::Heatmap,
    Kind::Wss,
    Kind::Regions,
    Kind::Summary,
    Kind::IdleTime,
    Kind::Temperature,
    Kind::Overhead,
    Kind::Schemes,
    Kind::Tune,
];

fn plain(columns: usize, rows: usize) -> Terminal {
    Terminal { columns, rows, colour: Colour::None, unicode: true }
}

/// Two targets; the second appears later.
fn two() -> Made {
    let (mut first, second) = (made::phases_of(77, 60), made::phases_of(78, 30));
    first.activities = made::schemed(4).activities;
    first.rows.extend(second.rows.into_iter().map(|mut row| {
        row.cost = None;
        row.time += Duration::from_millis(1500);
        row
    }));
    first.rows.sort_by_key(|row| row.time);
    first
}

/// Names and commands that could harm a terminal or a page.
fn hostile() -> Made {
    const NAME: &str = "/tmp/</script><img src=x onerror=alert(1)>\x1b[31m\u{9b}2J\"'&\u{202e}{{data}}\r\n";
    let mut made = made::phases(20);
    made.activities = made::schemed(3).activities;
    made.activities.iter_mut().flat_map(|activity| &mut activity.schemes).for_each(|scheme| scheme.name = NAME.into());
    let text = MarkText::new(NAME.as_bytes()).unwrap();
    made.marks = vec![Mark { time: Duration::from_millis(900), text }];
    made.header.host.name = NAME.into();
    made.header.probe = NAME.into();
    for row in &mut made.rows {
        row.info = Arc::new(TargetInfo { command: NAME.into(), ..TargetInfo::default() });
        let mut mappings = row.target.mappings.to_vec();
        mappings[2].name = NAME.into();
        row.target.mappings = mappings.into();
    }
    made
}

#[test]
fn texts_at_the_width_of_a_terminal() {
    let mut source = made::phases(60);
    source.activities = made::schemed(60).activities;
    source.cut_short = Some("the recording is cut short".into());
    for kind in TEXTS {
        insta::assert_snapshot!(format!("{}-80", kind.name()), text(kind, &source, plain(80, 30)));
    }
    insta::assert_snapshot!("schemes-120", text(Kind::Schemes, &source, plain(120, 50)));
}

#[test]
fn physical_memory_has_a_name_and_no_process_id() {
    let mut source = made::phases_of(0, 60);
    source.header.probe = "idle".into();
    source.header.sight.blind_to = "memory that is free, the kernel's own, or hugetlb".into();
    // Schemes act on processes only.
    for kind in TEXTS.into_iter().filter(|&kind| kind != Kind::Schemes) {
        let text = text(kind, &source, plain(100, 30));
        assert!(!text.contains("pid 0"), "{text}");
    }
    let summary = text(Kind::Summary, &source, plain(100, 30));
    assert!(summary.starts_with("physical memory: 6 s") && summary.contains("free, the kernel's own"), "{summary}");
    // Page tables show less of it.
    source.header.sight = Sight { mapped_only: true, ..Sight::default() };
    let summary = text(Kind::Summary, &source, plain(100, 30));
    assert!(summary.starts_with("physical memory that processes map: 6 s"), "{summary}");
    assert!(!summary.contains("the kernel's own"), "{summary}");
}

#[test]
fn texts_at_ten_columns() {
    for kind in TEXTS {
        let terminal = Terminal { unicode: false, ..plain(10, 12) };
        let source = if kind == Kind::Schemes { made::schemed(6) } else { made::phases(60) };
        insta::assert_snapshot!(format!("{}-10", kind.name()), text(kind, &source, terminal));
    }
}

#[test]
fn texts_of_several_targets() {
    for kind in [Kind::Heatmap, Kind::Summary, Kind::Wss] {
        insta::assert_snapshot!(format!("{}-two", kind.name()), text(kind, &two(), plain(90, 40)));
    }
}

#[test]
fn the_heatmap_in_colour() {
    let source = made::phases(12);
    for (name, colour, unicode) in
        [("true", Colour::True, true), ("256", Colour::Ansi256, true), ("ascii", Colour::Ansi256, false)]
    {
        let terminal = Terminal { columns: 44, rows: 18, colour, unicode };
        insta::assert_snapshot!(format!("heatmap-{name}"), text(Kind::Heatmap, &source, terminal).replace('\x1b', "␛"));
    }
}

#[test]
fn problems_of_a_recording_are_shown() {
    let mut source = made::phases(20);
    source.header.probe = "refs".into();
    source.header.granularity = "mapping".into();
    for row in &mut source.rows {
        row.cost.as_mut().unwrap().late_rounds = 2;
    }
    // Late rounds make an aggregation longer. Without any, aggregations are missing.
    let cost = source.rows[10].cost.as_mut().unwrap();
    (cost.rounds, cost.late_rounds) = (60, 0);
    insta::assert_snapshot!(text(Kind::Summary, &source, plain(100, 30)));
}

/// A recording that a monitor made which got too little CPU time.
fn starved() -> Made {
    let mut source = made::phases(40);
    source.activities = made::schemed(4).activities;
    for row in &mut source.rows {
        row.cost.as_mut().unwrap().late_rounds = 15;
    }
    source
}

#[test]
fn every_format_of_every_report_says_what_cannot_be_relied_on_and_what_the_recording_cost() {
    const STARVED: &str = "the monitor got too little CPU time: 75 % of the";
    const PACE: &str = "sampling every 5 ms: 1.5 % of a CPU, budget 2 %";
    let source = starved();
    for kind in TEXTS.into_iter().filter(|kind| *kind != Kind::Tune) {
        let text = text(kind, &source, plain(100, 40));
        assert!(text.starts_with(&format!("! {STARVED}")), "{kind:?}: {text}");
        assert!(text.contains(PACE), "{kind:?}: {text}");
        let svg = String::from_utf8(report(kind, Format::Svg, &source, &Options::default()).unwrap()).unwrap();
        let (at, pace) = (svg.find(STARVED).unwrap(), svg.find(PACE).unwrap());
        assert!(at < svg.find("class=\"title\"").unwrap_or(pace), "{kind:?}: {svg}");
        if kind != Kind::Regions {
            let json = report(kind, Format::Json, &source, &Options::default()).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert!(json["warnings"][0].as_str().unwrap().starts_with(STARVED), "{kind:?}");
            assert_eq!(
                (&json["pace"]["text"], &json["pace"]["budget_percent"]),
                (&PACE.into(), &2.0.into()),
                "{kind:?}"
            );
        }
    }
}

#[test]
fn a_picture_of_a_good_recording_has_no_warning() {
    let surveyed = made::surveyed(12);
    for kind in [Kind::Heatmap, Kind::Wss, Kind::Summary] {
        let svg = String::from_utf8(report(kind, Format::Svg, &surveyed, &Options::default()).unwrap()).unwrap();
        assert!(!svg.contains("class=\"warning\"") && svg.contains("of a CPU, budget"), "{svg}");
    }
}

#[test]
fn regions_are_filtered_and_sorted() {
    let regions = RegionOptions {
        at: Some(Duration::from_millis(150)),
        sort: Sort::Size,
        rate: Limits { min: Some(0.5), max: None },
        age: Limits { min: None, max: Some(Duration::from_secs(1)) },
        size: Limits { min: Some(1 << 20), max: Some(10 << 20) },
    };
    let options = Options { regions, ..Options::default() };
    let json = report(Kind::Regions, Format::Json, &made::phases(20), &options).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(json).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["time_ns"], 200_000_000);
    let regions = lines[0]["regions"].as_array().unwrap();
    assert!(!regions.is_empty() && regions.iter().all(|region| region["access_rate"].as_f64().unwrap() >= 0.5));
}

#[test]
fn regions_beyond_the_end_are_refused() {
    let regions = RegionOptions { at: Some(Duration::from_secs(99)), ..RegionOptions::default() };
    let options = Options { regions, ..Options::default() };
    let error = report(Kind::Regions, Format::Text, &made::phases(20), &options).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"nothing in the recording matches time 99 s; it holds snapshots from \
        100 ms to 2 s");
}

#[test]
fn every_kind_has_every_format_but_a_page_has_one_and_tune_has_no_picture() {
    let source = two();
    for kind in Kind::ALL {
        for format in Format::ALL {
            match report(kind, format, &source, &Options::default()) {
                Ok(out) => {
                    let start: &[u8] = match format {
                        Format::Png => b"\x89PNG\r\n\x1a\n",
                        Format::Svg => b"<svg xmlns=",
                        Format::Html => b"<!DOCTYPE html>",
                        Format::Json => b"{",
                        Format::Text => b"",
                    };
                    assert!(out.len() > 50 && out.starts_with(start), "{kind:?} {format:?}");
                }
                Err(error) => {
                    let fix = match kind {
                        Kind::Tune => "--format text or json",
                        _ => "--format html",
                    };
                    assert!([Kind::Tune, Kind::Html].contains(&kind) && error.to_string().contains(fix), "{error}");
                }
            }
        }
    }
}

#[test]
fn an_empty_recording_is_refused_in_every_format() {
    for kind in Kind::ALL {
        for format in Format::ALL {
            let result = report(kind, format, &made::made(vec![]), &Options::default());
            let refused = match result {
                Err(ReportError::NothingRecorded { .. } | ReportError::Unsupported { .. }) => true,
                Err(ReportError::NoSchemes) => kind == Kind::Schemes,
                _ => false,
            };
            assert!(refused, "{kind:?} {format:?}");
        }
    }
}

#[test]
fn hostile_names_are_escaped_in_every_format() {
    let source = hostile();
    for kind in TEXTS {
        let text = text(kind, &source, plain(200, 40));
        assert!(!text.contains(|c: char| c.is_control() && c != '\n') && !text.contains('\u{202e}'), "{text}");
        for format in [Format::Svg, Format::Json, Format::Html] {
            // It has no picture and no page.
            if kind == Kind::Tune && format != Format::Json {
                continue;
            }
            let out = String::from_utf8(report(kind, format, &source, &Options::default()).unwrap()).unwrap();
            assert!(
                !out.contains(|c: char| c.is_control() && c != '\n') && !out.contains('\u{202e}'),
                "{kind:?} {format:?}"
            );
            if format != Format::Json {
                assert!(!out.contains("<img"), "{kind:?} {format:?}");
                assert_eq!(out.matches("</script>").count(), if format == Format::Html { 2 } else { 0 });
            }
        }
    }
    report(Kind::Heatmap, Format::Png, &source, &Options::default()).unwrap();
}

#[test]
fn the_size_of_a_page_is_bounded() {
    // 60 targets with 900 regions and as many mappings with long names each.
    let names: Vec<String> = (0..900).map(|i| format!("/a/{}/{i}", "long".repeat(80))).collect();
    let mut rows = vec![];
    for i in 1..=4 {
        for pid in 1..=60 {
            let start = |k: u64| (k + 1) * 64 * 4096;
            let mappings: Vec<_> =
                names.iter().zip(0..).map(|(name, k)| made::mapping(start(k), start(k) + 16 * 4096, name)).collect();
            let regions = mappings.iter().map(|m| made::region(m.range.start(), m.range.end(), pid % 20, 3)).collect();
            rows.push(made::row(i, pid, &mappings.into(), regions));
        }
    }
    let page = report(Kind::Html, Format::Html, &made::made(rows), &Options::default()).unwrap();
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
}

/// The text without its colours.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out += before;
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_fit_any_terminal(
        columns in 0..220_usize, rows in 0..70_usize, colour in 0..3_usize, unicode: bool, targets: bool
    ) {
        let colour = [Colour::None, Colour::Ansi256, Colour::True][colour];
        let terminal = Terminal { columns, rows, colour, unicode };
        let source = if targets { two() } else { hostile() };
        for kind in TEXTS {
            let text = bare(&text(kind, &source, terminal));
            for line in text.lines() {
                let wide = unicode_width::UnicodeWidthStr::width(line);
                // A single word may be wider than a very narrow terminal.
                let least = if kind == Kind::Heatmap || kind == Kind::Regions { 10 } else { 20 };
                prop_assert!(columns < least || wide <= columns.max(10) || !line.trim().contains(' '), "{kind:?} at \
                    {columns}: {line:?}");
            }
            if !unicode {
                prop_assert!(text.lines().all(|line| !line.contains(['█', '─', '│', '▀', '…'])));
            }
        }
    }
}

#[test]
fn a_recording_on_disk_is_reported_like_its_rows() {
    let source = made::schemed(6);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = isotherm_record::Recorder::create_with_activities(file.path(), &source.header).unwrap();
    let mut activities = source.activities.iter().peekable();
    for row in &source.rows {
        // The activity of schemes is recorded a little later than the snapshots.
        while let Some(activity) = activities.next_if(|activity| activity.time + Duration::from_millis(300) < row.time)
        {
            recorder.write_activity(activity).unwrap();
        }
        let snapshot = isotherm_core::Snapshot {
            time: row.time,
            aggregation: row.aggregation,
            samples: row.samples,
            targets: vec![row.target.clone()],
            ..Default::default()
        };
        let infos = [(row.target.id, row.info.clone())].into();
        recorder
            .write(&isotherm_record::SnapshotRecord { snapshot, cost: row.cost, infos, ..Default::default() })
            .unwrap();
    }
    activities.for_each(|activity| recorder.write_activity(activity).unwrap());
    recorder.flush().unwrap();
    let texts = |source: &dyn Source| {
        TEXTS.map(|kind| String::from_utf8(report(kind, Format::Json, source, &Options::default()).unwrap()).unwrap())
    };
    let unfinished = isotherm_record::Recording::open(file.path()).unwrap();
    assert!(text(Kind::Summary, &unfinished, plain(80, 30)).contains("! the recording has no end"));
    recorder.finish().unwrap();
    let recording = isotherm_record::Recording::open(file.path()).unwrap();
    assert_eq!(texts(&recording), texts(&source));
}

#[test]
fn absurd_figures_do_not_panic() {
    let mappings: Arc<[_]> = vec![made::mapping(0, !4095, "all")].into();
    let mut rows = vec![];
    for (i, pid) in [(1, 1), (1, 2), (2, 1), (7, 2)] {
        let regions = vec![made::region(0, 4096, u32::MAX, u32::MAX), made::region(4096, !4095, 0, u32::MAX)];
        let mut row = made::row(i, pid, &mappings, regions);
        row.aggregation = Duration::from_nanos(u64::MAX);
        row.samples = if i == 7 { 0 } else { 3 };
        let cost = row.cost.as_mut().unwrap();
        (cost.cpu_ns, cost.reads, cost.unobservable_bytes) = (u64::MAX, u64::MAX, u64::MAX);
        rows.push(row);
    }
    // Also with a single snapshot at time 0.
    let mut still = made::row(1, 1, &mappings, vec![]);
    still.time = Duration::ZERO;
    let mut absurd = made::schemed(4);
    for (i, activity) in absurd.activities.iter_mut().enumerate() {
        // Times that do not advance, and that jump; counts that fall, and that overflow; memory of size 0.
        activity.time = if i < 3 { Duration::ZERO } else { Duration::from_nanos(u64::MAX) };
        activity.system = isotherm_core::SystemMemory { free: u64::MAX, ..Default::default() };
        for (scheme, pair) in activity.schemes.iter_mut().zip([true, false]) {
            let most = if (i % 2 == 0) == pair { u64::MAX } else { 0 };
            (scheme.total.applied_bytes, scheme.total.tried_bytes, scheme.total.applications) = (most, most, most);
            (scheme.quota, scheme.goal_score) = (Some(most), Some(f64::MAX));
            scheme.total.time = Duration::from_nanos(most);
        }
        activity.memory.iter_mut().for_each(|(_, used)| used.resident = u64::MAX);
    }
    let (mut rows, mut still) = (made::made(rows), made::made(vec![still]));
    rows.activities = absurd.activities;
    still.activities = vec![isotherm_record::Activity::default()];
    for source in [rows, still] {
        for kind in Kind::ALL {
            for format in [Format::Text, Format::Json, Format::Svg, Format::Html] {
                let made = report(kind, format, &source, &Options::default());
                assert!(made.is_ok() || [Kind::Tune, Kind::Html, Kind::Schemes].contains(&kind));
            }
        }
    }
}

#[test]
fn figures_that_an_imported_recording_lacks_are_left_out() {
    let source = made::imported(made::phases(40));
    let summary = text(Kind::Summary, &source, plain(80, 24));
    let facts: Vec<&str> = summary.lines().take(3).collect();
    assert_eq!(
        facts,
        [
            "pid 1234: 4 s, 40 snapshots",
            "recorded by damo, imported by isotherm 0.1.0",
            "probe damo, sampling 5 ms, aggregation 100 ms"
        ]
    );
    let overhead = text(Kind::Overhead, &source, plain(80, 24));
    assert!(overhead.contains("not known: damo tells none") && overhead.contains("regions"), "{overhead}");
    for zero in ["CPU", "reads", "late", "cleared"] {
        assert!(!overhead.contains(zero), "{zero}: {overhead}");
    }
    for (kind, format) in [(Kind::Overhead, Format::Svg), (Kind::Html, Format::Html)] {
        let drawn = String::from_utf8(report(kind, format, &source, &Options::default()).unwrap()).unwrap();
        assert!(drawn.contains("the recording contains no costs"), "{kind:?}");
        for zero in ["rounds began late", "Pages read in", "limit 0"] {
            assert!(!drawn.contains(zero), "{kind:?}: {zero}");
        }
    }
}

#[test]
fn a_recording_without_schemes_says_how_to_record_some() {
    let source = made::phases(20);
    let error = report(Kind::Schemes, Format::Text, &source, &Options::default()).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"no schemes ran while this recording was made; `isotherm run \
        --schemes FILE --record REC` records what schemes do");
    let page = String::from_utf8(report(Kind::Html, Format::Html, &source, &Options::default()).unwrap()).unwrap();
    assert!(!page.contains("h-schemes") && !page.contains("{{"), "a page has a section of schemes only if some ran");
    let page = report(Kind::Html, Format::Html, &made::schemed(4), &Options::default()).unwrap();
    assert!(String::from_utf8(page).unwrap().contains(r#"<h2 id="h-schemes">Schemes</h2>"#));
}
