//! Marks in reports.

use std::time::Duration;

use isotherm_report::{Colour, Format, Kind, Options, Selection, Terminal, write};
use serde_json::{Value, json};

use crate::made::valid::assert_valid;
use crate::made::{self, Made};

fn report(kind: Kind, format: Format, source: &Made, selection: &Selection, columns: usize) -> String {
    let terminal = Terminal { columns, rows: 24, colour: Colour::None, unicode: true };
    let mut out = vec![];
    write(kind, format, source, selection, &Options { terminal, ..Options::default() }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A recording of 12 s with marks: two at nearly the same time, one at the end, and one after the last snapshot.
fn marked() -> Made {
    let mut source = made::surveyed(12);
    let marks =
        [(0, "start"), (4000, "load begins"), (4100, "again"), (9000, "a\x1b[2Jb"), (11_900, "the end"), (90_000, "x")];
    source.marks = made::marks(&marks);
    source
}

#[test]
fn texts_with_marks() {
    for kind in [Kind::Heatmap, Kind::Wss, Kind::Summary] {
        let text = report(kind, Format::Text, &marked(), &Selection::default(), 80);
        insta::assert_snapshot!(format!("{}-80", kind.name()), text);
    }
}

#[test]
fn marks_stand_in_json_as_the_schema_says() {
    let selection = Selection { time: Some(Duration::from_secs(4)..Duration::from_secs(9)), ..Selection::default() };
    for kind in [Kind::Heatmap, Kind::Wss, Kind::Summary] {
        let found: Value = serde_json::from_str(&report(kind, Format::Json, &marked(), &selection, 80)).unwrap();
        let within = json!([
            {"time_ns": 4_100_000_000_u64, "text": "again"},
            {"time_ns": 9_000_000_000_u64, "text": "a\u{1b}[2Jb"},
        ]);
        assert_eq!(found["marks"], within, "{kind:?}");
        assert_valid(kind.name(), &found);
    }
}

#[test]
fn pictures_over_time_have_a_line_for_each_mark_and_labels_that_do_not_meet() {
    for kind in [Kind::Heatmap, Kind::Wss, Kind::Overhead, Kind::IdleTime, Kind::Temperature] {
        let picture = report(kind, Format::Svg, &marked(), &Selection::default(), 80);
        let class = if matches!(kind, Kind::Wss | Kind::Overhead) { "moment-line" } else { "moment" };
        let before = picture.split(&format!("class=\"{class}\"")).next().unwrap();
        let line = before.rsplit("d=\"").next().unwrap();
        assert!(line.matches('M').count() >= 4, "{kind:?}: {line}");
        assert!(picture.contains(">load begins<") && !picture.contains(">again<"), "{kind:?}");
        assert!(picture.contains("<title>9 s: a\\x1b[2Jb</title>"), "{kind:?}");
    }
}

#[test]
fn many_marks_keep_their_lines_and_few_labels() {
    let mut source = made::surveyed(12);
    let many: Vec<(u64, &str)> = (0..10_000).map(|nth| (nth, "tick tick")).collect();
    source.marks = made::marks(&many);
    let picture = report(Kind::Heatmap, Format::Svg, &source, &Selection::default(), 80);
    let labels = picture.matches("moment-label").count() - 1;
    assert!((5..40).contains(&labels), "{labels}");
    let summary = report(Kind::Summary, Format::Text, &source, &Selection::default(), 80);
    assert!(summary.contains("9980 more marks"), "{summary}");
}

#[test]
fn a_page_lists_the_marks() {
    let mut source = marked();
    source.marks[1] = made::marks(&[(4000, "<script>")]).remove(0);
    let page = report(Kind::Html, Format::Html, &source, &Selection::default(), 80);
    assert!(page.contains("<td>4 s</td><th>&lt;script&gt;</th>"));
    let without = report(Kind::Html, Format::Html, &made::surveyed(12), &Selection::default(), 80);
    assert!(!without.contains("<th>mark</th>"));
}
