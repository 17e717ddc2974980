//! The content of memory stays as it is while the memory is moved between nodes all the time, whatever happens
//! meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::io::{IoSlice, pipe};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use isotherm_act::ProcessActuator;
use isotherm_core::scheme::{Action, Actuator, Destinations, Outcome, RefusalReason, Work};
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE, TargetId};
use isotherm_kernel::Processes;
use isotherm_lab::Running;
use isotherm_lab::eventually;
use isotherm_lab::migration::{FAST, MIB, Memory, SLOW, acting, end, reports, run_sh, scheme, share_on, wait_until_on};
use isotherm_testing::{Served, or_skip, serve};
use nix::fcntl::{SpliceFFlags, vmsplice};

/// Moves memory of one process at once, without a scheme that decides what to move.
struct Mover {
    actuator: ProcessActuator,
    target: TargetId,
}

impl Mover {
    fn new(pid: u32) -> Self {
        let table = Processes::new([pid], false).unwrap().process_table();
        let target = *table.members().keys().next().unwrap();
        Self { actuator: ProcessActuator::new(table), target }
    }

    /// Moves `range` down as cold memory, or up as hot memory.
    fn move_to(&mut self, node: NodeId, range: AddrRange) -> Outcome {
        let to = Destinations::one(node);
        let action = if node == SLOW { Action::MigrateCold(to) } else { Action::MigrateHot(to) };
        let mut outcomes = [Outcome::default()];
        let work = Work { action, inside: false, target: self.target, ranges: &[range], elsewhere: None };
        self.actuator.apply(&work, &mut outcomes).unwrap();
        outcomes[0]
    }
}

/// A process that has memory of a known content, and checks it when it is asked to.
#[test]
#[ignore = "it is a part of other tests"]
fn a_process_with_memory() {
    let mut memory = None;
    or_skip!(serve(|command| -> Result<u64, String> {
        match command {
            "start" => Ok(memory.insert(Memory::of(16 * MIB)).range().start()),
            "size" => Ok(memory.as_ref().unwrap().range().size()),
            "check" => {
                memory.as_ref().unwrap().check(&[0]);
                Ok(0)
            }
            "exec" => Err(Command::new("sh").args(["-c", "echo '@ 0'; exec sleep 1000"]).exec().to_string()),
            other => Err(format!("what is {other}?")),
        }
    }));
}

