//! The engine: applies schemes to snapshots.

use std::time::Duration;

use thiserror::Error;

use crate::{BoxError, Sink, Snapshot};

use super::application::{Batch, SchemeApplication};
use super::budget::Budget;
use super::candidates::{Candidate, Cursor, collect, sort_by_priority};
use super::history::ActionHistory;
use super::priority::OLDEST;
use super::watermarks::WatermarkState;
use super::{Actuator, Application, Gauges, PageInspector, ProcessFacts, Report, Scheme, Statistics};

/// A scheme asks for something that cannot be done here.
#[derive(Debug, Error)]
#[error("the scheme {scheme:?} cannot work here: {source}")]
pub struct Unsupported {
    /// The scheme's name.
    pub scheme: String,
    /// Why, and what would mend it.
    #[source]
    pub source: BoxError,
}

/// Applies schemes to the snapshots that it is given, in the order of the schemes.
///
/// A [`Sink`], so it can stand behind a monitor; whoever has snapshots of another origin hands them to
/// [`aggregated`](Sink::aggregated). Snapshots must come in the order of their times.
///
/// When watermarks have put all schemes to sleep, [`sleeps_until`](Self::sleeps_until) says so: whoever drives the monitor then need
/// not monitor until that time, and calls [`look`](Self::look) then.
pub struct Schemes<A, I, G> {
    actuator: A,
    inspector: I,
    gauges: G,
    schemes: Vec<ActiveScheme>,
    history: ActionHistory,
    // Lent out again and again, so that the steady state allocates little.
    candidates: Vec<Candidate>,
    facts: Vec<Option<ProcessFacts>>,
    batch: Batch,
}

/// One scheme, and what it did.
struct ActiveScheme {
    scheme: Scheme,
    watermarks: WatermarkState,
    budget: Budget,
    cursor: Cursor,
    applied_at: Option<Duration>,
    report: Report,
}

impl ActiveScheme {
    fn new(scheme: Scheme) -> Self {
        let report = Report {
            name: scheme.name.clone(),
            action: scheme.action.into(),
            awake: true,
            quota: None,
            goal_score: None,
            total: Statistics::default(),
            last: Application::default(),
        };
        let budget = Budget::new(&scheme.quota);
        Self { scheme, watermarks: WatermarkState::NEW, budget, cursor: None, applied_at: None, report }
    }

    /// Another scheme of the same name takes its place: what it did stays counted, and what it used stays used.
    fn replace(&mut self, scheme: Scheme) {
        if scheme.quota != self.scheme.quota {
            self.budget.replace(&scheme.quota);
        }
        if scheme.watermarks != self.scheme.watermarks {
            self.watermarks = WatermarkState::NEW;
        }
        self.report.action = scheme.action.into();
        self.scheme = scheme;
    }

    /// Whether its apply interval has passed; the beat of the snapshots is given half an aggregation.
    fn is_due(&self, snapshot: &Snapshot) -> bool {
        let (Some(last), Some(interval)) = (self.applied_at, self.scheme.apply_interval) else {
            return true;
        };
        snapshot.time + snapshot.aggregation / 2 >= last.saturating_add(interval)
    }
}

impl<A: Actuator, I: PageInspector, G: Gauges> Schemes<A, I, G> {
    /// Schemes that have done nothing yet.
    ///
    /// # Errors
    /// If one of them asks for what `actuator` cannot do here.
    pub fn new(schemes: Vec<Scheme>, actuator: A, inspector: I, gauges: G) -> Result<Self, Unsupported> {
        let mut made = Self {
            actuator,
            inspector,
            gauges,
            schemes: Vec::new(),
            history: ActionHistory::default(),
            candidates: Vec::new(),
            facts: Vec::new(),
            batch: Batch::default(),
        };
        made.replace(schemes)?;
        Ok(made)
    }

    /// Puts these schemes in force. One that has the name of one in force takes its place, with its report and what it has used of
    /// its quota in this period.
    ///
    /// # Errors
    /// If one of them asks for what the actuator cannot do here: then those in force stay so.
    pub fn replace(&mut self, schemes: Vec<Scheme>) -> Result<(), Unsupported> {
        for scheme in &schemes {
            self.check(scheme).map_err(|source| Unsupported { scheme: scheme.name.to_string(), source })?;
        }
        let mut old = std::mem::take(&mut self.schemes);
        for scheme in schemes {
            let known = old.iter().position(|active| active.scheme.name == scheme.name);
            let active = match known {
                Some(i) => {
                    let mut active = old.swap_remove(i);
                    active.replace(scheme);
                    active
                }
                None => ActiveScheme::new(scheme),
            };
            self.schemes.push(active);
        }
        Ok(())
    }

