//! Recordings become rows, once.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use isotherm_core::chain;
use isotherm_fleet::{Dataset, Names, Source, Written, write};
use isotherm_record::{Level, Recording};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

mod made;

use made::{ALL, DATE, LATER, MADE, MIB, Made, START, recorded};

/// Writes recordings of groups into a dataset at a time.
fn written(dataset: &Dataset, groups: &[(&str, &[&Path])], now: i64) -> Written {
    let source = |(group, paths): &(&str, &[&Path])| Source {
        group: (*group).into(),
        paths: paths.iter().map(|path| path.to_path_buf()).collect(),
    };
    let sources: Vec<Source> = groups.iter().map(source).collect();
    let names = |cgroup: &str| match cgroup {
        "/b.service" => Names { container: Some("<b>".into()), namespace: Some("shop".into()), pod: None },
        _ => Names::default(),
    };
    let written = write(dataset, &sources, &names, now).unwrap();
    assert_eq!(written.problems, Vec::<String>::new());
    written
}

/// The files of a dataset that engines read.
fn files(dataset: &Dataset) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![dataset.root().to_owned()];
    while let Some(directory) = ahead.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All rows of a dataset, each with the texts and numbers of its columns.
fn read(dataset: &Dataset) -> Vec<Vec<(String, Field)>> {
    let rows = |path: PathBuf| {
        let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
        let row = |row: Result<parquet::record::Row, _>| row.unwrap().into_columns();
        reader.get_row_iter(None).unwrap().map(row).collect::<Vec<_>>()
    };
    files(dataset).into_iter().flat_map(rows).collect()
}

/// The sum of a column over the rows in which other columns have these texts. `None` if it is null in all of them.
fn sum(rows: &[Vec<(String, Field)>], column: &str, of: &[(&str, &str)]) -> Option<i64> {
    let cell = |row: &[(String, Field)], column: &str| row.iter().find(|(name, _)| name == column).unwrap().1.clone();
    let wanted = rows.iter().filter(|row| {
        of.iter().all(|(column, value)| match cell(row, column) {
            Field::Str(text) => text == *value,
            Field::Long(number) => number.to_string() == *value,
            _ => value.is_empty(),
        })
    });
    let numbers = wanted.filter_map(|row| match cell(row, column) {
        Field::Long(number) => Some(number),
        _ => None,
    });
    numbers.fold(None, |sum, number| Some(sum.unwrap_or(0) + number))
}

#[test]
fn a_recording_becomes_rows_whose_sums_count_shared_memory_once() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, MADE);
    let done = written(&dataset, &[("all", &[&recording])], LATER);
    assert_eq!((done.quarters, done.present, done.unfinished, done.future, done.twice), (4, 0, 0, 0, 0));
    let rows = read(&dataset);
    assert_eq!(rows.len() as u64, done.rows);
    let mib = |mib: u64| Some((mib * MIB) as i64);
    assert_eq!(sum(&rows, "present_bytes", &[]), mib(60 * (64 + 32 + 16 - 8)));
    assert_eq!(sum(&rows, "present_bytes", &[("kind", "shared")]), Some(-((60 * 8 * MIB) as i64)));
    // Both processes of a service, each program of it, and a container with its namespace.
    assert_eq!(sum(&rows, "present_bytes", &[("service", "a.service")]), mib(60 * 96));
    assert_eq!(sum(&rows, "present_bytes", &[("command", "program-2")]), mib(60 * 32));
    assert_eq!(sum(&rows, "present_bytes", &[("service", "shop/<b>")]), mib(60 * 16));
    assert_eq!(sum(&rows, "swapped_bytes", &[]), None, "nothing is known of swap");
    assert_eq!(sum(&rows, "swapped_bounds", &[]), Some(60 * 3));
    // The first survey is at 30 s. So a window of ten minutes is known from 10:30 on, the eleventh minute.
    assert_eq!(sum(&rows, "within_600s_bytes", &[("command", "program-1")]), mib(50 * 16));
    assert_eq!(sum(&rows, "within_600s_bytes", &[("minute", &(START + 540).to_string())]), None);
    assert_eq!(sum(&rows, "hz_1_bytes", &[("command", "program-1")]), mib(60 * 64));
    assert_eq!(sum(&rows, "hz_1_accesses", &[("command", "program-1")]), Some(60 * 2 * 60 * 64 * 256));
    assert_eq!(sum(&rows, "cpu_ns", &[]), Some(120 * 1000));
    assert_eq!(sum(&rows, "freed_bytes", &[]), Some(3600 * 4096));
    assert_eq!(sum(&rows, "returned_bytes", &[]), Some(3600 * 1024));
    assert_eq!(sum(&rows, "host_memory_bytes", &[]), mib(60 * 1024));
}

