//! One run of the monitor, on a thread of its own, at real intervals.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_core::{AccessProbe, Attributes, BoxError, Monitor, Next, Sink, Snapshot, TargetId};
use isotherm_kernel::{Rest, Stop, Waiter, Woken, monitor_cpu_time};
use isotherm_record::{Cost, TargetInfo};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::targets::{Infos, Targets};

/// What a run does not decide itself: when it ends before its time, and when it rests.
#[derive(Clone)]
pub struct Control {
    pub stop: Stop,
    pub rest: Rest,
}

impl Control {
    pub fn new() -> Result<Self> {
        let both = || std::io::Result::Ok(Self { stop: Stop::new()?, rest: Rest::new()? });
        both().context("no file descriptor is left")
    }
}

/// What to watch, and how.
pub struct Session {
    pub attributes: Attributes,
    pub seed: u64,
    pub probe: Box<dyn AccessProbe + Send>,
    pub targets: Targets,
    pub duration: Option<Duration>,
}

/// What one aggregation brought.
pub struct Finding {
    pub snapshot: Snapshot,
    pub cost: Cost,
    pub infos: Arc<[(TargetId, Arc<TargetInfo>)]>,
}

impl Finding {
    /// What the target is; it was there when the snapshot was taken.
    pub fn info(&self, id: TargetId) -> Arc<TargetInfo> {
        let unknown = || Arc::new(TargetInfo { command: String::new(), started_unix_ns: 0 });
        self.infos.iter().find(|(known, _)| *known == id).map_or_else(unknown, |(_, info)| Arc::clone(info))
    }
}

impl Session {
    /// Starts the monitor's thread. It sends what it finds to `findings` and ends when `control` asks for it, when the time
    /// is over, when the last target has ended, or when nobody receives the findings any more.
    pub fn start(self, findings: SyncSender<Finding>, control: Control) -> Result<JoinHandle<Result<()>>> {
        let thread = std::thread::Builder::new().name("monitor".into());
        thread.spawn(move || self.run(findings, control)).context("the monitor's thread cannot be started")
    }

    fn run(self, findings: SyncSender<Finding>, control: Control) -> Result<()> {
        let Self { attributes, seed, probe, targets, duration } = self;
        let Control { stop, rest } = control;
        let mut waiter = Waiter::new(targets.roster(), stop);
        let late_rounds = Rc::new(Cell::new(0));
        let sink =
            Forward { findings, infos: targets.infos(), late_rounds: Rc::clone(&late_rounds), cpu: monitor_cpu_time() };
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let mut monitor = Monitor::new(attributes, rng, targets, probe, sink);

        let start = Instant::now();
        let end = duration.map(|duration| start + duration);
        let is_over = |now| end.is_some_and(|end| now >= end);
        let sampling = attributes.sampling();
        let mut next = monitor.start()?;
        let mut last = Instant::now();
        while let Next::Step { after } = next {
            if rest.is_wanted() {
                let woken = waiter.rest(&rest, end).context("waiting for the targets failed")?;
                if woken == Woken::Stopped || is_over(Instant::now()) {
                    break;
                }
                // If it was a target that ended, this tells whether there is still another.
                next = monitor.resume()?;
                last = Instant::now();
                continue;
            }
            let due = last + sampling * after;
            match waiter.until(due).context("waiting for the targets failed")? {
                Woken::Due => {}
                Woken::TargetEnded => monitor.ask_for_update(),
                Woken::Stopped => break,
            }
            let now = Instant::now();
            if now > due + sampling / 2 {
                late_rounds.set(late_rounds.get() + 1);
            }
            next = monitor.step(now - start)?;
            if is_over(now) {
                break;
            }
            // Rounds keep to their beat as long as that leaves half an interval between clearing and reading.
            last = due.max(Instant::now() - sampling / 2);
        }
        Ok(monitor.end()?)
    }
}

/// Hands each snapshot, and what it took, to another thread, so that no disk ever delays a round.
struct Forward {
    findings: SyncSender<Finding>,
    infos: Infos,
    late_rounds: Rc<Cell<u32>>,
    cpu: Duration,
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
        let finding = Finding { snapshot: snapshot.clone(), cost, infos: self.infos.now() };
        self.findings.send(finding).map_err(|_| "nobody takes the snapshots any more".into())
    }
}
