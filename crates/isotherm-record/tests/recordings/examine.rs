//! What an examination tells of a recording that is whole.

use std::time::Duration;

use isotherm_core::PAGE_SIZE;
use isotherm_record::{Condition, Recorder, Recording, examine};

use crate::common;

#[test]
fn late_rounds_and_the_longest_gap_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    // Snapshots are 100 ms apart and cover as much. Those from 1 s to 1.8 s and from 2 s to 2.1 s are missing.
    for i in (1..=9).chain([19]).chain(22..=30) {
        recorder.write(&common::snapshot_record(i)).unwrap();
    }
    recorder.finish().unwrap();
    let found = examine(&Recording::open(&path).unwrap()).unwrap();
    assert_eq!(found.condition(), Condition::Whole);
    let punctuality = found.punctuality;
    assert_eq!(
        (punctuality.longest_gap, punctuality.gap_end),
        (Duration::from_millis(900), Duration::from_millis(1800))
    );
    // Each snapshot of an odd number has a late round.
    assert_eq!((punctuality.rounds, punctuality.late_rounds), (19 * 20, 10));
    assert_eq!(found.last_survey, None);
}

#[test]
fn what_the_last_survey_knows_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record_with_surveys(&path, 55);
    let found = examine(&Recording::open(&path).unwrap()).unwrap();
    let sums = found.last_survey.unwrap();
    // Two targets with two mappings each, at the survey with snapshot 50.
    let pages = [sums.figures.present, sums.figures.unobservable, sums.figures.unknown].map(|bytes| bytes / PAGE_SIZE);
    assert_eq!((found.surveys, pages), (5, [36, 8, 8]));
}
