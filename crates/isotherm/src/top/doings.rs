//! What schemes do: of late, and in all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Application, Report, Scheme};
use isotherm_core::{MemoryUse, TargetId};
use isotherm_record::Activity;

/// What "of late" means: shorter, and nobody could read the figures; longer, and they would tell of the past.
const OF_LATE: Duration = Duration::from_secs(5);

/// How far back is known what was done: the use of quotas with longer periods is told of this time only.
const PAST: Duration = Duration::from_secs(60);

/// What is known of the schemes of a run. A copy shares what does not change.
#[derive(Clone, Default)]
pub struct Doings {
    in_force: Arc<[InForce]>,
    newest: Option<Arc<Activity>>,
    /// Of each scheme in force, its last application that acted on something.
    acted: Arc<[(Arc<str>, Application)]>,
    past: VecDeque<Moment>,
}

/// What a scheme that is in force is.
#[derive(Clone, Debug)]
struct InForce {
    name: Arc<str>,
    period: Duration,
    /// What memory it wants, in a sentence.
    wants: String,
}

/// What had been done at one time.
#[derive(Clone)]
struct Moment {
    time: Duration,
    done: Vec<Done>,
}

#[derive(Clone)]
struct Done {
    name: Arc<str>,
    applied: u64,
    passed: u64,
}

/// What one scheme does.
#[derive(Clone, Debug)]
pub struct Doing<'a> {
    pub report: &'a Report,
    /// Bytes a second that it was carried out on of late.
    pub rate: f64,
    /// What it uses of its quota, if it has one.
    pub quota: Option<QuotaUse>,
    /// The last application that acted on something; that of the report may have found nothing to do, or its quota used up.
    pub acted: Option<&'a Application>,
    /// What memory it wants, in a sentence; empty if that is not known.
    pub wants: &'a str,
}

/// What is used of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// Bytes that a period allows now.
    pub limit: u64,
    /// Bytes of the limit that were used, on the mean over the periods of late. These seldom begin and end where the time does that is
    /// looked at, so that this is near the truth only.
    pub used: u64,
    pub period: Duration,
}

impl Doings {
    /// Takes note of the schemes that are in force from here on.
    pub fn in_force(&mut self, schemes: &[Scheme]) {
        let known = |scheme: &Scheme| InForce {
            name: Arc::clone(&scheme.name),
            period: scheme.quota.period(),
            wants: isotherm_scheme::describe_condition(&scheme.condition),
        };
        self.in_force = schemes.iter().map(known).collect();
    }

    /// Takes in what has been done.
    pub fn take(&mut self, activity: Arc<Activity>) {
        let done = |report: &Report| Done {
            name: Arc::clone(&report.name),
            applied: report.total.applied_bytes,
            passed: report.total.passed_bytes,
        };
        let now = Moment { time: activity.time, done: activity.schemes.iter().map(done).collect() };
        if self.past.is_empty() {
            self.past.push_back(Moment { time: Duration::ZERO, done: Vec::new() });
        }
        // A scheme that is new had done nothing before. One that begins at zero again is new.
        if let Some(last) = self.past.back_mut() {
            for new in &now.done {
                let known = last.done.iter().position(|old| old.name == new.name);
                let again =
                    known.is_some_and(|i| last.done[i].passed > new.passed || last.done[i].applied > new.applied);
                if again {
                    last.done.retain(|old| old.name != new.name);
                }
                if known.is_none() || again {
                    last.done.push(Done { name: Arc::clone(&new.name), applied: 0, passed: 0 });
                }
            }
        }
        self.past.push_back(now);
        // The oldest is as old as what is looked at, or older.
        while self.past.get(1).is_some_and(|next| activity.time.saturating_sub(next.time) >= PAST) {
            self.past.pop_front();
        }
        let last = |report: &Report| {
            let before = || self.acted.iter().find(|(name, _)| *name == report.name).map(|(_, last)| last.clone());
            let last = if report.last.regions.is_empty() { before() } else { Some(report.last.clone()) };
            Some((Arc::clone(&report.name), last?))
        };
        self.acted = activity.schemes.iter().filter_map(last).collect();
        self.newest = Some(activity);
    }

    /// How many schemes there are.
    pub fn count(&self) -> usize {
        self.in_force.len()
    }

    /// What was told last.
    pub fn newest(&self) -> Option<&Activity> {
        self.newest.as_deref()
    }

