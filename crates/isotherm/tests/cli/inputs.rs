//! What commands do with inputs that are damaged, or made to harm.

use isotherm_core::is_unsafe;
use serde_json::Value;

use crate::common::Place;

/// Control characters, overrides of the direction of text, and what is no character at all.
const FOREIGN: &[u8] = b"x\x1b]0;owned\x07\x1b[31m\xc2\x9b2J\xe2\x80\xae\xe2\x81\xa6\xd8\x9c\xef\xbb\xbf\x7f\rz";

/// Whether nothing in an output of isotherm acts on a terminal.
fn assert_harmless(what: &str, text: &str) {
    let bad: Vec<char> = text.chars().filter(|&c| c != '\n' && is_unsafe(c)).collect();
    assert!(bad.is_empty(), "{what}: {bad:?} in {text:?}");
}

/// Changes a byte in the last batch of a recording.
fn damage(place: &Place, name: &str) {
    let mut bytes = std::fs::read(place.path(name)).unwrap();
    let at = bytes.len() - 30;
    bytes[at] ^= 4;
    std::fs::write(place.path(name), bytes).unwrap();
}

#[test]
fn check_tells_by_its_status_whether_a_recording_is_whole() {
    let place = Place::new();
    place.make_recording("a.rec");
    let ran = place.run(&["check", "a.rec"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("whole: 1 snapshots, 0 activities and 0 surveys, "), "{ran:?}");

    for line in ["\nno gap between snapshots\n", "\nsurveys: none, "] {
        assert!(ran.out.contains(line), "{ran:?}");
    }

    let bytes = std::fs::read(place.path("a.rec")).unwrap();
    std::fs::write(place.path("cut.rec"), &bytes[..bytes.len() - 8]).unwrap();
    let ran = place.run(&["check", "cut.rec"]);
    assert!(ran.status == 3 && ran.out.contains("no end mark"), "{ran:?}");

    damage(&place, "a.rec");
    let ran = place.run(&["check", "a.rec"]);
    assert!(ran.status == 4 && ran.out.contains("\nmissing: bytes "), "{ran:?}");
    let ran = place.run(&["check", "a.rec", "--format", "json"]);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.status, &found["condition"], &found["snapshots"]), (4, &"damaged".into(), &0.into()));
    assert_eq!(found["missing"][0]["end"], bytes.len() - 8);

    let ran = place.run(&["check", "known.damo"]);
    assert!(ran.status == 1 && ran.err.contains("is not a recording of isotherm"), "{ran:?}");
}

#[test]
fn check_saves_the_rest_and_reports_say_what_is_missing() {
    let place = Place::new();
    place.make_recording_of(3, "a.rec");
    damage(&place, "a.rec");
    let ran = place.run(&["report", "summary", "a.rec"]);
    assert!(ran.err.contains("is damaged at byte "), "{ran:?}");
    let ran = place.run(&["convert", "a.rec", "a.csv"]);
    assert!(ran.status == 1 && ran.err.contains("isotherm check --save"), "{ran:?}");
    let ran = place.run(&["check", "a.rec", "--save", "good.rec"]);
    assert!(ran.status == 0 && ran.out.contains("missing: bytes "), "{ran:?}");
    let ran = place.run(&["check", "good.rec"]);
    assert!(ran.status == 0 && ran.out.starts_with("whole: 2 snapshots, "), "{ran:?}");
    let ran = place.run(&["check", "good.rec", "--save", "good.rec"]);
    assert!(ran.status == 1 && ran.err.contains("it is an input of the same command"), "{ran:?}");
}

#[test]
fn saving_fails_if_there_is_nothing_to_save() {
    let place = Place::new();
    place.make_recording("a.rec");
    damage(&place, "a.rec");
    let ran = place.run(&["check", "a.rec", "--save", "good.rec"]);
    assert!(ran.status == 1 && ran.err.contains("nothing of a.rec can be saved: "), "{ran:?}");
    assert!(!place.path("good.rec").exists(), "{ran:?}");
}

#[test]
fn foreign_text_does_not_act_on_a_terminal() {
    let place = Place::new();
    let write = |name: &str, parts: &[&[u8]]| std::fs::write(place.path(name), parts.concat()).unwrap();
    // The text as it is, and as YAML and JSON can say it.
    let escaped = r"x\u001b]0;owned\u0007\u001b[31m\u009b2J\u202e\u2066\u061c\ufeff\u007f\rz".as_bytes();
    let yaml: [(&str, &[&[u8]]); 6] = [
        ("name.yaml", &[b"- {name: \"", escaped, b"\", action: stat}\n"]),
        ("field.yaml", &[b"- {\"", escaped, b"\": 1, action: stat}\n"]),
        ("value.yaml", &[b"- {action: \"", escaped, b"\"}\n"]),
        ("raw.yaml", &[b"- {action: ", FOREIGN, b"}\n"]),
        ("path.yaml", &[b"- {action: stat, quota: {goals: [{fed: {from: \"", escaped, b"\", value: 1}}]}}\n"]),
        ("bytes.yaml", &[b"- {action: \xff\xfe\x9b}\n"]),
    ];
    for (name, parts) in yaml {
        write(name, parts);
        let ran = place.run(&["scheme", "check", name]);
        assert!(!ran.out.is_empty() || !ran.err.is_empty(), "{name}: {ran:?}");
        assert_harmless(name, &ran.out);
        assert_harmless(name, &ran.err);
    }
    place.make_recording("a.rec");
    let ran = place.run(&["scheme", "try", "name.yaml", "a.rec"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_harmless("scheme try", &ran.out);

    let damo: [(&str, &[&[u8]]); 3] = [
        ("field.damo", &[b"[{\"", escaped, b"\": 1}]"]),
        (
            "value.damo",
            &[b"[{\"target_id\": \"", escaped, b"\", \"snapshots\": [], \"intervals\": \"", escaped, b"\"}]"],
        ),
        ("raw.damo", &[b"[", FOREIGN, b"]"]),
    ];
    for (name, parts) in damo {
        write(name, parts);
        let ran = place.run(&["convert", name, "imported.rec"]);
        assert_harmless(name, &ran.err);
    }
    write("pattern.toml", &[b"about = \"", escaped, b"\"\n[[", escaped, b"]]\n"]);
    let ran = place.run(&["workload", "pattern.toml"]);
    assert!(ran.status != 0 && !ran.err.is_empty(), "{ran:?}");
    assert_harmless("workload", &ran.err);

    // A file whose name is foreign text.
    let name = String::from_utf8_lossy(FOREIGN).into_owned();
    for call in [&["report", "summary", &name][..], &["check", &name], &["convert", "a.rec", &name]] {
        let ran = place.run(call);
        assert!(!ran.err.is_empty(), "{call:?}: {ran:?}");
        // What clap prints of a wrong call is what the user has typed.
        if ran.status != 2 {
            assert_harmless("a name", &ran.err);
        }
    }
}
