//! The thread of the schemes in a live run: it acts in parallel with the monitor, so that no action delays a sampling
//! round.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isotherm_act::{FrameOwners, ProcessActuator, ProcessInspector};
use isotherm_core::scheme::{Actuator, Application, Feed, Goal, Metric, Report, Scheme, Schemes};
use isotherm_core::{AccessProbe, Attributes, BoxError, MemoryUse, Sink, Snapshot, TargetId, units};
use isotherm_kernel::cgroup::SelectedCgroups;
use isotherm_kernel::page_cache::FileTable;
use isotherm_kernel::{ProcessTable, Selection, compressed_swap, memory_use, system_memory};
use isotherm_probes::bpf::BpfProbe;
use isotherm_record::Activity;
use isotherm_scheme::Diagnostics;

use super::faults::MajorFaults;
use super::fed::RunGauges;
use super::file::{SchemeFile, SchemeFileWatch};
use super::frames::by_damon;
use super::left::{self, restore_limits};
use super::limits::SchemeLimits;
use super::returns::notice;
use super::wakes;
use crate::delivery::Delivery;
use crate::error::chain;
use crate::mailbox::Messages;
use crate::pace::HelperThread;
use crate::probe::{OpenLook, look_at_files};
use crate::shared::snapshot_part;
use crate::{Control, Event, Notice, RunError, SchemeOptions, SchemeSource, Severity, trace};

/// An activity is reported, and the scheme file checked, at least this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Reading how much memory the targets use takes at most one part in this many of the time.
const MEMORY_USE_SHARE: u32 = 1000;

type Engine = Schemes<ProcessActuator, ProcessInspector, RunGauges>;

/// Opens the probe that finds which pages are young. Whether others access memory is known before it is acted on.
fn open_probe() -> Result<Box<dyn AccessProbe + Send>, BoxError> {
    Ok(Box::new(BpfProbe::open()?.with_sweeps(false).with_elsewhere(false)))
}

/// What schemes act on.
pub(crate) enum ActedOn<'a> {
    /// Processes. Actions on cgroups are for those that the selection names; `None` if it is a command.
    Processes(Option<&'a Selection>),
    /// The page cache of files.
    Files(FileTable),
    /// Physical memory.
    Physical,
}

/// Schemes that can work here, before there is anything to act on.
pub(crate) struct PreparedSchemes {
    engine: Engine,
    file: Option<SchemeFile>,
    memory_use: bool,
    surveyed: bool,
    limits: SchemeLimits,
}

impl PreparedSchemes {
    /// Reads the schemes, which are for `of`, and tests what they need. `look` opens what finds which pages are young;
    /// if it is `None`, page tables are read for that. `surveyed` says whether the run has surveys.
    pub(crate) fn new(
        options: SchemeOptions,
        of: ActedOn<'_>,
        look: Option<OpenLook>,
        surveyed: bool,
    ) -> Result<Self, RunError> {
        let (schemes, file) = match options.schemes {
            SchemeSource::Fixed(schemes) => (schemes, None),
            SchemeSource::File(path) => {
                let (file, schemes) = SchemeFile::open(&path);
                (schemes.map_err(RunError::SchemeFile)?, Some(file))
            }
        };
        let processes = ProcessTable::default();
        let inspector = ProcessInspector::new(processes.clone(), open_probe);
        let owners = FrameOwners::new();
        let inspector = match &of {
            ActedOn::Physical => inspector.with_physical(owners.clone()),
            ActedOn::Processes(_) | ActedOn::Files(_) => inspector,
        };
        let inspector = match (&of, look) {
            (ActedOn::Files(table), _) => inspector.with_probe(look_at_files(table.clone())?).with_files(table.clone()),
            (ActedOn::Processes(_) | ActedOn::Physical, Some(open)) => inspector.with_probe(open()?),
            (ActedOn::Processes(_) | ActedOn::Physical, None) => inspector,
        };
        let SchemeOptions { memory_use, fed, limits, least_limits, dry_run, .. } = options;
        let selection = match &of {
            ActedOn::Processes(selection) => *selection,
            ActedOn::Files(_) | ActedOn::Physical => None,
        };
        let cgroups = || selection.map(|selection| SelectedCgroups::new(Path::new("/"), selection.clone()));
        let actuator = ProcessActuator::new(processes).dry(dry_run);
        let actuator = cgroups().into_iter().fold(actuator, ProcessActuator::with_cgroups);
        let actuator = match of {
            ActedOn::Processes(_) => actuator,
            ActedOn::Physical => actuator.with_physical(owners, by_damon()),
            ActedOn::Files(table) => actuator.with_files(table),
        };
        let actuator = least_limits.into_iter().fold(actuator, ProcessActuator::with_least_limits);
        let engine = Schemes::new(schemes, actuator, inspector, RunGauges::new(fed, cgroups()))?;
        let (all, out) = limits.begin();
        Ok(Self { engine: engine.limited(all, out), file, memory_use, surveyed, limits })
    }