#[test]
fn a_process_that_several_groups_watch_counts_in_the_smallest_one() {
    let directory = tempfile::tempdir().unwrap();
    let (all, inner) = (directory.path().join("all.rec"), directory.path().join("inner.rec"));
    recorded(&all, MADE);
    recorded(&inner, Made { processes: &ALL[..2], shared: 5, ..MADE });
    let dataset = Dataset::new(&directory.path().join("fleet"));
    written(&dataset, &[("all", &[&all]), ("a", &[&inner])], LATER);
    let rows = read(&dataset);
    let mib = |mib: i64| Some(60 * mib * MIB as i64);
    assert_eq!(sum(&rows, "present_bytes", &[]), mib(64 + 32 + 16 - 8));
    assert_eq!(sum(&rows, "present_bytes", &[("group_name", "a")]), mib(64 + 32 - 5));
    assert_eq!(sum(&rows, "present_bytes", &[("service", "a.service")]), mib(64 + 32 - 5), "once in its service");
    assert_eq!(sum(&rows, "present_bytes", &[("group_name", "all"), ("kind", "shared")]), mib(-3));
    assert_eq!(sum(&rows, "cpu_ns", &[]), Some(2 * 120 * 1000), "each group has its own cost");
}

#[test]
fn what_is_missing_is_written_later_and_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["seconds-1.rec", "seconds-2.rec"].map(|name| directory.path().join("all").join(name));
    let dataset = Dataset::new(&directory.path().join("fleet"));
    recorded(&first, MADE);
    let start = START as i64;
    let done = written(&dataset, &[("all", &[&first])], start + 1800);
    assert_eq!((done.quarters, done.unfinished, done.future), (1, 2, 2), "the second one has just ended");
    // The host was cut off, and went on recording.
    recorded(&second, Made { seconds: (3600, 7200), ..MADE });
    let done = written(&dataset, &[("all", &[&second, &first])], LATER);
    assert_eq!((done.quarters, done.present), (7, 1));
    let whole = read(&dataset);
    let done = written(&dataset, &[("all", &[&first, &second])], LATER);
    assert_eq!((done.quarters, done.rows, done.present), (0, 0, 8));
    // The sums of schemes, and for how long the group was watched, go on from the file before.
    assert_eq!(sum(&whole, "freed_bytes", &[]), Some(7200 * 4096));
    assert_eq!(sum(&whole, "within_600s_bytes", &[("command", "program-1")]), Some(110 * 16 * MIB as i64));

    let compacted = dataset.compact("2024-10-05").unwrap();
    assert_eq!((compacted.days, compacted.files, compacted.twice), (1, 8, 0));
    assert_eq!(read(&dataset), whole);
    assert_eq!(dataset.compact("2024-10-05").unwrap(), Default::default());
    let done = written(&dataset, &[("all", &[&first, &second])], LATER);
    assert_eq!((done.quarters, done.present), (0, 8));
    assert!(dataset.check(false).unwrap().wrong.is_empty());

    // What comes after a compaction is taken into the file of the day.
    let third = directory.path().join("all/seconds-3.rec");
    recorded(&third, Made { seconds: (7200, 9000), ..MADE });
    assert_eq!(written(&dataset, &[("all", &[&first, &second, &third])], LATER).quarters, 2);
    let more = read(&dataset).len();
    assert_eq!(dataset.compact("2024-10-05").unwrap().files, 3);
    assert_eq!((files(&dataset).len(), read(&dataset).len()), (1, more));
}

#[test]
fn a_compaction_that_was_ended_goes_on_and_copies_of_files_go() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, MADE);
    written(&dataset, &[("all", &[&recording])], LATER);
    let whole = read(&dataset);
    let folder = dataset.root().join(DATE).join("host=a1");
    let kept = directory.path().join("kept");
    fs::copy(folder.join("quarter-02.parquet"), &kept).unwrap();
    dataset.compact("2024-10-05").unwrap();

    // It ended after it had removed one of the files.
    fs::rename(folder.join("day.parquet"), folder.join("day.parquet.new")).unwrap();
    fs::copy(&kept, folder.join("quarter-02.parquet")).unwrap();
    let done = written(&dataset, &[("all", &[&recording])], LATER);
    assert_eq!((done.quarters, done.present), (0, 4));
    assert_eq!(dataset.compact("2024-10-05").unwrap().days, 1);
    assert_eq!(read(&dataset), whole);
    assert!(!folder.join("day.parquet.new").exists());

    // Somebody has put a file back.
    fs::copy(&kept, folder.join("quarter-02.parquet")).unwrap();
    let wrong = dataset.check(false).unwrap().wrong;
    assert!(wrong[0].to_string().contains("another file of this host and day has"), "{wrong:?}");
    assert_eq!(dataset.compact("2024-10-05").unwrap().twice, 1);
    assert_eq!(read(&dataset), whole);
}

