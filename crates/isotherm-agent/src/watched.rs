//! A group that is watched, or was: what it is, and the run that watches it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::scheme::{Feed, Metric, Scheme};
use isotherm_core::{Granularity, units};
use isotherm_kernel::Processes;
use isotherm_run::{
    EndReason, FedMetrics, LeastLimits, MarkError, Need, Notice, RunError, SchemeLimits, SchemeOptions, Session,
    Severity, View, chain,
};

use crate::advice::Advice;
use crate::config::{Group, GroupSettings, Limits, Manner};
use crate::engines::Engine;
use crate::groups::{GroupError, Groups};
use crate::hub::{Hub, HubSink};
use crate::view::{FedGoal, State};

/// The time from a failure of a group to the next attempt to watch it.
const RETRY: Duration = Duration::from_secs(30);

/// A group that is watched, or was.
pub struct Watched {
    /// What is known of it.
    pub hub: Arc<Hub>,
    state: Mutex<Inner>,
}

/// What a group is, and what watches it.
pub struct Inner {
    pub group: Group,
    pub origin: Origin,
    pub run: Run,
    /// The metrics that programs feed to its schemes.
    fed: FedMetrics,
    /// What its schemes have left out of memory.
    out: SchemeLimits,
    /// What no group exceeds.
    bound: Limits,
    /// The right sizes of its cgroups, as far as they are known.
    sizes: LeastLimits,
}

/// What has made a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The configuration, which says this of it.
    Configuration(Box<GroupSettings>),
    /// A request.
    Request,
    /// The cgroup at this path has much memory of a group with this name, which says this of it.
    Cgroup { of: String, path: String, settings: Box<GroupSettings> },
}

/// Whether a group is watched.
pub enum Run {
    Watching { runner: Runner, granularity: Granularity },
    Paused,
    Failed { why: String, retry: Instant },
}

/// What watches a group.
pub enum Runner {
    /// A run of its own.
    Own(Session),
    /// Its part of a run that several groups may share.
    Shared { view: View, engine: Arc<Engine> },
}

