//! Processes: how much of their mappings is idle, from the frames of their pages.

use std::fs;

use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_kernel::{NamePattern, Part, Selection, Selector};
use isotherm_probes::idle_scan::{Detail, ProcessScope, Scan, Scope};

use crate::made::{ANON, HUGETLB, LRU, Made, of, pacer};

const BY_MAPPING: Detail = Detail { processes: true, mappings: true };

#[test]
fn a_mapping_is_counted_by_the_frames_of_its_pages() {
    let made = Made::new(2048);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([5, 70, 90], LRU | ANON, a);
    made.compound(512, 512, LRU | ANON, a);
    made.page([100], HUGETLB, a);
    // A page, no page, another page, two parts of a huge page, and a page that is not user memory.
    made.process(7, "/a", &[5, 0, 70, 600, 601, 100]);
    let mut scan = made.scan(Scope::Processes(Selection::pids([7]).into()), BY_MAPPING).unwrap();
    scan.mark(&mut pacer()).unwrap();
    assert_eq!(made.idle(), [5, 70, 512], "only the pages of the process are marked");
    made.access([70]);
    let findings = made.read(&mut scan);
    let [process] = &findings.processes[..] else { panic!("{findings:?}") };
    assert_eq!((process.pid, &*process.command, process.cgroup.as_deref()), (7, "worker 7", Some("/a")));
    let [mapping] = &process.mappings[..] else { panic!("{process:?}") };
    assert_eq!(mapping.range.start(), 0x10000);
    let tally = &mapping.tally;
    assert_eq!([tally.idle, tally.accessed, tally.unobservable], [3 * PAGE_SIZE, PAGE_SIZE, PAGE_SIZE]);
    // The whole huge page counts in the cgroup.
    assert_eq!(of(&findings, "/a"), Some([513, 1, 0, 0]));
}

#[test]
fn the_processes_of_a_cgroup_are_listed_with_all_that_they_map() {
    let made = Made::new(256);
    let (a, b) = (made.cgroup("sys/fs/cgroup/a"), made.cgroup("sys/fs/cgroup/b"));
    made.page([1], LRU, a);
    made.page([2], LRU, b);
    made.process(7, "/a/x", &[1, 2]);
    made.process(8, "/b", &[2]);
    let detail = Detail { processes: true, mappings: false };
    let mut scan = made.scan(Scope::Cgroups(vec!["/a".into()]), detail).unwrap();
    scan.mark(&mut pacer()).unwrap();
    let findings = made.read(&mut scan);
    assert_eq!(findings.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [7]);
    assert_eq!(findings.processes[0].total.idle, 2 * PAGE_SIZE);
    assert_eq!((findings.total.idle, findings.cgroups.len()), (PAGE_SIZE, 1));
}

#[test]
fn a_process_that_ends_is_noted_and_the_others_are_reported() {
    let made = Made::new(256);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1, 2], LRU, a);
    made.process(7, "/a", &[1]);
    made.process(8, "/a", &[2]);
    let mut scan = made.scan(Scope::Processes(Selection::pids([7, 8]).into()), BY_MAPPING).unwrap();
    scan.mark(&mut pacer()).unwrap();
    fs::remove_dir_all(made.path("proc/7")).unwrap();
    let findings = made.read(&mut scan);
    assert_eq!(findings.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [8]);
    assert!(findings.notes.iter().any(|note| note.contains("process 7 has ended")), "{:?}", findings.notes);

    // Process 8 loses its pages, too.
    made.table("proc/8/pagemap", &[]);
    let findings = made.read(&mut scan);
    assert!(findings.processes.is_empty() && findings.notes.iter().any(|note| note.contains("process 8 ended")));
}

#[test]
fn only_a_part_of_a_process_is_scanned() {
    let made = Made::new(256);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([5, 6, 7], LRU | ANON, a);
    made.process(7, "/a", &[5, 6, 7]);
    let scan = |part| {
        let scope = ProcessScope { part, ..Selection::pids([7]).into() };
        made.scan(Scope::Processes(scope), BY_MAPPING)
    };
    let ranges = vec![AddrRange::new(0x11000, 0x12000).unwrap()];
    let mut second = scan(Part { ranges, ..Part::default() }).unwrap();
    second.mark(&mut pacer()).unwrap();
    assert_eq!(made.idle(), [6]);
    let findings = made.read(&mut second);
    assert_eq!((findings.total.idle, findings.processes[0].total.idle), (PAGE_SIZE, PAGE_SIZE));

    let mappings = vec![NamePattern::new("^none$").unwrap()];
    let error = scan(Part { mappings, ..Part::default() }).unwrap_err().to_string();
    assert!(error.contains("nothing is mapped that matches: mapping ^none$, in process 7"), "{error}");
}

#[test]
fn a_process_that_is_waited_for_may_come_after_the_start_and_go() {
    let made = Made::new(256);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1], LRU | ANON, a);
    let all = Selection { any: vec![Selector::All], ..Selection::default() };
    let scope = ProcessScope::from(all);
    let error = made.scan(Scope::Processes(scope.clone()), BY_MAPPING).unwrap_err().to_string();
    assert!(error.contains("no process matches: all"), "{error}");
    let mut scan = made.scan(Scope::Processes(ProcessScope { waits: true, ..scope }), BY_MAPPING).unwrap();
    scan.mark(&mut pacer()).unwrap();
    let mut counts = vec![made.read(&mut scan).processes.len()];
    made.process(7, "/a", &[1]);
    counts.push(made.read(&mut scan).processes.len());
    fs::remove_dir_all(made.path("proc/7")).unwrap();
    counts.push(made.read(&mut scan).processes.len());
    assert_eq!(counts, [0, 1, 0]);
}

#[test]
fn more_processes_than_may_be_scanned_are_refused_at_the_start_and_left_out_later() {
    let made = Made::new(256);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1, 2], LRU | ANON, a);
    made.process(7, "/a", &[1]);
    let all = Selection { any: vec![Selector::All], most: 1, ..Selection::default() };
    let scan = || made.scan(Scope::Processes(all.clone().into()), BY_MAPPING);
    let mut early = scan().unwrap();
    made.process(8, "/a", &[2]);
    let error = scan().unwrap_err().to_string();
    assert!(error.contains("2 processes match, and at most 1 are scanned: all"), "{error}");
    early.mark(&mut pacer()).unwrap();
    let findings = made.read(&mut early);
    assert_eq!(findings.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [7]);
    assert!(findings.notes.iter().any(|note| note.contains("only the first 1")), "{:?}", findings.notes);
}

#[test]
fn a_process_that_does_not_exist_or_has_no_memory_is_refused() {
    let made = Made::new(256);
    made.process(7, "/a", &[1]);
    made.write("proc/7/maps", "");
    let error = |pid| made.scan(Scope::Processes(Selection::pids([pid]).into()), BY_MAPPING).unwrap_err().to_string();
    assert!(error(7).contains("process 7 has no memory"), "{}", error(7));
    assert!(error(12).contains("no process 12"), "{}", error(12));
}
