//! What was handed over stays readable when the recorder is killed, or the disk is full.
//!
//! The recorders that end badly are processes of their own: this test program, started again with a variable in its
//! environment.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "recordings/common/mod.rs"]
mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_record::{Ending, RecordError, Recorder, Recording};
use isotherm_testing::{installed_or_skip, or_skip};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

const PATH: &str = "ISOTHERM_TEST_RECORD_TO";
const LIMIT: u64 = 40_000;

/// Where this process records to, if it is one of those that end badly.
fn path_in_environment() -> Result<PathBuf, &'static str> {
    std::env::var_os(PATH).map(PathBuf::from).ok_or("it is a part of another test")
}

/// `wrapper`, if any, and this program, as the test `name` alone.
fn this_program(wrapper: &[&str], name: &str, path: &Path) -> Command {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let mut words = wrapper.iter().copied().chain([program, "--ignored", "--exact", "--nocapture", name]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env(PATH, path).stdout(Stdio::null());
    command
}

#[test]
#[ignore = "is killed by another test"]
fn records_for_ever() {
    let path = or_skip!(path_in_environment());
    let mut recorder = Recorder::create_with_activities(&path, &common::header()).unwrap();
    for i in 1.. {
        recorder.write(&common::snapshot_record(i)).unwrap();
        recorder.write_activity(&common::activity(i)).unwrap();
    }
}

/// Records to `path`, and kills the recorder once the file has that many bytes. Returns the rows that were readable
/// just before.
fn record_and_kill(path: &Path, bytes: u64) -> Vec<common::Row> {
    let mut child = this_program(&[], "records_for_ever", path).spawn().unwrap();
    let begun = Instant::now();
    while std::fs::metadata(path).map_or(0, |file| file.len()) < bytes {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is recorded");
        std::thread::sleep(Duration::from_millis(1));
    }
    let seen = common::read(path).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it ended before it was killed");
    seen
}

#[test]
fn a_killed_recording_is_readable_up_to_its_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=8 {
        let path = directory.path().join(format!("{round}.rec"));
        let seen = record_and_kill(&path, 7919 * round);
        assert_ne!(Recording::open(&path).unwrap().ending(), Ending::Whole);
        let rows = common::read(&path).unwrap();
        assert!(!seen.is_empty() && rows.starts_with(&seen));
        // Snapshots of two targets each, none missing.
        let last = rows.len() as u32 / 2;
        let snapshots: Vec<_> = (1..=last).map(|i| (common::snapshot(i), common::cost(i))).collect();
        assert!(rows == common::rows_of(&snapshots));
        let activities = common::read_activities(&path).unwrap();
        assert!((1..=activities.len() as u32).map(common::activity).eq(activities.iter().cloned()));
        assert!(last.abs_diff(activities.len() as u32) <= 1, "{last} snapshots, {} activities", activities.len());
    }
}

#[test]
#[ignore = "is killed by another test"]
fn records_again_and_again() {
    let path = or_skip!(path_in_environment());
    for _ in 0.. {
        common::record(&path, 1);
    }
}

#[test]
fn a_name_has_a_recording_at_each_moment_once_it_had_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 1);
    for _ in 0..4 {
        let mut child = this_program(&[], "records_again_and_again", &path).spawn().unwrap();
        let old = path.with_extension("rec.old");
        let inode = || std::fs::metadata(&old).map_or(0, |file| std::os::unix::fs::MetadataExt::ino(&file));
        let (begun, mut seen, mut replaced) = (Instant::now(), inode(), 0);
        while replaced < 20 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is recorded");
            assert!(Recording::open(&path).unwrap().snapshots().next().unwrap().is_ok());
            let now = inode();
            replaced += u32::from(now != seen);
            seen = now;
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it ended before it was killed");
        assert!(!common::read(&path).unwrap().is_empty());
    }
    common::record(&path, 1);
    assert_eq!(names(directory.path()), ["a.rec", "a.rec.old"], "the next recorder removes what the killed one left");
}

/// The names of the files of a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_recording_gets_its_name_with_its_first_batch_and_what_was_there_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    std::fs::write(&path, "what was there").unwrap();
    drop(Recorder::create(&path, &common::header()).unwrap());
    assert_eq!(
        (names(directory.path()), std::fs::read(&path).unwrap()),
        (vec!["a.rec".into()], b"what was there".into())
    );

    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    recorder.write(&common::snapshot_record(1)).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there", "the first snapshot is not handed over yet");
    recorder.flush().unwrap();
    assert_eq!(Recording::open(&path).unwrap().ending(), Ending::Unfinished);
    assert_eq!(std::fs::read(directory.path().join("a.rec.old")).unwrap(), b"what was there");
    recorder.write(&common::snapshot_record(2)).unwrap();
    drop(recorder);
    assert_eq!(common::read(&path).unwrap().last().unwrap().time, common::snapshot(2).time);
    assert_eq!(names(directory.path()), ["a.rec", "a.rec.old"]);

    // Without a snapshot, the end gives it its name.
    Recorder::create(&path, &common::header()).unwrap().finish().unwrap();
    assert_eq!((common::read(&path).unwrap().len(), Recording::open(&path).unwrap().ending()), (0, Ending::Whole));
    assert!(!common::read(&directory.path().join("a.rec.old")).unwrap().is_empty());
}

