//! A part of a recording, as a recording of its own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_record::{Contents, ConvertError, Cut, Ending, Part, Recorder, Recording, cut, examine, pid_column};

use crate::common::{self, Row};

/// The part of the recording at `path` between these times, in milliseconds.
fn part(path: &Path, time: Range<u64>, targets: &[u32]) -> Result<(PathBuf, u64), ConvertError> {
    let time = Some(Duration::from_millis(time.start)..Duration::from_millis(time.end));
    let wanted = Cut { time, targets: targets.iter().copied().collect() };
    let to = path.with_extension("part");
    let snapshots = cut(&Recording::open(path).unwrap(), &wanted, &to)?;
    Ok((to, snapshots))
}

fn times(rows: &[Row]) -> BTreeSet<u128> {
    rows.iter().map(|row| row.time.as_millis()).collect()
}

#[test]
fn a_part_has_its_rows_and_those_next_to_it_at_the_times_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let (rows, surveys) = common::record_with_surveys(&path, 60);
    let (cut, snapshots) = part(&path, 2000..2500, &[]).unwrap();
    assert_eq!(snapshots, 5);
    let kept = common::read(&cut).unwrap();
    assert_eq!(times(&kept), BTreeSet::from([2000, 2100, 2200, 2300, 2400, 2500, 2600]));
    // The targets and their mappings are as in the whole, although they were written before the part.
    let of_whole: Vec<Row> = rows.into_iter().filter(|row| (2000..=2600).contains(&row.time.as_millis())).collect();
    assert_eq!(kept, of_whole);
    let header = Recording::open(&cut).unwrap().header().clone();
    assert_eq!(header.part, Some(Part { from_ns: 2_000_000_000, to_ns: Some(2_500_000_000) }));

    // The first survey says only when it was.
    let found = common::read_surveys(&cut).unwrap();
    assert_eq!(found[0].survey.time, surveys[0].survey.time);
    assert!(found[0].survey.targets.iter().all(|target| target.by_mapping.is_empty() && target.by_block.is_empty()));
    let before = surveys.iter().rposition(|record| record.survey.time <= Duration::from_secs(2)).unwrap();
    let after = surveys.iter().position(|record| record.survey.time > Duration::from_millis(2500)).unwrap();
    assert_eq!(found[1..], surveys[before..=after]);
}

#[test]
fn of_a_run_that_begins_with_a_survey_a_later_part_has_the_last_one_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let contents = Contents { surveys: true, live: true, ..Contents::default() };
    let mut recorder = Recorder::create_with(&path, &common::header(), contents).unwrap();
    for time in [0, 10, 20, 30] {
        let mut record = common::survey(time.max(10));
        record.survey.time = Duration::from_millis(u64::from(time) * 100);
        recorder.write_survey(&record).unwrap();
    }
    recorder.finish().unwrap();
    let (cut, _) = part(&path, 2000..3000, &[]).unwrap();
    let found = common::read_surveys(&cut).unwrap();
    assert_eq!(found.iter().map(|record| record.survey.time.as_millis()).collect::<Vec<_>>(), [0, 2000, 3000]);
}

#[test]
fn a_part_is_whole_even_of_a_recording_without_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 40);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    assert_eq!(Recording::open(&path).unwrap().ending(), Ending::Unfinished);
    for (time, ending) in [(1000..2000, Ending::Whole), (1000..9000, Ending::Unfinished)] {
        let (cut, _) = part(&path, time, &[]).unwrap();
        let recording = Recording::open(&cut).unwrap();
        assert_eq!(recording.ending(), ending);
        assert!(examine(&recording).unwrap().error.is_none());
    }
}

#[test]
fn a_part_has_the_wanted_targets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record_with_surveys(&path, 30);
    let (cut, snapshots) = part(&path, 0..10_000, &[9]).unwrap();
    assert_eq!(snapshots, 30);
    let pid = |id| pid_column(id);
    assert!(common::read(&cut).unwrap().iter().all(|row| pid(row.target.id) == 9 && row.cost.is_some()));
    for record in common::read_surveys(&cut).unwrap() {
        assert!(record.survey.targets.iter().all(|target| pid(target.id) == 9) && record.survey.total.is_none());
    }
}

#[test]
fn a_part_of_a_part_lies_in_both() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 40);
    let (first, _) = part(&path, 1000..3000, &[]).unwrap();
    let renamed = directory.path().join("first.rec");
    std::fs::rename(first, &renamed).unwrap();
    let (second, snapshots) = part(&renamed, 2000..9000, &[]).unwrap();
    assert_eq!(snapshots, 10);
    let header = Recording::open(&second).unwrap().header().clone();
    assert_eq!(header.part, Some(Part { from_ns: 2_000_000_000, to_ns: Some(3_000_000_000) }));
}

#[test]
fn a_part_without_anything_is_refused_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 10);
    for (time, targets) in [(5000..6000, &[][..]), (0..1000, &[4711])] {
        let error = part(&path, time, targets).unwrap_err();
        assert!(matches!(error, ConvertError::NothingToCut { .. }), "{error}");
    }
    assert!(!path.with_extension("part").exists());
    let wanted = Cut { targets: [7].into(), ..Cut::default() };
    assert!(cut(&Recording::open(&path).unwrap(), &wanted, &path).is_err());
}
