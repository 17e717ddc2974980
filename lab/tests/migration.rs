//! `isotherm run` with schemes that move memory between nodes, on a machine with a node without processors.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use isotherm_core::scheme::RefusalReason;
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE};
use isotherm_kernel::{memory_nodes, room_by_node};
use isotherm_lab::migration::{
    FAST, MIB, Memory, SLOW, acting, end, huge_bytes, recording, reports, run_sh, scheme, share_on, wait_until_on,
};
use isotherm_lab::{EMULATED, HOT_IN_COLD, Running, Workload, eventually, isotherm, result_file, run};
use isotherm_record::Recording;
use isotherm_testing::{Served, or_skip, serve};
use memmap2::Mmap;
use serde_json::Value;

/// The most bytes in memory on `node` that a survey of a finished run has found.
fn most_on(name: &str, node: NodeId) -> u64 {
    let recording = Recording::open(&recording(name)).unwrap();
    let surveys = recording.surveys().map(|record| record.unwrap().survey);
    let on_node = surveys.flat_map(|survey| survey.by_node).filter(|found| found.node == node);
    on_node.map(|found| found.sums.figures.present).max().unwrap_or(0)
}

/// Starts schemes that demote and promote `range` of this process.
fn down_and_up(name: &str, range: AddrRange) -> Running {
    let schemes = scheme("down", "access_rate: 0%, age: {min: 3s}, action: demote, quota: {bytes: 16M}", range)
        + &scheme("up", "access_rate: {min: 1%}, action: promote, quota: {bytes: 16M}", range);
    assert!(share_on(std::process::id(), range, FAST) > 0.99, "memory comes from the node of the processors");
    Running::start(&mut acting(name, &schemes, &[std::process::id()], "5m"))
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn idle_memory_is_demoted_and_hot_memory_is_promoted_and_its_content_stays() {
    const THREADS: usize = 2;
    let memory = Memory::of(32 * MIB);
    let range = memory.range();
    let rounds: Vec<u64> = thread::scope(|scope| {
        let memory = &memory;
        let over = memory.over_at_the_end();
        let threads: Vec<_> = (0..THREADS).map(|nth| scope.spawn(move || memory.touch(nth, THREADS))).collect();
        let run = down_and_up("down-and-up", range);
        wait_until_on(SLOW, range);
        memory.set_hot(true);
        wait_until_on(FAST, range);
        end(run);
        drop(over);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    memory.check(&rounds);
    for report in reports("down-and-up") {
        // 15 % may stay on the fast node, and 15 % on the slow one.
        assert!(report.total.applied_bytes > 22 * MIB, "{report:?}");
    }
    let [on_fast, on_slow] = [FAST, SLOW].map(|node| most_on("down-and-up", node));
    assert!(on_fast > on_slow && on_slow > 26 * MIB, "the surveys found {on_fast} and {on_slow} bytes at most");
}

/// A process that maps a file as shared memory and reads it once, and then its second half all the time while it is
/// "hot".
#[test]
#[ignore = "it is a part of other tests"]
fn a_process_with_shared_memory() {
    static IS_HOT: AtomicBool = AtomicBool::new(false);
    or_skip!(serve(|command| -> Result<u64, String> {
        match command {
            "hot" | "cold" => {
                IS_HOT.store(command == "hot", Ordering::Relaxed);
                Ok(0)
            }
            path => {
                // SAFETY: nobody writes to the file.
                #[allow(unsafe_code, reason = "there is no other way to map a file")]
                let memory = unsafe { Mmap::map(&File::open(path).unwrap()) }.unwrap();
                let start = memory.as_ptr() as u64;
                let read = |part: &[u8]| {
                    for byte in part.iter().step_by(PAGE_SIZE as usize) {
                        black_box(*byte);
                    }
                };
                read(&memory);
                thread::spawn(move || {
                    loop {
                        if IS_HOT.load(Ordering::Relaxed) {
                            read(&memory[memory.len() / 2..]);
                        }
                        thread::sleep(Duration::from_millis(20));
                    }
                });
                Ok(start)
            }
        }
    }));
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn shared_memory_is_demoted_once_it_is_idle_in_all_processes_that_map_it() {
    const SIZE: u64 = 16 * MIB;
    let file = result_file("shared");
    fs::write(&file, vec![1; SIZE as usize]).unwrap();
    let mut processes = [(); 2].map(|()| Served::start("a_process_with_shared_memory"));
    let starts = processes.each_mut().map(|process| process.request(file.to_str().unwrap()));
    processes[1].request("hot");
    let pids = processes.each_ref().map(Served::pid);
    let down = |nth: usize| {
        let range = AddrRange::new(starts[nth], starts[nth] + SIZE).unwrap();
        scheme(&format!("down-{nth}"), "access_rate: 0%, age: {min: 3s}, action: demote", range)
    };
    let run = Running::start(&mut acting("shared", &(down(0) + &down(1)), &pids, "5m"));
    let middle = starts[0] + SIZE / 2;
    let [idle, hot] = [(starts[0], middle), (middle, middle + SIZE / 2)].map(|(a, b)| AddrRange::new(a, b).unwrap());
    eventually("what is idle in both has moved", || share_on(pids[0], idle, SLOW) > 0.85);
    assert!(share_on(pids[0], hot, SLOW) < 0.05, "what the other process accesses has moved");
    processes[1].request("cold");
    eventually("all has moved", || share_on(pids[0], hot, SLOW) > 0.85);
    end(run);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn tier_list_tells_where_the_memory_of_a_process_is() {
    let memory = Memory::of(32 * MIB);
    let mut list = isotherm(&["tier", "list", "--pid", &std::process::id().to_string(), "--format", "json"]);
    list.args(EMULATED).args(["--duration", "16s", "--survey", "1s", "--quiet"]);
    let ran = run(&mut list);
    assert_eq!(ran.status, 0, "{ran:?}");
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    let on_fast = told["watched"]["memory"].as_array().unwrap().iter().find(|row| row["node"] == FAST.0).unwrap();
    let bytes = |what: &str| on_fast[what].as_u64().unwrap();
    assert_eq!((on_fast["processes"].as_u64(), on_fast["tier"].as_u64()), (Some(1), Some(0)), "{told}");
    assert!(bytes("resident_bytes") > 32 * MIB && bytes("cold_bytes") > 30 * MIB, "{told}");
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn huge_pages_are_demoted_whole() {
    let memory = Memory::of_huge_pages(32 * MIB);
    let range = memory.range();
    let before = huge_bytes(range);
    let run = down_and_up("huge", range);
    wait_until_on(SLOW, range);
    end(run);
    assert_eq!(huge_bytes(range), before, "no huge page was split");
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_target_that_ends_while_its_memory_is_moved_is_no_error() {
    let workload = Workload::start(HOT_IN_COLD);
    let (pid, cold) = (workload.process.pid(), workload.area("cold above"));
    let to_slow = "access_rate: 0%, age: {min: 1s}, action: migrate_cold, target_node: 1, quota: {bytes: 4M}";
    let mut run = Running::start(&mut acting("ends", &scheme("cold", to_slow, cold), &[pid], "2m"));
    eventually("some memory was moved", || share_on(pid, cold, SLOW) > 0.1);
    assert!(share_on(pid, cold, SLOW) < 0.9, "the quota is too large for this test");
    drop(workload);
    assert_eq!(run.wait(), 0);
    assert!(reports("ends")[0].total.applied_bytes > MIB);
}

/// Memory that takes up room on the slow node.
struct Filling;

impl Filling {
    const PLACE: &str = "/tmp/filling";

    /// Leaves less than `room` bytes above the watermarks of the slow node.
    fn down_to(room: u64) -> Self {
        let place = Self::PLACE;
        let mount = format!("mkdir -p {place}; mount -t tmpfs -o size=8G,mpol=bind:1 filling {place}");
        assert_eq!(run_sh(&mount), 0);
        let filling = Self;
        let mut file = File::create(format!("{place}/file")).unwrap();
        let chunk = vec![1; 4 * MIB as usize];
        while Self::room() > room {
            file.write_all(&chunk).unwrap();
        }
        filling
    }

    fn room() -> u64 {
        room_by_node(Path::new("/")).unwrap()[&SLOW]
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        run_sh(&format!("umount {}", Self::PLACE));
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_node_that_is_nearly_full_is_not_filled_up() {
    let _filling = Filling::down_to(48 * MIB);
    let workload = Workload::start(HOT_IN_COLD);
    let (pid, cold) = (workload.process.pid(), workload.area("cold above"));
    let down = "access_rate: 0%, age: {min: 1s}, action: demote";
    let ran = run(&mut acting("full", &scheme("down", down, cold), &[pid], "25s"));
    assert_eq!(ran.status, 0, "{ran:?}");
    let total = &reports("full")[0].total;
    assert!(total.refusals.iter().any(|count| count.refusal.reason == RefusalReason::NoMemory), "{total:?}");
    assert!(total.applied_bytes < 48 * MIB, "{total:?}");
    assert!(Filling::room() >= 16 * MIB, "{} bytes of room are left", Filling::room());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_node_that_does_not_exist_is_told_before_the_run() {
    let file = result_file("no-node.txt");
    fs::write(&file, "4K max 0 0 5s max migrate_cold node=7\n").unwrap();
    let ran = run(isotherm(&["run", "--pid", "1", "--duration", "1s", "--schemes"]).arg(&file));
    assert_ne!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("no memory on a node 7 (the nodes with memory: 0, 1)"), "{ran:?}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_goal_of_a_node_is_reached_and_not_exceeded() {
    let memory = Memory::of(128 * MIB);
    let nodes = memory_nodes(Path::new("/")).unwrap();
    let fast = nodes.into_iter().find(|node| node.id == FAST).unwrap();
    let wanted = (fast.free + 32 * MIB) as f64 / fast.size as f64;
    let goals = format!("goals: [{{node_mem_free: {{node: {FAST}, value: {:.2}%}}}}]", wanted * 100.0);
    // An emulated kernel may tell up to a second late what has become free.
    let quota = format!("quota: {{bytes: 100M, period: 2s, {goals}}}");
    let condition = format!("action: demote, access_rate: 0%, age: {{min: 2s}}, {quota}");
    let ran = run(&mut acting("goal", &scheme("down", &condition, memory.range()), &[std::process::id()], "12s"));
    assert_eq!(ran.status, 0, "{ran:?}");
    println!("{}", ran.err);
    let down = &reports("goal")[0];
    let moved = down.total.applied_bytes;
    assert!((8 * MIB..112 * MIB).contains(&moved), "{moved}: {down:?}");
    // How much has to move depends on what other programs use of the node meanwhile: what is free at the end does not.
    let beyond = (down.goal_score.unwrap() - 1.0) * wanted * fast.size as f64 / MIB as f64;
    assert!((-8.0..16.0).contains(&beyond), "{beyond} MiB beyond the goal: {down:?}");
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_doctor_finds_that_memory_can_be_moved_between_tiers() {
    let ran = run(&mut isotherm(&["doctor", "--format", "json"]));
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["tiers"], serde_json::json!({ "works": true, "why_not": null, "nodes": [[0], [1]] }), "{found}");
}
