//! Pictures of many targets: bounded, on one time axis, and each target over its life.

use std::sync::Arc;
use std::time::Duration;

use isotherm_record::TargetInfo;
use isotherm_report::axis::AxisResolution;
use isotherm_report::heatmap::{Heatmap, Plan, Shown};
use isotherm_report::{Colour, Format, Kind, Measure, Options, Selection, Source, Terminal, colour, write};

use crate::made::{self, ANON, MIB, Made};

fn report(kind: Kind, format: Format, source: &dyn Source, terminal: Terminal) -> String {
    let measure = (kind == Kind::Heatmap).then_some(Measure::Rate);
    let options = Options { terminal, measure, ..Options::default() };
    let mut out = vec![];
    write(kind, format, source, &Selection::default(), &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Processes that each run for ten snapshots, one after the other. The process with the ID `n` has `n` MiB.
fn compilers(count: u32) -> Made {
    let rows = (1..=count).flat_map(|pid| {
        let size = u64::from(pid) * MIB;
        let mappings: Arc<[_]> = vec![made::mapping(ANON, ANON + size, "")].into();
        (1..=10).map(move |index| {
            let region = made::region(ANON, ANON + size, index, 1);
            let mut row = made::row((pid - 1) * 10 + index, pid, &mappings, vec![region]);
            let command = format!("/usr/lib/gcc/12/cc1 -quiet -o {}", "x".repeat(300));
            row.info = TargetInfo { command, ..TargetInfo::default() }.into();
            row
        })
    });
    made::made(rows.collect())
}

/// The numbers of an attribute of each element that contains `mark`.
fn numbers(svg: &str, mark: &str, attribute: &str) -> Vec<f64> {
    let start = format!(" {attribute}=\"");
    let value = |line: &str| line.split_once(&start)?.1.split_once('"')?.0.parse().ok();
    svg.lines().filter(|line| line.contains(mark)).filter_map(value).collect()
}

#[test]
fn a_picture_of_many_targets_has_the_largest_and_counts_the_others() {
    for count in [13, 60, 300] {
        let svg = report(Kind::Heatmap, Format::Svg, &compilers(count), Terminal::default());
        let height = numbers(&svg, "<svg ", "height")[0];
        assert!(height < 1300.0, "{count} targets: {height}");
        let titles: Vec<&str> = svg.lines().filter(|line| line.contains(r#"class="title""#)).collect();
        assert_eq!(titles.len(), 12);
        for (title, pid) in titles.iter().zip((1..=count).rev()) {
            let end = format!("x…, pid {pid} ({pid} MiB mapped)</text>");
            assert!(title.contains(">cc1 -quiet -o xxx") && title.ends_with(&end), "{title}");
        }
        let rest = count - 12;
        let line = match rest {
            1 => "1 more target: 1 MiB".to_owned(),
            _ => format!("{rest} more targets: {rest} MiB at most each, "),
        };
        assert!(svg.contains(&line), "{line}");
        assert_eq!(svg.matches(r#"<g class="times""#).count(), 1);
    }
}

#[test]
fn a_lane_is_drawn_for_the_life_of_its_target() {
    let svg = report(Kind::Heatmap, Format::Svg, &compilers(4), Terminal::default());
    let (left, width) =
        (numbers(&svg, r#"class="times""#, "data-x")[0], numbers(&svg, r#"class="times""#, "data-width")[0]);
    for mark in [r#"class="frame""#, "<image "] {
        // The largest target is the last one.
        let places: Vec<f64> = numbers(&svg, mark, "x").into_iter().map(|x| (x - left) / width).collect();
        for (place, expected) in places.iter().zip([0.75, 0.5, 0.25, 0.0]) {
            assert!((place - expected).abs() < 0.01, "{places:?}");
        }
        assert!(numbers(&svg, mark, "width").iter().all(|wide| (wide / width - 0.25).abs() < 0.01), "{svg}");
    }
}

#[test]
fn a_text_of_many_targets_fits_a_few_screens() {
    let lines = |rows| {
        let terminal = Terminal { columns: 80, rows, colour: Colour::None, unicode: true };
        let text = report(Kind::Heatmap, Format::Text, &compilers(60), terminal);
        assert!(text.starts_with("cc1 -quiet -o xxx") && text.contains("x…, pid 60 (60 MiB mapped)\n"), "{text}");
        assert!(text.contains(" more targets: "), "{text}");
        text.lines().count()
    };
    assert!(lines(10) < 40 && lines(24) < 40 && lines(50) < 60 && lines(200) < 210);
}

#[test]
fn absent_memory_differs_from_cold_memory_and_from_memory_in_swap() {
    let source = made::with_heap_in_swap(6);
    let svg = report(Kind::Heatmap, Format::Svg, &source, Terminal::default());
    assert!(svg.contains(">absent</text>") && svg.contains(&colour::hex(colour::ABSENT)));
    let text = report(Kind::Heatmap, Format::Text, &source, Terminal { columns: 100, ..Terminal::default() });
    assert!(text.contains(".: absent"), "{text}");
    let plain = report(Kind::Heatmap, Format::Svg, &made::phases(6), Terminal::default());
    assert!(!plain.contains(">absent</text>"));
}

#[test]
fn memory_of_which_nothing_was_recorded_is_not_absent() {
    let mut source = made::with_heap_in_swap(6);
    source.rows.retain(|row| row.time <= Duration::from_secs(3) || row.time > Duration::from_secs(4));
    let axis = AxisResolution { rows: 60, rows_of_area: 1, areas: 8, group: 1 };
    let map = Heatmap::new(&source, &Selection::default(), |extent| Plan::all(extent, 6, axis)).unwrap();
    let target = &map.targets[0];
    let absent = |column| (0..target.axis.rows).filter(|&row| target.shown(row, column) == Some(Shown::Absent)).count();
    assert!(absent(2) > 0 && absent(4) > 0, "{} {}", absent(2), absent(4));
    assert_eq!(absent(3), 0);
}

#[test]
fn values_over_time_are_steps() {
    for kind in [Kind::Wss, Kind::Overhead, Kind::Schemes] {
        let svg = report(kind, Format::Svg, &made::schemed(20), Terminal::default());
        let lines: Vec<&str> =
            svg.lines().filter(|line| line.contains("<path") && line.contains(r#"class="curve""#)).collect();
        assert!(!lines.is_empty(), "{kind:?}");
        for line in lines {
            let path = line.split_once(" d=\"").unwrap().1.split_once('"').unwrap().0;
            let commands: String = path.chars().filter(char::is_ascii_alphabetic).collect();
            assert_eq!(commands.strip_prefix('M').unwrap().replace("VH", ""), "", "{kind:?}: {path}");
        }
    }
}
