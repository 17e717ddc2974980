//! Memory of cgroups is reclaimed by what is known to be idle, and left alone where it must be.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::process::Command;

use isotherm_lab::acting::{Acting, Cgroup};
use isotherm_lab::idle::{MIB, V2};
use isotherm_lab::{Ran, Running, Zram, eventually, isotherm, result_file, run, shell};

/// Idle memory, with the goals that nobody has to set.
const IDLE: &str = "- {name: idle, action: reclaim, access_rate: 0%, age: {min: 3s}}\n";

/// The resident bytes of a process.
fn resident(pid: u32) -> u64 {
    isotherm_kernel::memory_use("/".as_ref(), pid).unwrap().resident
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn what_is_idle_leaves_the_cgroup_and_what_is_in_use_stays() {
    let _swap = Zram::of(256);
    for (name, first) in [("pageout", "pageout"), ("cold", "cold"), ("nothing", "nothing")] {
        let cgroup = Cgroup::new("/acted");
        let workload = cgroup.workload(64, 16);
        let before = cgroup.current();
        let scheme = IDLE.replace("reclaim,", &format!("reclaim, first: {first},"));
        let mut acting = Acting::new(name, &["--cgroup", "/acted"], &scheme);
        eventually("56 MiB have left the cgroup", || cgroup.current() + 56 * MIB <= before);
        let said = acting.end();
        assert!(said.contains("idle (reclaim): ") && said.contains(" freed of "), "{said}");
        assert!(said.contains(" more in compressed swap: ") && !said.contains("warning"), "{said}");
        let left = resident(workload.workload.process.pid());
        assert!(left >= 16 * MIB, "what is in use stays: {left}");
        // Where the kernel chooses, it takes some of what is in use as well.
        println!(
            "first: {first}: {} of {} MiB left, refaults {}",
            cgroup.current() / MIB,
            before / MIB,
            refaults(&cgroup)
        );
        workload.end();
    }
}

fn refaults(cgroup: &Cgroup) -> u64 {
    let stat = cgroup.read("memory.stat");
    let count = |name: &str| -> u64 {
        stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
    };
    count("workingset_refault_anon ") + count("workingset_refault_file ")
}

/// 24 MiB that a shell and its child share.
const SHARED: &str = "text=$(yes | head -c 25165824); (sleep 1000; :) & echo begun; wait";

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_that_processes_share_is_left_by_pageout_and_reclaimed_once_from_the_cgroup() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/sharing");
    let mut shell = Running::start(&mut cgroup.command(SHARED));
    shell.wait_for_line("begun");
    let before = cgroup.current();
    let options = ["--cgroup", "/sharing", "--duration", "12s"];
    let pages = Acting::new("shared-pages", &options, &IDLE.replace("reclaim", "pageout"));
    eventually("the run has ended", || pages.said().contains("idle (pageout)"));
    println!("{}", pages.said());
    let after_pageout = cgroup.current();
    assert!(after_pageout + 8 * MIB > before, "{before} {after_pageout}");
    let mut acting = Acting::new("shared", &["--cgroup", "/sharing"], IDLE);
    eventually("20 MiB have left the cgroup", || cgroup.current() + 20 * MIB <= after_pageout);
    acting.end();
    cgroup.write("cgroup.kill", "1");
    drop(shell);
}

/// A file system on a disk, as the memory of the machine's own files cannot be reclaimed, until this is dropped.
struct Disk;

impl Disk {
    const PLACE: &str = "/tmp/disk";