impl Runner {
    pub fn set_schemes(&self, schemes: Vec<Scheme>) {
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

impl Watched {
    /// A group that nobody watches. It does not exceed `bound`.
    pub fn new(group: Group, origin: Origin, hub: Hub, bound: Limits) -> Self {
        let (fed, out, sizes) = (FedMetrics::default(), SchemeLimits::default(), LeastLimits::default());
        let inner = Inner { group, origin, run: Run::Paused, fed, out, bound, sizes };
        Self { hub: Arc::new(hub), state: Mutex::new(inner) }
    }

    /// What the configuration says now.
    pub fn group(&self) -> Group {
        self.lock().group.clone()
    }

    /// The last notices, each with its time since the Unix epoch, in nanoseconds: of the group, and of all groups that
    /// share its run.
    pub fn notices(&self) -> Vec<(u64, Notice)> {
        let shared = match &self.lock().run {
            Run::Watching { runner: Runner::Shared { engine, .. }, .. } => engine.notices(),
            Run::Watching { runner: Runner::Own(_), .. } | Run::Paused | Run::Failed { .. } => Vec::new(),
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

    /// The goals of the schemes that are about metrics which programs feed, each with the value that it has.
    pub fn fed_goals(&self) -> Vec<FedGoal> {
        let inner = self.lock();
        let schemes = inner.schemes(&self.hub);
        let goals = schemes.iter().flat_map(|scheme| scheme.quota.goals().iter().map(move |goal| (scheme, goal)));
        goals
            .filter_map(|(scheme, goal)| {
                let Metric::Fed(Feed::Named(metric)) = goal.metric() else { return None };
                let fed = inner.fed.get(metric);
                Some(FedGoal {
                    scheme: scheme.name.to_string(),
                    metric: metric.to_string(),
                    target: goal.target(),
                    value: fed.map(|fed| fed.value),
                    age_ns: fed.map(|fed| fed.at.elapsed().as_nanos() as u64),
                })
            })
            .collect()
    }

    /// Gives a metric a value that goals of the schemes are about.
    ///
    /// # Errors
    /// If no goal is about it.
    pub fn feed(&self, metric: &str, value: f64, valid_for: Option<Duration>) -> Result<(), GroupError> {
        if !value.is_finite() {
            return Err(GroupError::Refused(format!("{value} is no value of a metric; give a finite number")));
        }
        let mut known: Vec<String> = self.fed_goals().into_iter().map(|goal| goal.metric).collect();
        if known.iter().all(|name| name != metric) {
            known.dedup();
            return Err(GroupError::Unfed { metric: metric.into(), known });
        }
        self.lock().fed.feed(metric, value, valid_for);
        Ok(())
    }

    /// How many bytes its schemes have left out of memory, if that is limited.
    pub fn out_bytes(&self) -> Option<u64> {
        let inner = self.lock();
        inner.out.with(inner.limits().into()).out_bytes()
    }

    /// What its schemes may do together.
    pub fn limits(&self) -> Limits {
        self.lock().limits()
    }

    /// Whether a right size of a cgroup is known.
    pub fn is_sized(&self) -> bool {
        !self.lock().sizes.is_empty()
    }

    /// Puts the right sizes in force that the advice has, and says why they are what they are; or why there are none.
    pub fn size(&self, advice: Result<Vec<Advice>, String>) {
        let mut said = Vec::new();
        match advice {
            Err(why) => said.push(format!("no right size is known: {why}")),
            Ok(all) => {
                let sizes = self.lock().sizes.clone();
                for advice in all {
                    let Advice { cgroup: Some(path), size, withheld, .. } = advice else { continue };
                    match size {
                        Some(size) if is_other(sizes.get(&path), size.request_bytes) => {
                            sizes.set(&path, size.request_bytes);
                            let bytes = units::bytes(size.request_bytes);
                            said.push(format!("the right size of {path} is {bytes}: {}", size.reason));
                        }
                        Some(_) => {}
                        None => said.push(format!(
                            "{path} is not limited, as its right size is not known: {}",
                            withheld.unwrap_or_default()
                        )),
                    }
                }
            }
        }
        for text in said {
            // Why none is known changes with each minute, and is said once.
            let begin = text.split(": ").next().unwrap_or_default();
            let is_known = |notice: &Notice| !text.starts_with("the right size") && notice.text.starts_with(begin);
            if !self.hub.known().notices.iter().any(|(_, notice)| is_known(notice)) {
                self.hub.note(Notice::new(Severity::Info, &text));
            }
        }
    }

    /// Asks the run to end.
    pub fn stop(&self) {
        if let Run::Watching { runner: Runner::Own(session), .. } = &self.lock().run {
            session.control().stop();
        }
    }

    /// Ends the run, and waits until its last event is written.
    pub fn end(&self) {
        let before = std::mem::replace(&mut self.lock().run, Run::Paused);
        // Its hub knows how it ended.
        drop(before);
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a size differs so much from the one in force that it takes its place: by a twentieth.
fn is_other(before: Option<u64>, bytes: u64) -> bool {
    before.is_none_or(|before| before.abs_diff(bytes) > before / 20)
}

impl Inner {
    /// Whether nothing is watched.
    pub fn is_over(&self, hub: &Hub) -> bool {
        !matches!(self.run, Run::Watching { .. }) || hub.known().end.is_some()
    }

    /// Puts another configuration in force, and begins to watch anew only if it says to watch in another way.
    pub fn put(&mut self, group: Group, hub: &Arc<Hub>, groups: &Groups) {
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
    pub fn begin(&mut self, hub: &Arc<Hub>, groups: &Groups) {
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
        let engine = groups.engines.get(manner, self.group.run(Some(groups.allowance().clone())))?;
        let granularity = engine.run.properties().granularity;
        hub.begin(engine.run.header().clone(), engine.run.time());
        if let Some(path) = &self.group.settings.recording {
            hub.record_all(path);
        }
        let view = engine.run.view(selection, self.scheme_options(), HubSink(Arc::clone(hub)))?;
        Ok(Run::Watching { runner: Runner::Shared { view, engine }, granularity })
    }

    /// Begins to watch by a run of its own.
    fn start(&self, hub: &Arc<Hub>, groups: &Groups) -> Result<Run, RunError> {
        let config = isotherm_run::RunConfig {
            recording: self.group.settings.recording.clone(),
            recording_need: Some(Need::Optional),
            schemes: self.scheme_options(),
            ..self.group.run(Some(groups.allowance().clone()))
        };
        let mut prepared = config.prepare()?;
        let granularity = prepared.properties().granularity;
        hub.begin(prepared.header(), Duration::ZERO);
        prepared.add_sink("hub", Need::Optional, HubSink(Arc::clone(hub)));
        let session = prepared.start()?;
        Ok(Run::Watching { runner: Runner::Own(session), granularity })
    }

    /// What its schemes may do together: what the group says, and no more than the file says of it and of all groups.
    fn limits(&self) -> Limits {
        let of_file = match &self.origin {
            Origin::Configuration(settings) => settings.limits,
            Origin::Request | Origin::Cgroup { .. } => Limits::default(),
        };
        self.group.settings.limits.and(of_file).and(self.bound)
    }

    /// Puts another bound of all groups in force.
    pub fn set_bound(&mut self, bound: Limits, hub: &Arc<Hub>, groups: &Groups) {
        let before = self.limits();
        self.bound = bound;
        if self.limits() != before && matches!(self.run, Run::Watching { .. }) {
            self.begin(hub, groups);
        }
    }

    /// The schemes of the group as a run takes them.
    fn scheme_options(&self) -> Option<SchemeOptions> {
        let limits = self.out.with(self.limits().into());
        let least_limits = self.group.settings.right_size.then(|| self.sizes.clone());
        let fed = Some(self.fed.clone());
        self.group.scheme_options().map(|options| SchemeOptions { fed, limits, least_limits, ..options })
    }

    /// The schemes in force. Those of a file are what the run says.
    fn schemes(&self, hub: &Hub) -> Arc<[Scheme]> {
        if self.group.settings.scheme_file.is_some() { hub.known().schemes } else { self.group.schemes().into() }
    }

    pub fn fail(&mut self, hub: &Hub, why: String) {
        let is_new = !matches!(&self.run, Run::Failed { why: before, .. } if *before == why);
        if is_new {
            let text = format!("the group {} cannot be watched: {why}", self.group.settings.name);
            hub.note(Notice::new(Severity::Warning, &text));
        }
        self.run = Run::Failed { why, retry: Instant::now() + RETRY };
    }
}