    fn check(&mut self, scheme: &Scheme) -> Result<(), BoxError> {
        if scheme.action.kind().needs_inside() && !scheme.inside {
            let why = "is done by a call made inside the target: say `inside: true` in the scheme to allow that";
            return Err(format!("the action {} {why}", scheme.action).into());
        }
        self.actuator.supports(scheme.action, scheme.inside)?;
        scheme.page_kinds().try_for_each(|kind| self.inspector.tells(kind))?;
        scheme.metrics().try_for_each(|metric| self.gauges.supports(metric))
    }

    /// The schemes in force.
    pub fn schemes(&self) -> impl Iterator<Item = &Scheme> {
        self.schemes.iter().map(|active| &active.scheme)
    }

    /// What each scheme did, in the order of the schemes.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.schemes.iter().map(|active| &active.report)
    }

    /// What acts.
    pub fn actuator(&self) -> &A {
        &self.actuator
    }

    /// What acts, for whoever has a word to say to it between two snapshots.
    pub fn actuator_mut(&mut self) -> &mut A {
        &mut self.actuator
    }

    /// The inspector, to change its state between two snapshots.
    pub fn inspector_mut(&mut self) -> &mut I {
        &mut self.inspector
    }

    /// What metrics are read from, for whoever feeds it.
    pub fn gauges_mut(&mut self) -> &mut G {
        &mut self.gauges
    }

    /// If all schemes sleep: when to look at their watermarks again. Until then nothing need be monitored.
    pub fn sleeps_until(&self) -> Option<Duration> {
        if self.schemes.iter().any(|active| active.watermarks.is_awake()) {
            return None;
        }
        self.schemes.iter().map(|active| active.watermarks.next()).min()
    }

    /// Looks at the watermarks whose time has come. While snapshots come it is done with them; while all schemes sleep and none
    /// comes, whoever drives the monitor calls this.
    pub fn look(&mut self, now: Duration, snapshot: &Snapshot) {
        for active in &mut self.schemes {
            if let Some(marks) = &active.scheme.watermarks {
                active.watermarks.look(marks, now, |metric| self.gauges.read(metric, snapshot));
            }
            active.report.awake = active.watermarks.is_awake();
        }
    }

    /// Applies the scheme of this index.
    fn apply(&mut self, index: usize, snapshot: &Snapshot) -> Result<(), BoxError> {
        let ActiveScheme { scheme, budget, cursor, applied_at, report, .. } = &mut self.schemes[index];
        *applied_at = Some(snapshot.time);
        budget.begin(&scheme.quota, snapshot.time, &mut self.gauges, snapshot);

        self.facts.clear();
        if scheme.filters.iter().any(|filter| filter.kind.needs_process()) {
            self.facts.extend(snapshot.targets.iter().map(|target| self.inspector.process(target.id)));
        }
        report.total.applications += 1;
        report.last.time = snapshot.time;
        report.last.regions.clear();
        report.last.held_back_bytes = 0;
        let excluded = collect(scheme, snapshot, &self.history, &self.facts, &mut self.candidates);
        report.total.rejected_bytes += excluded.rejected;
        report.last.unobservable_bytes = excluded.unobservable;

        let bytes = self.candidates.iter().map(|candidate| candidate.range.size()).fold(0, u64::saturating_add);
        let left = budget.left(&scheme.quota, scheme.action.kind().granule());
        if bytes > left {
            sort_by_priority(&mut self.candidates, *cursor);
        }
        let charged = self.actuator.time_spent() + self.inspector.time_inspecting();
        let application = SchemeApplication {
            scheme,
            snapshot,
            facts: &self.facts,
            actuator: &mut self.actuator,
            inspector: &mut self.inspector,
            budget,
            history: &mut self.history,
            total: &mut report.total,
            last: &mut report.last,
            batch: &mut self.batch,
            charged,
        };
        *cursor = application.run(&self.candidates)?;
        report.quota = budget.limit(&scheme.quota);
        report.goal_score = budget.score();
        Ok(())
    }
}

impl<A: Actuator, I: PageInspector, G: Gauges> Sink for Schemes<A, I, G> {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.look(snapshot.time, snapshot);
        // An action that is further back than any age that matters changes nothing any more.
        let bounds = self.schemes.iter().flat_map(|active| {
            let age = active.scheme.condition.age;
            [age.min(), age.max()]
        });
        let farthest = bounds.filter(|&age| age < Duration::MAX).fold(OLDEST, Duration::max);
        let horizon = snapshot.time.saturating_sub(farthest);
        self.history.tidy(snapshot.time, horizon, |target| snapshot.targets.iter().any(|t| t.id == target));

        for index in 0..self.schemes.len() {
            if self.schemes[index].watermarks.is_awake() && self.schemes[index].is_due(snapshot) {
                self.apply(index, snapshot)?;
            }
        }
        Ok(())
    }
}
