//! `isotherm cut`, with a recording whose regions are known.

use crate::common::Place;

#[test]
fn a_part_is_a_recording_that_is_written_whole_or_not_at_all() {
    let place = Place::new();
    place.make_recording("known.rec");
    let ran = place.run(&["cut", "known.rec", "--time", ":1s", "-o", "part.rec"]);
    assert!(ran.status == 0 && ran.err.contains("1 snapshot in part.rec"), "{ran:?}");
    assert_eq!(place.regions("part.rec"), place.regions("known.rec"));
    let ran = place.run(&["cut", "known.rec", "--target", "4711", "-o", "target.rec"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(place.regions("target.rec"), place.regions("known.rec"));

    let ran = place.run(&["cut", "known.rec", "--target", "1", "-o", "none.rec"]);
    assert!(ran.status == 1 && ran.err.contains("nothing of the recording known.rec"), "{ran:?}");
    let ran = place.run(&["cut", "known.rec", "-o", "none.rec"]);
    assert!(ran.status == 2 && ran.err.contains("--time"), "{ran:?}");
    assert!(!place.path("none.rec").exists());
    let ran = place.run(&["cut", "known.rec", "--time", "0s:", "-o", "known.rec"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(place.run(&["check", "known.rec"]).status, 0);
}