#[test]
fn two_recorders_do_not_write_to_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut first = Recorder::create(&path, &common::header()).unwrap();
    for recorded in 1..=2 {
        let second = Recorder::create(&path, &common::header()).unwrap_err();
        assert!(isotherm_core::chain(&second).contains("this command writes it already"), "{second}");
        first.write(&common::snapshot_record(recorded)).unwrap();
        first.flush().unwrap();
    }
    first.finish().unwrap();
    assert_eq!(common::read(&path).unwrap().len(), 4);
}

#[test]
fn pyarrow_reads_a_killed_recording_up_to_its_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    record_and_kill(&path, 7919);
    let (rows, activities) = (common::read(&path).unwrap(), common::read_activities(&path).unwrap());
    let read = installed_or_skip!(common::python("pyarrow", &path));
    assert_eq!(read["rows"], json!(rows.len() + activities.len()));
}

#[test]
fn pyarrow_reads_a_torn_recording_up_to_its_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 20);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 100).unwrap();
    let rows = common::read(&path).unwrap();
    assert!(!rows.is_empty());
    let read = installed_or_skip!(common::python("pyarrow", &path));
    assert_eq!((&read["rows"], &read["torn"]), (&json!(rows.len()), &json!(true)));
}

/// Records to `path` until the kernel takes no more; the recording then has to be whole batches, and readable. Returns
/// the number of the snapshot that could not be written, and how many rows are readable.
fn record_until_full(path: &Path) -> (Recorder, u32, usize) {
    let mut recorder = Recorder::create(path, &common::header()).unwrap();
    for i in 1.. {
        let Err(error) = recorder.write(&common::snapshot_record(i)) else { continue };
        let RecordError::Write { offset, .. } = error else { panic!("{error}") };
        assert_eq!(std::fs::metadata(path).unwrap().len(), offset);
        assert_eq!(Recording::open(path).unwrap().ending(), Ending::Unfinished);
        let rows = common::read(path).unwrap();
        assert!(!rows.is_empty() && rows.len() as u32 > 2 * i - 12, "{} rows of {i} snapshots", rows.len());
        return (recorder, i, rows.len());
    }
    unreachable!()
}

#[test]
#[ignore = "is started by another test, which ignores the signal that comes with a full file"]
fn records_past_the_limit() {
    let path = or_skip!(path_in_environment());
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, rustix::process::Rlimit { current: Some(LIMIT), ..before }).unwrap();
    let (mut recorder, full_at, rows) = record_until_full(&path);
    let full = path.with_extension("full");
    std::fs::copy(&path, &full).unwrap();

    // There is free space again. Later messages are readable, although the last batch with mappings was lost.
    setrlimit(Resource::Fsize, before).unwrap();
    for i in full_at + 1..full_at + 20 {
        recorder.write(&common::snapshot_record(i)).unwrap();
    }
    recorder.finish().unwrap();
    assert_eq!(Recording::open(&path).unwrap().ending(), Ending::Whole);
    assert_eq!(common::read(&path).unwrap().last().unwrap().time, common::snapshot(full_at + 19).time);
    let read = installed_or_skip!(common::python("pyarrow", &full));
    assert_eq!((&read["rows"], &read["torn"]), (&json!(rows), &json!(false)));
}

#[test]
fn a_file_that_may_not_grow_ends_with_its_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let ignoring = ["sh", "-c", r#"trap '' XFSZ; exec "$0" "$@""#];
    assert!(this_program(&ignoring, "records_past_the_limit", &path).status().unwrap().success());
}

#[test]
#[ignore = "is started by another test, on a small file system"]
fn records_until_the_disk_is_full() {
    let path = or_skip!(path_in_environment());
    let (_, _, rows) = record_until_full(&path);
    let read = installed_or_skip!(common::python("pyarrow", &path));
    assert_eq!((&read["rows"], &read["torn"]), (&json!(rows), &json!(false)));
}

#[test]
fn a_recording_on_a_full_disk_ends_with_its_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mount = format!("mount -t tmpfs -o size=64k isotherm-test {}", directory.path().display());
    // A mount namespace of its own: nothing of it is seen outside, and it goes with the process.
    if !Command::new("unshare").args(["-m", "sh", "-c", &mount]).status().is_ok_and(|status| status.success()) {
        return isotherm_testing::skip("mounting a small disk takes root");
    }
    let script = format!(r#"{mount} && exec "$0" "$@""#);
    let on_small_disk = ["unshare", "-m", "sh", "-c", &script];
    assert!(this_program(&on_small_disk, "records_until_the_disk_is_full", &path).status().unwrap().success());
}