/// Starts such a process. Returns it with the addresses of its memory.
fn process() -> (Served, AddrRange) {
    let mut process = Served::start("a_process_with_memory");
    let start = process.request("start");
    let size = process.request("size");
    (process, AddrRange::new(start, start + size).unwrap())
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn content_stays_while_memory_goes_up_and_down_and_threads_write_and_fork() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 24;
    let memories = [Memory::of(8 * MIB), Memory::of_huge_pages(12 * MIB)];
    let mut moved = [0; 2];
    let counts: Vec<Vec<u64>> = thread::scope(|scope| {
        let over: Vec<_> = memories.iter().map(Memory::over_at_the_end).collect();
        let touch = |memory| (0..THREADS).map(|nth| scope.spawn(move || Memory::touch(memory, nth, THREADS))).collect();
        let threads: Vec<Vec<_>> = memories.iter().map(touch).collect();
        memories.iter().for_each(|memory| memory.set_hot(true));
        let mut mover = Mover::new(std::process::id());
        for round in 0..ROUNDS {
            let node = if round % 2 == 0 { SLOW } else { FAST };
            for (memory, moved) in memories.iter().zip(&mut moved) {
                // With a user ID, the child comes from fork and not from vfork: it shares all memory until it executes.
                let mut child = Command::new("true").uid(0).spawn().unwrap();
                *moved += mover.move_to(node, memory.range()).applied;
                assert!(child.wait().unwrap().success());
            }
        }
        drop(over);
        let join = |threads: Vec<thread::ScopedJoinHandle<'_, u64>>| {
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        };
        threads.into_iter().map(join).collect()
    });
    println!("{} MiB and {} MiB were moved, and the pages touched {counts:?} times", moved[0] / MIB, moved[1] / MIB);
    for ((memory, counts), moved) in memories.iter().zip(&counts).zip(moved) {
        memory.check(counts);
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        assert!(moved > ROUNDS as u64 / 2 * memory.range().size(), "{moved} bytes in {ROUNDS} rounds");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_target_that_executes_another_program_goes_on_unharmed() {
    let (mut process, range) = process();
    let pid = process.pid();
    let mut mover = Mover::new(pid);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let moves = scope.spawn(|| {
            let mut moved = 0;
            while !is_over.load(Ordering::Relaxed) {
                moved += [SLOW, FAST].map(|node| mover.move_to(node, range).applied).iter().sum::<u64>();
            }
            moved
        });
        eventually("memory is moved", || share_on(pid, range, SLOW) > 0.1);
        process.request("exec");
        let comm = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        eventually("the other program runs", || comm() == "sleep\n");
        is_over.store(true, Ordering::Relaxed);
        assert!(moves.join().unwrap() > 0);
        assert_eq!(comm(), "sleep\n");
    });
    assert_eq!(mover.move_to(SLOW, range).applied, 0, "its memory is gone");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_cpuset_that_forbids_the_node_is_obeyed_and_counted() {
    const GROUP: &str = "/sys/fs/cgroup/one-node";
    let (mut process, range) = process();
    let pid = process.pid();
    let enclose = format!(
        "echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control; mkdir {GROUP}; echo {FAST} > {GROUP}/cpuset.mems; \
         echo {pid} > {GROUP}/cgroup.procs"
    );
    assert_eq!(run_sh(&enclose), 0);
    let mut mover = Mover::new(pid);
    let outcome = mover.move_to(SLOW, range);
    assert_eq!((outcome.applied, outcome.refused), (0, range.size()));
    assert_eq!(outcome.refusal.unwrap().reason, RefusalReason::NotPermitted);
    assert_eq!(share_on(pid, range, FAST).to_bits(), 1_f64.to_bits());
    process.request("check");
    assert_eq!(run_sh(&format!("echo {pid} > /sys/fs/cgroup/cgroup.procs; rmdir {GROUP}")), 0);
    assert_eq!(mover.move_to(SLOW, range).applied, range.size(), "nothing forbids it now");
    process.request("check");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn pages_that_the_kernel_holds_are_refused_as_busy_and_the_others_are_moved() {
    const HELD: usize = 8;
    let page = PAGE_SIZE as usize;
    let memory = vec![7_u8; MIB as usize];
    let first = memory.as_ptr().align_offset(page);
    let held = &memory[first..first + HELD * page];
    let range = AddrRange::new(held.as_ptr() as u64, held.as_ptr() as u64 + MIB / 2).unwrap();
    // A pipe holds pages as they are, until they are read.
    let (reader, writer) = pipe().unwrap();
    assert_eq!(vmsplice(&writer, &[IoSlice::new(held)], SpliceFFlags::empty()), Ok(held.len()));
    let mut mover = Mover::new(std::process::id());
    let outcome = mover.move_to(SLOW, range);
    assert_eq!((outcome.applied, outcome.refused), (range.size() - held.len() as u64, held.len() as u64));
    assert_eq!(outcome.refusal.unwrap().reason, RefusalReason::Busy);
    drop((reader, writer));
    assert_eq!(mover.move_to(SLOW, range).applied, held.len() as u64, "nothing holds them now");
    assert!(memory.iter().all(|byte| *byte == 7));
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_of_the_target_node_that_goes_offline_ends_no_run_and_harms_no_content() {
    // Returns how many blocks of the node have changed. A few hold memory of the kernel and stay online.
    let set_all = |state: &str| {
        let blocks = format!("/sys/devices/system/node/node{SLOW}/memory*/state");
        run_sh(&format!(
            "changed=0; for block in {blocks}; do
               grep -qx {state} $block || if echo {state} > $block; then changed=$((changed + 1)); fi
             done 2> /dev/null; exit $changed"
        ))
    };
    let memory = Memory::of(32 * MIB);
    let (range, pid) = (memory.range(), std::process::id());
    let down = "access_rate: 0%, age: {min: 1s}, action: migrate_cold, target_node: 1, quota: {bytes: 4M}";
    let mut run = Running::start(&mut acting("offline", &scheme("down", down, range), &[pid], "20s"));
    eventually("some memory was moved", || share_on(pid, range, SLOW) > 0.1);
    let offline = set_all("offline");
    println!("{offline} blocks of node {SLOW} are offline");
    assert!(offline >= 2);
    assert_eq!(run.wait(), 0);
    memory.check(&[0]);
    assert_eq!(set_all("online"), offline);
    Mover::new(pid).move_to(SLOW, range);
    assert_eq!(share_on(pid, range, SLOW).to_bits(), 1_f64.to_bits(), "the node takes memory again");
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn an_interrupted_call_counts_what_is_left_and_leaves_the_content() {
    let memory = Memory::of(64 * MIB);
    let (range, pid) = (memory.range(), std::process::id());
    let first = range.split_at(range.start() + MIB).unwrap().0;
    let mut mover = Mover::new(pid);
    let interrupt = mover.actuator.interrupt();
    let outcome = thread::scope(|scope| {
        let moves = scope.spawn(|| mover.move_to(SLOW, range));
        eventually("the first pages were moved", || share_on(pid, first, SLOW) > 0.9);
        interrupt.store(true, Ordering::Relaxed);
        moves.join().unwrap()
    });
    assert_eq!(outcome.applied + outcome.refused, range.size(), "{outcome:?}");
    assert_eq!(outcome.refusal.unwrap().reason, RefusalReason::Interrupted);
    let there = share_on(pid, range, SLOW) * range.size() as f64;
    assert_eq!(outcome.applied, there.round() as u64);
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_end_of_a_run_in_the_middle_of_its_moves_leaves_the_content() {
    let memory = Memory::of(32 * MIB);
    let (range, pid) = (memory.range(), std::process::id());
    let down = "access_rate: 0%, age: {min: 1s}, action: demote, quota: {bytes: 4M}";
    let run = Running::start(&mut acting("stopped", &scheme("down", down, range), &[pid], "2m"));
    eventually("some memory was moved", || share_on(pid, range, SLOW) > 0.1);
    end(run);
    let share = share_on(pid, range, SLOW);
    assert!(share < 0.9, "the quota is too large for this test");
    let applied = reports("stopped")[0].total.applied_bytes as f64;
    assert!((applied / (share * range.size() as f64) - 1.0).abs() < 0.01, "{applied} bytes, and {share} of {range}");
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_target_that_ends_in_the_middle_leaves_the_content_of_the_others() {
    let (mut ends, ending) = process();
    let memory = Memory::of(16 * MIB);
    let down = "access_rate: 0%, age: {min: 1s}, action: migrate_cold, target_node: 1, quota: {bytes: 4M}";
    let schemes = scheme("ends", down, ending) + &scheme("stays", down, memory.range());
    let run = Running::start(&mut acting("others", &schemes, &[ends.pid(), std::process::id()], "2m"));
    eventually("some memory was moved", || share_on(ends.pid(), ending, SLOW) > 0.1);
    ends.request("check");
    ends.kill();
    wait_until_on(SLOW, memory.range());
    end(run);
    memory.check(&[0]);
    assert!(reports("others").iter().all(|report| report.total.applied_bytes > MIB));
}
