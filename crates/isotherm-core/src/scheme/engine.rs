//! The engine: applies schemes to snapshots.

use std::time::Duration;

use thiserror::Error;

use crate::rate::sampling_interval;
use crate::tiering::{Patience, REPAID, Waiting};
use crate::{AddrRange, BoxError, PAGE_SIZE, Sink, Snapshot, TargetId};

use super::active::ActiveScheme;
use super::application::{Batch, SchemeApplication};
use super::backoff::Backoff;
use super::budget::{QuotaLimits, missing};
use super::candidates::{Candidate, Seen, collect, sort_by_priority};
use super::cgroup_limit::LIMITS_EVERY;
use super::effective::{Effective, effective_filters};
use super::history::ActionHistory;
use super::limits::{Limiter, Limits, TakenOut};
use super::locks::Locks;
use super::moved::{LOOK_AGAIN, Moved};
use super::priority::MAX_AGE;
use super::returned::WithReturns;
use super::slowdown::Judgement;
use super::victims::{Freed, FreedSince, Tally, window};
use super::{
    Action, Actuator, CacheWork, Condition, Gauges, Goal, MakesRoomError, Moves, PageInspector, ProcessFacts, Report,
    Returns, Scheme, Wake, WantedLimits,
};

/// A scheme needs something that is not possible here.
#[derive(Debug, Error)]
#[error("the scheme {scheme:?} cannot work here")]
pub struct Unsupported {
    /// The name of the scheme.
    pub scheme: String,
    /// Why it is not possible, and how to fix that.
    #[source]
    pub source: BoxError,
}

/// Applies schemes to snapshots, in the order of the schemes.
///
/// It is a [`Sink`], and so can be the sink of a monitor. Snapshots of another origin are handed to
/// [`aggregated`](Sink::aggregated). They must come in the order of their times.
///
/// When watermarks have put all schemes to sleep, [`sleeps_until`](Self::sleeps_until) returns a time. Until then
/// the driver need not monitor anything. At that time it calls [`look`](Self::look).
pub struct Schemes<A, I, G> {
    actuator: A,
    inspector: I,
    gauges: G,
    active: Vec<ActiveScheme>,
    history: ActionHistory,
    moved: Moved,
    /// How much evidence memory needs to make room for other memory.
    patience: Patience,
    backoff: Backoff,
    locks: Locks,
    /// What has changed since [`Schemes::take_returns`].
    returns: Vec<Returns>,
    /// Which schemes fell asleep or woke since [`Schemes::take_wakes`].
    wakes: Vec<Wake>,
    /// The sampling interval that conditions are about: the one in force when the schemes were put in force. `None`
    /// until the next snapshot, which has it.
    interval: Option<Duration>,
    limiter: Limiter,
    /// When limits of cgroups were set last, and for how many schemes.
    limited: Option<(Duration, usize)>,
    // These buffers are used again, so that an application allocates little.
    candidates: Vec<Candidate>,
    facts: Vec<Option<ProcessFacts>>,
    batch: Batch,
    taken: Vec<(TargetId, AddrRange, u64)>,
}

impl<A: Actuator, I: PageInspector, G: Gauges> Schemes<A, I, G> {
    /// Puts schemes in force that have done nothing yet.
    ///
    /// # Errors
    /// If a scheme needs something that `actuator`, `inspector` or `gauges` cannot do here.
    pub fn new(schemes: Vec<Scheme>, actuator: A, inspector: I, gauges: G) -> Result<Self, Unsupported> {
        let mut made = Self {
            actuator,
            inspector,
            gauges,
            active: Vec::new(),
            history: ActionHistory::default(),
            moved: Moved::default(),
            patience: Patience::default(),
            backoff: Backoff::default(),
            locks: Locks::default(),
            returns: Vec::new(),
            wakes: Vec::new(),
            interval: None,
            limiter: Limiter::default(),
            limited: None,
            candidates: Vec::new(),
            facts: Vec::new(),
            batch: Batch::default(),
            taken: Vec::new(),
        };
        made.replace(schemes)?;
        Ok(made)
    }

    /// Keeps all schemes together within these limits, these schemes and those that replace them. `out` is what earlier
    /// schemes have left [out](TakenOut).
    #[must_use]
    pub fn limited(self, limits: Limits, out: TakenOut) -> Self {
        Self { limiter: Limiter::new(limits, out), ..self }
    }

    /// The memory that is out. It is known only if it is limited.
    pub fn taken_out(&self) -> &TakenOut {
        self.limiter.out()
    }

