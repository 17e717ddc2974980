//! Memory that is removed, files that are missing, and scans that are stopped.

use std::fs;

use isotherm_kernel::Stop;
use isotherm_probes::idle_scan::{Detail, Rate, Scan, ScanError, ScanPacer, Scope};

use crate::made::{BITMAP, LRU, Made, of, pacer};

#[test]
fn memory_that_goes_offline_is_left_out_and_noted() {
    let made = Made::new(1024);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1, 2, 700], LRU, a);
    let mut scan = made.marked();
    made.write("proc/iomem", "00000000-001fffff : System RAM\n");
    let findings = made.read(&mut scan);
    assert_eq!(of(&findings, "/a"), Some([2, 0, 0, 0]));
    assert!(findings.notes.iter().any(|note| note.contains("2 MiB of memory went offline")), "{:?}", findings.notes);
    // The memory is plugged in again.
    made.write("proc/iomem", "00000000-003fffff : System RAM\n");
    let findings = made.read(&mut scan);
    assert_eq!((of(&findings, "/a"), findings.notes.len()), (Some([3, 0, 0, 0]), 0));
}

#[test]
fn tables_that_end_before_memory_does_are_not_an_error() {
    let made = Made::new(1024);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1, 700], LRU, a);
    for table in ["proc/kpageflags", "proc/kpagecgroup"] {
        fs::File::options().write(true).open(made.path(table)).unwrap().set_len(512 * 8).unwrap();
    }
    let mut scan = made.marked();
    assert_eq!(of(&made.read(&mut scan), "/a"), Some([1, 0, 0, 0]));
}

#[test]
fn the_error_for_a_missing_file_says_how_to_fix_it() {
    for (file, fix) in [
        (BITMAP, "CONFIG_IDLE_PAGE_TRACKING"),
        ("proc/kpageflags", "CONFIG_PROC_PAGE_MONITOR"),
        ("proc/iomem", "/proc mounted"),
    ] {
        let made = Made::new(128);
        fs::remove_file(made.path(file)).unwrap();
        let scan = made.scan(Scope::All, Detail::default());
        let error = match scan {
            Err(error) => isotherm_core::chain(&error),
            Ok(mut scan) => isotherm_core::chain(&scan.mark(&mut pacer()).unwrap_err()),
        };
        assert!(error.contains(file) && error.contains(fix), "{error}");
    }
}

#[test]
fn a_scan_stops_when_it_is_asked_to() {
    let made = Made::new(128);
    let stop = Stop::new().unwrap();
    stop.ask();
    let mut scan = made.scan(Scope::All, Detail::default()).unwrap();
    for rate in [None, Some(Rate::Bytes(1)), Some(Rate::Cpu(0.001))] {
        let stopped = scan.mark(&mut ScanPacer::new(rate, stop.clone(), |_, _| ()));
        assert!(matches!(stopped, Err(ScanError::Interrupted)), "{stopped:?}");
    }
}

#[test]
fn the_progress_reaches_the_total() {
    let made = Made::new(128);
    let mut scan = made.scan(Scope::All, Detail::default()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut pacer = ScanPacer::new(None, Stop::new().unwrap(), move |done, total| sender.send((done, total)).unwrap());
    scan.mark(&mut pacer).unwrap();
    assert_eq!(receiver.try_iter().last(), Some((128 * 4096, 128 * 4096)));
}
