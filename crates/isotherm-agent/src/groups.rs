//! The groups of a daemon, on one budget. Groups that are watched in the same manner share a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::Granularity;
use isotherm_core::scheme::Scheme;
use isotherm_kernel::{Containers, Processes};
use isotherm_run::{Allowance, EndReason, MarkError, Need, Notice, RunError, Session, Severity, View, chain};

use crate::cgroups;
use crate::config::{AttributeSettings, Config, Group, GroupSettings, Manner};
use crate::engines::{Engine, Engines};
use crate::history::HistoryWriter;
use crate::hub::{Hub, HubSink};
use crate::journal;
use crate::kept::{GroupKeeper, KeptGroup};
use crate::view::State;

/// The time from a failure of a group to the next attempt to watch it.
const RETRY: Duration = Duration::from_secs(30);

/// All groups.
pub struct Groups {
    allowance: Allowance,
    engines: Engines,
    /// Below it, each group has its history.
    history: Option<PathBuf>,
    /// Held by each history that is written.
    histories: Arc<()>,
    keeper: Option<GroupKeeper>,
    is_ending: AtomicBool,
    by_name: Mutex<BTreeMap<String, Arc<Watched>>>,
}

/// A group that is watched, or was.
pub struct Watched {
    /// What is known of it.
    pub hub: Arc<Hub>,
    state: Mutex<Inner>,
}

struct Inner {
    group: Group,
    origin: Origin,
    run: Run,
}

/// What has made a group.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    /// The configuration, which says this of it.
    Configuration(Box<GroupSettings>),
    /// A request.
    Request,
    /// The cgroup at this path has much memory of a group with this name, which says this of it.
    Cgroup { of: String, path: String, settings: Box<GroupSettings> },
}

enum Run {
    Watching { runner: Runner, granularity: Granularity },
    Paused,
    Failed { why: String, retry: Instant },
}

/// What watches a group.
enum Runner {
    /// A run of its own.
    Own(Session),
    /// Its part of a run that several groups may share.
    Shared { view: View, engine: Arc<Engine> },
}

impl Runner {
    fn set_schemes(&self, schemes: Vec<Scheme>) {
        match self {
            Self::Own(session) => session.control().set_schemes(schemes),
            Self::Shared { view, .. } => view.set_schemes(schemes),
        }
    }

    fn mark(&self, text: &str) -> Result<(), MarkError> {
        match self {
            Self::Own(session) => session.control().mark(text),
            Self::Shared { view, .. } => view.mark(text),
        }
    }
}

/// Why a request to a group is refused.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no such group.
    #[error("there is no group {0:?}")]
    Unknown(String),
    /// There is one.
    #[error("there is a group {0:?} already; change it, or give another name")]
    Exists(String),
    /// The group has no run.
    #[error("the group is not watched now; resume it first")]
    NotWatched,
    /// The configuration of the group does not allow it, or it contradicts itself.
    #[error("{0}")]
    Refused(String),
}

impl Groups {
    /// No groups yet, on a budget of all. Each has its history in a directory below `history`.
    pub fn new(cpu: f64, history: Option<PathBuf>) -> Self {
        Self {
            allowance: Allowance::new(cpu),
            engines: Engines::default(),
            keeper: history.as_deref().and_then(Path::parent).map(GroupKeeper::new),
            history,
            histories: Arc::default(),
            is_ending: AtomicBool::new(false),
            by_name: Mutex::default(),
        }
    }

    /// The budget of all.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Below it, each group has its history.
    pub fn history(&self) -> Option<&PathBuf> {
        self.history.as_ref()
    }

