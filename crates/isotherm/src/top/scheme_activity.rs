//! What the schemes of a run do: recently, and in all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Application, Report, Scheme};
use isotherm_core::{MemoryUse, TargetId};
use isotherm_record::Activity;

/// The time that rates are taken over. Shorter, figures change too fast to read; longer, they lag behind.
const RECENT: Duration = Duration::from_secs(5);

/// How long samples are kept. The use of a quota with a longer period is taken over this time.
const HISTORY: Duration = Duration::from_secs(60);

/// The activity of the schemes of a run. A copy shares the data that does not change.
#[derive(Clone, Default)]
pub struct SchemeActivity {
    in_force: Arc<[KnownScheme]>,
    newest: Option<Arc<Activity>>,
    /// The last application of each scheme that acted on something.
    acted: Arc<[(Arc<str>, Application)]>,
    samples: VecDeque<Sample>,
}

/// A scheme in force.
#[derive(Clone, Debug)]
struct KnownScheme {
    name: Arc<str>,
    period: Duration,
    /// A sentence that describes the memory it selects.
    selects: String,
}

/// The totals of all schemes at one time.
#[derive(Clone)]
struct Sample {
    time: Duration,
    totals: Vec<Totals>,
}

#[derive(Clone)]
struct Totals {
    name: Arc<str>,
    applied: u64,
    passed: u64,
}

/// The activity of one scheme.
#[derive(Clone, Debug)]
pub struct SchemeStatus<'a> {
    pub report: &'a Report,
    /// Bytes per second to which it was applied recently.
    pub rate: f64,
    /// The use of its quota, if it has one.
    pub quota: Option<QuotaUse>,
    /// The last application that acted on something. `report.last` may have found nothing, or no quota left.
    pub acted: Option<&'a Application>,
    /// A sentence that describes the memory it selects; empty if unknown.
    pub selects: &'a str,
}

/// The use of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The limit of a period now, in bytes.
    pub limit: u64,
    /// Bytes of the limit that were used: the mean over recent periods. It is approximate, because periods
    /// rarely start and end with the time that it is taken over.
    pub used: u64,
    pub period: Duration,
}

impl SchemeActivity {
    /// Sets the schemes in force.
    pub fn set_in_force(&mut self, schemes: &[Scheme]) {
        let known = |scheme: &Scheme| KnownScheme {
            name: Arc::clone(&scheme.name),
            period: scheme.quota.period(),
            selects: isotherm_scheme::describe_condition(&scheme.condition),
        };
        self.in_force = schemes.iter().map(known).collect();
    }

    /// Takes an activity.
    pub fn take(&mut self, activity: Arc<Activity>) {
        let done = |report: &Report| Totals {
            name: Arc::clone(&report.name),
            applied: report.total.applied_bytes,
            passed: report.total.passed_bytes,
        };
        let now = Sample { time: activity.time, totals: activity.schemes.iter().map(done).collect() };
        if self.samples.is_empty() {
            self.samples.push_back(Sample { time: Duration::ZERO, totals: Vec::new() });
        }
        // A new scheme starts at zero. A scheme whose totals are lower than before is new.
        if let Some(last) = self.samples.back_mut() {
            for new in &now.totals {
                let known = last.totals.iter().position(|old| old.name == new.name);
                let again =
                    known.is_some_and(|i| last.totals[i].passed > new.passed || last.totals[i].applied > new.applied);
                if again {
                    last.totals.retain(|old| old.name != new.name);
                }
                if known.is_none() || again {
                    last.totals.push(Totals { name: Arc::clone(&new.name), applied: 0, passed: 0 });
                }
            }
        }
        self.samples.push_back(now);
        // Keep one sample that is at least as old as the history.
        while self.samples.get(1).is_some_and(|next| activity.time.saturating_sub(next.time) >= HISTORY) {
            self.samples.pop_front();
        }
        let last = |report: &Report| {
            let before = || self.acted.iter().find(|(name, _)| *name == report.name).map(|(_, last)| last.clone());
            let last = if report.last.regions.is_empty() { before() } else { Some(report.last.clone()) };
            Some((Arc::clone(&report.name), last?))
        };
        self.acted = activity.schemes.iter().filter_map(last).collect();
        self.newest = Some(activity);
    }

    /// Number of schemes in force.
    pub fn count(&self) -> usize {
        self.in_force.len()
    }

    /// The latest activity.
    pub fn newest(&self) -> Option<&Activity> {
        self.newest.as_deref()
    }

