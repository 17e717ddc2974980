//! Which processes have run.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use isotherm_core::{AccessProbe, AtRest, TargetId};
use isotherm_probes::bpf::BpfProbe;

use crate::survey::{counts, flush, settle, survey};
use crate::target::Target;
use crate::watch::*;

/// Whether the target waits for a command. An answer is there before the target has done its last for it, and its first
/// thread waits for the one that serves, or is that thread.
fn waits(target: &Target) -> bool {
    const FUTEX: &str = "202 ";
    const READ_STANDARD_INPUT: &str = "0 0x0 ";
    let threads = fs::read_dir(format!("/proc/{}/task", target.pid())).unwrap();
    let calls: Vec<String> =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("syscall")).unwrap_or_default()).collect();
    calls.iter().any(|call| call.starts_with(READ_STANDARD_INPUT))
        && calls.iter().all(|call| call.starts_with(READ_STANDARD_INPUT) || call.starts_with(FUTEX))
}

/// What a look finds of the target, once it waits and is at rest.
fn at_rest(probe: &mut BpfProbe, target: &Target) -> AtRest {
    let id = TargetId::process(target.pid(), Duration::ZERO);
    let began = Instant::now();
    loop {
        if waits(target) {
            let activity = probe.activity().unwrap();
            activity.look().unwrap();
            if let Some(rest) = activity.rest(id) {
                return rest;
            }
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it never rests");
        std::thread::yield_now();
    }
}

#[test]
fn looks_differ_if_a_thread_has_run_in_between_even_if_it_has_ended() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("private", MIB);
    update(&mut probe, &[&target]);
    let mut before = at_rest(&mut probe, &target);
    for command in ["write", "read", "write-in-threads", "write"] {
        assert_eq!(at_rest(&mut probe, &target), before);
        target.request(&format!("{command} {start} {MIB}"));
        let after = at_rest(&mut probe, &target);
        assert_ne!(after, before, "{command}");
        before = after;
    }
    // A process that is not held is not known.
    let other = probe.activity().unwrap().rest(TargetId::process(std::process::id(), Duration::ZERO));
    assert_eq!(other, None);
}

#[test]
fn memory_that_others_read_through_the_kernel_is_not_accessed_and_the_process_stays_at_rest() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("private", MIB);
    target.write(start, MIB);
    flush(&mut target);
    update(&mut probe, &[&target]);
    settle(&mut probe, &target, &(start..start + MIB));
    let before = at_rest(&mut probe, &target);
    let memory = File::open(format!("/proc/{}/mem", target.pid())).unwrap();
    memory.read_exact_at(&mut vec![0; MIB as usize], start).unwrap();
    assert_eq!(at_rest(&mut probe, &target), before);
    assert_eq!(counts(&survey(&mut probe, &target), start..start + MIB).1, 0);
}
