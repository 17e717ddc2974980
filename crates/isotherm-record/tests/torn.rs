//! A recording that is cut, or whose bits have changed, gives a true beginning of itself or an error.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::path::Path;

use isotherm_record::{Activity, Ending, RecordError, Recorder, Recording, Row, SnapshotRecord};
use proptest::prelude::*;

/// A recording, its bytes, and after how many bytes how many of its rows are whole.
struct Small {
    rows: Rows,
    bytes: Vec<u8>,
    /// After so many bytes, there are so many rows of targets and so many activities.
    borders: Vec<(usize, usize, usize)>,
}

/// All that a recording holds.
type Rows = (Vec<Row>, Vec<Activity>);

fn small(directory: &Path) -> Small {
    let path = directory.join("small.rec");
    let mut recorder = Recorder::create_with_activities(&path, &common::header()).unwrap();
    let mut borders = vec![(recorder.bytes_written() as usize, 0, 0)];
    let (mut snapshots, mut activities) = (Vec::new(), Vec::new());
    for i in 1..=4 {
        snapshots.push((common::snapshot(i), common::cost(i)));
        recorder.write(&common::snapshot_record(i)).unwrap();
        activities.push(common::activity(i));
        recorder.write_activity(&common::activity(i)).unwrap();
        if i % 2 == 0 {
            recorder.flush().unwrap();
        }
        if recorder.bytes_written() as usize > borders.last().unwrap().0 {
            borders.push((recorder.bytes_written() as usize, 2 * i as usize, i as usize));
        }
    }
    recorder.finish().unwrap();
    Small { rows: (common::rows_of(&snapshots), activities), bytes: std::fs::read(&path).unwrap(), borders }
}

impl Small {
    /// Its beginning, as many rows of targets and activities as that.
    fn beginning(&self, rows: usize, activities: usize) -> Rows {
        (self.rows.0[..rows].to_vec(), self.rows.1[..activities].to_vec())
    }
}

/// What reading `bytes` gives: how the recording ends, and its rows.
fn read(directory: &Path, bytes: &[u8]) -> Result<(Ending, Rows), RecordError> {
    let path = directory.join("changed.rec");
    std::fs::write(&path, bytes).unwrap();
    let recording = Recording::open(&path)?;
    let records = recording.snapshots()?.collect::<Result<Vec<_>, _>>()?;
    let rows = records.into_iter().flat_map(SnapshotRecord::into_rows).collect();
    let activities = recording.activities()?.collect::<Result<_, _>>()?;
    Ok((recording.ending(), (rows, activities)))
}

/// Cut after `cut` bytes, a recording gives all that was whole before.
fn assert_cut(directory: &Path, small: &Small, cut: usize) {
    let result = read(directory, &small.bytes[..cut]);
    if cut == 0 {
        assert!(matches!(result, Err(RecordError::Empty { .. })), "at {cut}: {result:?}");
    } else if cut < small.borders[0].0 {
        assert!(matches!(result, Err(RecordError::CutInHeader { at, .. }) if at == cut as u64), "at {cut}: {result:?}");
    } else {
        let &(border, rows, activities) = small.borders.iter().rev().find(|(border, ..)| *border <= cut).unwrap();
        let ending = if border == cut { Ending::Unfinished } else { Ending::CutShort { at: border as u64 } };
        let read = result.unwrap();
        assert!(read == (ending, small.beginning(rows, activities)), "at {cut}: {:?}, {} rows", read.0, read.1.0.len());
    }
}

#[test]
fn cut_at_any_byte_it_gives_all_that_was_whole_before() {
    const THREADS: usize = 4;
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    assert!(small.borders.len() == 3, "{:?}", small.borders);
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let small = &small;
            scope.spawn(move || {
                let directory = tempfile::tempdir().unwrap();
                let cuts = (first..small.bytes.len()).step_by(THREADS);
                cuts.for_each(|cut| assert_cut(directory.path(), small, cut));
            });
        }
    });
    assert_eq!(read(directory.path(), &small.bytes).unwrap(), (Ending::Whole, small.rows));
}

#[test]
fn a_tail_of_zeros_is_a_torn_one() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    let &(end, rows, activities) = small.borders.last().unwrap();
    for zeros in [1, 4, 7, 8, 4096, 20_000] {
        let mut bytes = small.bytes[..end].to_vec();
        bytes.resize(end + zeros, 0);
        let ending = Ending::CutShort { at: end as u64 };
        assert_eq!(read(directory.path(), &bytes).unwrap(), (ending, small.beginning(rows, activities)), "{zeros}");
    }
}

#[test]
fn bytes_after_the_end_are_damage() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    let mut bytes = small.bytes.clone();
    bytes.extend(&small.bytes);
    let at_end = small.bytes.len() as u64 - 8;
    assert!(matches!(read(directory.path(), &bytes), Err(RecordError::Damaged { at, .. }) if at == at_end));
}

/// An error, or a true beginning of the recording: never rows that were not recorded.
fn assert_error_or_beginning(small: &Small, result: Result<(Ending, Rows), RecordError>, what: &str) {
    if let Ok((_, rows)) = result {
        assert!(small.rows.0.starts_with(&rows.0) && small.rows.1.starts_with(&rows.1), "{what}");
    }
}

#[test]
fn a_changed_bit_is_never_taken_for_data() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    for at in 0..small.bytes.len() {
        let mut bytes = small.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let result = read(directory.path(), &bytes);
        assert_error_or_beginning(&small, result, &format!("byte {at}"));
    }
}

#[test]
fn a_damaged_header_is_not_taken_for_a_foreign_file() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    for at in 4..small.borders[0].0 {
        let mut bytes = small.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let error = read(directory.path(), &bytes).unwrap_err();
        assert!(!matches!(error, RecordError::Foreign { .. }), "byte {at}: {error}");
    }
}

#[test]
fn damage_inside_a_batch_is_found_where_the_batch_begins() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    for pair in small.borders.windows(2) {
        let (begin, end) = (pair[0].0, pair[1].0);
        let mut bytes = small.bytes.clone();
        bytes[end - 20] ^= 0x10;
        let path = directory.path().join("changed.rec");
        std::fs::write(&path, bytes).unwrap();
        let damaged_here = |error| matches!(error, RecordError::Damaged { at, .. } if at == begin as u64);
        let recording = Recording::open(&path).unwrap();
        let mut snapshots = recording.snapshots().unwrap();
        let mut activities = recording.activities().unwrap();
        assert_eq!(2 * snapshots.by_ref().map_while(Result::ok).count(), pair[0].1);
        assert_eq!(activities.by_ref().map_while(Result::ok).count(), pair[0].2);
        for error in [
            recording.snapshots().unwrap().find_map(Result::err),
            recording.activities().unwrap().find_map(Result::err),
        ] {
            assert!(damaged_here(error.unwrap()));
        }
        // After an error there is no more.
        assert!(snapshots.next().is_none() && activities.next().is_none());
    }
}

proptest! {
    #![proptest_config(common::cases(100))]

    #[test]
    fn changed_bytes_are_never_taken_for_data(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let small = small(directory.path());
        let mut bytes = small.bytes.clone();
        for (at, byte) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let result = read(directory.path(), &bytes);
        assert_error_or_beginning(&small, result, &format!("{changes:?}"));
    }
}