    /// Puts these schemes in force instead of the present ones. A scheme that has the name of a present one takes
    /// over its report and its use of the quota in this period.
    ///
    /// # Errors
    /// If a scheme needs something that is not possible here. Then the present schemes stay in force.
    pub fn replace(&mut self, schemes: Vec<Scheme>) -> Result<(), Unsupported> {
        let mut links = Vec::with_capacity(schemes.len());
        for (nth, scheme) in schemes.iter().enumerate() {
            let unsupported = |source| Unsupported { scheme: scheme.name.to_string(), source };
            self.check(scheme).map_err(unsupported)?;
            let owner = scheme.quota.owner_among(&schemes[..nth]).map_err(|error| unsupported(error.into()))?;
            let room_for = scheme.makes_room_for.iter().map(|name| MakesRoomError::check(name, &schemes[..nth]));
            let room_for = room_for.collect::<Result<_, _>>().map_err(|error| unsupported(error.into()))?;
            links.push((owner, room_for));
        }
        let mut old = std::mem::take(&mut self.active);
        for (scheme, (owner, makes_room_for)) in schemes.into_iter().zip(links) {
            let known = old.iter().position(|active| active.scheme.name == scheme.name);
            let active = match known {
                Some(i) => {
                    let mut active = old.swap_remove(i);
                    active.replace(scheme);
                    active
                }
                None => ActiveScheme::new(scheme),
            };
            self.active.push(ActiveScheme { owner, makes_room_for, ..active });
        }
        self.interval = None;
        Ok(())
    }

    /// Lets conditions on access rates be about samples over `interval`, and not over the one in force at the next
    /// snapshot, until other schemes are put in force.
    pub fn compare_over(&mut self, interval: Duration) {
        self.interval = Some(interval);
    }

    fn check(&mut self, scheme: &Scheme) -> Result<(), BoxError> {
        if scheme.action.needs_inside() && !scheme.inside {
            let action = scheme.action;
            let why = "needs a call made inside the target; write `inside: true` in the scheme to allow that";
            return Err(format!("the action {action} {why}").into());
        }
        self.actuator.supports(scheme.action, scheme.inside)?;
        scheme.page_kinds().try_for_each(|kind| self.inspector.tells(kind))?;
        if scheme.filters.iter().any(|filter| filter.kind.is_of_processes()) {
            self.inspector.has_processes()?;
        }
        scheme.metrics().try_for_each(|metric| self.gauges.supports(metric))
    }

    /// The schemes in force.
    pub fn schemes(&self) -> impl Iterator<Item = &Scheme> {
        self.active.iter().map(|active| &active.scheme)
    }

