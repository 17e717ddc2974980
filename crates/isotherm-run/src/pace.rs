//! Measures the CPU time of the threads of a run, for the budget, and reports the intervals that the run has settled
//! on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_core::{MOST_JOIN, Pace, Pacer, StepWork, TargetSearch};
use isotherm_kernel::hold::{HoldAccount, Holds};
use isotherm_kernel::monitor_cpu_time;
use isotherm_record::NotAfforded;

/// The CPU time of the threads that help a run. It counts as that of the run: it is part of its budget and its cost.
///
/// Sinks, and threads that iterate over [`Events`](crate::Events), are counted without it. It is for threads of the
/// program that work for the run otherwise, such as one that draws what a sink has found.
#[derive(Clone, Debug, Default)]
pub struct HelperCpu {
    /// In nanoseconds, since it was taken last.
    cpu: Arc<AtomicU64>,
    /// For how long the threads of the run held memory maps of targets.
    holds: HoldAccount,
}

impl HelperCpu {
    fn take(&self) -> Duration {
        Duration::from_nanos(self.cpu.swap(0, Ordering::Relaxed))
    }

    /// Measures the calling thread from now on.
    pub fn thread(&self) -> HelperThread {
        self.holds.charge_this_thread();
        HelperThread { sum: self.clone(), counted: monitor_cpu_time() }
    }
}

/// Measures one thread that helps a run: the one that [`HelperCpu::thread`] was called on.
#[derive(Debug)]
pub struct HelperThread {
    sum: HelperCpu,
    counted: Duration,
}

impl HelperThread {
    /// Counts what the thread, which is the calling one, has spent since the last count.
    pub fn count(&mut self) {
        self.count_without(Duration::ZERO);
    }

