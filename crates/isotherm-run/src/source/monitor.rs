//! The monitor on a probe, at real intervals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::{PageSums, SurveySettings, SurveySnapshot, TargetSurvey};
use isotherm_core::{
    AccessProbe, Attributes, BoxError, Monitor, Next, Pace, PaceOptions, Pacer, PanelSnapshot, Shares, Sink, Snapshot,
    SurveyInterval,
};
use isotherm_kernel::{ProcessTable, Waiter, Woken, monitor_cpu_time, now_since_boot};
use isotherm_record::{Cost, NotAfforded, SnapshotRecord, SurveyRecord};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Outlet, Source};
use crate::pace::{CpuMeter, LookPace, PaceReports};
use crate::targets::{InfoReader, LiveTargets};
use crate::unobserved::Unobserved;
use crate::{EndReason, Event, Member, Notice, RunError, Scheduling, Severity, trace};

/// Watches the targets through a probe.
pub(crate) struct MonitorSource {
    pub(crate) attributes: Attributes,
    pub(crate) pace: PaceOptions,
    pub(crate) scheduling: Scheduling,
    /// The part of a budget that several runs share.
    pub(crate) member: Option<Member>,
    pub(crate) seed: u64,
    /// Before the command of the run was started, since the boot of the machine. All memory of a process that was
    /// started later is known from its beginning.
    pub(crate) began: Option<Duration>,
    pub(crate) probe: Box<dyn AccessProbe + Send>,
    pub(crate) targets: LiveTargets,
}

type LiveMonitor = Monitor<LiveTargets, Box<dyn AccessProbe + Send>, Forward, Pcg64Mcg>;

impl Source for MonitorSource {
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError> {
        let Self { attributes, mut pace, scheduling, member, seed, began, probe, targets } = *self;
        if let Some(member) = &member {
            pace.budget.set_shares(member.part(Shares { cpu: f64::INFINITY, targets: f64::INFINITY }));
        }
        let mut urgency = scheduling.apply(!pace.bounds_samples)?;
        let control = outlet.control.clone();
        let mut waiter = Waiter::new(targets.processes(), control.stop_signal());
        let mut driver = Driver::new(pace, CpuMeter::new(outlet.helpers()), member, &targets);
        let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(seed), targets, probe, driver.sink());
        if !pace.samples {
            monitor.without_samples();
        }
        if pace.goal.is_some() {
            monitor.read_by_lengths();
        }
        if pace.survey.is_some() {
            monitor.set_survey(driver.pacer.survey_settings(attributes));
        }

