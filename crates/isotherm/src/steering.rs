//! Schemes at work, on a thread of their own, so that no action delays a round of the monitor.

mod file;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use isotherm_act::ProcessActuator;
use isotherm_core::scheme::{Application, Report, Scheme, Schemes};
use isotherm_core::{AccessProbe, BoxError, MemoryUse, Sink, Snapshot, TargetId};
use isotherm_kernel::{Roster, SystemGauges, memory_use, system_memory};
use isotherm_probes::bpf::BpfProbe;
use isotherm_record::Activity;

use crate::cli::Watch;
use crate::session::Control;
use crate::{tell, wrong_call};
use file::SchemeFile;

/// What schemes have done is told at least this often, and their file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Looking at how much memory the targets use may take this part of the time, at most: of large processes it takes long.
const ACCOUNT_SHARE: u32 = 20;

/// Schemes that can work here, before there is anything to act on.
pub struct Ready {
    engine: Schemes<ProcessActuator, SystemGauges>,
    file: SchemeFile,
    desk: Arc<Desk>,
}

/// What the thread has to say.
pub enum Word {
    /// These schemes are in force from here on, in the order in which activities tell of them.
    InForce(Vec<Scheme>),
    /// What schemes have done so far. The last application of each is the last that acted on something since the activity before: others
    /// that follow it find their quota used up.
    Activity(Box<Activity>),
    /// Something went differently than was asked for.
    Complaint(String),
    /// Something that its user may want to know.
    Note(String),
}

/// Ends the program if schemes have nothing to act on in what `subcommand` is to watch.
pub fn check(subcommand: &str, watch: &Watch) {
    if watch.physical {
        let what =
            "schemes act on processes; name them with --pid, or give a command after --, and leave --physical out";
        wrong_call(subcommand, what);
    }
}

/// Opens the probe that tells which pages are young.
fn open_probe() -> Result<Box<dyn AccessProbe + Send>, BoxError> {
    Ok(Box::new(BpfProbe::open()?.with_sweeps(false)))
}

impl Ready {
    /// Reads schemes and tries what they ask for. Nothing if there is anything wrong with the file: then the user has been told.
    pub fn new(file: &Path) -> Result<Option<Self>> {
        let (file, schemes) = SchemeFile::open(file);
        let schemes = match schemes {
            Ok(schemes) => schemes,
            // As compilers do: file, line and column first, so that editors find the place.
            Err(complaints) => {
                tell(complaints);
                return Ok(None);
            }
        };
        let actuator = ProcessActuator::new(Roster::default(), open_probe);
        let engine = Schemes::new(schemes, actuator, SystemGauges::new())?;
        Ok(Some(Self { engine, file, desk: Arc::default() }))
    }

    /// Whoever is given it may ask for the schemes to be read again.
    pub fn reload(&self) -> impl Fn() + Send + 'static {
        let desk = Arc::clone(&self.desk);
        move || desk.put(|orders| orders.reload = true)
    }

    /// Starts to act on the processes of `roster`, on the snapshots that are offered. `control` makes the monitor rest while all
    /// schemes sleep, and stop if they cannot go on. How much memory the targets use is found out only if `account` asks for it.
    pub fn start(self, roster: Roster, control: Control, words: Sender<Word>, account: bool) -> Result<Steering> {
        let Self { mut engine, file, desk } = self;
        engine.actuator_mut().act_on(roster.clone());
        let over = engine.actuator().over();
        let mut steersman = Steersman {
            engine,
            file,
            desk: Arc::clone(&desk),
            control,
            words,
            roster,
            account,
            start: Instant::now(),
            next_account: Instant::now(),
            memory: Vec::new(),
            refused: HashMap::new(),
            acting: HashMap::new(),
        };
        let work = move || {
            let ended = steersman.steer();
            // Without schemes there is no reason to go on.
            steersman.control.rest.want(false);
            if ended.is_err() {
                steersman.control.stop.ask();
            }
            ended
        };
        let thread = std::thread::Builder::new().name("schemes".into());
        let thread = thread.spawn(work).context("the schemes' thread cannot be started")?;
        Ok(Steering { desk, over, thread })
    }
}