    /// Whether all schemes sleep, so that nothing is monitored.
    pub fn all_sleep(&self) -> bool {
        self.newest().is_some_and(|newest| !newest.schemes.is_empty() && newest.schemes.iter().all(|s| !s.awake))
    }

    /// The memory that a target uses, if known.
    pub fn memory(&self, target: TargetId) -> Option<MemoryUse> {
        self.newest()?.memory.iter().find(|(id, _)| *id == target).map(|(_, memory)| *memory)
    }

    /// The activity of each scheme, in order.
    pub fn all(&self) -> Vec<SchemeStatus<'_>> {
        self.newest()
            .map(|newest| newest.schemes.iter().map(|report| self.status(report)).collect())
            .unwrap_or_default()
    }

    fn status<'a>(&'a self, report: &'a Report) -> SchemeStatus<'a> {
        let known = self.in_force.iter().find(|known| known.name == report.name);
        let quota = report.quota.zip(known).map(|(limit, known)| {
            let (_, passed, time) = self.since(report, RECENT.max(known.period));
            let share = (known.period.as_secs_f64() / time.as_secs_f64()).min(1.0);
            QuotaUse { limit, used: ((passed as f64 * share) as u64).min(limit), period: known.period }
        });
        let (applied, _, time) = self.since(report, RECENT);
        let rate = applied as f64 / time.as_secs_f64();
        let acted = self.acted.iter().find(|(name, _)| *name == report.name).map(|(_, application)| application);
        SchemeStatus { report, rate, quota, acted, selects: known.map_or("", |known| &known.selects) }
    }

    /// The bytes applied and passed during about the last `span`, and the exact time that they cover.
    fn since(&self, report: &Report, span: Duration) -> (u64, u64, Duration) {
        let now = self.samples.back().map_or(Duration::ZERO, |now| now.time);
        let mut best = (0, 0, Duration::from_secs(1));
        // Go back until the scheme was unknown or restarted.
        for sample in self.samples.iter().rev().skip(1) {
            let Some(then) = sample.totals.iter().find(|done| done.name == report.name) else { break };
            let total = &report.total;
            let parts = (total.applied_bytes.checked_sub(then.applied), total.passed_bytes.checked_sub(then.passed));
            let (Some(applied), Some(passed)) = parts else { break };
            let time = now.saturating_sub(sample.time);
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

    use super::super::fixtures::{MIB, activity, report, schemes};
    use super::*;

    fn after(seconds: impl Iterator<Item = (u64, u64)>) -> SchemeActivity {
        let mut known = SchemeActivity::default();
        known.set_in_force(&schemes(1));
        for (second, mib) in seconds {
            let total = Statistics { applied_bytes: mib * MIB, passed_bytes: mib * MIB, ..Statistics::default() };
            let report = Report { total, quota: Some(10 * MIB), ..report("cold") };
            known.take(Arc::new(activity(second, vec![report])));
        }
        known
    }

    #[test]
    fn the_rate_is_taken_over_recent_time() {
        let rate = |known: &SchemeActivity| known.all()[0].rate / MIB as f64;
        assert_eq!(rate(&after([(1, 4)].into_iter())), 4.0, "it started at zero");
        assert_eq!(rate(&after((1..=100).map(|s| (s, 3 * s)))), 3.0);
        assert_eq!(rate(&after((1..=100).map(|s| (s, 3 * s.min(95))))), 0.0, "it has stopped");
    }

    #[test]
    fn a_scheme_that_restarts_at_zero_is_counted_from_there() {
        let known = after([(1, 100), (2, 200), (3, 2), (4, 4)].into_iter());
        assert_eq!(known.all()[0].rate / MIB as f64, 2.0);
    }

    #[test]
    fn a_quota_is_never_shown_as_used_beyond_its_limit() {
        let quota = |known: &SchemeActivity| known.all()[0].quota.unwrap();
        let used = quota(&after((1..=20).map(|s| (s, 6 * s))));
        assert_eq!((used.used, used.limit, used.period), (6 * MIB, 10 * MIB, Duration::from_secs(1)));
        assert_eq!(quota(&after([(1, 40)].into_iter())).used, 10 * MIB);
    }

    #[test]
    fn the_history_is_bounded() {
        let known = after((1..10_000).map(|s| (s, s)));
        assert!(known.samples.len() <= 62, "{}", known.samples.len());
    }
}
