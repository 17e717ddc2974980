//! Forced switches of the address space on every processor.
//!
//! An emulated processor keeps a translation until its address space is switched. That hides accesses from
//! probes that clear accessed bits without a TLB flush. A real processor evicts translations all the time.

use std::thread::{available_parallelism, sleep, spawn};
use std::time::Duration;

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Starts a thread on every processor that wakes up every `interval`, until this process ends.
///
/// # Errors
/// If the number of processors is not known.
pub fn begin(interval: Duration) -> Result<()> {
    for processor in 0..available_parallelism()?.get() {
        spawn(move || {
            let mut only = CpuSet::new();
            only.set(processor);
            if sched_setaffinity(None, &only).is_ok() {
                loop {
                    sleep(interval);
                }
            }
        });
    }
    Ok(())
}
