//! `isotherm diff`, with recordings whose regions are known.

use crate::common::Place;

fn place() -> Place {
    let place = Place::new();
    place.make_recording("old.rec");
    std::fs::copy(place.path("old.rec"), place.path("new.rec")).unwrap();
    place
}

#[test]
fn a_recording_is_compared_with_another_or_with_a_part_of_itself() {
    let place = place();
    let ran = place.run(&["diff", "old.rec", "new.rec"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("From old.rec to new.rec\n"), "{}", ran.out);
    let ran = place.run(&["diff", "old.rec", "--time", ":1s", "--with", "0s:"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("From old.rec from 0 s to 1 s to old.rec from 0 s\n"), "{}", ran.out);
    let ran = place.run(&["diff", "old.rec"]);
    assert!(ran.status == 2 && ran.err.contains("<AFTER>"), "{ran:?}");
}

#[test]
fn the_extension_of_the_output_selects_the_format() {
    let place = place();
    for (name, begin) in [
        ("x.txt", "From old.rec"),
        ("x.json", r#"{"before":"#),
        ("x.svg", "<svg"),
        ("x.png", "\u{fffd}PNG"),
        ("x.html", "<!DOCTYPE html>"),
    ] {
        assert_eq!(place.run(&["diff", "old.rec", "new.rec", "-o", name]).status, 0, "{name}");
        let bytes = std::fs::read(place.path(name)).unwrap();
        assert!(String::from_utf8_lossy(&bytes).starts_with(begin), "{name}");
    }
    let ran = place.run(&["diff", "old.rec", "new.rec", "-o", "x.eps"]);
    assert!(ran.status == 2 && ran.err.contains("--format"), "{ran:?}");
    // An input is no output.
    let ran = place.run(&["diff", "old.rec", "new.rec", "--format", "text", "-o", "new.rec"]);
    assert_eq!(ran.status, 1, "{ran:?}");
}

#[test]
fn a_window_needs_surveys_in_both_recordings() {
    let ran = place().run(&["diff", "old.rec", "new.rec", "--window", "5s"]);
    assert!(ran.status == 1 && ran.err.contains("has no survey"), "{ran:?}");
}
