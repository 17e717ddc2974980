//! The options of `isotherm report`, with a recording whose regions are known.

use crate::common::{Place, Ran};

const MIB: u64 = 1 << 20;

fn place() -> Place {
    let place = Place::new();
    place.make_recording("known.rec");
    place
}

/// The sizes of the regions that `report regions` shows with these options, in MiB.
#[track_caller]
fn sizes(place: &Place, options: &[&str]) -> Vec<u64> {
    let ran = place.run(&[&["report", "regions", "known.rec", "--format", "json"], options].concat());
    let Ran { status: 0, out, .. } = ran else { panic!("{ran:?}") };
    let snapshot: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let of = |region: &serde_json::Value| (region["end"].as_u64().unwrap() - region["start"].as_u64().unwrap()) / MIB;
    snapshot["regions"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn limits_select_regions() {
    let place = place();
    for (option, limit, found) in
        [("--min-size", "1048577", 2), ("--max-size", "1.5M", 1), ("--min-rate", "51%", 1), ("--max-rate", "0.5", 2)]
    {
        assert_eq!(sizes(&place, &[option, limit]), [found], "{option}");
    }
}

#[test]
fn an_unknown_extension_of_the_output_is_refused() {
    let place = place();
    for name in ["x.bmp", "x.jpeg", "x."] {
        let ran = place.run(&["report", "heatmap", "known.rec", "-o", name]);
        assert_eq!(ran.status, 2, "{ran:?}");
        for word in [name, ".txt, .json, .png, .svg or .html", "--format"] {
            assert!(ran.err.contains(word), "{word:?} is not in: {}", ran.err);
        }
        assert!(!place.path(name).exists());
    }
    // With --format, the extension does not matter.
    let title = "(no command), pid 4711";
    for (name, begin) in [("x", title), ("x.TXT", title), ("x.svg", "<svg"), ("x.png", "\u{fffd}PNG")] {
        assert_eq!(place.run(&["report", "heatmap", "known.rec", "-o", name]).status, 0, "{name}");
        let bytes = std::fs::read(place.path(name)).unwrap();
        assert!(String::from_utf8_lossy(&bytes).starts_with(begin), "{name}");
    }
    assert_eq!(place.run(&["report", "heatmap", "known.rec", "--format", "svg", "-o", "x.bmp"]).status, 0);
    assert!(std::fs::read_to_string(place.path("x.bmp")).unwrap().starts_with("<svg"));

    let ran = place.run(&["convert", "known.rec", "x.xml"]);
    assert!(ran.status == 2 && ran.err.contains("x.xml") && ran.err.contains(".parquet, .csv"), "{ran:?}");
}

#[test]
fn the_working_set_and_the_summary_are_grouped_as_asked() {
    let place = place();
    for kind in ["summary", "wss"] {
        for (by, name) in [("process", "(no command)"), ("command", "(no command)"), ("mapping", "(mapping unknown)")] {
            let ran = place.run(&["report", kind, "known.rec", "--by", by, "--format", "json"]);
            let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            assert_eq!((&report["group_by"], &report["groups"][0]["name"]), (&by.into(), &name.into()), "{kind}");
        }
        let ran = place.run(&["report", kind, "known.rec", "--by", "unit"]);
        assert!(ran.status == 1 && ran.err.contains("does not tell the cgroup"), "{ran:?}");
    }
}

#[test]
fn options_without_an_effect_are_refused() {
    let place = place();
    let refused = |arguments: &[&str], words: [&str; 2]| {
        let ran = place.run(&[&["report"], arguments].concat());
        assert!(ran.status == 2 && words.iter().all(|word| ran.err.contains(word)), "{words:?}: {ran:?}");
    };
    for (kind, option, value) in [
        ("wss", "--sort", "size"),
        ("overhead", "--by", "command"),
        ("heatmap", "--window", "1s"),
        ("summary", "--measure", "rate"),
        ("summary", "--min-rate", "0"),
        ("html", "--at", "100ms"),
    ] {
        refused(&[kind, "known.rec", option, value], ["unexpected argument", option]);
    }
    refused(&["regions", "known.rec", "--at", "100ms", "-o", "out.html"], ["--at", "HTML page"]);
    refused(&["regions", "known.rec", "--sort", "size", "-o", "out.svg"], ["--sort", "picture"]);
    refused(&["regions", "known.rec", "--sort", "wss"], ["--sort", "address, rate, age, size"]);
    refused(&["wss", "known.rec", "--by", "stack"], ["--by", "cgroup, unit, mapping"]);
    refused(&["summary", "known.rec", "--by", "stack", "-o", "out.html"], ["--by stack", "a picture"]);
    assert!(!place.path("out.html").exists() && !place.path("out.svg").exists());
    assert_eq!(place.run(&["report", "regions", "known.rec", "--min-rate", "1", "-o", "out.svg"]).status, 0);
    assert_eq!(sizes(&place, &["--sort", "size"]), [2, 1]);
}

#[test]
fn a_report_that_lacks_a_format_is_refused_with_those_that_there_are() {
    let place = place();
    for arguments in [&["--format", "svg"][..], &["-o", "tune.svg"]] {
        let ran = place.run(&[&["report", "tune", "known.rec"], arguments].concat());
        let names_them = ran.err.contains("text, json") || ran.err.contains("text or json");
        assert!(ran.status == 2 && ran.err.contains("svg") && names_them, "{ran:?}");
    }
}

#[test]
fn the_help_of_a_report_has_its_options_and_no_others() {
    let place = Place::new();
    for (kind, has, has_not) in [
        ("wss", ["--by", "--window"], ["--measure", "--min-rate"]),
        ("regions", ["--at", "--sort"], ["--by", "--window"]),
        ("html", ["--by", "--window"], ["png", "--sort"]),
    ] {
        let help = place.run(&["report", kind, "--help"]).out;
        assert!(has.iter().all(|option| help.contains(option)), "{help}");
        assert!(!has_not.iter().any(|option| help.contains(option)), "{help}");
    }
}

#[test]
fn each_schema_is_printed_under_its_name() {
    let place = Place::new();
    for name in isotherm_report::schema::names().chain(["scheme-file"]) {
        let Ran { status: 0, out, .. } = place.run(&["schema", name]) else { panic!("{name}") };
        let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(schema["$schema"].is_string() && schema["title"].is_string(), "{name}");
    }
}
