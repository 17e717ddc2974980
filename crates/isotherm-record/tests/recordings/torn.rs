//! A recording that is cut gives all that was whole before, and one whose bits have changed all other batches.

use std::path::Path;
use std::sync::Arc;

use isotherm_core::TargetSnapshot;
use isotherm_record::{
    Activity, Condition, Ending, Format, RecordError, Recorder, Recording, TargetInfo, convert, examine, recover,
};
use proptest::prelude::*;

use crate::common::{self, Row};

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
    let records = recording.snapshots().collect::<Result<Vec<_>, _>>()?;
    let rows = records.iter().flat_map(common::rows).collect();
    let activities = recording.activities().collect::<Result<_, _>>()?;
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
    let path = directory.path().join("twice.rec");
    let at_end = small.bytes.len() as u64 - 8;
    for more in [&small.bytes[..], b"some more bytes"] {
        std::fs::write(&path, [&small.bytes[..], more].concat()).unwrap();
        let recording = Recording::open(&path).unwrap();
        let [damage] = recording.damage() else { panic!("{:?}", recording.damage()) };
        assert_eq!((damage.start, damage.reason), (at_end, "there are bytes after the end marker"));
        assert_eq!(recording.snapshots().map(Result::unwrap).count(), 4);
    }
}

/// The rows of the batches that do not hold byte `at`: of targets, and activities.
fn rest(small: &Small, at: usize) -> Rows {
    let mut rest = (Vec::new(), Vec::new());
    for pair in small.borders.windows(2) {
        if !(pair[0].0..pair[1].0).contains(&at) {
            rest.0.extend_from_slice(&small.rows.0[pair[0].1..pair[1].1]);
            rest.1.extend_from_slice(&small.rows.1[pair[0].2..pair[1].2]);
        }
    }
    rest
}

/// Of the rows that follow a damaged batch, these are known: all but what the damaged batch says of their targets.
fn without_descriptions(rows: Rows) -> Rows {
    let none = Arc::new(TargetInfo::default());
    let target = |row: Row| {
        let target = TargetSnapshot { mappings: Arc::default(), ..row.target };
        Row { target, info: Arc::clone(&none), ..row }
    };
    (rows.0.into_iter().map(target).collect(), rows.1)
}

#[test]
fn after_any_changed_bit_all_other_batches_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    let (header, end) = (small.borders[0].0, small.borders.last().unwrap().0);
    let first = small.borders[0].0..small.borders[1].0;
    // Each bit of some bytes, and one bit of many more: of all where a batch begins or ends, and of every fifth.
    let near_a_border = |at: usize| small.borders.iter().any(|&(border, ..)| border.abs_diff(at) < 48);
    let bytes = (0..small.bytes.len()).filter(|&at| at % 5 == 0 || near_a_border(at));
    let bits = bytes.flat_map(|at| (0..8).filter(move |bit| at % 8 == *bit || at % 485 == 0).map(move |bit| (at, bit)));
    for (at, bit) in bits {
        let mut bytes = small.bytes.clone();
        bytes[at] ^= 1 << bit;
        let (ending, rows) =
            read(directory.path(), &bytes).unwrap_or_else(|error| panic!("byte {at}, bit {bit}: {error}"));
        let expected = rest(&small, at);
        if first.contains(&at) {
            // It holds what the targets and their mappings are.
            assert!(without_descriptions(rows) == without_descriptions(expected), "byte {at}, bit {bit}");
        } else {
            assert!(rows == expected, "byte {at}, bit {bit}: {} of {}", rows.0.len(), expected.0.len());
        }
        let path = directory.path().join("changed.rec");
        let recording = Recording::open(&path).unwrap();
        let found = examine(&recording).unwrap();
        assert!(found.error.is_none(), "byte {at}, bit {bit}: {:?}", found.error);
        // The checksum of the header's body, which is empty, is not needed.
        let is_needed = at < header - 4 || at >= header;
        // A wrong length in the last batch looks as if the file was cut.
        let looks_cut = matches!(ending, Ending::CutShort { .. });
        if is_needed && at < end && !looks_cut {
            assert_eq!(found.condition(), Condition::Damaged, "byte {at}, bit {bit}");
            assert_eq!(found.is_header_corrected, at < header, "byte {at}, bit {bit}");
        } else if is_needed {
            assert!(found.condition() != Condition::Whole, "byte {at}, bit {bit}: {ending:?}");
        }
    }
}

