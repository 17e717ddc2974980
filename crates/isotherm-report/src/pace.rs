//! The pace of a recording: how often it surveyed and sampled, and what that cost beside the budget.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use isotherm_core::units;
use isotherm_record::{Cost, NotAfforded};
use schemars::JsonSchema;
use serde::Serialize;

use crate::source::Visit;
use crate::wss::Percentiles;

/// The start of a run, in which the budget does not hold, in nanoseconds.
const START: u64 = 3_000_000_000;

/// The budget holds over any time of this length, in nanoseconds.
const WINDOW: u64 = 10_000_000_000;

/// A cost above the budget by more than this part of it exceeds the budget.
const TOLERATED: f64 = 0.1;

/// How often a recording surveyed and sampled, and what that cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RecordedPace {
    /// The time from a survey to the next, in nanoseconds: the median over time, rounded to four digits. `None` without
    /// surveys.
    pub survey_interval_ns: Option<u64>,
    /// The time from a round with samples to the next, in nanoseconds: the median over time, rounded to four digits.
    /// `None` without samples, or if the recording does not tell.
    pub sampling_interval_ns: Option<u64>,
    /// CPU time of all threads of isotherm, in per cent of one CPU, without the first 3 s of the recording unless it is
    /// shorter. `None` if the recording has no costs.
    pub cpu_percent: Option<f64>,
    /// The budget, in per cent of one CPU. `None` if there was none.
    pub budget_percent: Option<f64>,
    /// The same CPU time over each 10 s that begin after the first 3 s. `None` if the recording is shorter.
    #[serde(skip)]
    pub windows: Option<Windows>,
    /// For how long calls held the memory maps of targets. `None` if the recording does not tell.
    #[serde(skip)]
    pub holds: Option<Holds>,
    /// Whether the recording has no samples.
    #[serde(skip)]
    unsampled: bool,
    /// Whether the budget made intervals longer for most of the time.
    #[serde(skip)]
    limited: bool,
    /// What the budget did not suffice for, most of the time.
    #[serde(skip)]
    not_afforded: NotAfforded,
}

/// For how long calls of isotherm held the memory maps of targets, so that targets could wait for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The longest call, in nanoseconds.
    pub longest_ns: u64,
    /// All calls together, in nanoseconds.
    pub sum_ns: u64,
    /// The time of the snapshots that tell.
    over: Duration,
}

impl Holds {
    /// The holds in one line: `the memory map of a target was held for 1.9 ms at most, and 0.2 % of the time`.
    pub fn line(&self) -> String {
        let share_of_time = self.sum_ns as f64 / (self.over.as_nanos() as f64).max(1.0);
        format!(
            "the memory map of a target was held for {} at most, and {} of the time",
            shown_interval(Duration::from_nanos(self.longest_ns)),
            share(share_of_time * 100.0)
        )
    }
}

/// CPU time over each 10 s, in per cent of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Windows {
    /// The mean of all windows.
    pub mean: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl RecordedPace {
    /// Whether the recording tells that it has no samples.
    pub(crate) fn is_unsampled(&self) -> bool {
        self.unsampled
    }

    /// The pace in one line: `survey every 3.2 s, sampling every 40 ms: 1.0 % of a CPU, budget 1 %`. `None` if nothing
    /// of it is known.
    pub fn line(&self) -> Option<String> {
        let every = |ns: u64| shown_interval(Duration::from_nanos(ns));
        let mut parts = vec![];
        parts.extend(self.survey_interval_ns.map(|ns| format!("survey every {}", every(ns))));
        parts.extend(self.sampling_interval_ns.map(|ns| format!("sampling every {}", every(ns))));
        if self.unsampled && !parts.is_empty() {
            parts.push("no sampling".into());
        }
        let cost = self.cpu_percent.map(|percent| {
            let mut cost = format!("{} of a CPU", share(percent));
            if let Some(budget) = self.budget_percent {
                cost += &format!(", budget {}", share(budget));
            }
            cost
        });
        let line = match (parts.is_empty(), cost) {
            (true, None) => return None,
            (true, Some(cost)) => format!("monitoring took {cost}"),
            (false, None) => parts.join(", "),
            (false, Some(cost)) => format!("{}: {cost}", parts.join(", ")),
        };
        Some(self.remarks().fold(line, |line, remark| line + "; " + &remark))
    }

    /// What the budget could not hold or afford.
    fn remarks(&self) -> impl Iterator<Item = String> {
        // The budget is one of ten seconds.
        let exceeded = self.windows.and_then(|windows| match () {
            () if self.exceeds(self.cpu_percent) => Some("the budget was exceeded"),
            () if self.exceeds(Some(windows.max)) => Some("the budget was exceeded at times"),
            () => None,
        });
        let NotAfforded { surveys, samples, mappings, clears } = self.not_afforded;
        let kinds = [(surveys, "surveys"), (samples, "samples"), (mappings, "readings of the mappings")];
        let rarer: Vec<&str> = kinds.into_iter().filter_map(|(is_rarer, kind)| is_rarer.then_some(kind)).collect();
        let limited = match rarer[..] {
            [] => {
                self.limited.then(|| "the intervals are longer than wanted, to keep the budget (--cpu-budget)".into())
            }
            _ => Some(format!("rarer than wanted, to keep the budget (--cpu-budget): {}", rarer.join(", "))),
        };
        let unknown =
            clears.then(|| "the budget does not suffice to clear all accessed pages (--target-budget)".into());
        exceeded.map(String::from).into_iter().chain(limited).chain(unknown)
    }

    fn exceeds(&self, percent: Option<f64>) -> bool {
        let both = percent.zip(self.budget_percent);
        both.is_some_and(|(percent, budget)| percent > budget * (1.0 + TOLERATED))
    }
}