    fn of(mib: u64) -> Self {
        shell(&format!(
            "nth=$(cat /sys/class/zram-control/hot_add); echo {mib}M > /sys/block/zram$nth/disksize; \
             mke2fs -b 4096 /dev/zram$nth; mkdir -p {0}; mount -t ext4 /dev/zram$nth {0}",
            Self::PLACE
        ));
        Self
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If this fails, the test has failed before.
        let _ = Command::new("umount").arg(Self::PLACE).status();
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn page_cache_that_was_read_once_is_reclaimed_and_what_is_read_again_stays() {
    let _disk = Disk::of(96);
    let place = Disk::PLACE;
    shell(&format!(
        "head -c 50331648 /dev/urandom > {place}/once; head -c 8388608 /dev/urandom > {place}/often; sync; \
         echo 3 > /proc/sys/vm/drop_caches"
    ));
    let cgroup = Cgroup::new("/reading");
    let script = format!(
        "cat {place}/once > /dev/null; cat {place}/often {place}/often > /dev/null; echo begun; \
         while cat {place}/often > /dev/null; do sleep 0.2; done"
    );
    let mut reader = Running::start(&mut cgroup.command(&script));
    reader.wait_for_line("begun");
    let before = cgroup.current();
    assert!(before >= 56 * MIB, "{before}");
    let mut acting = Acting::new("cache", &["--cgroup", "/reading"], IDLE);
    // Linux 6.1 is asked only while it has 16 MiB of such page cache.
    eventually("28 MiB have left the cgroup", || cgroup.current() + 28 * MIB <= before);
    let said = acting.end();
    assert!(said.contains(" freed of ") && !said.contains("warning"), "{said}");
    let read_again = refaults(&cgroup);
    assert!(read_again < 64, "what is read often stays: {read_again} pages came back");
    cgroup.write("cgroup.kill", "1");
    drop(reader);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn swap_that_is_full_or_takes_nothing_more_leaves_memory_where_it_is() {
    for (name, size, most) in [("full", 8, "0"), ("refusing", 256, "64K")] {
        let _swap = Zram::of(size);
        shell(&format!("echo {most} > /sys/block/zram0/mem_limit"));
        let cgroup = Cgroup::new("/stuck");
        let workload = cgroup.workload(48, 4);
        let pid = workload.workload.process.pid();
        let before = resident(pid);
        let mut acting = Acting::new(&format!("swap-{name}"), &["--cgroup", "/stuck", "--duration", "15s"], IDLE);
        assert_eq!(acting.run.wait(), 0, "{}", acting.said());
        println!("{name}: {} of {} MiB left; {}", resident(pid) / MIB, before / MIB, acting.said());
        assert!(acting.said().contains(" refused: "), "{}", acting.said());
        assert!(cgroup.current() >= 32 * MIB, "what has no place stays: {}", cgroup.current());
        workload.end();
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_dry_run_takes_nothing_and_says_what_it_would_take() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/dry");
    let workload = cgroup.workload(32, 4);
    let before = cgroup.current();
    let acting = Acting::new("dry", &["--cgroup", "/dry", "--dry-run", "--duration", "12s"], IDLE);
    eventually("the run has ended", || acting.said().contains("idle (reclaim)"));
    let said = acting.said();
    println!("{said}");
    assert!(said.contains("a dry run: nothing was done") && said.contains("MiB freed of"), "{said}");
    assert!(cgroup.current() + 2 * MIB > before, "{before} {}", cgroup.current());
    assert_eq!(cgroup.read("memory.swap.current"), "0\n");
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn nothing_is_taken_while_a_cgroup_waits_for_memory() {
    let _swap = Zram::of(256);
    let tight = Cgroup::new("/tight");
    tight.write("memory.max", "24M");
    // It needs 48 MiB all the time.
    let thrashing = tight.workload(1, 48);
    eventually("tasks wait for memory", || {
        let pressure = tight.read("memory.pressure");
        pressure.split("avg10=").nth(1).is_some_and(|rest| !rest.starts_with("0."))
    });
    let cgroup = Cgroup::new("/spared");
    let workload = cgroup.workload(32, 4);
    let before = cgroup.current();
    let goals = "quota: {goals: [{pressure: {value: 0.5%, cgroup: /tight}}]}";
    let scheme = IDLE.replace("age:", &format!("{goals}, age:"));
    let acting = Acting::new("pressure", &["--cgroup", "/spared", "--duration", "12s"], &scheme);
    eventually("the run has ended", || acting.said().contains("idle (reclaim)"));
    println!("{}", acting.said());
    assert!(cgroup.current() + 2 * MIB > before, "{before} {}", cgroup.current());
    thrashing.end();

    // Without pressure, the same scheme takes what is idle.
    let mut acting = Acting::new(
        "no-pressure",
        &["--cgroup", "/spared"],
        &IDLE.replace("age:", &format!("{}, age:", goals.replace("/tight", "/spared"))),
    );
    eventually("24 MiB have left the cgroup", || cgroup.current() + 24 * MIB <= before);
    acting.end();
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_frozen_cgroup_is_left_alone_until_it_is_thawed() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/frozen");
    let workload = cgroup.workload(32, 4);
    let before = cgroup.current();
    cgroup.write("cgroup.freeze", "1");
    let mut acting = Acting::new("frozen", &["--cgroup", "/frozen"], IDLE);
    eventually("it is told", || acting.said().contains("the cgroup /frozen is frozen"));
    assert!(cgroup.current() + 2 * MIB > before, "{before} {}", cgroup.current());
    cgroup.write("cgroup.freeze", "0");
    eventually("24 MiB have left the cgroup", || cgroup.current() + 24 * MIB <= before);
    acting.end();
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn without_swap_anonymous_memory_stays_and_the_refusal_says_so() {
    let cgroup = Cgroup::new("/unswapped");
    let workload = cgroup.workload(32, 4);
    let before = cgroup.current();
    let acting = Acting::new("no-swap", &["--cgroup", "/unswapped", "--duration", "12s"], IDLE);
    eventually("the run has ended", || acting.said().contains("idle (reclaim)"));
    let said = acting.said();
    println!("{said}");
    assert!(said.contains("no free swap"), "{said}");
    assert!(cgroup.current() + 8 * MIB > before, "{before} {}", cgroup.current());
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_cgroup_that_vanishes_and_comes_back_is_reclaimed_again() {
    let _swap = Zram::of(256);
    let mut acting = Acting::new("vanishing", &["--cgroup", "/fleeting", "--wait"], IDLE);
    for _ in 0..2 {
        let cgroup = Cgroup::new("/fleeting");
        let workload = cgroup.workload(32, 4);
        let before = cgroup.current();
        eventually("24 MiB have left the cgroup", || cgroup.current() + 24 * MIB <= before);
        workload.end();
    }
    let said = acting.end();
    assert!(said.contains("idle (reclaim)") && !said.contains("warning"), "{said}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_selection_that_is_not_of_cgroups_is_refused_and_says_how_to_select() {
    let schemes = result_file("reclaim-refused.yaml");
    fs::write(&schemes, IDLE).unwrap();
    let refused = |options: &[&str]| -> Ran {
        run(&mut isotherm(&[&["run", "--schemes", schemes.to_str().unwrap()], options].concat()))
    };
    for (options, part) in [
        (&["--pid", "1"][..], "--cgroup, --unit or --container"),
        (&["--cgroup", "/", "--exclude", "name=init"], "leaves out processes by name"),
        (&["--", "true"], "--cgroup, --unit or --container"),
    ] {
        let ran = refused(options);
        assert!(ran.status == 1 && ran.err.contains(part) && ran.err.contains("reclaim"), "{options:?}: {ran:?}");
    }
    // A cgroup without the controller has its memory accounted by another one.
    fs::create_dir_all(format!("{V2}/plain/below")).unwrap();
    let sleeper =
        Running::start(Command::new("sh").args([
            "-c",
            &format!("echo $$ > {V2}/plain/below/cgroup.procs; text=$(yes | head -c 9000000); sleep 1000"),
        ]));
    let mut acting = Acting::new("no-controller", &["--cgroup", "/plain/below"], IDLE);
    eventually("it is told", || acting.said().contains("does not account its memory"));
    acting.end();
    drop(sleeper);
}
