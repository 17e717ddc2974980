//! Measures what the eBPF programs of `--stacks` cost a process that is not watched: in a call that maps nothing, and
//! in one that maps memory.
#![allow(unsafe_code)]

use std::time::Instant;

use isotherm_probes::stacks::StackTracer;
use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ};

/// System calls in one measurement.
const CALLS: u32 = 30_000;
const PAGE: usize = 4096;

/// Maps a page and unmaps it.
fn map() {
    // SAFETY: the kernel chooses the address of the mapping, so it replaces none, and nothing has a pointer to it.
    let failed = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at == MAP_FAILED || libc::munmap(at, PAGE) != 0
    };
    assert!(!failed, "a page can be mapped");
}

/// Measurements of each call without and with the programs, in turn.
const ROUNDS: usize = 10;

/// The time of a call, in nanoseconds.
fn measure(call: fn()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn main() -> Result<(), isotherm_core::BoxError> {
    let calls: [(&str, fn()); 2] = [("getppid()", || _ = rustix::process::getppid()), ("mmap() and munmap()", map)];
    let mut least = [[f64::INFINITY; 2]; 2];
    let mut slows = false;
    for round in 0..2 * ROUNDS {
        let tracer = (round % 2 == 1).then(StackTracer::open).transpose()?;
        slows |= tracer.as_ref().is_some_and(StackTracer::slows_all_calls);
        for ((_, call), least) in calls.iter().zip(&mut least) {
            least[round % 2] = least[round % 2].min(measure(*call));
        }
    }
    println!("The programs of --stacks run in {}.", if slows { "all calls" } else { "calls that map memory" });
    for ((name, _), [without, with]) in calls.iter().zip(least) {
        println!("{name}: {without:.0} ns without, {with:.0} ns with the programs of --stacks");
    }
    Ok(())
}