/// A percentage with two digits where it is small: `0.97 %`, `1.2 %`, `12 %`.
fn share(percent: f64) -> String {
    match percent {
        ..0.095 if percent > 0.0 => format!("{percent:.2} %"),
        _ if percent.fract() == 0.0 || percent >= 9.95 => format!("{percent:.0} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// An interval with two digits: `3.2 s`.
pub fn shown_interval(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let step = 10_u128.pow(nanoseconds.max(1).ilog10().saturating_sub(1));
    units::duration(Duration::from_nanos(((nanoseconds + step / 2) / step * step) as u64))
}

/// Values, each with how long it held, or how often it was found. They are rounded to four digits, so that they are
/// some thousands, however long a run is.
#[derive(Clone, Debug, Default)]
struct Held(BTreeMap<u64, f64>);

impl Held {
    fn add(&mut self, value: u64, weight: f64) {
        let unit = 10_u64.pow(value.checked_ilog10().unwrap_or(0).saturating_sub(3));
        *self.0.entry(value.saturating_add(unit / 2) / unit * unit).or_default() += weight;
    }

    /// `None` without values.
    fn percentiles(&self) -> Option<Percentiles<u64>> {
        let values = || self.0.iter().map(|(value, weight)| (*value, *weight)).collect();
        (!self.0.is_empty()).then(|| Percentiles::weighted(values()))
    }
}

/// The CPU time of one snapshot, and when it arose, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Spent {
    from: u64,
    to: u64,
    cpu: u64,
}

/// The CPU time over each 10 s that begin with a snapshot, in per cent of one CPU. What a snapshot took counts evenly
/// over its time.
#[derive(Clone, Debug, Default)]
struct OverWindows {
    /// The snapshots of the windows that have begun and not ended, and the CPU time of all of them.
    open: VecDeque<Spent>,
    cpu: u64,
    /// The windows that have ended, in millionths of a per cent; their sum and the maximum, in per cent.
    ended: Held,
    sum: f64,
    max: f64,
    count: u64,
}

impl OverWindows {
    /// Takes in the next snapshot, which ends the windows that end in it.
    fn add(&mut self, spent: Spent) {
        let length = spent.to.saturating_sub(spent.from).max(1) as f64;
        self.open.push_back(spent);
        while let Some(first) = self.open.front() {
            let end = first.from.saturating_add(WINDOW);
            if spent.to < end {
                break;
            }
            let inside = (end.saturating_sub(spent.from) as f64 / length).min(1.0);
            let percent = (self.cpu as f64 + spent.cpu as f64 * inside) / WINDOW as f64 * 100.0;
            self.ended.add((percent * 1e6).round() as u64, 1.0);
            (self.sum, self.max, self.count) = (self.sum + percent, self.max.max(percent), self.count + 1);
            // The snapshot itself is not part of the sum yet.
            let before = if self.open.len() > 1 { first.cpu } else { 0 };
            self.cpu = self.cpu.saturating_sub(before);
            self.open.pop_front();
        }
        if !self.open.is_empty() {
            self.cpu = self.cpu.saturating_add(spent.cpu);
        }
    }

    /// `None` if no window has ended.
    fn windows(&self) -> Option<Windows> {
        let [.., p99, _] = self.ended.percentiles()?.0;
        Some(Windows { mean: self.sum / self.count as f64, p99: p99 as f64 / 1e6, max: self.max })
    }
}

/// Computes the pace from the snapshots and surveys of a selection, in little memory however many they are.
#[derive(Clone, Debug, Default)]
pub struct Pacing {
    budget: Option<f64>,
    /// The intervals of surveys in nanoseconds.
    surveys: Held,
    /// The mean time from a round with samples to the next, in nanoseconds, of each snapshot.
    gaps: Held,
    /// Whether a snapshot tells how many rounds had samples.
    tells_samples: bool,
    /// The last snapshot, which another recorder may add to.
    last: Option<Spent>,
    /// The CPU time and the time of the snapshots before it, in nanoseconds: in the start of the run, and after that.
    spent: [(u64, u64); 2],
    windows: OverWindows,
    holds: Option<Holds>,
    /// The time that the snapshots cover, and of it the time in which the budget made intervals longer.
    covered: (Duration, Duration),
    /// For how long the budget did not suffice for surveys, samples, readings of the mappings, and clears.
    not_afforded: [Duration; 4],
}

impl Pacing {
    /// The pace of a run with this budget, which is a share of one CPU, before its snapshots and surveys are added.
    pub fn new(budget: Option<f64>) -> Self {
        Self { budget: budget.map(|budget| budget * 100.0), ..Self::default() }
    }

    /// Adds the time from a survey to the next; zero for the first.
    pub fn survey(&mut self, interval: Duration) {
        if !interval.is_zero() {
            self.surveys.add(interval.as_nanos() as u64, interval.as_secs_f64());
        }
    }

    /// Adds what a snapshot cost that was taken at `to`. The snapshot before was taken at `from`.
    pub fn snapshot(&mut self, from: Duration, to: Duration, cost: &Cost) {
        let elapsed = to.saturating_sub(from);
        let [from, to, cpu] = [from, to, cost.cpu_time()].map(|time| time.as_nanos() as u64);
        match self.last.as_mut().filter(|last| last.to == to && to > 0) {
            // Of another recorder at the same time.
            Some(last) => last.cpu = last.cpu.saturating_add(cpu),
            None => {
                self.end_snapshot();
                self.last = Some(Spent { from, to, cpu });
            }
        }
        self.covered.0 += elapsed;
        if let Some((longest, sum)) = cost.longest_hold_ns.zip(cost.holds_ns) {
            let holds = self.holds.get_or_insert_default();
            holds.longest_ns = holds.longest_ns.max(longest);
            holds.sum_ns = holds.sum_ns.saturating_add(sum);
            holds.over += elapsed;
        }
        if cost.limited == Some(true) {
            self.covered.1 += elapsed;
        }
        let NotAfforded { surveys, samples, mappings, clears } = cost.not_afforded.unwrap_or_default();
        for (time, was_not) in self.not_afforded.iter_mut().zip([surveys, samples, mappings, clears]) {
            *time += if was_not { elapsed } else { Duration::ZERO };
        }
        if let Some(rounds) = cost.sampled_rounds {
            self.tells_samples = true;
            if rounds > 0 {
                self.gaps.add((elapsed / rounds).as_nanos() as u64, elapsed.as_secs_f64());
            }
        }
    }

    /// Takes in the last snapshot, of which all is known.
    fn end_snapshot(&mut self) {
        let Some(spent) = self.last.take() else { return };
        let is_later = spent.from >= START;
        let (cpu, wall) = &mut self.spent[usize::from(is_later)];
        *cpu = cpu.saturating_add(spent.cpu);
        *wall = wall.saturating_add(spent.to.saturating_sub(spent.from));
        if is_later {
            self.windows.add(spent);
        }
    }

    /// The pace. All snapshots and surveys must have been added.
    pub fn finish(&self) -> RecordedPace {
        let mut all = self.clone();
        all.end_snapshot();
        let median = |of: &Held| of.percentiles().map(|found| found.median());
        let mostly = |time: Duration| time > all.covered.0 / 2;
        let [surveys, samples, mappings, clears] = all.not_afforded.map(mostly);
        let sampling_interval_ns = median(&all.gaps);
        // A run that is all start has nothing else.
        let spent = all.spent.into_iter().rev().find(|(_, wall)| *wall > 0);
        RecordedPace {
            survey_interval_ns: median(&all.surveys),
            sampling_interval_ns,
            cpu_percent: spent.map(|(cpu, wall)| cpu as f64 / wall as f64 * 100.0),
            budget_percent: all.budget,
            windows: all.windows.windows(),
            holds: all.holds,
            unsampled: all.tells_samples && sampling_interval_ns.is_none(),
            limited: mostly(all.covered.1),
            not_afforded: NotAfforded { surveys, samples, mappings, clears },
        }
    }
}

impl Pacing {
    /// Takes in a row.
    pub(crate) fn add(&mut self, visit: &Visit<'_>) {
        if let Some(cost) = visit.row.cost.filter(|_| visit.first_of_snapshot) {
            self.snapshot(visit.row.time.saturating_sub(visit.elapsed), visit.row.time, &cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacing(snapshots: impl IntoIterator<Item = (f64, f64)>) -> Pacing {
        let mut pacing = Pacing { budget: Some(1.0), ..Pacing::default() };
        let mut from = Duration::ZERO;
        for (seconds, cpu) in snapshots {
            let to = from + Duration::from_secs_f64(seconds);
            let cost = Cost { cpu_ns: Duration::from_secs_f64(cpu).as_nanos() as u64, ..Cost::default() };
            pacing.snapshot(from, to, &cost);
            from = to;
        }
        pacing
    }

    #[test]
    fn holds_are_the_longest_and_a_share_of_the_time_of_the_snapshots_that_tell() {
        let mut pacing = Pacing::default();
        let known = |longest, sum| Cost { longest_hold_ns: Some(longest), holds_ns: Some(sum), ..Cost::default() };
        let costs = [known(1_900_000, 4_000_000), Cost::default(), known(200_000, 6_000_000)];
        for (nth, cost) in (0..).zip(costs) {
            pacing.snapshot(Duration::from_secs(nth), Duration::from_secs(nth + 1), &cost);
        }
        let line = pacing.finish().holds.map(|holds| holds.line());
        assert_eq!(
            line.as_deref(),
            Some("the memory map of a target was held for 1.9 ms at most, and 0.5 % of the time")
        );
        assert_eq!(Pacing::default().finish().holds, None);
    }

    #[test]
    fn the_start_of_a_run_does_not_count() {
        let start = [(1.0, 0.5), (2.0, 1.0)];
        let pace = pacing(start.into_iter().chain([(1.0, 0.01); 30])).finish();
        assert!((pace.cpu_percent.unwrap() - 1.0).abs() < 1e-9);
        assert!((pace.windows.unwrap().max - 1.0).abs() < 1e-9);
        // A recording of three seconds has nothing else.
        assert!((pacing(start).finish().cpu_percent.unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_takes_its_part_of_long_snapshots() {
        // 2 % for 6 s, then nothing: the windows begin at 3, 9 and 15 s.
        let windows = pacing([(3.0, 0.0), (6.0, 0.12), (6.0, 0.0), (6.0, 0.0), (6.0, 0.0)]).finish().windows.unwrap();
        assert!((windows.max - 1.2).abs() < 1e-9, "{windows:?}");
        assert!((windows.mean - 0.4).abs() < 1e-9, "{windows:?}");
    }

    #[test]
    fn the_line_says_what_the_budget_did() {
        let of = |cpu: f64, max: f64, limited: bool| {
            let windows = Some(Windows { max, ..Windows::default() });
            let intervals = (Some(3_217_000_000), Some(40_200_000));
            let pace = RecordedPace {
                survey_interval_ns: intervals.0,
                sampling_interval_ns: intervals.1,
                ..RecordedPace::default()
            };
            RecordedPace { cpu_percent: Some(cpu), budget_percent: Some(1.0), windows, limited, ..pace }.line().unwrap()
        };
        assert_eq!(of(0.97, 1.0, false), "survey every 3.2 s, sampling every 40 ms: 1.0 % of a CPU, budget 1 %");
        assert!(of(1.2, 1.3, false).ends_with("; the budget was exceeded"));
        assert!(of(1.0, 1.3, false).ends_with("; the budget was exceeded at times"));
        let both = of(1.2, 1.3, true);
        assert!(both.contains("exceeded; the intervals are longer than wanted"), "{both}");
        assert_eq!(RecordedPace::default().line(), None);
    }

    #[test]
    fn the_line_says_what_was_not_afforded_for_most_of_the_time() {
        let mut pacing = Pacing::new(Some(0.01));
        for nth in 0..10 {
            let often = NotAfforded { surveys: true, samples: nth < 6, mappings: nth < 5, clears: nth > 2 };
            let cost = Cost { limited: Some(true), not_afforded: Some(often), ..Cost::default() };
            pacing.snapshot(Duration::from_secs(nth), Duration::from_secs(nth + 1), &cost);
        }
        let line = pacing.finish().line().unwrap();
        let rest = "; rarer than wanted, to keep the budget (--cpu-budget): surveys, samples; the budget does not \
                    suffice to clear all accessed pages (--target-budget)";
        assert!(line.ends_with(rest), "{line}");
    }
}
