//! The groups of a daemon, each watched by a run of its own on one budget.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::Granularity;
use isotherm_core::scheme::Scheme;
use isotherm_run::{Allowance, EndReason, Need, Notice, RunError, Session, Severity, chain};

use crate::config::{AttributeSettings, Config, Group};
use crate::history::HistoryWriter;
use crate::hub::{Hub, HubSink};
use crate::view::State;

/// The time from a failure of a group to the next attempt to watch it.
const RETRY: Duration = Duration::from_secs(30);

/// All groups.
pub struct Groups {
    allowance: Allowance,
    /// Below it, each group has its history.
    history: Option<PathBuf>,
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
    /// Whether the configuration has it. Otherwise a request made it.
    is_configured: bool,
    run: Run,
}

enum Run {
    Watching { session: Session, granularity: Granularity },
    Paused,
    Failed { why: String, retry: Instant },
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
        Self { allowance: Allowance::new(cpu), history, by_name: Mutex::default() }
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
            let is_gone =
                watched.lock().is_configured && config.groups.iter().all(|group| group.settings.name != *name);
            gone.extend(is_gone.then(|| Arc::clone(watched)));
            !is_gone
        });
        gone.iter().for_each(|watched| watched.end());
        for group in &config.groups {
            let known = self.lock().get(&group.settings.name).cloned();
            match known {
                Some(watched) => self.change(&watched, group.clone(), true),
                None => drop(self.add(group.clone(), true)),
            }
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
        self.add(group, false).ok_or(GroupError::Exists(name))
    }

    /// Gives a group another configuration.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn replace(&self, group: Group) -> Result<Arc<Watched>, GroupError> {
        let watched = self.get(&group.settings.name)?;
        let is_configured = watched.lock().is_configured;
        self.change(&watched, group, is_configured);
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
            inner.begin(&watched.hub, &self.allowance);
        }
    }

    /// Tries groups again that failed some time ago.
    pub fn retry(&self) {
        for (_, watched) in self.all() {
            let mut inner = watched.lock();
            if let Run::Watching { .. } = inner.run
                && let Some(EndReason::Failed(error)) = watched.hub.known().end
            {
                inner.fail(&watched.hub, chain(&*error));
            }
            if matches!(inner.run, Run::Failed { retry, .. } if retry <= Instant::now()) {
                inner.begin(&watched.hub, &self.allowance);
            }
        }
    }

    /// Ends all groups.
    pub fn end(&self) {
        let groups = std::mem::take(&mut *self.lock());
        // Their last events are written at the same time.
        groups.values().for_each(|watched| watched.stop());
        groups.values().for_each(|watched| watched.end());
    }

    /// Adds a group and begins to watch it. `None` if there is one of its name.
    fn add(&self, group: Group, is_configured: bool) -> Option<Arc<Watched>> {
        let name = group.settings.name.clone();
        let history = self.history.as_ref().map(|directory| HistoryWriter::new(&directory.join(&name)));
        let hub = Arc::new(Hub::new(history));
        let inner = Inner { group, is_configured, run: Run::Paused };
        let watched = Arc::new(Watched { hub, state: Mutex::new(inner) });
        let mut groups = self.lock();
        if groups.contains_key(&name) {
            return None;
        }
        groups.insert(name, Arc::clone(&watched));
        drop(groups);
        watched.lock().begin(&watched.hub, &self.allowance);
        Some(watched)
    }

    /// Changes what differs, with a new run only if it is watched in another way.
    fn change(&self, watched: &Watched, group: Group, is_configured: bool) {
        let mut inner = watched.lock();
        inner.is_configured = is_configured;
        let before = std::mem::replace(&mut inner.group, group);
        if inner.group.watches_as(&before) {
            if inner.group.settings.schemes != before.settings.schemes
                && let Run::Watching { session, .. } = &inner.run
            {
                session.control().set_schemes(inner.group.schemes().to_vec());
            }
            return;
        }
        if !matches!(inner.run, Run::Paused) {
            inner.begin(&watched.hub, &self.allowance);
        }
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

    /// Changes the attributes from the next aggregation on. What is left out stays.
    ///
    /// # Errors
    /// If the group is not watched, or the attributes contradict each other.
    pub fn set_attributes(&self, wanted: AttributeSettings) -> Result<(), GroupError> {
        let mut inner = self.lock();
        let Run::Watching { session, granularity } = &inner.run else { return Err(GroupError::NotWatched) };
        let (control, granularity) = (session.control(), *granularity);
        let now = &inner.group.settings.attributes;
        let together = AttributeSettings {
            sample: wanted.sample.or(now.sample),
            aggregate: wanted.aggregate.or(now.aggregate),
            update: wanted.update.or(now.update),
            regions: wanted.regions.or(now.regions),
        };
        let mut changed = inner.group.clone();
        changed.settings.attributes = together;
        control.set_attributes(changed.attributes(granularity).map_err(GroupError::Refused)?);
        inner.group = changed;
        Ok(())
    }

    /// Puts other schemes in force.
    ///
    /// # Errors
    /// If the group is not watched, has no schemes, or may not act.
    pub fn set_schemes(&self, schemes: Vec<Scheme>) -> Result<(), GroupError> {
        let inner = self.lock();
        let Run::Watching { session, .. } = &inner.run else { return Err(GroupError::NotWatched) };
        if inner.group.schemes().is_empty() && inner.group.settings.scheme_file.is_none() {
            let why = "the group was begun without schemes; change the group instead";
            return Err(GroupError::Refused(why.into()));
        }
        session.control().set_schemes(inner.group.allowed(schemes).map_err(GroupError::Refused)?);
        Ok(())
    }

    /// Gives this moment a name.
    ///
    /// # Errors
    /// If the group is not watched, or takes no marks.
    pub fn mark(&self, text: &str) -> Result<(), GroupError> {
        let inner = self.lock();
        let Run::Watching { session, .. } = &inner.run else { return Err(GroupError::NotWatched) };
        session.control().mark(text).map_err(|error| GroupError::Refused(error.to_string()))
    }

    /// Asks the run to end.
    fn stop(&self) {
        if let Run::Watching { session, .. } = &self.lock().run {
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

    /// Begins a run, in the place of the one before.
    fn begin(&mut self, hub: &Arc<Hub>, allowance: &Allowance) {
        // One run ends before the next one begins, so that no page is cleared by two.
        self.run = Run::Paused;
        match self.start(hub, allowance) {
            Ok(run) => self.run = run,
            Err(error) => self.fail(hub, chain(&error)),
        }
    }

    fn start(&self, hub: &Arc<Hub>, allowance: &Allowance) -> Result<Run, RunError> {
        let config = isotherm_run::RunConfig {
            recording: self.group.settings.recording.clone(),
            recording_need: Some(Need::Optional),
            ..self.group.run(Some(allowance.clone()))
        };
        let mut prepared = config.prepare()?;
        let granularity = prepared.properties().granularity;
        hub.begin(prepared.header());
        prepared.add_sink("hub", Need::Optional, HubSink(Arc::clone(hub)));
        let session = prepared.start()?;
        Ok(Run::Watching { session, granularity })
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
