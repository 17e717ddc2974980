//! Address spaces switched now and then on every processor.
//!
//! An emulated processor keeps a translation until its address space is switched, and so hides accesses from whatever clears
//! accessed bits without a flush; a real processor loses translations all the time.

use std::thread::{available_parallelism, sleep, spawn};
use std::time::Duration;

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};

/// From now on, this process runs for a moment on every processor, again and again.
///
/// # Errors
/// If the processors are not known.
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
