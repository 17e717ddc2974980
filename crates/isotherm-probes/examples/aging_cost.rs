//! Compares what it takes to clear the accessed bits of the same memory by the multi-generational LRU, by
//! `/proc/PID/clear_refs` and by `MADV_COLD`.
//!
//! `aging_cost MIB` clears so much private memory of its own (64 MiB by default). It needs a cgroup of its own, because
//! aging clears all processes of the cgroup. It runs in the laboratory, where the multi-generational LRU may be turned
//! on: see `docs/notes/2026-11-22-lru-gen.md`.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use isotherm_core::AddrRange;
use isotherm_kernel::clear_refs::{Refs, clear_refs};
use isotherm_kernel::lru_gen::{LruGen, memcg_of};
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::{Pidfd, Scratch, cgroup};

/// What one way to clear returns.
type Done = Result<(), Box<dyn Error>>;

const ROUNDS: usize = 9;

fn main() -> Done {
    let size = std::env::args().nth(1).map_or(Ok(64), |mib| mib.parse::<u64>())? << 20;
    let (root, pid) = (Path::new("/"), std::process::id());
    let process = Pidfd::open(pid)?;
    let lru_gen = LruGen::open(root)?;
    let own = cgroup::of_process(root, pid).ok_or("this process has no cgroup")?;
    let memory = Scratch::new(size)?;
    let _ = memory.huge(false);
    let range = AddrRange::new(memory.start(), memory.start() + size).ok_or("MIB is 0")?;
    // On a machine with one processor, another process replaces the translations in the TLB, so that the next accesses
    // set accessed bits.
    let touch = || -> Done {
        Command::new("true").status()?;
        (0..size / 4096).for_each(|page| memory.touch(page * 4096));
        Ok(())
    };
    let timed = |of: &dyn Fn() -> Done| -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        of()?;
        Ok(began.elapsed())
    };
    let age = || {
        let memcgs = lru_gen.memcgs()?;
        Ok(lru_gen.age(memcg_of(&memcgs, &own).ok_or("the cgroup is not listed")?)?)
    };
    let refs = || Ok(clear_refs(root, pid, &process, Refs::All)?);
    let cold = || Ok(advise(&process, std::iter::once(range), Advice::Cold).map(|_| ())?);
    let ways: [(&str, &dyn Fn() -> Done); 3] = [("aging", &age), ("clear_refs", &refs), ("MADV_COLD", &cold)];

    println!("{} MiB of {own}, median of {ROUNDS} rounds, in µs: all accessed, nothing accessed", size >> 20);
    let mut times = vec![(Vec::new(), Vec::new()); ways.len()];
    touch()?;
    for _ in 0..ROUNDS {
        for ((_, way), (hot, idle)) in ways.iter().zip(&mut times) {
            touch()?;
            hot.push(timed(way)?);
            idle.push(timed(way)?);
        }
    }
    for ((name, _), (mut hot, mut idle)) in ways.iter().zip(times) {
        hot.sort_unstable();
        idle.sort_unstable();
        println!("{name:12} {:8} {:8}", hot[ROUNDS / 2].as_micros(), idle[ROUNDS / 2].as_micros());
    }
    Ok(())
}