    /// Puts a configuration in force: begins, changes and ends what differs. Groups that requests have made stay.
    pub fn configure(&self, config: &Config) {
        self.allowance.set_cpu(config.settings.cpu_budget.0);
        let mut gone = Vec::new();
        self.lock().retain(|name, watched| {
            let is_gone = matches!(watched.lock().origin, Origin::Configuration(_))
                && config.groups.iter().all(|group| group.settings.name != *name);
            gone.extend(is_gone.then(|| Arc::clone(watched)));
            !is_gone
        });
        gone.iter().for_each(|watched| watched.end());
        for group in &config.groups {
            let known = self.lock().get(&group.settings.name).cloned();
            let origin = Origin::Configuration(group.settings.clone().into());
            match known {
                // What requests have changed stays until the configuration says something else.
                Some(watched) if watched.lock().origin == origin => {}
                Some(watched) => self.change(&watched, group.clone(), origin),
                None => drop(self.add(group.clone(), origin)),
            }
        }
    }

    /// Makes the groups again that requests had made before the daemon was started.
    pub fn restore(&self) {
        let Some(keeper) = &self.keeper else { return };
        let (groups, lost) = keeper.read();
        lost.iter().for_each(|why| journal::warning(why));
        for (group, is_paused) in groups {
            let name = group.settings.name.clone();
            if self.insert(group, Origin::Request).is_none() {
                journal::warning(&format!("the group {name} of a request is not there: the configuration has one"));
            } else if !is_paused {
                // It was just added.
                self.get(&name).into_iter().for_each(|watched| self.resume(&watched));
            }
        }
    }

    /// Keeps the groups that requests have made, for the next start.
    pub fn keep(&self) {
        // At the end, groups go that are to be there again.
        let Some(keeper) = self.keeper.as_ref().filter(|_| !self.is_ending.load(Ordering::Relaxed)) else { return };
        let kept = |(_, watched): (String, Arc<Watched>)| {
            let inner = watched.lock();
            let paused = matches!(inner.run, Run::Paused);
            (inner.origin == Origin::Request).then(|| KeptGroup { paused, settings: inner.group.settings.clone() })
        };
        if let Err(why) = keeper.write(self.all().into_iter().filter_map(kept).collect()) {
            journal::warning(&why);
        }
    }

    /// All groups, by name.
    pub fn all(&self) -> Vec<(String, Arc<Watched>)> {
        self.lock().iter().map(|(name, watched)| (name.clone(), Arc::clone(watched))).collect()
    }

    /// The group of this name.
    ///
    /// # Errors
    /// If no group has it.
    pub fn get(&self, name: &str) -> Result<Arc<Watched>, GroupError> {
        self.lock().get(name).cloned().ok_or_else(|| GroupError::Unknown(name.into()))
    }

    /// Makes a group.
    ///
    /// # Errors
    /// If there is one of this name.
    pub fn make(&self, group: Group) -> Result<Arc<Watched>, GroupError> {
        let name = group.settings.name.clone();
        self.add(group, Origin::Request).ok_or(GroupError::Exists(name))
    }