#[test]
fn a_quarter_waits_for_a_recording_that_cannot_be_read_and_a_day_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let name = |second: u64| format!("all/seconds-{}.rec", (START + second) * 1000);
    let [first, second] = [0, 3600].map(|second| directory.path().join(name(second)));
    let other = directory.path().join("other.rec");
    recorded(&first, MADE);
    recorded(&second, Made { seconds: (3600, 7200), ..MADE });
    recorded(&other, Made { processes: &ALL[..1], seconds: (0, 7200), ..MADE });
    let write_all = |dataset: &Dataset, now: i64| {
        let all = Source { group: "all".into(), paths: vec![first.clone(), second.clone()] };
        let other = Source { group: "other".into(), paths: vec![other.clone()] };
        write(dataset, &[all, other], &|_| Names::default(), now).unwrap()
    };
    let expected = Dataset::new(&directory.path().join("expected"));
    assert_eq!(write_all(&expected, LATER).quarters, 8);

    let whole = fs::read(&second).unwrap();
    fs::write(&second, &whole[..20]).unwrap();
    let [waited, given_up] = ["waited", "given up"].map(|name| Dataset::new(&directory.path().join(name)));
    let done = write_all(&waited, LATER);
    // The last moment of the other recording is of one quarter more, in which there is nothing.
    assert_eq!((done.quarters, done.waiting, done.problems.len()), (4, 5, 1), "{done:?}");
    let done = write_all(&given_up, LATER + 9000);
    assert_eq!((done.quarters, done.waiting, done.problems.len()), (8, 0, 1), "{done:?}");
    fs::write(&second, whole).unwrap();
    let done = write_all(&waited, LATER);
    assert_eq!((done.quarters, done.waiting, done.problems.len()), (4, 0, 0), "{done:?}");
    assert_eq!(read(&waited), read(&expected));
    assert_eq!(write_all(&given_up, LATER + 9000).present, 8, "nothing is written twice");
}

#[test]
fn names_stay_as_they_are_and_an_identifier_that_would_be_a_path_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, Made { host: ("a1", "<script>\u{1b}[31m'; DROP TABLE fleet"), ..MADE });
    written(&dataset, &[("<i>all</i>", &[&recording])], LATER);
    let rows = read(&dataset);
    let memory = [("group_name", "<i>all</i>"), ("kind", "memory"), ("service", "shop/<b>")];
    assert_eq!(sum(&rows, "present_bytes", &memory), Some((60 * 16 * MIB) as i64));
    let of_host = [("host_name", "<script>\u{1b}[31m'; DROP TABLE fleet"), ("kind", "host")];
    assert_eq!(sum(&rows, "host_memory_bytes", &of_host), Some((60 * 1024 * MIB) as i64));

    for id in ["../../outside", "a/b", "a b", ""] {
        let recording = directory.path().join("b.rec");
        recorded(&recording, Made { host: (id, "node"), ..MADE });
        let source = Source { group: "all".into(), paths: vec![recording] };
        let error = write(&dataset, &[source], &|_| Names::default(), LATER).unwrap_err().to_string();
        let expected = if id.is_empty() { "does not say which machine" } else { "is what no identifier is" };
        assert!(error.contains(expected), "{id}: {error}");
    }
    assert_eq!(read(&dataset), rows);
    let mut names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.rec", "b.rec", "b.rec.old", "fleet"]);
}

#[test]
fn the_minutes_of_a_recording_make_the_rows_of_its_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let [seconds, minutes] = ["seconds-0.rec", "minutes-0.rec"].map(|name| directory.path().join(name));
    recorded(&seconds, MADE);
    isotherm_record::level(&Recording::open(&seconds).unwrap(), Level::Minute, &minutes).unwrap();
    let [of_seconds, of_minutes] = ["seconds", "minutes"].map(|name| Dataset::new(&directory.path().join(name)));
    written(&of_seconds, &[("all", &[&seconds])], LATER);
    written(&of_minutes, &[("all", &[&minutes])], LATER);
    // A level lacks the first survey of a run, so that less is known of its first minute.
    let later = |dataset: &Dataset| {
        let mut rows = read(dataset);
        rows.retain(|row| row[0] != ("minute".into(), Field::Long(START as i64)));
        rows
    };
    assert_eq!((later(&of_minutes), later(&of_minutes).len()), (later(&of_seconds), 59 * 6));
    assert_eq!(sum(&read(&of_minutes), "present_bytes", &[]), sum(&read(&of_seconds), "present_bytes", &[]));
}

