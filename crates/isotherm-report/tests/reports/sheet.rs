//! A page of answers in headless Chromium.

use isotherm_report::colour::of_rate;
use isotherm_report::sheet::{Answer, Bar, Bars, Column, Sheet, Table};
use isotherm_testing::browser::Page;
use isotherm_testing::installed_or_skip;
use serde_json::json;

/// An answer with names that would be markup, and more columns than a phone shows.
fn sheet() -> Sheet {
    let name = "<script>alert(1)</script> & \"quoted\" \u{202e}back".to_owned();
    let columns = ["service", "present_byte_minutes", "idle_byte_minutes", "mean_present_bytes", "mean_idle_bytes"];
    let columns = columns.map(|name| Column { name: name.into(), figures: name != "service" });
    let row = [&*name, "8.6 TiB min", "4.1 TiB min", "781 MiB", "375 MiB"].map(str::to_owned);
    let bar = Bar {
        name,
        lengths: vec![300, 100],
        shown: vec!["300 B".into(), "100 B".into()],
        figure: "400 B".into(),
        mark: Some(350),
    };
    let bars = Bars {
        about: "Memory by service".into(),
        parts: vec![("in use", of_rate(0.9)), ("idle", of_rate(0.08))],
        mark: Some("limit"),
        bars: vec![bar],
    };
    let answer = Answer {
        name: "idle".into(),
        about: "Idle memory & more".into(),
        note: Some("The first row.".into()),
        table: Table { columns: columns.into(), rows: vec![row.into()] },
        bars: Some(bars),
    };
    Sheet { title: "A fleet's memory".into(), facts: vec!["2 hosts".into()], answers: vec![answer] }
}

#[test]
fn a_sheet_is_read_in_both_colours_and_on_a_phone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sheet.html");
    let mut html = Vec::new();
    sheet().html(&mut html).unwrap();
    std::fs::write(&file, html).unwrap();
    for (dark, background) in [(false, "rgb(255, 255, 255)"), (true, "rgb(15, 19, 24)")] {
        let mut page = installed_or_skip!(Page::start(dark, true, None));
        page.open(&format!("file://{}", file.display()));
        page.settle();
        assert_eq!(page.eval("getComputedStyle(document.body).backgroundColor"), json!(background));
        let name = page.eval("document.querySelector('tbody td').textContent");
        assert_eq!(name, json!("<script>alert(1)</script> & \"quoted\" \\u{202e}back"));
        // The parts are three to one, and the mark is at seven eighths.
        let places = "[...document.querySelectorAll('svg rect:has(title)')].map(part => part.width.baseVal.value)";
        let places = page.eval(places);
        let long = |nth: usize| places[nth].as_f64().unwrap();
        assert!((long(0) / long(1) - 3.0).abs() < 0.01, "{places}");
        page.screenshot(if dark { "sheet-dark" } else { "sheet-light" });
        page.resize(390, 800);
        // What is wider than the phone has a scroll bar of its own.
        assert_eq!(page.eval("document.documentElement.scrollWidth"), json!(390));
        let picture = "document.querySelector('svg').getBoundingClientRect().width >= 600";
        assert_eq!(page.eval(picture), json!(true));
        page.screenshot(if dark { "sheet-phone-dark" } else { "sheet-phone-light" });
        page.assert_content();
    }
}