    /// Counts what the thread, which is the calling one, has spent since the last count, but for `exempt`, which the
    /// budget does not bound.
    pub(crate) fn count_without(&mut self, exempt: Duration) {
        let now = monitor_cpu_time();
        let spent = now.saturating_sub(std::mem::replace(&mut self.counted, now)).saturating_sub(exempt);
        self.sum.cpu.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// New targets are looked for this often, unless that costs too much. What appears joins within 200 ms then, also if
/// the look waits for a round.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The part of the budget that looks for new targets may take, with what it costs that they join.
const LOOKS: f64 = 0.5;

/// So many seconds' worth of that part may be used at once.
const SAVED: f64 = 3.0;

/// The CPU time, in seconds, that a target takes which joins, until it is measured.
const FIRST_JOIN: f64 = 0.0003;

/// Says how often new targets are looked for, and how many may join at a time.
#[derive(Debug)]
pub(crate) struct LookPace {
    /// The share of one CPU that looks may take.
    share: f64,
    /// The CPU time of looks at `at` that is not paid for yet, in seconds.
    owed: f64,
    at: Duration,
    /// The CPU time of a target that joins on the mean, in seconds, with its part of the look.
    join: f64,
}

impl LookPace {
    /// `cpu` is the budget: a share of one CPU.
    pub(crate) fn new(cpu: f64) -> Self {
        Self { share: cpu * LOOKS, owed: 0.0, at: Duration::ZERO, join: FIRST_JOIN }
    }

    /// Changes the budget.
    pub(crate) fn set_cpu(&mut self, cpu: f64) {
        self.share = cpu * LOOKS;
    }

    /// Takes in that so many targets joined in a look at `now`, which cost `cpu`, if that is known. Says how to look
    /// from now on: targets join by a few at a time if they are more than may join. `most` is the CPU time that the
    /// whole budget leaves for them.
    pub(crate) fn looked(
        &mut self,
        now: Duration,
        joined: usize,
        cpu: Option<Duration>,
        most: Duration,
    ) -> TargetSearch {
        let paid = self.share * now.saturating_sub(std::mem::replace(&mut self.at, now)).as_secs_f64();
        let cost = cpu.map_or(self.join * joined as f64, |cpu| cpu.as_secs_f64());
        if cpu.is_some() && joined > 0 {
            self.join = f64::midpoint(self.join, cost / joined as f64);
        }
        self.owed = (self.owed - paid).max(0.0) + cost;
        let gap = LOOK_EVERY.max(Duration::from_secs_f64((self.owed / self.share - SAVED).max(0.0)));
        let left = (self.share * (SAVED + gap.as_secs_f64()) - self.owed).min(most.as_secs_f64());
        TargetSearch { gap, most: ((left / self.join) as usize).clamp(1, MOST_JOIN) }
    }
}

/// A pace is reported if an interval has changed by at least this share.
const REPORTED_CHANGE: f64 = 0.2;

/// Measures the CPU time of a run: of the thread that it is used on, which is that of the monitor, and of the helper
/// threads.
pub(crate) struct CpuMeter {
    helpers: HelperCpu,
    /// The CPU time of the helper threads since the last snapshot.
    helped: Duration,
    /// The CPU time of the thread that was taken in.
    counted: Duration,
    /// CPU time of the last step without that of rounds.
    rest: Duration,
    /// CPU time of the survey under way.
    survey: Duration,
}

impl CpuMeter {
    pub(crate) fn new(helpers: HelperCpu) -> Self {
        helpers.holds.charge_this_thread();
        Self {
            helpers,
            helped: Duration::ZERO,
            counted: monitor_cpu_time(),
            rest: Duration::ZERO,
            survey: Duration::ZERO,
        }
    }

    /// Tells `pacer` what a step cost that did `work` and ended at `now`. Returns the CPU time of a survey that has
    /// ended with it.
    pub(crate) fn stepped(&mut self, pacer: &mut Pacer, now: Duration, work: StepWork) -> Option<Duration> {
        let cpu = monitor_cpu_time();
        let spent = cpu.saturating_sub(std::mem::replace(&mut self.counted, cpu));
        self.rest = pacer.without_rounds(work, spent);
        let helped = self.helpers.take();
        self.helped += helped;
        pacer.helped(helped);
        self.survey += pacer.stepped(now, work, spent);
        work.survey.is_some_and(|part| part.is_last_part).then(|| std::mem::take(&mut self.survey))
    }

    /// Takes in that nothing was monitored until now, because all schemes slept. What the threads that help spent
    /// meanwhile is part of the cost, and not of the last ten seconds.
    pub(crate) fn rested(&mut self) {
        self.helped += self.helpers.take();
    }

    /// The CPU time of the last step without that of rounds.
    pub(crate) fn last_step_without_rounds(&self) -> Duration {
        self.rest
    }

    /// For how long all threads of the run held memory maps of targets since the last call.
    pub(crate) fn take_holds(&self) -> Holds {
        self.helpers.holds.take()
    }

    /// The CPU time of the helper threads since the last call.
    pub(crate) fn take_helped(&mut self) -> Duration {
        std::mem::take(&mut self.helped)
    }
}

/// Decides when the pace of a run is reported: when it has changed.
#[derive(Default)]
pub(crate) struct PaceReports {
    /// What was reported last.
    last: Option<(Pace, NotAfforded)>,
}

impl PaceReports {
    /// Whether this is to be reported. If so, it counts as reported.
    pub(crate) fn is_due(&mut self, pace: Pace, not_afforded: NotAfforded) -> bool {
        let has_changed = |one: Option<Duration>, other: Option<Duration>| match (one, other) {
            (Some(one), Some(other)) => {
                (one.as_secs_f64() - other.as_secs_f64()).abs() > other.as_secs_f64() * REPORTED_CHANGE
            }
            (one, other) => one.is_some() != other.is_some(),
        };
        // Readings of the mappings are put off for moments: that alone is not reported.
        let without_mappings = |of: NotAfforded| NotAfforded { mappings: false, ..of };
        let is_due = self.last.is_none_or(|(last, last_not_afforded)| {
            pace.is_limited != last.is_limited
                || without_mappings(not_afforded) != without_mappings(last_not_afforded)
                || has_changed(pace.survey_interval, last.survey_interval)
                || has_changed(pace.sampling_interval, last.sampling_interval)
        });
        if is_due {
            self.last = Some((pace, not_afforded));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_new_targets_take_a_part_of_the_budget() {
        let milliseconds = Duration::from_millis;
        let mut cheap = LookPace::new(0.01);
        for step in 0..100 {
            assert_eq!(cheap.looked(LOOK_EVERY * step, 0, Some(milliseconds(1) / 4), Duration::MAX).gap, LOOK_EVERY);
        }
        let mut dear = LookPace::new(0.01);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(100) {
            spent += milliseconds(4);
            now += dear.looked(now, 0, Some(milliseconds(4)), Duration::MAX).gap;
        }
        let share = spent.as_secs_f64() / now.as_secs_f64();
        assert!((0.005..0.0053).contains(&share), "{share}");
    }

    #[test]
    fn more_targets_than_the_budget_allows_join_by_a_few_at_each_look() {
        let join = Duration::from_micros(250);
        let mut pace = LookPace::new(0.01);
        let mut search = pace.looked(Duration::ZERO, 0, Some(Duration::ZERO), Duration::MAX);
        assert!((45..=60).contains(&search.most), "at first, what was saved: {search:?}");
        let (mut now, mut joined) = (Duration::ZERO, 0);
        for _ in 0..100 {
            now += search.gap;
            joined += search.most;
            search = pace.looked(now, search.most, Some(join * search.most as u32), Duration::MAX);
            assert!(search.gap < LOOK_EVERY * 2, "{search:?}");
        }
        assert!(search.most <= 2, "{search:?}");
        let share = (join * joined as u32).as_secs_f64() / now.as_secs_f64();
        assert!((0.006..0.007).contains(&share), "with what was saved: {share}");
        // Other work has used up the budget of the last ten seconds.
        assert_eq!(pace.looked(now + Duration::from_secs(10), 0, Some(Duration::ZERO), Duration::ZERO).most, 1);
    }

    #[test]
    fn the_cpu_time_of_helper_threads_is_added_up() {
        let helpers = HelperCpu::default();
        let work = |helpers: HelperCpu| {
            let mut thread = helpers.thread();
            while thread.counted + Duration::from_millis(2) > monitor_cpu_time() {}
            thread.count();
        };
        std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(|| work(helpers.clone()))));
        assert!(helpers.take() >= Duration::from_millis(4));
        assert_eq!(helpers.take(), Duration::ZERO);
    }

    #[test]
    fn a_pace_is_reported_when_it_has_changed_much() {
        let mut reports = PaceReports::default();
        let pace = |ms| Pace { survey_interval: Some(Duration::from_millis(ms)), ..Pace::default() };
        let nothing = NotAfforded::default();
        assert!(reports.is_due(pace(1000), nothing), "the first");
        assert!(!reports.is_due(pace(1100), nothing), "little");
        assert!(reports.is_due(pace(1300), nothing));
        assert!(reports.is_due(pace(1300), NotAfforded { clears: true, ..nothing }));
        assert!(!reports.is_due(pace(1300), NotAfforded { clears: true, mappings: true, ..nothing }), "for a moment");
    }

    #[test]
    fn what_the_budget_does_not_bound_is_not_counted() {
        let helpers = HelperCpu::default();
        let mut thread = helpers.thread();
        let began = thread.counted;
        while began + Duration::from_millis(2) > monitor_cpu_time() {}
        thread.count_without(Duration::from_secs(3600));
        assert_eq!(helpers.take(), Duration::ZERO);
        while began + Duration::from_millis(4) > monitor_cpu_time() {}
        thread.count();
        assert!(helpers.take() > Duration::ZERO, "what follows is");
    }
}
