//! The thread of a live run that makes marks from hits of USDT probes, in parallel with the monitor.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isotherm_kernel::{ProcessTable, monitor_cpu_time};
use isotherm_probes::usdt::{UsdtCollector, UsdtError, UsdtHit, UsdtTracer};
use isotherm_record::Mark;

use crate::delivery::Delivery;
use crate::marks::MarkError;
use crate::pace::HelperThread;
use crate::watched::WatchedProcesses;
use crate::{Control, Event, Notice, RunError, Severity};

/// Hits are waited for, and processes that joined or left are looked for, at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After its work, the thread rests for this many times as long: it takes about a tenth of a CPU at most.
const REST: u32 = 9;
/// It rests for no longer, because other marks wait for it.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// A hit can be read at most this long after its time, unless its process was held up meanwhile.
const DELAY: Duration = Duration::from_millis(10);

/// The thread that makes marks.
pub(crate) struct UsdtThread {
    /// Nothing is sent. The thread ends when this is dropped.
    end: Sender<Infallible>,
    thread: JoinHandle<Result<(), RunError>>,
}

impl UsdtThread {
    /// Starts to make marks of the probes of `processes`, and of their descendants from their start if `descendants`
    /// says so. The run stops if that fails.
    pub(crate) fn start(
        tracer: UsdtTracer,
        processes: ProcessTable,
        descendants: bool,
        control: Control,
        delivery: Delivery,
    ) -> Result<Self, RunError> {
        let name = "usdt";
        let (end, ended) = channel();
        control.marks.hold();
        let work = move || {
            let helper = delivery.helpers().thread();
            let worked = UsdtCollector::new(tracer).and_then(|collector| {
                let processes = WatchedProcesses::new(processes);
                let warned = Warnings::default();
                let control = control.clone();
                Worker { collector, processes, descendants, control, delivery, helper, warned }.work(&ended)
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

    /// Makes marks of the hits up to now, and ends.
    pub(crate) fn end(self) -> Result<(), RunError> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|_| Err(RunError::Panicked { thread: "usdt".into() }))
    }
}

/// The warnings that the user has had. Each comes once.
#[derive(Default)]
struct Warnings {
    /// That hits were lost.
    lost: bool,
    /// That no more marks are made.
    too_many: bool,
    /// Which probes there are not.
    missing: bool,
    /// That a file could not be watched.
    failure: bool,
}

struct Worker {
    collector: UsdtCollector,
    processes: WatchedProcesses,
    descendants: bool,
    control: Control,
    delivery: Delivery,
    helper: HelperThread,
    warned: Warnings,
}

impl Worker {
    fn work(&mut self, ended: &Receiver<Infallible>) -> Result<(), UsdtError> {
        let mut looked: Option<Instant> = None;
        loop {
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
                self.look_for_processes()?;
                looked = Some(Instant::now());
            }
            let before = monitor_cpu_time();
            self.take_hits(LOOK_EVERY)?;
            self.warn_of_probes();
            let rest = (monitor_cpu_time().saturating_sub(before) * REST).min(LONGEST_REST);
            match ended.recv_timeout(rest) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
                Ok(never) => match never {},
            }
        }
    }

    /// Makes marks of the hits up to now.
    fn finish(&mut self) -> Result<(), UsdtError> {
        self.processes.pids().for_each(|pid| self.collector.leave(pid));
        while self.take_hits(Duration::ZERO)? {}
        self.warn_of_probes();
        if !self.warned.missing {
            self.collector.missing().iter().for_each(|missing| self.warn(missing));
        }
        Ok(())
    }

    /// Makes marks of the next hits. Returns whether more follow.
    fn take_hits(&mut self, within: Duration) -> Result<bool, UsdtError> {
        let begin = Instant::now();
        let hits = self.collector.next(within)?;
        for hit in hits.hits {
            self.mark(&hit);
        }
        if !hits.more {
            // All hits from before the reading are marks by now.
            self.control.marks.release(begin.checked_sub(DELAY).unwrap_or(begin));
        }
        if !hits.more {
            self.warn_of_lost_hits();
        }
        self.helper.count();
        Ok(hits.more)
    }

    fn mark(&mut self, hit: &UsdtHit) {
        // A run that is over needs no mark.
        if self.control.marks.make_at(&hit.text, Some(hit.time)) == Err(MarkError::TooMany) {
            self.stop_watching();
        }
    }

    fn warn_of_lost_hits(&mut self) {
        if self.collector.is_exhausted() {
            self.stop_watching();
        } else if self.collector.lost() > 0 && !std::mem::replace(&mut self.warned.lost, true) {
            self.warn("some hits of USDT probes were lost, because there were too many at a time: they make no marks");
        }
    }

    /// Watches no probe from now on, because the run has as many marks as it can take.
    fn stop_watching(&mut self) {
        if !std::mem::replace(&mut self.warned.too_many, true) {
            self.collector.end();
            let text = format!("a run takes {} marks: USDT probes are not watched any more", Mark::MOST);
            self.warn(&text);
        }
    }

    /// Watches the processes that have joined, and leaves those that are not watched any more.
    fn look_for_processes(&mut self) -> Result<(), UsdtError> {
        let changes = self.processes.look();
        changes.left.into_iter().for_each(|pid| self.collector.leave(pid));
        changes.joined.into_iter().try_for_each(|pid| self.collector.watch(pid, self.descendants))
    }

    /// Says which probes there are not, as soon as programs have usually mapped their libraries, and what cannot be
    /// watched.
    fn warn_of_probes(&mut self) {
        if !self.warned.missing && self.collector.has_settled() {
            self.warned.missing = true;
            for missing in self.collector.missing() {
                self.warn(&format!("{missing}. One that is loaded later makes marks"));
            }
        }
        if !self.warned.failure
            && let Some(failure) = self.collector.failure()
        {
            let failure = failure.to_owned();
            self.warned.failure = true;
            self.warn(&failure);
        }
    }

    fn warn(&self, text: &str) {
        self.delivery.send(Event::Notice(Notice::new(Severity::Warning, text)));
    }
}