        let ready = now_since_boot();
        monitor.set_start(began.unwrap_or(ready).min(ready), ready);
        monitor.set_cpu_clock(monitor_cpu_time);
        let start = Instant::now();
        let deadline = outlet.begin(start);
        let is_over = |now| deadline.is_some_and(|deadline| now >= deadline);
        let mut in_force = monitor.attributes();
        outlet.attributes(in_force);
        let mut now = start;
        // For how long a step that began at a time, and with this CPU time, has waited for a processor.
        let has_waited = |since: Instant, cpu| since.elapsed().saturating_sub(monitor_cpu_time().saturating_sub(cpu));
        let cpu = monitor_cpu_time();
        let mut next = monitor.start()?;
        driver.take_in(&mut monitor, Duration::ZERO, outlet);
        let mut waited = has_waited(now, cpu);
        let reason = loop {
            let Next::Step { after } = next else { break EndReason::Finished };
            if control.rest.is_wanted() {
                let woken = waiter.rest(&control.rest, deadline).map_err(RunError::Wait)?;
                driver.meter.rested();
                if woken == Woken::Stopped {
                    break EndReason::Stopped;
                }
                if is_over(Instant::now()) {
                    break EndReason::DurationOver;
                }
                // If a target has ended, this says whether another is left.
                now = Instant::now();
                next = monitor.resume(now - start)?;
                continue;
            }
            let due = now + after;
            let woken = waiter.until(due).map_err(RunError::Wait)?;
            // A run that ends within its first aggregation has a snapshot all the same, and so has the second half of
            // the last one. Whether the run ends with this target is not known yet. After a stop, schemes get no
            // snapshot to act on.
            let is_last = woken == Woken::TargetEnded && driver.processes.is_over();
            let is_stopped = woken == Woken::Stopped && !control.mailbox.is_open();
            let may_end = is_stopped || woken == Woken::TargetEnded;
            if may_end && outlet.snapshots() == 0
                || (is_last || is_stopped) && monitor.is_half_aggregated(start.elapsed())
            {
                driver.cut_short(&mut monitor, start.elapsed(), outlet)?;
            }
            match woken {
                Woken::Due => {}
                Woken::TargetEnded => {
                    if is_last {
                        // There is nothing to save CPU time for.
                        monitor.set_update_gap(Duration::ZERO);
                    }
                    monitor.ask_for_update();
                }
                Woken::Stopped => break EndReason::Stopped,
            }
            let commands = control.take();
            if commands.attributes.is_some() {
                driver.pacer.keep_intervals();
            }
            if let Some(attributes) = commands.attributes(monitor.attributes()) {
                monitor.set_attributes(attributes);
            }
            if commands.update {
                monitor.ask_for_update();
            }
            now = Instant::now();
            let is_late = now > due + monitor.attributes().sampling() / 2;
            driver.late_rounds.set(driver.late_rounds.get() + u32::from(is_late));
            urgency.woke(now - start, is_late, waited);
            let cpu = monitor_cpu_time();
            next = monitor.step(now - start)?;
            driver.take_in(&mut monitor, now - start, outlet);
            waited = has_waited(now, cpu);
            if monitor.attributes() != in_force {
                in_force = monitor.attributes();
                outlet.attributes(in_force);
            }
            if is_over(now) {
                if !control.mailbox.is_open() && monitor.is_half_aggregated(now - start) {
                    driver.cut_short(&mut monitor, now - start, outlet)?;
                }
                break EndReason::DurationOver;
            }
        };
        monitor.end()?;
        monitor.space_mut().count_unseen();
        driver.unobserved.look(&driver.processes);
        let missed = driver.unobserved.take(start.elapsed(), true);
        missed.into_iter().for_each(|missed| outlet.send(Event::Missed(missed)));
        Ok(reason)
    }
}

/// Hands over what the monitor finds, and paces it.
struct Driver {
    pacer: Pacer,
    /// The part of a budget that several runs share, and what it was last.
    member: Option<Member>,
    shares: Shares,
    meter: CpuMeter,
    reports: PaceReports,
    late_rounds: Rc<Cell<u32>>,
    found: Rc<RefCell<StepResult>>,
    infos: InfoReader,
    processes: ProcessTable,
    /// Whether it was told that memory is left unobservable.
    told_left_out: bool,
    /// Whether surveys follow from the budget, and not from an interval that was asked for.
    surveys_follow: bool,
    /// Whether the last survey did not know much of the memory.
    much_unknown: bool,
    /// How often new targets are looked for. `None` if there can be none.
    looks: Option<LookPace>,
    unobserved: Unobserved,
}

/// With a larger share of unknown memory, surveys do not clear what they would without a budget.
const MUCH_UNKNOWN: f64 = 0.1;

/// A part of a shared budget that would change by less than this share stays as it is, so that intervals do, too.
const LEAST_SHIFT: f64 = 0.05;

impl Driver {
    fn new(pace: PaceOptions, meter: CpuMeter, member: Option<Member>, targets: &LiveTargets) -> Self {
        let surveys_follow = pace.survey == Some(SurveyInterval::Auto);
        Self {
            pacer: Pacer::new(pace),
            member,
            shares: pace.budget.shares(),
            meter,
            reports: PaceReports::default(),
            late_rounds: Rc::default(),
            found: Rc::default(),
            infos: targets.infos(),
            processes: targets.processes(),
            told_left_out: false,
            surveys_follow,
            much_unknown: false,
            looks: targets.are_open().then(|| LookPace::new(if pace.has_budget { pace.budget.cpu } else { 1.0 })),
            unobserved: Unobserved::default(),
        }
    }