    /// What each scheme has done, in the order of the schemes.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.active.iter().map(|active| &active.report)
    }

    /// The actuator.
    pub fn actuator(&self) -> &A {
        &self.actuator
    }

    /// The actuator, to change its state between two snapshots.
    pub fn actuator_mut(&mut self) -> &mut A {
        &mut self.actuator
    }

    /// The inspector.
    pub fn inspector(&self) -> &I {
        &self.inspector
    }

    /// The inspector, to change its state between two snapshots.
    pub fn inspector_mut(&mut self) -> &mut I {
        &mut self.inspector
    }

    /// The gauges, to change their state between two snapshots.
    pub fn gauges_mut(&mut self) -> &mut G {
        &mut self.gauges
    }

    /// When the watermarks have to be checked next, if all schemes sleep. Until then nothing need be monitored.
    /// `None` if a scheme is awake.
    pub fn sleeps_until(&self) -> Option<Duration> {
        if self.active.iter().any(|active| active.watermarks.is_awake()) {
            return None;
        }
        self.active.iter().map(|active| active.watermarks.next()).min()
    }

    /// Checks the watermarks that are due at `now`. A snapshot does that as well. The driver calls this method
    /// while all schemes sleep and no snapshots come.
    pub fn look(&mut self, now: Duration, snapshot: &Snapshot) {
        for active in &mut self.active {
            if let Some(marks) = &active.scheme.watermarks {
                active.watermarks.look(marks, now, |metric| self.gauges.read(metric, snapshot));
                let awake = active.watermarks.is_awake();
                if let Some(value) = active.watermarks.value().filter(|_| awake != active.report.awake) {
                    let scheme = active.scheme.name.clone();
                    self.wakes.push(Wake { scheme, awake, value, watermarks: marks.clone() });
                }
            }
            active.report.awake = active.watermarks.is_awake();
        }
        // While all sleep, nothing is known of pressure and of what comes back.
        if self.sleeps_until().is_some() {
            self.limit_cgroups(snapshot);
        }
    }

    /// The schemes that their watermarks have put to sleep or woken since the previous call, in the order of time.
    pub fn take_wakes(&mut self) -> impl Iterator<Item = Wake> {
        std::mem::take(&mut self.wakes).into_iter()
    }

    /// For each scheme, whether too much of what it frees comes back soon; only where that has changed since the
    /// previous call.
    pub fn take_returns(&mut self) -> impl Iterator<Item = Returns> {
        std::mem::take(&mut self.returns).into_iter()
    }

    /// Looks at how much of what the schemes freed or moved has come back, and slows those for which that is too much.
    fn look_at_victims(&mut self, snapshot: &Snapshot) {
        let survey = snapshot.histories.iter().map(|(_, history)| history.time()).max();
        for active in &mut self.active {
            let moves = active.scheme.action.moves().is_some();
            let window = if moves { REPAID } else { window(active.scheme.condition.age.min()) };
            let inspector = &mut self.inspector;
            let present = |target: TargetId, range| match survey {
                Some(_) => snapshot.history(target).map(|history| history.pages_in(range).present),
                None => inspector.present(target, range),
            };
            let found = match moves {
                true => Some(active.victims.take_old(snapshot.time, window)),
                false => active.victims.look(snapshot.time, window, survey, present),
            };
            let Some(FreedSince { tally: seen, newly, over }) = found else {
                continue;
            };
            active.report.total.watched_bytes += seen.freed;
            active.report.total.returned_bytes += seen.returned;
            active.returned.take(snapshot.time, newly);
            for Freed { target, range, at, tally } in over {
                let back = match snapshot.history(target) {
                    _ if tally.returned == 0 => Vec::new(),
                    Some(history) => history.present_ranges(range),
                    // Which pages they are is not known.
                    None => (tally.returned * 2 > tally.freed).then_some(range).into_iter().collect(),
                };
                self.backoff.came_back(target, range, &back, at);
            }
            let judgement = active.budget.judge(snapshot.time, window, seen);
            active.report.quota_share = active.budget.share(&active.scheme.quota);
            if let Some(Judgement { tally: Tally { freed, returned }, too_much }) = judgement
                && std::mem::replace(&mut active.returning, too_much) != too_much
            {
                let (scheme, slowed) = (active.scheme.name.clone(), active.report.quota_share.is_some());
                self.returns.push(Returns { scheme, moved: moves, too_much, freed, returned, window, slowed });
            }
        }
    }

    /// Applies the scheme with this index.
    fn apply(&mut self, index: usize, snapshot: &Snapshot) -> Result<(), BoxError> {
        let is_waited_for = self.active.iter().any(|other| {
            other.makes_room_for.contains(&index) && other.watermarks.is_awake() && other.is_due(snapshot)
        });
        let is_acting = |other: &&ActiveScheme| {
            other.scheme.action.changes_memory() && other.watermarks.is_awake() && other.is_due(snapshot)
        };
        let others = self.active[index + 1..].iter().filter(is_acting).count() as u64;
        let (before, active) = self.active.split_at_mut(index);
        let ActiveScheme {
            scheme,
            owner,
            makes_room_for,
            waiting,
            budget,
            cursor,
            applied_at,
            victims,
            returned,
            in_place,
            not_again,
            rejections,
            report,
            ..
        } = &mut active[0];
        // What several schemes have left for want of room is one demand.
        let mut demand = Waiting::default();
        makes_room_for.iter().for_each(|&other| demand.join(std::mem::take(&mut before[other].waiting)));
        *applied_at = Some(snapshot.time);
        let mut gauges = WithReturns { gauges: &mut self.gauges, returned };
        budget.begin(&scheme.quota, snapshot.time, &mut gauges, snapshot);
        let shared = owner.map(|owner| &mut before[owner]).map(|owner| (&owner.scheme.quota, &mut owner.budget));
        let mut share = self.limiter.share(scheme.action, others);
        let mut all = share.left;
        let mut allowance = QuotaLimits { quota: &scheme.quota, budget: &mut *budget, shared, share: &mut share };
        if let Some((quota, budget)) = &mut allowance.shared {
            budget.begin(quota, snapshot.time, &mut gauges, snapshot);
        }

        self.facts.clear();
        if scheme.filters.iter().any(|filter| filter.kind.needs_process()) {
            self.facts.extend(snapshot.targets.iter().map(|target| self.inspector.process(target.id)));
        }
        report.total.applications += 1;
        report.last.time = snapshot.time;
        report.last.regions.clear();
        report.last.held_back_bytes = 0;
        let Effective { filters, by_place, second_look } =
            effective_filters(scheme, snapshot, &mut self.actuator, &mut self.inspector);
        let sampling = sampling_interval(snapshot.aggregation, snapshot.samples);
        let seen = Seen {
            snapshot,
            interval: *self.interval.get_or_insert(sampling),
            facts: &self.facts,
            history: &self.history,
            moved: &self.moved,
            backoff: &self.backoff,
            locks: &self.locks,
            rejections,
            in_place,
            not_again,
            second_look,
            makes_room: demand.left(0) > 0,
            patience: self.patience.factor(),
            is_dry: self.actuator.is_dry(),
        };
        let excluded =
            collect(scheme, &filters, &seen, |mapping| self.actuator.can_free(mapping), &mut self.candidates);
        excluded.changed.into_iter().for_each(|(target, range)| rejections.forget(target, range));
        for (target, range) in excluded.rejected {
            report.total.rejected_bytes += rejections.reject(target, range, snapshot.time);
        }
        report.last.unobservable_bytes = excluded.unobservable;

        if scheme.action == Action::MLock && !self.candidates.is_empty() {
            all = all.min(self.actuator.lockable());
            allowance.share.left = all;
        }
        if takes_cache(scheme) {
            let (age, spent) = (scheme.condition.age.min(), self.actuator.time_spent());
            let Scheme { action, unobserved, .. } = *scheme;
            let (targets, bytes) = (&snapshot.targets, allowance.left(PAGE_SIZE));
            // Page cache comes first: it takes no place in swap.
            let freed = self.actuator.reclaim_cache(&CacheWork { action, age, unobserved, targets, bytes });
            let time = self.actuator.time_spent().saturating_sub(spent);
            report.total.time += time;
            if freed > 0 {
                allowance.charge(freed, 0, time);
                report.total.tried_bytes += freed;
                report.total.passed_bytes += freed;
                report.total.applied_bytes += freed;
            }
        }
        let bytes = self.candidates.iter().map(|candidate| candidate.range.size()).fold(0, u64::saturating_add);
        let left = allowance.left(scheme.action.granule());
        if bytes > left || demand.left(0) > 0 {
            sort_by_priority(&mut self.candidates, *cursor);
        }
        let charged = self.actuator.time_spent() + self.inspector.time_inspecting();
        let application = SchemeApplication {
            scheme,
            filters: &filters,
            by_place,
            snapshot,
            facts: &self.facts,
            actuator: &mut self.actuator,
            inspector: &mut self.inspector,
            allowance,
            demand: &mut demand,
            is_waited_for,
            history: &mut self.history,
            moved: &mut self.moved,
            backoff: &mut self.backoff,
            locks: &mut self.locks,
            rejections,
            in_place,
            not_again,
            victims,
            taken: &mut self.taken,
            total: &mut report.total,
            last: &mut report.last,
            batch: &mut self.batch,
            charged,
        };
        let applied = application.run(&self.candidates);
        self.limiter.take(all - share.left, self.taken.drain(..));
        (*cursor, *waiting) = applied?;
        if is_waited_for {
            // Without goals, there is always room.
            waiting.serve(missing(&scheme.quota, &mut self.gauges, snapshot).unwrap_or(u64::MAX));
        }
        // What is left of the demand is for the next scheme.
        if let Some(&first) = makes_room_for.first() {
            before[first].waiting = demand;
        }
        report.quota = budget.limit(&scheme.quota).into_iter().chain(share.whole).min();
        report.goal_score = budget.score();
        report.quota_share = budget.share(&scheme.quota);
        self.count_moved_back(index, snapshot);
        Ok(())
    }

    /// Lets the actuator set the limits of cgroups that the schemes want, once in a while, and at once when a scheme
    /// falls asleep or wakes.
    fn limit_cgroups(&mut self, snapshot: &Snapshot) {
        let is_limiting = |active: &ActiveScheme| {
            let has_bound = || active.scheme.quota.goals().iter().any(Goal::is_bound);
            active.scheme.action.limit().is_some() && active.watermarks.is_awake() && has_bound()
        };
        let count = self.active.iter().filter(|active| is_limiting(active)).count();
        let is_due = match self.limited {
            None | Some((_, 0)) => count > 0,
            Some((at, before)) => count != before || snapshot.time + snapshot.aggregation / 2 >= at + LIMITS_EVERY,
        };
        if !is_due {
            return;
        }
        self.limited = Some((snapshot.time, count));
        let limiting = self.active.iter_mut().filter(|active| is_limiting(active));
        let known = limiting.filter_map(|active| {
            let ActiveScheme { scheme, budget, returned, in_use, .. } = active;
            let mut gauges = WithReturns { gauges: &mut self.gauges, returned };
            let reached = budget.bound(&scheme.quota, &mut gauges, snapshot);
            let in_use = in_use.count(snapshot, scheme.condition.age.min());
            Some((&*scheme.name, scheme.action.limit()?, reached, in_use))
        });
        let known: Vec<_> = known.collect();
        let wanted = known.iter().map(|(scheme, how, reached, in_use)| {
            let reached = reached.as_ref().map(|(goal, value)| (goal, *value));
            WantedLimits { scheme, how: *how, reached, in_use }
        });
        let wanted: Vec<_> = wanted.collect();
        self.actuator.set_limits(&wanted);
    }

    /// Tells the schemes that move memory in the other direction what the last application of this one has undone. What
    /// is demoted was promoted in vain if it has been idle for at least half of the time since then.
    fn count_moved_back(&mut self, index: usize, snapshot: &Snapshot) {
        let Some(direction) = self.active[index].scheme.action.moves() else {
            return;
        };
        let regions = std::mem::take(&mut self.active[index].report.last.regions);
        let others = self.active.iter_mut().filter(|a| a.scheme.action.moves() == Some(direction.opposite()));
        for other in others {
            for acted in regions.iter().filter(|acted| acted.applied > 0) {
                let history = snapshot.history(acted.target).filter(|_| direction == Moves::Cold);
                other.victims.moved_back(acted.target, acted.range, acted.applied, |range, at| match history {
                    Some(history) => {
                        let idle = history.idle_ranges(range, snapshot.time.saturating_sub(at) / 2);
                        idle.iter().map(|(range, _)| range.size()).sum()
                    }
                    None => range.size(),
                });
            }
        }
        self.active[index].report.last.regions = regions;
    }
}