    /// Gives a group another configuration.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn replace(&self, group: Group) -> Result<Arc<Watched>, GroupError> {
        let watched = self.get(&group.settings.name)?;
        let origin = match &watched.lock().origin {
            Origin::Cgroup { .. } => Origin::Request,
            other => other.clone(),
        };
        self.change(&watched, group, origin);
        Ok(watched)
    }

    /// Ends a group and forgets it. Its history stays.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn delete(&self, name: &str) -> Result<(), GroupError> {
        let watched = self.lock().remove(name).ok_or_else(|| GroupError::Unknown(name.into()))?;
        watched.end();
        Ok(())
    }

    /// Watches a group again that is paused or has ended.
    pub fn resume(&self, watched: &Watched) {
        let mut inner = watched.lock();
        if inner.is_over(&watched.hub) {
            inner.begin(&watched.hub, self);
        }
    }

    /// Changes the attributes of a group from the next aggregation on. What is left out stays.
    ///
    /// # Errors
    /// If the group is not watched, or the attributes contradict each other.
    pub fn set_attributes(&self, watched: &Watched, wanted: AttributeSettings) -> Result<(), GroupError> {
        let mut inner = watched.lock();
        let Run::Watching { runner, granularity } = &inner.run else { return Err(GroupError::NotWatched) };
        let now = &inner.group.settings.attributes;
        let together = AttributeSettings {
            sample: wanted.sample.or(now.sample),
            aggregate: wanted.aggregate.or(now.aggregate),
            update: wanted.update.or(now.update),
            regions: wanted.regions.or(now.regions),
        };
        let mut changed = inner.group.clone();
        changed.settings.attributes = together;
        let attributes = changed.attributes(*granularity).map_err(GroupError::Refused)?;
        let stays = match (runner, changed.manner()) {
            (Runner::Own(session), _) => {
                session.control().set_attributes(attributes);
                true
            }
            (Runner::Shared { engine, .. }, Some(manner)) if engine.run.views() == 1 => {
                engine.run.control().set_attributes(attributes);
                engine.set_manner(manner);
                true
            }
            // The others keep their attributes.
            (Runner::Shared { .. }, _) => false,
        };
        inner.group = changed;
        if !stays {
            inner.begin(&watched.hub, self);
        }
        Ok(())
    }

    /// Puts other schemes of a group in force. `written` is what they are in a configuration.
    ///
    /// # Errors
    /// If the group is not watched, or may not act.
    pub fn set_schemes(
        &self,
        watched: &Watched,
        schemes: Vec<Scheme>,
        written: serde_json::Value,
    ) -> Result<(), GroupError> {
        let mut inner = watched.lock();
        let Run::Watching { runner, .. } = &inner.run else { return Err(GroupError::NotWatched) };
        if inner.group.settings.scheme_file.is_some() {
            runner.set_schemes(inner.group.allowed(schemes).map_err(GroupError::Refused)?);
            return Ok(());
        }
        let changed = inner.group.with_schemes(schemes, written).map_err(GroupError::Refused)?;
        inner.put(changed, &watched.hub, self);
        Ok(())
    }

    /// Tries groups again that failed some time ago.
    pub fn retry(&self) {
        for (_, watched) in self.all() {
            let mut inner = watched.lock();
            if let Run::Watching { runner: Runner::Shared { view, .. }, .. } = &inner.run {
                view.check();
            }
            if let Run::Watching { .. } = inner.run
                && let Some(EndReason::Failed(error)) = watched.hub.known().end
            {
                inner.fail(&watched.hub, chain(&*error));
            }
            if matches!(inner.run, Run::Failed { retry, .. } if retry <= Instant::now()) {
                inner.begin(&watched.hub, self);
            }
        }
    }

    /// Makes a group of each cgroup that has much memory of a group whose configuration asks for that, and ends those
    /// of cgroups that have little now.
    pub fn follow_cgroups(&self, containers: &Containers) {
        let all = self.all();
        let origins: BTreeMap<&str, Origin> =
            all.iter().map(|(name, watched)| (&**name, watched.lock().origin.clone())).collect();
        let mut wanted = BTreeMap::new();
        for (name, watched) in &all {
            let (group, known) = (watched.group(), watched.hub.known());
            let Some(least) = group.settings.each_cgroup_above else { continue };
            let is_own = |origin: &Origin| matches!(origin, Origin::Cgroup { of, .. } if of == name);
            if known.survey.is_none() {
                // Nothing is known yet, or it is paused.
                let own = origins.iter().filter(|(_, origin)| is_own(origin));
                wanted.extend(own.map(|(name, _)| ((*name).to_owned(), None)));
                continue;
            }
            let is_group = |path: &str| {
                origins.values().any(|origin| matches!(origin, Origin::Cgroup { path: known, .. } if known == path))
            };
            let is_taken = |other: &str| origins.get(other).is_some_and(|origin| !is_own(origin));
            for (child, path) in cgroups::named(&known, least.0, containers, is_group, is_taken) {
                let Some(group) = group.of_cgroup(&child, &path) else { continue };
                let settings = group.settings.clone().into();
                wanted.insert(child, Some((group, Origin::Cgroup { of: name.clone(), path, settings })));
            }
        }
        for (name, origin) in &origins {
            if matches!(origin, Origin::Cgroup { .. }) && !wanted.contains_key(*name) {
                // Somebody may have deleted it meanwhile.
                let _ = self.delete(name);
            }
        }
        for (name, group) in wanted {
            let Some((group, origin)) = group else { continue };
            match origins.get(&*name) {
                None => drop(self.add(group, origin)),
                Some(before) if *before == origin => {}
                Some(_) => {
                    self.get(&name)
                        .into_iter()
                        .for_each(|watched| self.change(&watched, group.clone(), origin.clone()));
                }
            }
        }
    }

    /// Ends all groups.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let groups = std::mem::take(&mut *self.lock());
        // Their last events are written at the same time.
        groups.values().for_each(|watched| watched.stop());
        groups.values().for_each(|watched| watched.end());
    }

    /// Adds a group and begins to watch it. `None` if there is one of its name.
    fn add(&self, group: Group, origin: Origin) -> Option<Arc<Watched>> {
        let watched = self.insert(group, origin)?;
        watched.lock().begin(&watched.hub, self);
        Some(watched)
    }

    /// Adds a group that nobody watches. `None` if there is one of its name.
    fn insert(&self, group: Group, origin: Origin) -> Option<Arc<Watched>> {
        let name = group.settings.name.clone();
        let history = self.history.as_ref().map(|directory| {
            let count = Arc::clone(&self.histories);
            HistoryWriter::new(&directory.join(&name), count)
        });
        let hub = Arc::new(Hub::new(history));
        let inner = Inner { group, origin, run: Run::Paused };
        let watched = Arc::new(Watched { hub, state: Mutex::new(inner) });
        let mut groups = self.lock();
        if groups.contains_key(&name) {
            return None;
        }
        groups.insert(name, Arc::clone(&watched));
        Some(watched)
    }

    /// Changes what differs.
    fn change(&self, watched: &Watched, group: Group, origin: Origin) {
        let mut inner = watched.lock();
        inner.origin = origin;
        inner.put(group, &watched.hub, self);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Watched>>> {
        // Each change leaves it whole, so a panic of another thread does not spoil it.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// What the configuration says now.
    pub fn group(&self) -> Group {
        self.lock().group.clone()
    }

    /// The last notices, each with its time since the Unix epoch, in nanoseconds: of the group, and of all groups that
    /// share its run.
    pub fn notices(&self) -> Vec<(u64, Notice)> {
        let shared = match &self.lock().run {
            Run::Watching { runner: Runner::Shared { engine, .. }, .. } => engine.notices(),
            _ => Vec::new(),
        };
        let mut all: Vec<_> = self.hub.known().notices.into_iter().chain(shared).collect();
        all.sort_by_key(|(time, _)| *time);
        all
    }

    /// What it does now, and why if it failed.
    pub fn state(&self) -> (State, Option<String>) {
        let end = self.hub.known().end;
        match (&self.lock().run, end) {
            (Run::Paused, _) => (State::Paused, None),
            (Run::Failed { why, .. }, _) => (State::Failed, Some(why.clone())),
            (Run::Watching { .. }, Some(EndReason::Failed(error))) => (State::Failed, Some(chain(&*error))),
            (Run::Watching { .. }, Some(reason)) => (State::Ended, Some(reason.to_string())),
            (Run::Watching { .. }, None) => (State::Watching, None),
        }
    }

    /// Watches nothing until the group is resumed.
    pub fn pause(&self) {
        self.end();
    }

    /// Gives this moment a name.
    ///
    /// # Errors
    /// If the group is not watched, or takes no marks.
    pub fn mark(&self, text: &str) -> Result<(), GroupError> {
        let inner = self.lock();
        let Run::Watching { runner, .. } = &inner.run else { return Err(GroupError::NotWatched) };
        runner.mark(text).map_err(|error| GroupError::Refused(error.to_string()))
    }

    /// Asks the run to end.
    fn stop(&self) {
        if let Run::Watching { runner: Runner::Own(session), .. } = &self.lock().run {
            session.control().stop();
        }
    }

    /// Ends the run, and waits until its last event is written.
    fn end(&self) {
        let before = std::mem::replace(&mut self.lock().run, Run::Paused);
        // Its hub knows how it ended.
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether nothing is watched.
    fn is_over(&self, hub: &Hub) -> bool {
        !matches!(self.run, Run::Watching { .. }) || hub.known().end.is_some()
    }

    /// Puts another configuration in force, and begins to watch anew only if it says to watch in another way.
    fn put(&mut self, group: Group, hub: &Arc<Hub>, groups: &Groups) {
        let before = std::mem::replace(&mut self.group, group);
        if self.group.watches_as(&before) {
            if self.group.settings.schemes != before.settings.schemes
                && let Run::Watching { runner, .. } = &self.run
            {
                runner.set_schemes(self.group.schemes().to_vec());
            }
        } else if !matches!(self.run, Run::Paused) {
            self.begin(hub, groups);
        }
    }

    /// Begins to watch, in the place of what watches.
    fn begin(&mut self, hub: &Arc<Hub>, groups: &Groups) {
        // One run ends before the next one begins, so that no page is cleared by two.
        self.run = Run::Paused;
        let run = match self.group.manner() {
            Some(manner) => self.share(&manner, hub, groups),
            None => self.start(hub, groups),
        };
        match run {
            Ok(run) => self.run = run,
            Err(error) => self.fail(hub, chain(&error)),
        }
    }

    /// Begins to watch by a run that other groups may share.
    fn share(&self, manner: &Manner, hub: &Arc<Hub>, groups: &Groups) -> Result<Run, RunError> {
        // A process that does not exist is reported as by a run of its own.
        let selection = self.group.selection().clone();
        if !selection.is_open() {
            drop(Processes::select(selection.clone())?);
        }
        let engine = groups.engines.get(manner, self.group.run(Some(groups.allowance.clone())))?;
        let granularity = engine.run.properties().granularity;
        hub.begin(engine.run.header().clone(), engine.run.time());
        if let Some(path) = &self.group.settings.recording {
            hub.record_all(path);
        }
        let view = engine.run.view(selection, self.group.scheme_options(), HubSink(Arc::clone(hub)))?;
        Ok(Run::Watching { runner: Runner::Shared { view, engine }, granularity })
    }

    /// Begins to watch by a run of its own.
    fn start(&self, hub: &Arc<Hub>, groups: &Groups) -> Result<Run, RunError> {
        let config = isotherm_run::RunConfig {
            recording: self.group.settings.recording.clone(),
            recording_need: Some(Need::Optional),
            ..self.group.run(Some(groups.allowance.clone()))
        };
        let mut prepared = config.prepare()?;
        let granularity = prepared.properties().granularity;
        hub.begin(prepared.header(), Duration::ZERO);
        prepared.add_sink("hub", Need::Optional, HubSink(Arc::clone(hub)));
        let session = prepared.start()?;
        Ok(Run::Watching { runner: Runner::Own(session), granularity })
    }

    fn fail(&mut self, hub: &Hub, why: String) {
        let is_new = !matches!(&self.run, Run::Failed { why: before, .. } if *before == why);
        if is_new {
            let text = format!("the group {} cannot be watched: {why}", self.group.settings.name);
            hub.note(Notice::new(Severity::Warning, &text));
        }
        self.run = Run::Failed { why, retry: Instant::now() + RETRY };
    }
}