    /// The sink of the monitor.
    fn sink(&self) -> Forward {
        Forward {
            infos: self.infos.clone(),
            late_rounds: Rc::clone(&self.late_rounds),
            cpu: monitor_cpu_time(),
            found: Rc::clone(&self.found),
        }
    }

    /// Ends the aggregation under way at `now`, and hands it over.
    fn cut_short(&mut self, monitor: &mut LiveMonitor, now: Duration, outlet: &mut Outlet) -> Result<(), RunError> {
        monitor.cut_short(now)?;
        self.take_in(monitor, now, outlet);
        Ok(())
    }

    /// Hands over what the monitor has found in the step at `now`, and takes in what the step cost.
    fn take_in(&mut self, monitor: &mut LiveMonitor, now: Duration, outlet: &mut Outlet) {
        let work = monitor.work();
        let survey_cpu = self.meter.stepped(&mut self.pacer, now, work);
        if let Some(looks) = self.looks.as_mut().filter(|_| work.looked || now.is_zero()) {
            let is_alone = work.looked && work.survey.is_none() && !work.updated;
            let cost = is_alone.then(|| self.meter.last_step_without_rounds());
            let joined = if work.looked { work.joined } else { 0 };
            monitor.set_target_search(looks.looked(now, joined, cost, self.pacer.left()));
        }
        let StepResult { snapshot, survey, panel } = std::mem::take(&mut *self.found.borrow_mut());
        let is_snapshot = snapshot.is_some();
        if work.updated || work.looked || now.is_zero() {
            self.unobserved.look(&self.processes);
        }
        let found = snapshot.iter().flat_map(|record| &record.snapshot.targets).map(|target| target.id);
        let surveyed = survey.iter().flat_map(|record| &record.survey.targets).map(|target| target.id);
        self.unobserved.observed(found.chain(surveyed));
        self.unobserved.take(now, false).into_iter().for_each(|missed| outlet.send(Event::Missed(missed)));
        let mut settled = None;
        if is_snapshot || work.survey.is_some() {
            self.share(monitor);
        }
        if let Some(mut record) = snapshot {
            self.pacer.set_longest_aggregation(outlet.control.viewers.longest());
            if let Some(attributes) = self.pacer.aggregated(&record.snapshot, monitor.attributes()) {
                monitor.set_attributes(attributes);
            }
            let pace = self.pacer.pace(monitor.attributes());
            let not_afforded = self.not_afforded(pace, monitor.attributes());
            settled = Some((pace, not_afforded));
            if let Some(cost) = &mut record.cost {
                cost.other_cpu_ns = Some(self.meter.take_helped().as_nanos() as u64);
                let holds = self.meter.take_holds();
                cost.longest_hold_ns = Some(holds.longest.as_nanos() as u64);
                cost.holds_ns = Some(holds.sum.as_nanos() as u64);
                cost.limited = self.pacer.has_budget().then_some(pace.is_limited);
                cost.not_afforded = self.pacer.has_budget().then_some(not_afforded);
            }
            outlet.snapshot(Arc::new(record));
        }
        if let Some(panel) = panel {
            outlet.send(Event::Panel(Arc::new(panel)));
        }
        if let Some(record) = survey {
            self.much_unknown = much_is_unknown(&record.survey);
            let left_out = record.survey.left_out.clone();
            outlet.survey(SurveyRecord { cpu: survey_cpu, ..record });
            if let Some(left_out) = left_out.filter(|_| !self.told_left_out) {
                self.told_left_out = true;
                outlet.send(Event::Notice(Notice::new(Severity::Warning, &left_out)));
            }
        }
        if work.updated || work.looked {
            for news in self.processes.take_news() {
                outlet.send(Event::Notice(Notice::new(Severity::Warning, &news)));
            }
            monitor.set_most_join(self.pacer.most_join());
        }
        if work.updated || work.survey.is_some() {
            monitor.set_update_gap(self.pacer.update_gap(monitor.attributes()));
        }
        let attributes = monitor.attributes();
        if (work.survey.is_some() || work.updated || is_snapshot) && monitor.survey_interval().is_some() {
            monitor.set_survey(self.pacer.survey_settings(attributes));
        }
        if work.survey.is_some() || is_snapshot {
            monitor.set_sampling_stride(self.pacer.every(attributes));
        }
        if let Some((pace, not_afforded)) = settled
            && self.reports.is_due(pace, not_afforded)
        {
            trace::tuned(attributes, pace);
            outlet.send(Event::Pace { pace, not_afforded });
        }
    }