/// Whether a scheme takes page cache that no process maps. Filters, sizes and frequencies are about other memory.
fn takes_cache(scheme: &Scheme) -> bool {
    let Condition { size, rate, hz, age } = scheme.condition;
    let is_idle = rate.min() == 0.0 && hz.min() == 0.0 && age.max() == Duration::MAX;
    scheme.action.reclaim().is_some() && scheme.filters.is_empty() && is_idle && size.min() <= PAGE_SIZE
}

impl<A: Actuator, I: PageInspector, G: Gauges> Sink for Schemes<A, I, G> {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.look(snapshot.time, snapshot);
        // An action that is further back than any age in a condition, or in a score, has no effect any more.
        let bounds = self.active.iter().flat_map(|active| {
            let age = active.scheme.condition.age;
            [age.min(), age.max()]
        });
        let farthest = bounds.filter(|&age| age < Duration::MAX).fold(MAX_AGE, Duration::max);
        let horizon = snapshot.time.saturating_sub(farthest);
        let lives = |target| snapshot.targets.iter().any(|t| t.id == target);
        self.history.tidy(snapshot.time, horizon, lives);
        self.moved.tidy(snapshot.time, lives);
        self.backoff.tidy(snapshot.time, lives);
        self.locks.tidy(snapshot.time, lives);
        for active in &mut self.active {
            active.in_place.tidy(snapshot.time, snapshot.time.saturating_sub(LOOK_AGAIN), lives);
            // What was found before the last survey has no effect any more. Surveys of all targets differ little.
            let surveyed = snapshot.histories.iter().map(|(_, history)| history.time()).min().unwrap_or_default();
            active.not_again.tidy(snapshot.time, surveyed, lives);
            active.rejections.tidy(snapshot.time, lives);
        }

        self.look_at_victims(snapshot);
        self.limiter.begin(snapshot);
        let moving = self.active.iter_mut().filter(|active| active.scheme.action.moves().is_some());
        let moves = moving.map(|active| active.victims.take_moves());
        let [moved, back] = moves.fold([0, 0], |[moved, back], [more, of_it]| [moved + more, back + of_it]);
        self.patience.take(snapshot.time, moved, back);
        for index in 0..self.active.len() {
            if self.active[index].watermarks.is_awake() && self.active[index].is_due(snapshot) {
                self.apply(index, snapshot)?;
            }
        }
        self.limit_cgroups(snapshot);
        Ok(())
    }
}
