//! `isotherm run` with schemes that move memory between nodes, on a machine with a node without processors.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_core::scheme::{RefusalReason, Report};
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE};
use isotherm_kernel::pages::{FrameNodes, PageBuffer, Pagemap, SystemRam};
use isotherm_kernel::{memory_nodes, room_by_node};
use isotherm_lab::{EMULATED, HOT_IN_COLD, Running, Workload, eventually, isotherm, result_file, run};
use isotherm_record::Recording;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);

/// Intervals that are long enough for an emulated, busy machine to touch the hot area in each of them.
const LONG_INTERVALS: [&str; 4] = ["--sample", "30ms", "--aggr", "300ms"];

/// The command that runs these schemes on a process.
fn acting(name: &str, schemes: &str, pid: u32, time: &str) -> Command {
    let file = result_file(&format!("{name}.yaml"));
    fs::write(&file, schemes).unwrap();
    let mut command = isotherm(&["run", "--pid", &pid.to_string(), "--duration", time, "--seed", "1"]);
    command.args(LONG_INTERVALS).args(EMULATED).args(["--survey", "1s"]);
    command.arg("--schemes").arg(&file).arg("--record").arg(recording(name));
    command
}

fn recording(name: &str) -> PathBuf {
    result_file(&format!("{name}.rec"))
}

/// What the schemes of a finished run have done.
fn reports(name: &str) -> Vec<Report> {
    let recording = Recording::open(&recording(name)).unwrap();
    recording.activities().unwrap().last().unwrap().unwrap().schemes
}

/// The most bytes in memory on `node` that a survey of a finished run has found.
fn most_on(name: &str, node: NodeId) -> u64 {
    let recording = Recording::open(&recording(name)).unwrap();
    let surveys = recording.surveys().unwrap().map(|record| record.unwrap().survey);
    let on_node = surveys.flat_map(|survey| survey.by_node).filter(|found| found.node == node);
    on_node.map(|found| found.sums.present).max().unwrap_or(0)
}

/// The share of the pages of a range in memory that is on `node`, 0 to 1.
fn share_on(pid: u32, range: AddrRange, node: NodeId) -> f64 {
    let root = Path::new("/");
    let nodes = FrameNodes::new(&SystemRam::new(root).read().unwrap());
    let (mut there, mut all) = (0, 0);
    let pagemap = Pagemap::open(root, &pid.to_string()).unwrap();
    let tell = |frame: Option<u64>| {
        all += u64::from(frame.is_some());
        there += u64::from(frame.is_some_and(|frame| nodes.node(frame) == Some(node)));
    };
    pagemap.frames(range.page_addresses(), &mut PageBuffer::default(), tell).unwrap();
    there as f64 / (all as f64).max(1.0)
}

/// A scheme with this condition and action, on the addresses of `range` only.
fn scheme(name: &str, condition: &str, range: AddrRange) -> String {
    format!(
        "- {{name: {name}, {condition}, filters: [{{allow: {{address: [{:#x}, {:#x}]}}}}]}}\n",
        range.start(),
        range.end()
    )
}

/// The bytes of huge pages in the mappings that have a part of `range`.
fn huge_bytes(range: AddrRange) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_in = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let mapping = address(start).zip(address(end)).and_then(|(start, end)| AddrRange::new(start, end));
            is_in = mapping.is_some_and(|mapping| mapping.intersection(range).is_some());
        } else if first == "AnonHugePages:" && is_in {
            bytes += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10;
        }
    }
    bytes
}

/// The words of a page. The first counts how often the page was touched, and the others never change.
const WORDS: usize = PAGE_SIZE as usize / 8;

/// The content of the word at an index.
fn content(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d
}

/// Memory of this process whose content is known, and which is touched while `is_hot`.
struct Memory {
    words: Vec<AtomicU64>,
    is_hot: AtomicBool,
    is_over: AtomicBool,
}

impl Memory {
    fn of(bytes: u64) -> Self {
        let touched_first = |index: usize| if index.is_multiple_of(WORDS) { 0 } else { content(index) };
        let words = (0..bytes as usize / 8).map(|index| AtomicU64::new(touched_first(index))).collect();
        Self { words, is_hot: AtomicBool::new(false), is_over: AtomicBool::new(false) }
    }

    /// The whole pages of the memory.
    fn range(&self) -> AddrRange {
        let start = self.words.as_ptr() as u64;
        let end = start + self.words.len() as u64 * 8;
        AddrRange::new(start.next_multiple_of(PAGE_SIZE), end - end % PAGE_SIZE).unwrap()
    }

