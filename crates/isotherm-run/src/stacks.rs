//! The thread of a live run that records which code maps memory, in parallel with the monitor.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isotherm_core::Allocations;
use isotherm_kernel::{ProcessTable, monitor_cpu_time};
use isotherm_probes::stacks::{StackCollector, StackTracer, StacksError};

use crate::delivery::Delivery;
use crate::pace::HelperThread;
use crate::watched::WatchedProcesses;
use crate::{Control, Event, Notice, RunError, Severity};

/// Calls are waited for, and processes that joined or left are looked for, at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After its work, the thread rests for this many times as long: it takes about a tenth of a CPU at most.
const REST: u32 = 9;
/// It rests for no longer, because a process whose functions are to be named may end.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// The thread that collects call stacks.
pub(crate) struct StackThread {
    /// Nothing is sent. The thread ends when this is dropped.
    end: Sender<Infallible>,
    thread: JoinHandle<Result<(), RunError>>,
}

impl StackThread {
    /// Starts to collect the calls of `processes`, and of their descendants as well if `descendants` says so. The run
    /// stops if that fails.
    pub(crate) fn start(
        tracer: StackTracer,
        processes: ProcessTable,
        descendants: bool,
        control: Control,
        delivery: Delivery,
    ) -> Result<Self, RunError> {
        let name = "stacks";
        let (end, ended) = channel();
        let work = move || {
            let helper = delivery.helpers().thread();
            let worked = StackCollector::new(tracer).and_then(|collector| {
                let processes = WatchedProcesses::new(processes);
                Worker { collector, processes, descendants, delivery, helper, told_lost: false }.work(&ended)
            });
            if worked.is_err() {
                control.stop();
            }
            Ok(worked?)
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(work);
        let thread = thread.map_err(|source| RunError::Thread { name: name.into(), source })?;
        Ok(Self { end, thread })
    }

    /// Takes in the calls that were made so far, and ends.
    pub(crate) fn end(self) -> Result<(), RunError> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|_| Err(RunError::Panicked { thread: "stacks".into() }))
    }
}

struct Worker {
    collector: StackCollector,
    processes: WatchedProcesses,
    descendants: bool,
    delivery: Delivery,
    helper: HelperThread,
    /// Whether it was told that calls were lost.
    told_lost: bool,
}

impl Worker {
    fn work(&mut self, ended: &Receiver<Infallible>) -> Result<(), StacksError> {
        let mut looked: Option<Instant> = None;
        loop {
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
                self.look_for_processes()?;
                looked = Some(Instant::now());
            }
            let before = monitor_cpu_time();
            let batch = self.collector.next(LOOK_EVERY)?;
            self.hand_over(batch);
            let rest = (monitor_cpu_time().saturating_sub(before) * REST).min(LONGEST_REST);
            match ended.recv_timeout(rest) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
                Ok(never) => match never {},
            }
        }
    }

    /// Takes in the calls that were made up to now.
    fn finish(&mut self) -> Result<(), StacksError> {
        self.processes.pids().for_each(|pid| self.collector.tracer().leave(pid));
        loop {
            let batch = self.collector.next(Duration::ZERO)?;
            if batch.is_empty() {
                return Ok(());
            }
            self.hand_over(batch);
        }
    }

    fn hand_over(&mut self, batch: Allocations) {
        if batch.lost > 0 && !std::mem::replace(&mut self.told_lost, true) {
            let text = "some calls that map memory were lost, because there were too many at a time: their memory \
                        belongs to no call stack (isotherm check tells how many)";
            self.delivery.send(Event::Notice(Notice::new(Severity::Warning, text)));
        }
        if !batch.is_empty() {
            self.delivery.send(Event::Allocations(Arc::new(batch)));
        }
        self.helper.count();
    }

    /// Watches the processes that have joined, and leaves those that are not watched any more.
    fn look_for_processes(&mut self) -> Result<(), StacksError> {
        let changes = self.processes.look();
        let tracer = self.collector.tracer();
        changes.left.into_iter().for_each(|pid| tracer.leave(pid));
        changes.joined.into_iter().try_for_each(|pid| tracer.watch(pid, self.descendants))
    }
}