    /// The longest aggregation interval that all schemes work with. `None` if one needs the default intervals.
    pub(crate) fn longest_aggregation(&self) -> Option<Duration> {
        longest_aggregation(&self.engine)
    }

    /// The longest aggregation interval with which all schemes act in time, whatever the sampling interval is.
    pub(crate) fn longest_in_time(&self) -> Duration {
        self.engine.schemes().map(Scheme::longest_in_time).fold(Duration::MAX, Duration::min)
    }

    /// The files that the schemes read while they run.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let goals = self.engine.schemes().flat_map(|scheme| scheme.quota.goals());
        let fed = |goal: &Goal| match goal.metric() {
            Metric::Fed(Feed::File(path)) => Some(PathBuf::from(&**path)),
            _ => None,
        };
        goals.filter_map(fed).collect()
    }

    /// Starts to act on `processes`, on the snapshots in the mailbox of `control`. The monitor pauses while all
    /// schemes sleep, and the run stops if the schemes fail. `first` are the attributes that the run begins with, if
    /// its intervals follow from what is observed: schemes that need them can be put in force later. `own` says which
    /// of the processes the schemes are for, if they are not for all.
    pub(crate) fn start(
        self,
        processes: ProcessTable,
        control: Control,
        delivery: Delivery,
        first: Option<Attributes>,
        own: Option<Box<dyn Fn(TargetId) -> bool + Send>>,
    ) -> Result<SchemeThread, RunError> {
        let tuned = first.zip(self.longest_aggregation());
        let Self { mut engine, file, memory_use, surveyed, limits } = self;
        engine.actuator_mut().act_on(processes.clone());
        engine.inspector_mut().inspect(processes.clone());
        let interrupt = engine.actuator().interrupt();
        control.mailbox.open();
        let file = file.map(|file| file.watch(control.clone())).transpose()?;
        let mut worker = Worker {
            engine,
            file,
            control: control.clone(),
            delivery,
            processes,
            memory_use,
            limits,
            surveyed,
            tuned,
            own,
            next_memory_use: Instant::now(),
            memory: Vec::new(),
            faults: MajorFaults::default(),
            compressed: compressed_swap(Path::new("/")),
            refused: HashMap::new(),
            unswapped: HashSet::new(),
            acting: HashMap::new(),
        };
        let work = move || {
            let mut helper = worker.delivery.helpers().thread();
            worker.restore_limits();
            let ended = worker.work(&mut helper);
            worker.end_locks();
            worker.end_limits();
            worker.report_stops();
            worker.limits.end(worker.engine.taken_out());
            // Without schemes there is nothing to rest for.
            worker.control.rest.want(false);
            if ended.is_err() {
                worker.control.stop();
            }
            ended
        };
        let name = "schemes";
        let thread = std::thread::Builder::new().name(name.into()).spawn(work);
        let thread = thread.map_err(|source| RunError::Thread { name: name.into(), source })?;
        Ok(SchemeThread { control, interrupt, thread: Some(thread) })
    }
}

/// The running schemes' thread. Dropping it, as at the start of a run that fails, ends the work.
pub(crate) struct SchemeThread {
    control: Control,
    /// Ends an application, which may consist of many actions, before it is through.
    interrupt: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl SchemeThread {
    /// Ends the work. What has begun is finished, a batch at most, and nothing else begins.
    pub(crate) fn end(mut self) -> Result<(), RunError> {
        self.join()
    }

    /// Whether the thread has ended, as after an error.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<(), RunError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.interrupt.store(true, Ordering::Relaxed);
        self.control.mailbox.end();
        thread.join().unwrap_or_else(|_| Err(RunError::Panicked { thread: "schemes".into() }))
    }
}