    /// Touches the memory until it is over: one thread of `threads` touches every page of its own part. A thread checks
    /// what it has written before, and a word that nobody writes. Returns how often each page was touched.
    fn touch(&self, nth: usize, threads: usize) -> u64 {
        let mut rounds = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if !self.is_hot.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            for index in (nth * WORDS..self.words.len()).step_by(threads * WORDS) {
                let before = self.words[index].fetch_add(1, Ordering::Relaxed);
                assert_eq!(before, rounds, "what a thread has written");
                let other = index + 1 + rounds as usize % (WORDS - 1);
                assert_eq!(self.words[other].load(Ordering::Relaxed), content(other), "what nobody writes");
            }
            rounds += 1;
            thread::sleep(Duration::from_millis(5));
        }
        rounds
    }

    /// Ends the threads at the end of a scope, also of one that panics.
    fn over_at_the_end(&self) -> impl Drop + '_ {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        Over(&self.is_over)
    }

    fn check(&self, rounds: &[u64]) {
        for (index, word) in self.words.iter().enumerate() {
            let expected = match index % WORDS {
                0 => rounds[index / WORDS % rounds.len()],
                _ => content(index),
            };
            assert_eq!(word.load(Ordering::Relaxed), expected, "word {index}");
        }
    }
}

/// Waits until nearly all of `range` in this process is on `node`. A huge page at its border, of which only a part is
/// in the range, stays where it is.
fn wait_until_on(node: NodeId, range: AddrRange) {
    let start = Instant::now();
    loop {
        let share = share_on(std::process::id(), range, node);
        if share > 0.85 {
            return println!("on node {node} after {:.1} s", start.elapsed().as_secs_f64());
        }
        assert!(start.elapsed() < Duration::from_secs(90), "{share:.2} is on node {node} after 90 s");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Starts schemes that demote and promote `range` of this process.
fn down_and_up(name: &str, range: AddrRange) -> Running {
    let schemes = scheme("down", "access_rate: 0%, age: {min: 3s}, action: demote, quota: {bytes: 16M}", range)
        + &scheme("up", "access_rate: {min: 1%}, action: promote, quota: {bytes: 16M}", range);
    assert!(share_on(std::process::id(), range, FAST) > 0.99, "memory comes from the node of the processors");
    Running::start(&mut acting(name, &schemes, std::process::id(), "5m"))
}

/// Ends a run, which must succeed.
fn end(mut run: Running) {
    assert_eq!(run_sh(&format!("kill -INT {}", run.pid())), 0);
    assert_eq!(run.wait(), 0);
}

fn run_sh(script: &str) -> i32 {
    run(Command::new("sh").args(["-ec", script])).status
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
        memory.is_hot.store(true, Ordering::Relaxed);
        wait_until_on(FAST, range);
        end(run);
        drop(over);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    memory.check(&rounds);
    for report in reports("down-and-up") {
        assert!(report.total.applied_bytes > 26 * MIB, "{report:?}");
    }
    let [on_fast, on_slow] = [FAST, SLOW].map(|node| most_on("down-and-up", node));
    assert!(on_fast > on_slow && on_slow > 26 * MIB, "the surveys found {on_fast} and {on_slow} bytes at most");
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
    let thp = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let setting = fs::read_to_string(thp).unwrap();
    fs::write(thp, "always").unwrap();
    let memory = Memory::of(32 * MIB);
    fs::write(thp, setting.split(['[', ']']).nth(1).unwrap()).unwrap();
    let range = memory.range();
    let before = huge_bytes(range);
    assert!(before >= 28 * MIB, "{before} bytes of huge pages");
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
    let mut run = Running::start(&mut acting("ends", &scheme("cold", to_slow, cold), pid, "2m"));
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
    let ran = run(&mut acting("full", &scheme("down", down, cold), pid, "25s"));
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
    let condition = format!("action: demote, access_rate: 0%, age: {{min: 2s}}, quota: {{bytes: 100M, {goals}}}");
    let ran = run(&mut acting("goal", &scheme("down", &condition, memory.range()), std::process::id(), "12s"));
    assert_eq!(ran.status, 0, "{ran:?}");
    println!("{}", ran.err);
    let moved = reports("goal")[0].total.applied_bytes;
    // Other programs use and free a little of the node meanwhile.
    assert!((16 * MIB..64 * MIB).contains(&moved), "{moved}: {:?}", reports("goal")[0]);
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_doctor_finds_that_memory_can_be_moved_between_tiers() {
    let ran = run(&mut isotherm(&["doctor", "--format", "json"]));
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["tiers"], serde_json::json!({ "works": true, "why_not": null, "nodes": [[0], [1]] }), "{found}");
}
