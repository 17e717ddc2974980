//! Schemes on the page cache of files and on physical memory: what is idle is taken, what anybody uses is left, whether
//! by system calls or by mappings.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_kernel::page_cache::{CachedFiles, FileReader};
use isotherm_kernel::pages::{FrameNodes, SystemRam};
use isotherm_lab::acting::{Acting, Cgroup};
use isotherm_lab::idle::MIB;
use isotherm_lab::migration::SLOW;
use isotherm_lab::{Running, Zram, cached, eventually, shell};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

const IDLE: &str = "- {name: idle, action: pageout, access_rate: 0%, age: {min: 4s}}\n";

/// A file system on a disk in memory, unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    fn new(name: &str) -> Self {
        let (image, at) = (format!("/tmp/{name}.image"), PathBuf::from(format!("/tmp/{name}")));
        fs::create_dir_all(&at).unwrap();
        shell(&format!(
            "truncate -s 96M {image} && mke2fs -F -b 4096 {image} && mount -o loop -t ext4 {image} /tmp/{name}"
        ));
        // Nothing is written to the disk unless somebody asks for it.
        shell("echo 0 > /proc/sys/vm/dirty_writeback_centisecs; echo 360000 > /proc/sys/vm/dirty_expire_centisecs");
        Self(at)
    }

    /// A file of so many MiB in the page cache, clean.
    fn file(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.0.join(name);
        let shown = path.display();
        shell(&format!(
            "dd if=/dev/urandom of={shown} bs=64k count={} && sync {shown} && cat {shown} > /dev/null",
            mib * 16
        ));
        assert_eq!(cached(&path), mib * MIB);
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn tracks_idle_pages() -> bool {
    Path::new("/sys/kernel/mm/page_idle/bitmap").exists()
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn idle_page_cache_is_dropped_and_what_is_read_mapped_or_changed_stays() {
    assert!(tracks_idle_pages());
    let disk = Disk::new("files");
    let idle = disk.file("idle", 8);
    let read = disk.file("read", 4);
    let changed = disk.file("changed", 4);
    let sum = |path: &Path| shell(&format!("md5sum {}", path.display()));
    shell(&format!("dd if=/dev/zero of={} bs=64k count=4 conv=notrunc", changed.display()));
    let sums = [&idle, &read, &changed].map(|path| sum(path));
    // A file is read by a system call, as a server reads it.
    let reader = format!("echo begun; while :; do cat {} > /dev/null; sleep 0.2; done", read.display());
    let mut reader = Running::start(Command::new("sh").args(["-c", &reader]));
    reader.wait_for_line("begun");
    let at = disk.0.to_str().unwrap();
    let mut acting = Acting::new("files", &["--files", at], IDLE);
    eventually("the idle file has left the page cache", || cached(&idle) == 0);
    eventually("the clean part of the changed file has, too", || cached(&changed) <= MIB);
    assert_eq!(cached(&read), 4 * MIB, "what is read stays");
    assert!(cached(&changed) >= 256 << 10, "what was changed stays: {}", cached(&changed));
    let dirty = shell("grep Dirty: /proc/meminfo");
    assert!(!dirty.contains(" 0 kB"), "nobody has written it: {dirty}");
    let said = acting.end();
    assert!(said.contains("not written to its file yet"), "{said}");
    drop(reader);
    // Once nobody reads it any more, it is idle.
    let mut acting = Acting::new("files-later", &["--files", at], IDLE);
    eventually("the other file has left the page cache", || cached(&read) == 0);
    acting.end();
    assert_eq!([&idle, &read, &changed].map(|path| sum(path)), sums);
}

/// The bytes of page cache of a file that are on the slow node.
fn on_slow(path: &Path) -> u64 {
    let nodes = FrameNodes::new(&SystemRam::new("/".as_ref()).read().unwrap());
    let files = CachedFiles::new(&[path.into()]).unwrap();
    let mut bytes = 0;
    let add = |_, frame| bytes += if nodes.node(frame) == Some(SLOW) { PAGE_SIZE } else { 0 };
    FileReader::new(files.table()).frames(AddrRange::new(0, u64::MAX).unwrap(), add).unwrap();
    bytes
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn page_cache_goes_to_the_slow_node_when_it_is_idle_and_back_when_it_is_read() {
    assert!(tracks_idle_pages());
    let disk = Disk::new("moved");
    let [idle, read] = ["idle", "read"].map(|name| disk.file(name, 8));
    let sums = [&idle, &read].map(|path| shell(&format!("md5sum {}", path.display())));
    let reads = |path: &Path| {
        let reader = format!("echo begun; while :; do cat {} > /dev/null; sleep 0.2; done", path.display());
        let mut reader = Running::start(Command::new("sh").args(["-c", &reader]));
        reader.wait_for_line("begun");
        reader
    };
    let reader = reads(&read);
    assert_eq!([&idle, &read].map(|path| on_slow(path)), [0, 0]);
    let options = ["--files", disk.0.to_str().unwrap()];
    let mut acting = Acting::new("cache-down", &options, &IDLE.replace("pageout", "demote"));
    eventually("the idle file is on the slow node", || on_slow(&idle) >= 7 * MIB);
    assert_eq!(on_slow(&read), 0, "what is read stays");
    acting.end();
    drop(reader);
    let _reader = reads(&idle);
    let mut acting = Acting::new("cache-up", &options, "- {name: used, action: promote}\n");
    eventually("the file that is read is on the fast node again", || on_slow(&idle) == 0);
    acting.end();
    assert_eq!([&idle, &read].map(|path| cached(path)), [8 * MIB; 2], "nothing was dropped");
    assert_eq!([&idle, &read].map(|path| shell(&format!("md5sum {}", path.display()))), sums);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_look_at_page_cache_is_no_access() {
    assert!(tracks_idle_pages());
    let disk = Disk::new("looked-at");
    let idle = disk.file("idle", 8);
    // Surveys find the frames of the pages again and again. Their age grows nevertheless, and a dry run takes nothing.
    let scheme = IDLE.replace("4s", "15s");
    let options = ["--files", disk.0.to_str().unwrap(), "--dry-run", "--survey", "1s", "--duration", "40s"];
    let acting = Acting::new("files-dry", &options, &scheme);
    eventually("the run has ended", || acting.said().contains("idle (pageout)"));
    let said = acting.said();
    assert!(said.contains("nothing was done") && said.contains("8 MiB freed of 8 MiB advised"), "{said}");
    assert_eq!(cached(&idle), 8 * MIB);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn idle_page_frames_leave_the_processes_that_map_them_and_others_stay() {
    let _swap = Zram::of(256);
    for probe in ["bpf", "idle"] {
        let cgroup = Cgroup::new("/frames");
        let workload = cgroup.workload(64, 16);
        let before = cgroup.current();
        let options = ["--physical", "--probe", probe, "--target-budget", "100%"];
        let mut acting = Acting::new(&format!("frames-{probe}"), &options, IDLE);
        eventually("56 MiB have left the cgroup", || cgroup.current() + 56 * MIB <= before);
        let said = acting.end();
        assert!(said.contains("idle (pageout): ") && said.contains(" freed of "), "{said}");
        let resident = isotherm_kernel::memory_use("/".as_ref(), workload.workload.process.pid()).unwrap().resident;
        assert!(resident >= 16 * MIB, "what is in use stays: {resident}");
        workload.end();
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn idle_page_frames_that_several_processes_map_or_none_are_reclaimed_by_the_kernel_s_damon() {
    let _swap = Zram::of(256);
    let disk = Disk::new("unowned");
    let file = disk.file("idle", 8);
    let cgroup = Cgroup::new("/shared-frames");
    // 24 MiB that a shell and its child share.
    let script = "text=$(yes | head -c 25165824); (sleep 1000; :) & echo begun; wait";
    let mut shell = Running::start(&mut cgroup.command(script));
    shell.wait_for_line("begun");
    let before = cgroup.current();
    let options = ["--physical", "--probe", "idle", "--target-budget", "100%"];

    // Another user of DAMON is left alone, and so are these frames.
    let kdamonds = || fs::read_to_string(KDAMONDS).unwrap();
    fs::write(KDAMONDS, "1").unwrap();
    let acting = Acting::new("frames-busy", &[&options[..], &["--duration", "12s"]].concat(), IDLE);
    eventually("the run has ended", || acting.said().contains("idle (pageout)"));
    assert!(cgroup.current() + 12 * MIB > before && cached(&file) == 8 * MIB, "{}", acting.said());
    assert_eq!(kdamonds(), "1\n");
    fs::write(KDAMONDS, "0").unwrap();

    let mut acting = Acting::new("frames-damon", &options, IDLE);
    eventually("20 MiB have left the cgroup", || cgroup.current() + 20 * MIB <= before);
    eventually("the page cache has left", || cached(&file) < MIB);
    let said = acting.end();
    assert!(said.contains("idle (pageout): ") && said.contains(" freed of "), "{said}");
    assert_eq!(kdamonds(), "0\n", "nothing is left");
    cgroup.write("cgroup.kill", "1");
    drop(shell);
}
