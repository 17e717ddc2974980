//! A busy machine: loops that take what CPU time they get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn};

use anyhow::{Context, Result};

/// Threads that do nothing but take CPU time. Dropping it ends them.
#[derive(Debug)]
pub struct BusyLoops {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyLoops {
    /// Starts `for_each` loops for each processor.
    ///
    /// # Errors
    /// If the number of processors cannot be found.
    pub fn start(for_each: u32) -> Result<Self> {
        let processors = available_parallelism().context("the number of processors cannot be found")?.get();
        let end = Arc::new(AtomicBool::new(false));
        let turn = |_| {
            let end = Arc::clone(&end);
            spawn(move || while !end.load(Ordering::Relaxed) {})
        };
        let threads = (0..processors * for_each as usize).map(turn).collect();
        Ok(Self { end, threads })
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A loop cannot panic.
            let _ = thread.join();
        }
    }
}