/// Schemes that are at work.
pub struct Steering {
    desk: Arc<Desk>,
    /// Ends an application, of many actions perhaps, before it is through.
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Steering {
    /// Hands over a snapshot. If they are still at an older one, and another waits already, that other is passed over: what counts is
    /// how the memory is now.
    pub fn offer(&self, snapshot: Snapshot) {
        self.desk.put(|orders| orders.snapshot = Some((snapshot, Instant::now())));
    }

    /// Ends their work: what has begun is finished, a batch at most, and nothing else begins.
    pub fn end(self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        self.desk.put(|orders| orders.over = true);
        self.thread.join().unwrap_or_else(|_| bail!("the schemes' thread died of a bug in isotherm"))
    }
}

/// Where orders for the thread are laid down.
#[derive(Default)]
struct Desk {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    /// The newest snapshot, and when it came.
    snapshot: Option<(Snapshot, Instant)>,
    reload: bool,
    over: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        // Each change is one assignment, so that a panic in between leaves nothing half done.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    /// Takes what there is; waits for something until `due` if there is nothing.
    fn take(&self, due: Instant) -> Orders {
        let nothing = |orders: &mut Orders| orders.snapshot.is_none() && !orders.reload && !orders.over;
        let left = due.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, nothing);
        let (mut orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let over = orders.over;
        Orders { over, ..std::mem::take(&mut *orders) }
    }
}

/// The thread's own.
struct Steersman {
    engine: Schemes<ProcessActuator, SystemGauges>,
    file: SchemeFile,
    desk: Arc<Desk>,
    control: Control,
    words: Sender<Word>,
    roster: Roster,
    account: bool,
    /// When the run began, as the times of snapshots tell.
    start: Instant,
    next_account: Instant,
    memory: Vec<(TargetId, MemoryUse)>,
    /// The last refusal of each target that the user was told.
    refused: HashMap<TargetId, String>,
    /// What has acted on something since it was last told what has been done: of each scheme the last application.
    acting: HashMap<Arc<str>, Application>,
}

impl Steersman {
    fn steer(&mut self) -> Result<()> {
        self.say(Word::InForce(self.engine.schemes().cloned().collect()));
        let mut told = Instant::now();
        loop {
            let mut due = told + EVERY;
            if let Some(until) = self.engine.sleeps_until() {
                due = due.min(self.start + until);
            }
            let Orders { snapshot, reload, over } = self.desk.take(due);
            if reload || self.file.has_changed() {
                self.reload();
            }
            if let Some((snapshot, came)) = snapshot {
                // What came late says less: the earliest beginning is the best, and time never goes back.
                self.start = came.checked_sub(snapshot.time).map_or(self.start, |start| start.min(self.start));
                let applied = self.engine.aggregated(&snapshot);
                self.note_acting(snapshot.time);
                if !self.engine.actuator().over().load(Ordering::Relaxed) {
                    applied.map_err(|error| anyhow!("the schemes cannot go on: {error}"))?;
                }
            } else if self.engine.sleeps_until().is_some_and(|until| self.start.elapsed() >= until) {
                self.engine.look(self.start.elapsed(), &Snapshot::default());
            }
            self.control.rest.want(self.engine.sleeps_until().is_some());
            self.tell_refusals();
            if over || told.elapsed() >= EVERY {
                told = Instant::now();
                self.tell_activity();
            }
            if over {
                return Ok(());
            }
        }
    }

    fn reload(&mut self) {
        let path = self.file.path().display().to_string();
        let replaced = match self.file.read() {
            Ok(schemes) => self.engine.replace(schemes).map_err(|error| format!("{path}: {error}")),
            Err(complaints) => Err(complaints.to_string()),
        };
        match replaced {
            Ok(()) => {
                self.say(Word::InForce(self.engine.schemes().cloned().collect()));
                self.say(Word::Note(format!("{path}: its schemes are in force now")));
            }
            Err(why) => self.complain(format!("{why}\nthe schemes that were in force before stay so")),
        }
    }

    /// Tells why no call could be made inside targets; once, as long as the reason is the same.
    fn tell_refusals(&mut self) {
        let refusals: Vec<_> = self.engine.actuator_mut().take_refusals().collect();
        for (target, refusal) in refusals {
            let refusal = refusal.to_string();
            if self.refused.get(&target) != Some(&refusal) {
                self.complain(format!("no call could be made inside process {target}: {refusal}"));
                self.refused.insert(target, refusal);
            }
        }
        let members = self.roster.members();
        self.refused.retain(|target, _| members.contains_key(target));
    }

    /// Takes note of applications that acted on something: between two tellings, others follow that find their quota used up.
    fn note_acting(&mut self, now: Duration) {
        for report in self.engine.reports() {
            if report.last.time == now && !report.last.regions.is_empty() {
                self.acting.insert(Arc::clone(&report.name), report.last.clone());
            }
        }
    }

    /// Tells what has been done; of the applications since the last telling, the last one that acted on something.
    fn tell_activity(&mut self) {
        if self.account && Instant::now() >= self.next_account {
            let began = Instant::now();
            let ids: Vec<TargetId> = self.roster.members().keys().copied().collect();
            let of = |id: TargetId| Some((id, memory_use(Path::new("/"), id.0).ok()?));
            self.memory = ids.into_iter().filter_map(of).collect();
            self.next_account = Instant::now() + began.elapsed() * ACCOUNT_SHARE;
        }
        let mut schemes: Vec<Report> = self.engine.reports().cloned().collect();
        for report in &mut schemes {
            match self.acting.remove(&report.name) {
                Some(acting) => report.last = acting,
                None => report.last.regions.clear(),
            }
        }
        self.acting.clear();
        let system = system_memory(Path::new("/")).unwrap_or_default();
        let activity = Activity { time: self.start.elapsed(), schemes, memory: self.memory.clone(), system };
        self.say(Word::Activity(Box::new(activity)));
    }

    fn complain(&self, what: String) {
        self.say(Word::Complaint(what));
    }

    fn say(&self, word: Word) {
        // If nobody listens any more, the run is about to end.
        let _ = self.words.send(word);
    }
}