#[test]
fn a_part_that_is_missing_or_too_much_costs_only_its_batches() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    let (from, to) = (small.borders[0].0, small.borders[1].0);
    for at in (from..to).step_by(7) {
        let mut shorter = small.bytes.clone();
        shorter.drain(at..(at + 13).min(to));
        let mut longer = small.bytes.clone();
        longer.splice(at..at, [0xff; 21]);
        for bytes in [shorter, longer] {
            let (_, rows) = read(directory.path(), &bytes).unwrap();
            let is_whole = rows.0.len() == small.rows.0.len();
            let expected = if is_whole { small.rows.clone() } else { rest(&small, from) };
            assert!(without_descriptions(rows) == without_descriptions(expected), "at {at}");
        }
    }
}

#[test]
fn what_is_missing_is_told_by_bytes_and_by_time_and_the_rest_is_saved() {
    let directory = tempfile::tempdir().unwrap();
    let (path, saved) = (directory.path().join("a.rec"), directory.path().join("b.rec"));
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    let mut borders = Vec::new();
    for i in 1..=6 {
        recorder.write(&common::snapshot_record(i)).unwrap();
        recorder.flush().unwrap();
        borders.push(recorder.bytes_written());
    }
    recorder.finish().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    for batch in [2, 3] {
        bytes[borders[batch] as usize - 20] ^= 1;
    }
    std::fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    let found = examine(&recording).unwrap();
    assert_eq!((found.snapshots, found.ending), (4, Ending::Whole));
    let parts: Vec<_> = found.missing.iter().map(|m| (m.damage.start, m.damage.end, m.after, m.before)).collect();
    let ms = |ms| Some(std::time::Duration::from_millis(ms));
    assert_eq!(parts, [(borders[1], borders[2], ms(200), ms(500)), (borders[2], borders[3], ms(200), ms(500))]);

    let refused = convert(&recording, &saved, Format::Recording).unwrap_err().to_string();
    assert!(refused.contains("isotherm check --save") && !saved.exists(), "{refused}");
    assert!(recover(&recording, &saved).unwrap().is_none());
    let saved = Recording::open(&saved).unwrap();
    assert_eq!(examine(&saved).unwrap().condition(), Condition::Whole);
    let read = |recording: &Recording| recording.snapshots().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(read(&saved), read(&recording));
    assert!(recover(&saved, saved.path()).is_err(), "an output is no input");
}

#[test]
fn many_places_that_look_like_messages_take_no_more_time() {
    let directory = tempfile::tempdir().unwrap();
    let small = small(directory.path());
    let path = directory.path().join("a.rec");
    let header = &small.bytes[..small.borders[0].0];
    // Each word is a marker and a length of 1 MiB.
    let words = [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0].repeat(1 << 19);
    std::fs::write(&path, [header, &words].concat()).unwrap();
    let began = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let recording = Recording::open(&path).unwrap();
    let took = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime) - began;
    assert_eq!(recording.damage().len(), 1, "{:?}", recording.damage());
    assert!(took.tv_sec < 20, "{took:?}");
}

/// An error, or rows of the recording in their order: never rows that were not recorded.
fn assert_error_or_part(small: &Small, result: Result<(Ending, Rows), RecordError>, what: &str) {
    let Ok((_, rows)) = result else { return };
    let (rows, all) = (without_descriptions(rows), without_descriptions(small.rows.clone()));
    let mut recorded = all.0.iter();
    assert!(rows.0.iter().all(|row| recorded.any(|recorded| recorded == row)), "{what}");
    let mut recorded = all.1.iter();
    assert!(rows.1.iter().all(|row| recorded.any(|recorded| recorded == row)), "{what}");
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
        assert_error_or_part(&small, result, &format!("{changes:?}"));
    }
}