    /// Takes the part of a shared budget that is left for this run.
    fn share(&mut self, monitor: &LiveMonitor) {
        let Some(member) = &self.member else { return };
        let shares = member.part(self.pacer.need(monitor.attributes(), monitor.lost_to_surveys()));
        let shifts = |now: f64, before: f64| (now - before).abs() >= LEAST_SHIFT * before;
        if !shifts(shares.cpu, self.shares.cpu) && !shifts(shares.targets, self.shares.targets) {
            return;
        }
        self.shares = shares;
        self.pacer.set_shares(shares);
        if let Some(looks) = &mut self.looks {
            looks.set_cpu(shares.cpu);
        }
    }

    /// What the budget does not suffice for now.
    fn not_afforded(&mut self, pace: Pace, attributes: Attributes) -> NotAfforded {
        let shortest = SurveySettings::default().interval;
        let is_rare = pace.survey_interval.is_some_and(|interval| interval > shortest);
        NotAfforded {
            surveys: pace.is_limited && self.surveys_follow && is_rare,
            samples: pace.is_limited && pace.sampling_interval.is_some() && self.pacer.every(attributes) > 1,
            mappings: self.pacer.update_gap(attributes) > attributes.update(),
            clears: self.much_unknown,
        }
    }
}

/// Whether a survey does not know of much of the memory whether it was accessed. The first one knows nothing.
fn much_is_unknown(survey: &SurveySnapshot) -> bool {
    let sums: PageSums = survey.targets.iter().map(TargetSurvey::total).sum();
    !survey.interval.is_zero() && sums.figures.unknown as f64 > sums.figures.present as f64 * MUCH_UNKNOWN
}

/// What the monitor found in its last step.
#[derive(Default)]
struct StepResult {
    snapshot: Option<SnapshotRecord>,
    survey: Option<SurveyRecord>,
    panel: Option<PanelSnapshot>,
}

/// Keeps what the monitor finds, with what it cost, for the loop that drives the monitor.
struct Forward {
    infos: InfoReader,
    late_rounds: Rc<Cell<u32>>,
    /// CPU time of this thread up to the last snapshot.
    cpu: Duration,
    found: Rc<RefCell<StepResult>>,
}

impl Sink for Forward {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        let cpu = monitor_cpu_time();
        let unobservable = snapshot.targets.iter().map(|target| target.unobservable_bytes(snapshot.samples));
        let cost = Cost {
            rounds: snapshot.rounds,
            // Only the kernel's DAMON loses aggregations without a late round.
            late_rounds: self.late_rounds.take().max(u32::from(snapshot.rounds / 2 >= snapshot.samples)),
            sampled_rounds: Some(snapshot.sampled_rounds),
            reads: snapshot.reads,
            max_reads: snapshot.max_reads,
            clears: snapshot.clears,
            cpu_ns: (cpu - self.cpu).as_nanos() as u64,
            // The driver adds these.
            other_cpu_ns: None,
            limited: None,
            not_afforded: None,
            unobservable_bytes: unobservable.sum(),
            longest_hold_ns: None,
            holds_ns: None,
        };
        self.cpu = cpu;
        let infos = self.infos.read(snapshot.targets.iter().map(|target| target.id));
        let record =
            SnapshotRecord { snapshot: snapshot.clone(), cost: Some(cost), infos, ..SnapshotRecord::default() };
        self.found.borrow_mut().snapshot = Some(record);
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        let infos = self.infos.read(survey.targets.iter().map(|target| target.id));
        let record = SurveyRecord { survey: survey.clone(), infos, ..SurveyRecord::default() };
        self.found.borrow_mut().survey = Some(record);
        Ok(())
    }

    fn panel_read(&mut self, panel: &PanelSnapshot) -> Result<(), BoxError> {
        self.found.borrow_mut().panel = Some(panel.clone());
        Ok(())
    }
}