#[test]
fn hosts_of_one_name_are_two_and_clocks_that_jump_count_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = Dataset::new(&directory.path().join("fleet"));
    let path = |name: &str| directory.path().join(name);
    recorded(&path("a.rec"), MADE);
    recorded(&path("b.rec"), Made { host: ("b2", "node"), ..MADE });
    let done = written(&dataset, &[("all", &[&path("a.rec"), &path("b.rec")])], LATER);
    assert_eq!((done.quarters, files(&dataset).len()), (8, 8));
    assert_eq!(sum(&read(&dataset), "present_bytes", &[("host_name", "node")]), Some(120 * 104 * MIB as i64));

    // The clock was set back by half an hour: a second run has minutes that the first one had.
    recorded(&path("c.rec"), Made { host: ("c3", "node"), ..MADE });
    recorded(&path("d.rec"), Made { host: ("c3", "node"), started: 1800, ..MADE });
    let done = written(&dataset, &[("all", &[&path("d.rec"), &path("c.rec")])], LATER);
    assert_eq!((done.quarters, done.twice > 0), (6, true));
    assert_eq!(sum(&read(&dataset), "host_memory_bytes", &[]), Some((120 + 90) * 1024 * MIB as i64));

    // A clock that is a year ahead.
    recorded(&path("e.rec"), Made { host: ("e5", "node"), started: 365 * 86_400, ..MADE });
    let done = written(&dataset, &[("all", &[&path("e.rec")])], LATER);
    assert_eq!((done.quarters, done.future), (0, 5));

    recorded(&path("f.rec"), Made { host: ("", "node"), ..MADE });
    let source = Source { group: "all".into(), paths: vec![path("f.rec")] };
    let error = write(&dataset, &[source], &|_| Names::default(), LATER).unwrap_err();
    assert!(error.to_string().contains("does not say which machine it is of"), "{error}");
}

#[test]
fn files_that_are_cut_short_misplaced_or_of_another_version_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, MADE);
    written(&dataset, &[("all", &[&recording])], LATER);
    let folder = dataset.root().join(DATE).join("host=a1");
    let file = folder.join("quarter-01.parquet");
    let whole = fs::read(&file).unwrap();
    let wrong = |expected: &str| {
        let wrong = dataset.check(false).unwrap().wrong;
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        let text = chain(&wrong[0]);
        assert!(text.contains(expected), "{text}");
        let error = dataset.compact("2024-10-05").unwrap_err();
        assert_eq!(chain(&error), text, "nothing is made of it");
        assert!(!folder.join("day.parquet").exists());
    };

    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    wrong("quarter-01.parquet is cut short");
    fs::write(&file, b"").unwrap();
    wrong("quarter-01.parquet is cut short");
    // What is wrong in the middle is found by reading all of it.
    let mut damaged = whole.clone();
    damaged[4..64].fill(0x5a);
    fs::write(&file, &damaged).unwrap();
    assert!(dataset.check(false).unwrap().wrong.is_empty());
    let found = dataset.check(true).unwrap();
    let text = chain(&found.wrong[0]);
    assert!(found.wrong.len() == 1 && text.contains("quarter-01.parquet is cut short, damaged"), "{text}");

    let key = b"isotherm.fleet.version";
    let place = whole.windows(key.len()).position(|part| part == key).unwrap() + key.len() + 2;
    let mut later = whole.clone();
    assert_eq!(std::mem::replace(&mut later[place], b'7'), b'1');
    fs::write(&file, &later).unwrap();
    wrong("is of version 7 of the dataset, and this isotherm reads version 1");

    fs::write(&file, &whole).unwrap();
    fs::copy(&file, folder.join("mine.parquet")).unwrap();
    wrong("mine.parquet is no file of isotherm's dataset");
    fs::remove_file(folder.join("mine.parquet")).unwrap();
    let other = dataset.root().join(DATE).join("host=b2");
    fs::create_dir(&other).unwrap();
    fs::copy(&file, other.join("quarter-01.parquet")).unwrap();
    let text = dataset.check(false).unwrap().wrong[0].to_string();
    assert!(text.contains("has rows of host a1 on 2024-10-04, and was moved or copied here"), "{text}");
    let nothing = Dataset::new(directory.path()).check(false).unwrap_err();
    assert!(nothing.to_string().contains("has no rows of hosts"), "{nothing}");
}
