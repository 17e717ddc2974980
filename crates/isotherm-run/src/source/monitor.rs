//! The monitor on a probe, at real intervals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{AccessProbe, Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_kernel::{Waiter, Woken, monitor_cpu_time};
use isotherm_record::{Cost, SnapshotRecord};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Outlet, Source};
use crate::targets::{InfoReader, LiveTargets};
use crate::{EndReason, RunError};

/// Watches the targets through a probe.
pub(crate) struct MonitorSource {
    pub(crate) attributes: Attributes,
    pub(crate) seed: u64,
    pub(crate) probe: Box<dyn AccessProbe + Send>,
    pub(crate) targets: LiveTargets,
}

impl Source for MonitorSource {
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError> {
        let Self { attributes, seed, probe, targets } = *self;
        let control = outlet.control.clone();
        let mut waiter = Waiter::new(targets.processes(), control.stop_signal());
        let late_rounds = Rc::new(Cell::new(0));
        let infos = targets.infos();
        let found = Rc::new(RefCell::new(None));
        let sink =
            Forward { infos, late_rounds: Rc::clone(&late_rounds), cpu: monitor_cpu_time(), found: Rc::clone(&found) };
        let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(seed), targets, probe, sink);

        let start = Instant::now();
        let deadline = outlet.deadline(start);
        let is_over = |now| deadline.is_some_and(|deadline| now >= deadline);
        let mut in_force = monitor.attributes();
        outlet.attributes(in_force);
        let mut next = monitor.start()?;
        let mut last = Instant::now();
        let reason = loop {
            let Next::Step { after } = next else { break EndReason::Finished };
            if control.rest.is_wanted() {
                let woken = waiter.rest(&control.rest, deadline).map_err(RunError::Wait)?;
                if woken == Woken::Stopped {
                    break EndReason::Stopped;
                }
                if is_over(Instant::now()) {
                    break EndReason::DurationOver;
                }
                // If a target has ended, this says whether another is left.
                next = monitor.resume()?;
                last = Instant::now();
                continue;
            }
            let due = last + after;
            match waiter.until(due).map_err(RunError::Wait)? {
                Woken::Due => {}
                Woken::TargetEnded => monitor.ask_for_update(),
                Woken::Stopped => break EndReason::Stopped,
            }
            let commands = control.take();
            if let Some(attributes) = commands.attributes {
                monitor.set_attributes(attributes);
            }
            if commands.update {
                monitor.ask_for_update();
            }
            let now = Instant::now();
            let half_an_interval = monitor.attributes().sampling() / 2;
            if now > due + half_an_interval {
                late_rounds.set(late_rounds.get() + 1);
            }
            next = monitor.step(now - start)?;
            if let Some(record) = found.take() {
                outlet.snapshot(Arc::new(record));
            }
            if monitor.attributes() != in_force {
                in_force = monitor.attributes();
                outlet.attributes(in_force);
            }
            if is_over(now) {
                break EndReason::DurationOver;
            }
            // Rounds keep to their beat as long as that leaves half an interval between clearing and reading.
            last = due.max(Instant::now() - half_an_interval);
        };
        monitor.end()?;
        Ok(reason)
    }
}

/// Keeps the newest snapshot with what it cost, for the loop that drives the monitor.
struct Forward {
    infos: InfoReader,
    late_rounds: Rc<Cell<u32>>,
    /// CPU time of this thread up to the last snapshot.
    cpu: Duration,
    found: Rc<RefCell<Option<SnapshotRecord>>>,
}

impl Sink for Forward {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        let cpu = monitor_cpu_time();
        let unobservable = snapshot.targets.iter().map(|target| target.unobservable_bytes(snapshot.samples));
        let cost = Cost {
            rounds: snapshot.rounds,
            late_rounds: self.late_rounds.take(),
            reads: snapshot.reads,
            max_reads: snapshot.max_reads,
            clears: snapshot.clears,
            cpu_ns: (cpu - self.cpu).as_nanos() as u64,
            unobservable_bytes: unobservable.sum(),
        };
        self.cpu = cpu;
        let record = SnapshotRecord { snapshot: snapshot.clone(), cost: Some(cost), infos: self.infos.read() };
        self.found.replace(Some(record));
        Ok(())
    }
}