impl Drop for SchemeThread {
    fn drop(&mut self) {
        // What made the start fail is told, and not what followed from it.
        let _ = self.join();
    }
}

/// A stop of a target that is longer is worth a warning: no call begins after 5 ms of a stop.
const LONG_STOP: Duration = Duration::from_millis(10);

/// The thread's own state.
struct Worker {
    engine: Engine,
    file: Option<SchemeFileWatch>,
    control: Control,
    delivery: Delivery,
    processes: ProcessTable,
    memory_use: bool,
    limits: SchemeLimits,
    /// Whether the run has surveys.
    surveyed: bool,
    /// The attributes that the run began with, and its longest aggregation interval, as long as its intervals follow
    /// from what is observed.
    tuned: Option<(Attributes, Duration)>,
    /// Which of the processes the schemes are for. `None` for all.
    own: Option<Box<dyn Fn(TargetId) -> bool + Send>>,
    next_memory_use: Instant,
    memory: Vec<(TargetId, MemoryUse)>,
    faults: MajorFaults,
    /// The bytes of compressed swap when the schemes began.
    compressed: Option<u64>,
    /// The refusal of each target that was reported last.
    refused: HashMap<TargetId, String>,
    /// The schemes for which the lack of swap was reported.
    unswapped: HashSet<Arc<str>>,
    /// For each scheme, its last application that acted on something since the last activity was reported.
    acting: HashMap<Arc<str>, Application>,
}

