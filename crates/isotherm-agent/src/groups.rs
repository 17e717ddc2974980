//! The groups of a daemon, on one budget. Groups that are watched in the same manner share a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use isotherm_core::Shares;
use isotherm_core::scheme::Scheme;
use isotherm_kernel::Containers;
use isotherm_run::{Allowance, EndReason, chain};

use crate::cgroups;
use crate::config::{AttributeSettings, Config, Group, Limits, Rights};
use crate::engines::Engines;
use crate::history::HistoryWriter;
use crate::hub::Hub;
use crate::journal;
use crate::kept::{GroupKeeper, KeptGroup};
use crate::watched::{Origin, Run, Runner, Watched};

/// All groups.
pub struct Groups {
    allowance: Allowance,
    rights: Rights,
    pub(crate) engines: Engines,
    /// Below it, each group has its history.
    history: Option<PathBuf>,
    /// Held by each history that is written.
    histories: Arc<()>,
    keeper: Option<GroupKeeper>,
    is_ending: AtomicBool,
    /// What no group exceeds.
    limits: Mutex<Limits>,
    by_name: Mutex<BTreeMap<String, Arc<Watched>>>,
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
    /// No goal of the group's schemes is about the metric.
    #[error(
        "no scheme of the group has a goal fed: {{metric: {metric}}}; {}",
        if known.is_empty() { "none has a fed metric".into() } else { format!("there is {}", known.join(", ")) }
    )]
    Unfed {
        /// The metric.
        metric: String,
        /// The metrics of goals.
        known: Vec<String>,
    },
    /// The configuration of the group does not allow it, or it contradicts itself.
    #[error("{0}")]
    Refused(String),
}

impl Groups {
    /// No groups yet, on a budget of all. Each has its history in a directory below `history`.
    pub fn new(budget: Shares, history: Option<PathBuf>, rights: Rights) -> Self {
        Self {
            allowance: Allowance::new(budget),
            rights,
            engines: Engines::default(),
            keeper: history.as_deref().and_then(Path::parent).map(GroupKeeper::new),
            history,
            histories: Arc::default(),
            is_ending: AtomicBool::new(false),
            limits: Mutex::default(),
            by_name: Mutex::default(),
        }
    }

    /// The budget of all.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// What groups may do.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Below it, each group has its history.
    pub fn history(&self) -> Option<&PathBuf> {
        self.history.as_ref()
    }

    /// Puts a configuration in force: begins, changes and ends what differs. Groups that requests have made stay.
    pub fn configure(&self, config: &Config) {
        self.allowance.set_whole(config.settings.budget());
        let limits = config.settings.limits;
        *self.bound() = limits;
        let mut gone = Vec::new();
        self.lock().retain(|name, watched| {
            let is_gone = matches!(watched.lock().origin, Origin::Configuration(_))
                && config.groups.iter().all(|group| group.settings.name != *name);
            gone.extend(is_gone.then(|| Arc::clone(watched)));
            !is_gone
        });
        gone.iter().for_each(|watched| watched.end());
        for (_, watched) in self.all() {
            watched.lock().set_bound(limits, &watched.hub, self);
        }
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
            if let Err(why) = self.rights.allow(&group.settings) {
                journal::warning(&format!("the group {name} of a request is left out: {why}"));
            } else if self.insert(group, Origin::Request).is_none() {
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
    /// If there is one of this name, or it may not act.
    pub fn make(&self, group: Group) -> Result<Arc<Watched>, GroupError> {
        self.rights.allow(&group.settings).map_err(GroupError::Refused)?;
        let name = group.settings.name.clone();
        self.add(group, Origin::Request).ok_or(GroupError::Exists(name))
    }

    /// Gives a group another configuration.
    ///
    /// # Errors
    /// If there is no such group, or it may not act.
    pub fn replace(&self, group: Group) -> Result<Arc<Watched>, GroupError> {
        self.rights.allow(&group.settings).map_err(GroupError::Refused)?;
        let watched = self.get(&group.settings.name)?;
        let origin = match &watched.lock().origin {
            Origin::Cgroup { .. } => Origin::Request,
            Origin::Configuration(settings) if group.settings.act && !settings.act => {
                let why = "the group may not act: its configuration does not say act: true, which no request changes";
                return Err(GroupError::Refused(why.into()));
            }
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
        let regions = (attributes.min_regions(), attributes.max_regions());
        // Intervals that nobody asks for go on to follow from what is observed.
        let only_regions = AttributeSettings { regions: wanted.regions, ..AttributeSettings::default() } == wanted;
        let stays = match (runner, changed.manner()) {
            (Runner::Own(session), _) => {
                match only_regions {
                    true => session.control().set_regions(regions.0, regions.1),
                    false => session.control().set_attributes(attributes),
                }
                true
            }
            (Runner::Shared { engine, .. }, Some(manner)) if engine.run.views() == 1 => {
                match only_regions {
                    true => engine.run.set_regions(regions.0, regions.1),
                    false => engine.run.set_attributes(attributes),
                }
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
            inner.group.check_schemes(&schemes).map_err(GroupError::Refused)?;
            runner.set_schemes(schemes);
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
        let watched = Arc::new(Watched::new(group, origin, Hub::new(history), *self.bound()));
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

    fn bound(&self) -> MutexGuard<'_, Limits> {
        // Each change is one assignment.
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Watched>>> {
        // Each change leaves it whole, so a panic of another thread does not spoil it.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