    /// Whether all schemes sleep, so that nothing is monitored.
    pub fn all_sleep(&self) -> bool {
        self.newest().is_some_and(|newest| !newest.schemes.is_empty() && newest.schemes.iter().all(|s| !s.awake))
    }

    /// The memory that a target uses, if it is known.
    pub fn memory(&self, target: TargetId) -> Option<MemoryUse> {
        self.newest()?.memory.iter().find(|(id, _)| *id == target).map(|(_, memory)| *memory)
    }

    /// What each scheme does, in their order.
    pub fn all(&self) -> Vec<Doing<'_>> {
        self.newest().map(|newest| newest.schemes.iter().map(|report| self.doing(report)).collect()).unwrap_or_default()
    }

    fn doing<'a>(&'a self, report: &'a Report) -> Doing<'a> {
        let known = self.in_force.iter().find(|known| known.name == report.name);
        let quota = report.quota.zip(known).map(|(limit, known)| {
            let (_, passed, time) = self.since(report, OF_LATE.max(known.period));
            let share = (known.period.as_secs_f64() / time.as_secs_f64()).min(1.0);
            QuotaUse { limit, used: ((passed as f64 * share) as u64).min(limit), period: known.period }
        });
        let (applied, _, time) = self.since(report, OF_LATE);
        let rate = applied as f64 / time.as_secs_f64();
        let acted = self.acted.iter().find(|(name, _)| *name == report.name).map(|(_, application)| application);
        Doing { report, rate, quota, acted, wants: known.map_or("", |known| &known.wants) }
    }

    /// The bytes that it was carried out on, and that it was called for, in about this time before now; and in which time.
    fn since(&self, report: &Report, span: Duration) -> (u64, u64, Duration) {
        let now = self.past.back().map_or(Duration::ZERO, |now| now.time);
        let mut best = (0, 0, Duration::from_secs(1));
        // Back to where it was not yet known, or begins again.
        for moment in self.past.iter().rev().skip(1) {
            let Some(then) = moment.done.iter().find(|done| done.name == report.name) else { break };
            let total = &report.total;
            let parts = (total.applied_bytes.checked_sub(then.applied), total.passed_bytes.checked_sub(then.passed));
            let (Some(applied), Some(passed)) = parts else { break };
            let time = now.saturating_sub(moment.time);
            best = (applied, passed, time.max(Duration::from_millis(100)));
            if time >= span {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::scheme::Statistics;

    use super::super::made::{MIB, activity, report, schemes};
    use super::*;

    fn doings(seconds: impl Iterator<Item = (u64, u64)>) -> Doings {
        let mut doings = Doings::default();
        doings.in_force(&schemes(1));
        for (second, mib) in seconds {
            let total = Statistics { applied_bytes: mib * MIB, passed_bytes: mib * MIB, ..Statistics::default() };
            let report = Report { total, quota: Some(10 * MIB), ..report("cold") };
            doings.take(Arc::new(activity(second, vec![report])));
        }
        doings
    }

    #[test]
    fn the_rate_is_that_of_late_and_follows() {
        let rate = |doings: &Doings| doings.all()[0].rate / MIB as f64;
        assert_eq!(rate(&doings([(1, 4)].into_iter())), 4.0, "it began with nothing");
        assert_eq!(rate(&doings((1..=100).map(|s| (s, 3 * s)))), 3.0);
        assert_eq!(rate(&doings((1..=100).map(|s| (s, 3 * s.min(95))))), 0.0, "it has stopped");
    }

    #[test]
    fn what_begins_again_at_zero_is_counted_from_there() {
        let doings = doings([(1, 100), (2, 200), (3, 2), (4, 4)].into_iter());
        assert_eq!(doings.all()[0].rate / MIB as f64, 2.0);
    }

    #[test]
    fn a_quota_is_never_shown_as_used_beyond_its_limit() {
        let quota = |doings: &Doings| doings.all()[0].quota.unwrap();
        let used = quota(&doings((1..=20).map(|s| (s, 6 * s))));
        assert_eq!((used.used, used.limit, used.period), (6 * MIB, 10 * MIB, Duration::from_secs(1)));
        assert_eq!(quota(&doings([(1, 40)].into_iter())).used, 10 * MIB);
    }

    #[test]
    fn the_past_is_bounded() {
        let doings = doings((1..10_000).map(|s| (s, s)));
        assert!(doings.past.len() <= 62, "{}", doings.past.len());
    }
}