impl Worker {
    fn work(&mut self, helper: &mut HelperThread) -> Result<(), RunError> {
        self.report_schemes();
        // Only faults from here on count.
        self.read_faults();
        let mut reported = Instant::now();
        let mut acted = self.action_cpu_time();
        loop {
            let before = std::mem::replace(&mut acted, self.action_cpu_time());
            helper.count_without(acted.saturating_sub(before));
            let mut due = reported + REPORT_EVERY;
            if let Some(until) = self.engine.sleeps_until() {
                due = due.min(Instant::now() + until.saturating_sub(self.now()));
            }
            let Messages { snapshot, replace, reload, read, is_over, .. } = self.control.mailbox.take(due);
            if let Some(schemes) = replace {
                let replaced = self.engine.replace(schemes).map_err(|error| chain(&error));
                self.report_change(replaced, "other schemes are in force");
            }
            if let (true, Some(file)) = (reload, &self.file) {
                file.reload();
            }
            if let Some(schemes) = read {
                self.replace_by_file(schemes);
            }
            if let Some(record) = snapshot {
                let snapshot = &record.snapshot;
                let part = self.own.as_ref().map(|own| snapshot_part(snapshot, own));
                let applied = self.engine.aggregated(part.as_ref().unwrap_or(snapshot));
                self.note_acting(snapshot.time);
                self.engine.reports().for_each(|report| trace::scheme_applied(report, snapshot.time));
                self.limits.note(self.engine.taken_out());
                if !self.engine.actuator().interrupt().load(Ordering::Relaxed) {
                    applied.map_err(RunError::Schemes)?;
                }
            } else if self.engine.sleeps_until().is_some_and(|until| self.now() >= until) {
                self.engine.look(self.now(), &Snapshot::default());
            }
            self.control.rest.want(self.engine.sleeps_until().is_some());
            self.report_refusals();
            for wake in self.engine.take_wakes() {
                self.delivery.send(Event::Notice(wakes::notice(&wake)));
            }
            for returns in self.engine.take_returns() {
                self.delivery.send(Event::Notice(notice(returns)));
            }
            if is_over || reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                self.report_activity(is_over);
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// The time since the start of the run.
    fn now(&self) -> Duration {
        self.control.began().map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// Gives back the limits of cgroups that runs have left which were killed.
    fn restore_limits(&self) {
        if !self.engine.actuator().is_dry() {
            restore_limits().into_iter().for_each(|notice| self.delivery.send(Event::Notice(notice)));
        }
    }

    /// Unlocks what this run has locked.
    fn end_locks(&mut self) {
        let news = self.engine.actuator_mut().end_locks();
        news.iter().for_each(|news| self.delivery.send(Event::Notice(left::notice(news))));
    }

    /// Gives back the limits of cgroups that this run has set.
    fn end_limits(&mut self) {
        self.engine.actuator_mut().end_limits();
        self.report_news();
    }

    /// The CPU time of this thread that actions took so far. Quotas bound it, and the budget does not. What filters
    /// take is a part of the budget.
    fn action_cpu_time(&self) -> Duration {
        self.engine.actuator().cpu_time()
    }

    /// Puts what the scheme file has now in force.
    fn replace_by_file(&mut self, schemes: Result<Vec<Scheme>, Diagnostics>) {
        let Some(file) = &self.file else { return };
        let path = file.path().display().to_string();
        let replaced = match schemes {
            Ok(schemes) => self.engine.replace(schemes).map_err(|error| format!("{path}: {}", chain(&error))),
            Err(diagnostics) => Err(diagnostics.to_string()),
        };
        self.report_change(replaced, &format!("{path}: its schemes are in force now"));
    }

    fn report_change(&mut self, replaced: Result<(), String>, done: &str) {
        match replaced {
            Ok(()) => {
                self.report_schemes();
                self.notice(Severity::Info, done);
                self.keep_intervals();
            }
            Err(why) => self.notice(Severity::Warning, &format!("{why}\nthe schemes that were in force before stay")),
        }
    }

    /// Goes back to the intervals that the run began with, and keeps them, if the schemes that are in force now need
    /// that.
    fn keep_intervals(&mut self) {
        let Some((first, most)) = self.tuned else { return };
        if longest_aggregation(&self.engine).is_some_and(|longest| longest >= most) {
            return;
        }
        self.tuned = None;
        self.control.set_attributes(first);
        self.engine.compare_over(first.sampling());
        let (sampling, aggregation) = (units::duration(first.sampling()), units::duration(first.aggregation()));
        let text = format!("the intervals stay {sampling} and {aggregation} from now on: the schemes need that");
        self.notice(Severity::Info, &text);
    }

    fn report_schemes(&self) {
        self.delivery.send(Event::Schemes(self.engine.schemes().cloned().collect()));
        if let Some(text) = unsurveyed(self.engine.schemes()).filter(|_| !self.surveyed) {
            self.notice(Severity::Warning, &text);
        }
    }

    /// Says why no call could be made inside a target, and why a cgroup was left alone; once, as long as the reason is
    /// the same.
    fn report_refusals(&mut self) {
        let refusals: Vec<_> = self.engine.actuator_mut().take_refusals().collect();
        for (target, refusal) in refusals {
            let refusal = chain(&refusal);
            if self.refused.get(&target) != Some(&refusal) {
                let text = format!("no call could be made inside {target}: {refusal}");
                self.notice(Severity::Warning, &text);
                self.refused.insert(target, refusal);
            }
        }
        self.report_news();
        let members = self.processes.members();
        self.refused.retain(|target, _| members.contains_key(target));
    }

    /// Says what became of cgroups.
    fn report_news(&mut self) {
        let news = self.engine.actuator_mut().take_news();
        news.into_iter().for_each(|news| self.delivery.send(Event::Notice(left::notice(&news))));
    }

    /// Says for how long targets were stopped for calls inside them, if they were.
    fn report_stops(&self) {
        let (all, longest) = (self.engine.actuator().stopped(), self.engine.actuator().longest_stop());
        if let Some((severity, text)) = stops(all, longest) {
            self.notice(severity, &text);
        }
    }

    /// Keeps applications that acted on something: others that follow before the report may find the quota used up.
    fn note_acting(&mut self, now: Duration) {
        for report in self.engine.reports() {
            if report.last.time == now && !report.last.regions.is_empty() {
                self.acting.insert(Arc::clone(&report.name), report.last.clone());
            }
        }
    }

    /// Reports what was done since the start, and of the applications since the last report the last that acted.
    /// At the end of the run, the memory that the targets use is read in any case: what the schemes have done is the
    /// difference to that at the start.
    fn report_activity(&mut self, is_last: bool) {
        if self.memory_use && (is_last || Instant::now() >= self.next_memory_use) {
            let began = Instant::now();
            let members = self.processes.members();
            // Those that share an address space have their memory once.
            let alone = members.iter().filter(|(_, member)| member.shares.is_none());
            let ids: Vec<TargetId> = alone.map(|(id, _)| *id).filter(|id| self.is_own(*id)).collect();
            drop(members);
            let read = |id: TargetId| Some((id, memory_use(Path::new("/"), id.pid()?).ok()?));
            let memory: Vec<(TargetId, MemoryUse)> = ids.into_iter().filter_map(read).collect();
            // Of targets that have ended, the last reading is what is known.
            if !is_last || !memory.is_empty() {
                self.memory = memory;
            }
            self.next_memory_use = Instant::now() + began.elapsed() * MEMORY_USE_SHARE;
        }
        let mut schemes: Vec<Report> = self.engine.reports().cloned().collect();
        for report in &schemes {
            if let Some(notice) = wakes::no_swap(report).filter(|_| self.unswapped.insert(report.name.clone())) {
                self.delivery.send(Event::Notice(notice));
            }
        }
        for report in &mut schemes {
            match self.acting.remove(&report.name) {
                Some(acting) => report.last = acting,
                None => report.last.regions.clear(),
            }
        }
        self.acting.clear();
        let system = system_memory(Path::new("/")).unwrap_or_default();
        let major_faults = Some(self.read_faults());
        // Swap may have come since.
        let compressed = compressed_swap(Path::new("/"));
        let compressed_growth = compressed.map(|now| now.saturating_sub(self.compressed.unwrap_or(0)));
        let (time, memory) = (self.now(), self.memory.clone());
        let activity = Activity { time, schemes, memory, system, major_faults, compressed_growth, surroundings: None };
        self.delivery.send(Event::Activity(Arc::new(activity)));
    }

    /// The major faults of all targets so far.
    fn read_faults(&mut self) -> u64 {
        let all: Vec<TargetId> = self.processes.members().keys().copied().collect();
        let targets: Vec<TargetId> = all.into_iter().filter(|id| self.is_own(*id)).collect();
        self.faults.read(Path::new("/"), &targets)
    }

    /// Whether the schemes are for a target.
    fn is_own(&self, id: TargetId) -> bool {
        self.own.as_ref().is_none_or(|own| own(id))
    }

    fn notice(&self, severity: Severity, text: &str) {
        self.delivery.send(Event::Notice(Notice::new(severity, text)));
    }
}

/// The longest aggregation interval that all schemes work with. `None` if one needs the default intervals.
fn longest_aggregation(engine: &Engine) -> Option<Duration> {
    engine.schemes().try_fold(Duration::MAX, |least, scheme| Some(least.min(scheme.longest_aggregation()?)))
}

/// The warning about schemes that take memory away by samples only. `None` without such schemes.
fn unsurveyed<'a>(schemes: impl Iterator<Item = &'a Scheme>) -> Option<String> {
    let schemes: Vec<&Scheme> = schemes.filter(|scheme| scheme.action.takes_away()).collect();
    let names: Vec<&str> = schemes.iter().map(|scheme| &*scheme.name).collect();
    let limits = schemes.iter().any(|scheme| scheme.action.limit().is_some());
    let no_limits = if limits { ", and no limit of a cgroup is set" } else { "" };
    let (first, rest) = names.split_first()?;
    let (what, acts) = match rest {
        [] => (format!("the scheme {first}"), "acts"),
        _ => (format!("the schemes {}", names.join(", ")), "act"),
    };
    Some(format!(
        "without a survey, {what} {acts} on whole regions, but samples check only single pages of them: a region \
         can hold pages that are in use, and no page is checked again just before the action{no_limits}; leave out \
         --survey off, and use the probe bpf or idle (isotherm doctor says what they need)"
    ))
}

/// The notice about the time for which targets were stopped, in all and at most. A long stop is a warning.
fn stops(all: Duration, longest: Duration) -> Option<(Severity, String)> {
    let severity = if longest > LONG_STOP { Severity::Warning } else { Severity::Info };
    let text = format!("targets were stopped for {all:.1?} for calls inside them, for {longest:.1?} at most");
    (!all.is_zero()).then_some((severity, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_which_targets_were_stopped_is_told_and_a_long_stop_is_a_warning() {
        let ms = Duration::from_millis;
        let text = |longest| format!("targets were stopped for 94.0ms for calls inside them, for {longest} at most");
        assert_eq!(stops(ms(0), ms(0)), None);
        assert_eq!(stops(ms(94), ms(5)), Some((Severity::Info, text("5.0ms"))));
        assert_eq!(stops(ms(94), ms(94)), Some((Severity::Warning, text("94.0ms"))));
    }
}
