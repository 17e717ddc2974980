//! A recording is read as one stream of events.

use std::path::Path;
use std::time::Duration;

use isotherm_record::{
    Contents, Event, Mark, MarkText, Missed, MissedKind, Needs, Recorder, Recording, SnapshotRecord, SurveyRecord,
};

use crate::common;

const CONTENTS: Contents = Contents { activities: true, surveys: true, live: true, marks: true, allocations: false };

/// Snapshots, and after them what happened in their time.
fn record(path: &Path) {
    let mut recorder = Recorder::create_with(path, &common::header(), CONTENTS).unwrap();
    for i in 1..=20 {
        recorder.write(&common::snapshot_record(i)).unwrap();
    }
    let time = |ms| Duration::from_millis(ms);
    for i in [14, 17] {
        recorder.write_survey(&common::survey(i)).unwrap();
    }
    recorder.write_activity(&common::activity(15)).unwrap();
    recorder.write_mark(&Mark { time: time(1550), text: MarkText::new(b"load").unwrap() }).unwrap();
    recorder.write_missed(&Missed { time: time(1900), kind: MissedKind::Marks, count: 3 }).unwrap();
    recorder.finish().unwrap();
}

fn events(path: &Path, needs: Needs) -> Vec<Event> {
    Recording::open(path).unwrap().events(needs).map(Result::unwrap).collect()
}

#[test]
fn events_that_were_written_late_come_in_the_order_of_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    record(&path);
    let all = Needs::SNAPSHOTS | Needs::SURVEYS | Needs::ACTIVITIES | Needs::MARKS | Needs::MISSED;
    let found = events(&path, all);
    assert_eq!(found.len(), 20 + 2 + 1 + 1 + 1);
    assert!(found.is_sorted_by_key(Event::time), "{:?}", found.iter().map(Event::time).collect::<Vec<_>>());
}

#[test]
fn a_reader_gets_what_it_needs_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    record(&path);
    let snapshots = |needs| -> Vec<SnapshotRecord> {
        let found = events(&path, needs).into_iter();
        found.map(|event| if let Event::Snapshot(record) = event { record } else { panic!("{event:?}") }).collect()
    };
    let whole = snapshots(Needs::SNAPSHOTS);
    let mut bare = snapshots(Needs { snapshots: true, ..Needs::NOTHING });
    assert_eq!(whole.len(), bare.len());
    for (bare, whole) in bare.iter_mut().zip(&whole) {
        assert!(bare.cost.is_none() && bare.snapshot.targets.iter().all(|target| target.regions.is_empty()));
        for (bare, whole) in bare.snapshot.targets.iter_mut().zip(&whole.snapshot.targets) {
            bare.regions.clone_from(&whole.regions);
        }
        assert_eq!(bare.snapshot.targets, whole.snapshot.targets);
    }
    let counts = |needs| -> Vec<usize> {
        snapshots(needs).iter().flat_map(|record| record.rows().map(|row| row.nr_regions)).collect()
    };
    let counted = counts(Needs { snapshots: true, region_counts: true, ..Needs::NOTHING });
    assert!(counted.iter().all(|count| *count > 0));
    assert_eq!(counted, counts(Needs::SNAPSHOTS));
    let surveys = |needs| -> Vec<SurveyRecord> {
        let found = events(&path, needs).into_iter();
        found.map(|event| if let Event::Survey(record) = event { record } else { panic!("{event:?}") }).collect()
    };
    let whole = surveys(Needs::SURVEYS);
    for (sums, whole) in surveys(Needs { surveys: true, ..Needs::NOTHING }).iter().zip(&whole) {
        for (sums, whole) in sums.survey.targets.iter().zip(&whole.survey.targets) {
            assert!(sums.by_block.is_empty() && !whole.by_block.is_empty());
            assert_eq!((&sums.by_mapping, &sums.mappings), (&whole.by_mapping, &whole.mappings));
        }
    }
    assert!(matches!(events(&path, Needs::MARKS)[..], [Event::Mark(_)]));
    assert!(matches!(events(&path, Needs::MISSED)[..], [Event::Missed(_)]));
    assert!(events(&path, Needs::PANELS).is_empty() && events(&path, Needs::NOTHING).is_empty());
}
