//! The monitor on a probe, at real intervals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::{SurveyLimits, SurveySnapshot};
use isotherm_core::{AccessProbe, Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_kernel::{Waiter, Woken, monitor_cpu_time, now_since_boot};
use isotherm_record::{Cost, SnapshotRecord, SurveyRecord};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Outlet, Source};
use crate::pace::{SamplingPace, SurveyPace};
use crate::targets::{InfoReader, LiveTargets};
use crate::{EndReason, Event, Notice, RunError, Severity};

/// Watches the targets through a probe.
pub(crate) struct MonitorSource {
    pub(crate) attributes: Attributes,
    pub(crate) sampling: bool,
    /// Whether samples may be left out to save CPU time.
    pub(crate) sparing: bool,
    /// How often to survey. `None` without surveys.
    pub(crate) survey: Option<SurveyPace>,
    pub(crate) seed: u64,
    pub(crate) probe: Box<dyn AccessProbe + Send>,
    pub(crate) targets: LiveTargets,
}

impl Source for MonitorSource {
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError> {
        let Self { attributes, sampling, sparing, survey: mut pace, seed, probe, targets } = *self;
        let control = outlet.control.clone();
        let mut waiter = Waiter::new(targets.processes(), control.stop_signal());
        let late_rounds = Rc::new(Cell::new(0));
        let infos = targets.infos();
        let found = Rc::new(RefCell::new(Found::default()));
        let sink =
            Forward { infos, late_rounds: Rc::clone(&late_rounds), cpu: monitor_cpu_time(), found: Rc::clone(&found) };
        let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(seed), targets, probe, sink);
        if !sampling {
            monitor.without_samples();
        }
        if let Some(pace) = &pace {
            monitor.set_survey(pace.interval(), SurveyLimits::default());
        }

        monitor.set_start(now_since_boot());
        let start = Instant::now();
        let deadline = outlet.deadline(start);
        let is_over = |now| deadline.is_some_and(|deadline| now >= deadline);
        let mut in_force = monitor.attributes();
        outlet.attributes(in_force);
        let mut sampling_pace = sparing.then(SamplingPace::new);
        let mut surveying = Duration::ZERO;
        let mut cpu = monitor_cpu_time();
        let mut next = monitor.start()?;
        let mut last = Instant::now();
        let mut told = false;
        let mut hand_over_survey = |monitor: &mut Monitor<_, _, _, _>, outlet: &Outlet, cpu: Duration| {
            let Some(mut record) = found.borrow_mut().survey.take() else { return Duration::ZERO };
            let spent = monitor_cpu_time().saturating_sub(cpu);
            record.cpu = Some(spent);
            outlet.survey(record);
            if !told && let Some(left_out) = monitor.left_out() {
                told = true;
                outlet.send(Event::Notice(Notice::new(Severity::Warning, &left_out)));
            }
            if let Some(pace) = &mut pace {
                pace.cost(spent);
                monitor.set_survey(pace.interval(), SurveyLimits::default());
            }
            spent
        };
        surveying += hand_over_survey(&mut monitor, outlet, cpu);
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
            if monitor.survey_interval().is_some() {
                cpu = monitor_cpu_time();
            }
            next = monitor.step(now - start)?;
            let snapshot = found.borrow_mut().snapshot.take();
            if let Some(record) = snapshot {
                if let (Some(pace), Some(cost)) = (&mut sampling_pace, record.cost) {
                    let sampling = Duration::from_nanos(cost.cpu_ns).saturating_sub(std::mem::take(&mut surveying));
                    pace.cost(sampling, record.snapshot.aggregation);
                    monitor.set_sparing(pace.every());
                }
                outlet.snapshot(Arc::new(record));
            }
            surveying += hand_over_survey(&mut monitor, outlet, cpu);
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

/// What the monitor found in its last step.
#[derive(Default)]
struct Found {
    snapshot: Option<SnapshotRecord>,
    survey: Option<SurveyRecord>,
}

/// Keeps what the monitor finds, with what it cost, for the loop that drives the monitor.
struct Forward {
    infos: InfoReader,
    late_rounds: Rc<Cell<u32>>,
    /// CPU time of this thread up to the last snapshot.
    cpu: Duration,
    found: Rc<RefCell<Found>>,
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
        self.found.borrow_mut().snapshot = Some(record);
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        let record = SurveyRecord { survey: survey.clone(), cpu: None, infos: self.infos.read() };
        self.found.borrow_mut().survey = Some(record);
        Ok(())
    }
}
