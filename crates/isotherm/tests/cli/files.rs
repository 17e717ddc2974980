//! `isotherm run --files` and `--physical`: schemes on the page cache of files, and on page frames.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use isotherm_core::scheme::Report;
use isotherm_core::{AddrRange, PAGE_SIZE, units};
use isotherm_kernel::page_cache::{CachedFiles, FileReader, has_cachestat};
use isotherm_record::{Activity, Recording};
use isotherm_testing::or_skip;
use rustix::process::Signal;

use crate::common::{Kept, Place, bpf_works, eventually, is_root, record_by, signal};

const MIB: u64 = 1 << 20;

/// Where the kernel does not track idle pages, page cache counts as idle since it was seen first.
const IDLE: &str = "- {name: idle, action: pageout, access_rate: 0%, age: {min: 1s}, unobserved: allow}\n";

/// A directory on a disk, with a file whose pages are clean and in memory. Others may drop a part of them during a
/// test, such as DAMON's proactive reclamation.
fn made() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("cached");
    let mut file = File::create(&path).unwrap();
    (0..64).for_each(|_| file.write_all(&[7; 64 << 10]).unwrap());
    file.sync_all().unwrap();
    File::open(&path).unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(cached(&path), 4 * MIB);
    (directory, path)
}

/// The bytes of a file that are in the page cache.
fn cached(path: &Path) -> u64 {
    let files = CachedFiles::new(&[path.into()]).unwrap();
    let mut bytes = 0;
    let mut reader = FileReader::new(files.table());
    reader.resident(AddrRange::new(0, u64::MAX).unwrap(), |_| bytes += PAGE_SIZE).unwrap();
    bytes
}

/// Whether changed pages can be told from others. An error is the reason to skip the test.
fn can_drop() -> Result<(), &'static str> {
    if has_cachestat() || is_root() { Ok(()) } else { Err("Linux before 6.5, and not root") }
}

fn place(schemes: &str) -> Place {
    let place = Place::new();
    std::fs::write(place.path("mine.yaml"), schemes).unwrap();
    place
}

fn activities(place: &Place) -> Vec<Activity> {
    Recording::open(&place.path("a.rec")).unwrap().activities().map(Result::unwrap).collect()
}

/// A run on the files below a directory, which is recorded.
fn acting(place: &Place, arguments: &[&str], directory: &Path) -> Kept {
    let mut run = place.isotherm(&["run", "--schemes", "mine.yaml", "--record", "a.rec"]);
    run.args(arguments).arg("--files").arg(directory);
    run.stdout(Stdio::null()).stderr(File::create(place.path("err")).unwrap());
    Kept(run.spawn().unwrap())
}

/// Ends a run, and returns what it has said.
fn ended(place: &Place, mut run: Kept) -> String {
    signal(&run.0, Signal::INT);
    let status = run.0.wait().unwrap();
    let err = std::fs::read_to_string(place.path("err")).unwrap();
    assert!(status.success(), "{err}");
    err
}

/// Waits until the recording of a run that goes on says so of the only scheme.
fn recorded(place: &Place, what: &str, says: impl Fn(&Report) -> bool) {
    let last = || Recording::open(&place.path("a.rec")).ok()?.activities().filter_map(Result::ok).last();
    eventually(what, || last().is_some_and(|last| last.schemes.first().is_some_and(&says)));
}

#[test]
fn idle_page_cache_of_files_is_dropped_and_reports_name_the_files() {
    or_skip!(can_drop());
    let (directory, path) = made();
    let place = place(IDLE);
    let run = acting(&place, &[], directory.path());
    eventually("the file has left the page cache", || cached(&path) == 0);
    let err = ended(&place, run);
    let last = activities(&place).pop().unwrap().schemes.remove(0);
    assert!((1..=4 * MIB).contains(&last.total.applied_bytes) && last.total.refusals.is_empty(), "{last:?}");
    let freed = units::bytes(last.total.applied_bytes);
    assert!(err.contains(&format!("idle (pageout): {freed} freed of {freed} advised")), "{err}");
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 7));

    let summary = place.run(&["report", "summary", "a.rec"]);
    assert!(summary.out.starts_with("page cache: ") || summary.out.contains("\npage cache: "), "{}", summary.out);
    assert!(summary.out.contains(path.to_str().unwrap()), "{}", summary.out);
    let schemes = place.run(&["report", "schemes", "a.rec"]);
    assert!(schemes.out.contains(&format!("{freed} freed")), "{}", schemes.out);
}

#[test]
fn a_dry_run_drops_nothing_and_says_what_would_be_dropped() {
    or_skip!(can_drop());
    let (directory, path) = made();
    let place = place(IDLE);
    let run = acting(&place, &["--dry-run"], directory.path());
    recorded(&place, "the file would be dropped", |scheme| scheme.total.applied_bytes > 0);
    let err = ended(&place, run);
    let would = units::bytes(activities(&place).pop().unwrap().schemes[0].total.applied_bytes);
    assert!(err.contains("nothing was done") && err.contains(&format!("{would} freed of {would}")), "{err}");
    assert!(cached(&path) > 0);
}

