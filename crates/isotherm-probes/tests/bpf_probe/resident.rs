//! What surveys find adds up to the resident memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use isotherm_core::{AccessProbe, PageLook, Sample};
use isotherm_probes::bpf::BpfProbe;

use crate::survey::{counts, open_private, survey_of};
use crate::target::Target;
use crate::watch::*;

/// The bytes of a process that a survey finds present or lazily freed, each page at each address where it is mapped.
fn found(probe: &mut BpfProbe, pid: u32) -> u64 {
    let space = space_of(pid);
    probe.update(std::slice::from_ref(&space)).unwrap();
    let blocks = survey_of(probe, &space);
    let freed: usize = blocks.iter().map(|block| block.lazily_freed.count()).sum();
    let mut second = 0;
    probe.survey().unwrap().second_views(space.id, &mut |_, pages| second += pages.count());
    PAGE * (counts(&blocks, 0..u64::MAX).0 + freed + second) as u64
}

/// The bytes of a process that the kernel finds in memory. Those of hugetlbfs are not among the resident ones. `VmRSS`
/// of Linux before 6.2 lags behind by the page faults that a thread has not counted yet.
fn resident(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let kib = |name| rollup.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    let names = ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"];
    names.iter().map(|name| kib(name).map_or(0, |kib| kib.parse::<u64>().unwrap() << 10)).sum()
}

/// Checks that a survey finds what is resident, but for a hundredth. The kernel counts the page of [vdso].
fn adds_up(probe: &mut BpfProbe, pid: u32, what: &str) {
    let (found, resident) = (found(probe, pid), resident(pid));
    assert!(found.abs_diff(resident) * 100 <= resident, "{what}: {found} of {resident} bytes");
}

#[test]
fn what_a_survey_finds_adds_up_to_the_resident_memory() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    for kind in ["small", "huge", "shared", "small"] {
        let start = target.map(kind, 4 * MIB);
        target.write(start, 4 * MIB);
        if kind == "shared" {
            let again = target.request(&format!("again {start} {}", 4 * MIB));
            target.read(again, 4 * MIB);
        }
        // The last one is without permission.
        target.request(&format!("{} {start} {MIB}", if kind == "small" { "forbid" } else { "unprotect" }));
    }
    // The zero page is no resident memory.
    let read = target.map("small", MIB);
    target.read(read, MIB);
    let freed = target.map("small", 4 * MIB);
    target.write(freed, 4 * MIB);
    target.request(&format!("free {freed} {}", 3 * MIB));
    adds_up(&mut probe, target.pid(), "anonymous memory");
}

#[test]
fn files_shared_segments_and_stacks_add_up_to_the_resident_memory() {
    let mut probe = or_skip!(open_private());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![1; 8 << 20]).unwrap();
    let path = file.path().display();
    let mut target = Target::start();
    let shared = target.map(&format!("file:{path}"), 8 * MIB);
    target.read(shared, 6 * MIB);
    adds_up(&mut probe, target.pid(), "a shared mapping of a file");
    // The same file under another name.
    let link = file.path().with_extension("link");
    fs::hard_link(file.path(), &link).unwrap();
    let linked = target.map(&format!("file:{}", link.display()), 8 * MIB);
    fs::remove_file(&link).unwrap();
    target.read(linked, 4 * MIB);
    adds_up(&mut probe, target.pid(), "a file under two names");
    let space = space_of(target.pid());
    let again = |probe: &mut BpfProbe| {
        let mut pages = 0;
        probe.survey().unwrap().second_views(space.id, &mut |_, found| pages += found.count() as u64);
        pages
    };
    // Where both are present. Page faults map some pages around as well.
    assert!(again(&mut probe) >= 4 * MIB / PAGE, "{}", again(&mut probe));
    let private = target.map(&format!("private-file:{path}"), 8 * MIB);
    target.read(private, 8 * MIB);
    target.write(private + MIB, 4 * MIB);
    adds_up(&mut probe, target.pid(), "a private mapping of a file");
    let segment = target.map("sysv", 4 * MIB);
    target.write(segment, 4 * MIB);
    adds_up(&mut probe, target.pid(), "System V shared memory");
    target.request("stack");
    adds_up(&mut probe, target.pid(), "the stack of a thread");
}

#[test]
fn pages_of_hugetlbfs_add_up_to_the_resident_memory() {
    let mut probe = or_skip!(open_private());
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    if free.trim().parse().unwrap_or(0) < 2 {
        return isotherm_testing::skip("hugetlbfs has no free pages (see /proc/sys/vm/nr_hugepages)");
    }
    for kind in ["hugetlb", "shared-hugetlb"] {
        let mut target = Target::start();
        let start = target.map(kind, 4 * MIB);
        target.write(start, 4 * MIB);
        adds_up(&mut probe, target.pid(), kind);
    }
}

/// Starts a program that writes a line and waits for input.
fn start(words: &[&str]) -> Option<Child> {
    let command = &mut Command::new(words[0]);
    let mut child = command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    Some(child)
}

#[test]
fn programs_add_up_to_their_resident_memory() {
    let mut probe = or_skip!(open_private());
    let python = "x = bytearray(20 << 20); print('ready', flush=True); input()";
    for words in [&["sh", "-c", "echo ready; read line"], &["python3", "-c", python]] {
        let mut child = isotherm_testing::installed_or_skip!(start(words).ok_or(words[0]));
        let (found, resident) = (found(&mut probe, child.id()), resident(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.abs_diff(resident) * 100 <= resident, "{}: {found} of {resident} bytes", words[0]);
    }
}

#[test]
fn a_look_finds_pages_without_permission_in_memory_and_whether_they_were_accessed() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let areas = ["small", "huge"].map(|kind| {
        let start = target.map(kind, 4 * MIB);
        target.write(start, 4 * MIB);
        start
    });
    update(&mut probe, &[&target]);
    let samples = areas.map(|start| Sample { target: space(&target).id, addr: start + 3 * MIB });
    let mut looks = |clear: bool| {
        let (mut looks, mut cleared) = (Vec::new(), Vec::new());
        probe.pages().unwrap().look(&samples, &mut looks).unwrap();
        if clear {
            probe.pages().unwrap().clear_pages(&samples, &mut cleared).unwrap();
        }
        let is_there = |look: &PageLook| look.present && look.frame.is_some();
        assert!(looks.iter().all(is_there) && cleared.iter().all(|cleared| *cleared), "{looks:?} {cleared:?}");
        looks
    };
    let accessed = |looks: &[PageLook]| looks.iter().map(|look| look.accessed).collect::<Vec<_>>();
    let frames = |looks: &[PageLook]| looks.iter().map(|look| look.frame).collect::<Vec<_>>();
    // The kernel may move a page, and its DAMON may clear an accessed bit at that moment.
    let found = (0..4).any(|_| {
        areas.iter().for_each(|start| _ = target.request(&format!("unprotect {start} {}", 4 * MIB)));
        areas.iter().for_each(|start| target.write(*start, 4 * MIB));
        let allowed = looks(false);
        areas.iter().for_each(|start| _ = target.request(&format!("forbid {start} {}", 4 * MIB)));
        let [forbidden, cleared] = [looks(true), looks(false)];
        assert_eq!(accessed(&cleared), [false, false]);
        accessed(&forbidden) == [true, true] && frames(&forbidden) == frames(&allowed)
    });
    assert!(found, "no look has found the pages where they were, and accessed");
}
