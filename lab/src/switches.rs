//! Forced switches of the address space on every processor.
//!
//! An emulated processor keeps a translation until its address space is switched. Until then, a probe that
//! clears accessed bits without a TLB flush (idle page tracking, the kernel's DAMON) sees no access.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Time between two switches.
const INTERVAL: Duration = Duration::from_millis(2);

/// Threads on every processor that wake up again and again, until this is dropped.
pub(crate) struct Switches(Arc<AtomicBool>);

impl Switches {
    pub(crate) fn begin() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().unwrap().get();
        for processor in 0..processors {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(INTERVAL);
                }
            });
        }
        Self(over)
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