#[test]
fn page_cache_of_unknown_age_is_left_unless_the_scheme_allows_it() {
    or_skip!(can_drop());
    or_skip!(match Path::new("/sys/kernel/mm/page_idle").exists() && is_root() {
        true => Err("this kernel tracks idle pages"),
        false => Ok(()),
    });
    let (directory, path) = made();
    let place = place(&IDLE.replace(", unobserved: allow", ""));
    let run = acting(&place, &[], directory.path());
    recorded(&place, "the file is left", |scheme| {
        let left = scheme.last.unobservable_bytes;
        left > 0 && left == cached(&path)
    });
    let err = ended(&place, run);
    assert!(err.contains("it is not known here how long page cache has been idle"), "{err}");
    let last = activities(&place).pop().unwrap().schemes.remove(0);
    assert_eq!((last.total.tried_bytes, last.total.applied_bytes), (0, 0));
    assert!(cached(&path) > 0);
}

#[test]
fn what_cannot_be_done_on_files_and_on_frames_is_refused_with_a_way_out() {
    let (directory, path) = made();
    let place = place(IDLE);
    let file = path.to_str().unwrap();
    let run = |arguments: &[&str], schemes: &str| {
        std::fs::write(place.path("mine.yaml"), schemes).unwrap();
        place.run(&[&["run", "--schemes", "mine.yaml"], arguments].concat())
    };
    for (arguments, scheme, status, word) in [
        (&["--files", file][..], "- {action: cold}", 1, "cold is for memory of processes"),
        (&["--files", file], "- {action: collapse}", 1, "use pageout, which drops it"),
        (&["--files", file], "- {action: stat, filters: [{reject: compressible}]}", 1, "leave the filter out"),
        (&["--files", file], "- {action: stat, filters: [{reject: {command: sshd}}]}", 1, "or name processes"),
        (&["--files", "/proc/self/status"], IDLE, 1, "is on proc, whose files are nowhere but in memory"),
        (&["--files", "/dev/null"], IDLE, 1, "cannot be dropped|neither a directory|nowhere but in memory"),
        (&["--files", "/no/such/path"], IDLE, 1, "/no/such/path cannot be found"),
        (&["--files", file, "--probe", "bpf"], IDLE, 2, "use --probe idle or auto"),
        (&["--files", file, "--survey", "off"], IDLE, 2, "by surveys only"),
        (&["--files", file, "--sample", "10ms"], IDLE, 2, "by surveys only"),
        (&["--files", file, "--pid", "1"], IDLE, 2, "cannot be used with"),
        (&["--files", file, "--physical"], IDLE, 2, "cannot be used with"),
        (&["--open-files"], IDLE, 2, "name processes with"),
        (&["--open-files", "--pid", "4194304"], IDLE, 1, "no process matches"),
        (&["--physical", "--survey", "off"], IDLE, 2, "by surveys only"),
        (&["--physical", "--probe", "damon"], IDLE, 2, "by surveys only"),
    ] {
        let ran = run(arguments, scheme);
        assert_eq!(ran.status, status, "{arguments:?} {scheme}: {ran:?}");
        assert!(word.split('|').any(|word| ran.err.contains(word)), "{arguments:?} {scheme}: {}", ran.err);
    }
    or_skip!(bpf_works());
    for (scheme, word) in [
        ("migrate_cold, target_node: 0", "on page frames"),
        ("reclaim", "on page frames"),
        ("stat, filters: [{reject: {process: 1}}]", "or name processes"),
    ] {
        let ran = run(&["--physical"], &format!("- {{action: {scheme}}}"));
        assert_eq!(ran.status, 1, "{scheme}: {ran:?}");
        assert!(ran.err.contains(word), "{scheme}: {}", ran.err);
    }
    drop(directory);
}

#[test]
fn a_dry_run_on_physical_memory_finds_idle_page_frames() {
    or_skip!(bpf_works());
    let place =
        place("- {name: idle, action: pageout, access_rate: 0%, age: {min: 1s}, filters: [{reject: unmapped}]}\n");
    let mut run = place.isotherm(&["run", "--schemes", "mine.yaml", "--physical", "--dry-run", "--record", "a.rec"]);
    run.args(["--cpu-budget", "50%", "--target-budget", "20%"]);
    run.stdout(Stdio::null()).stderr(File::create(place.path("err")).unwrap());
    let found = |recording: &Recording| {
        let last = recording.activities().map(Result::unwrap).last();
        last.is_some_and(|activity| activity.schemes[0].total.applied_bytes > MIB)
    };
    record_by(run, &place.path("a.rec"), "the scheme has found idle frames", found);
    let err = std::fs::read_to_string(place.path("err")).unwrap();
    assert!(err.contains("nothing was done"), "{err}");
}
