//! The pace of a recording: how often it surveyed and sampled, and what that cost beside the budget.

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
    /// The time from a survey to the next, in nanoseconds: the median over time. `None` without surveys.
    pub survey_interval_ns: Option<u64>,
    /// The time from a round with samples to the next, in nanoseconds: the median over time. `None` without samples, or
    /// if the recording does not tell.
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

impl Windows {
    /// Those of the CPU time over each 10 s. `None` without any.
    pub fn of(percents: Vec<f64>) -> Option<Self> {
        if percents.is_empty() {
            return None;
        }
        let mean = percents.iter().sum::<f64>() / percents.len() as f64;
        let [.., p99, max] = Percentiles::of(percents).0;
        Some(Self { mean, p99, max })
    }
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

/// Computes the pace from the snapshots and surveys of a selection.
#[derive(Clone, Debug, Default)]
pub struct Pacing {
    budget: Option<f64>,
    /// The intervals of surveys in nanoseconds, each with its length as weight.
    surveys: Vec<(u64, f64)>,
    /// For each snapshot the mean time from a round with samples to the next, and the length of the snapshot.
    gaps: Vec<(u64, f64)>,
    /// Whether a snapshot tells how many rounds had samples.
    tells_samples: bool,
    spent: Vec<Spent>,
    holds: Option<Holds>,
    /// The time that the snapshots cover, and of it the time in which the budget made intervals longer.
    covered: (Duration, Duration),
    /// For how long the budget did not suffice for surveys, samples, readings of the mappings, and clears.
    not_afforded: [Duration; 4],
}

/// The CPU time of one snapshot, and when it arose, in nanoseconds. There may be a million of them.
#[derive(Clone, Copy, Debug)]
struct Spent {
    from: u64,
    to: u64,
    cpu: u64,
}

impl Pacing {
    /// The pace of a run with this budget, which is a share of one CPU, before its snapshots and surveys are added.
    pub fn new(budget: Option<f64>) -> Self {
        Self { budget: budget.map(|budget| budget * 100.0), ..Self::default() }
    }

    /// Adds the time from a survey to the next; zero for the first.
    pub fn survey(&mut self, interval: Duration) {
        if !interval.is_zero() {
            self.surveys.push((interval.as_nanos() as u64, interval.as_secs_f64()));
        }
    }

    /// Adds what a snapshot cost that was taken at `to`. The snapshot before was taken at `from`.
    pub fn snapshot(&mut self, from: Duration, to: Duration, cost: &Cost) {
        let elapsed = to.saturating_sub(from);
        let [from, to, cpu] = [from, to, cost.cpu_time()].map(|time| time.as_nanos() as u64);
        match self.spent.last_mut().filter(|last| last.to == to && to > 0) {
            // Of another recorder at the same time.
            Some(last) => last.cpu = last.cpu.saturating_add(cpu),
            None => self.spent.push(Spent { from, to, cpu }),
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
                self.gaps.push(((elapsed / rounds).as_nanos() as u64, elapsed.as_secs_f64()));
            }
        }
    }

    /// The pace. All snapshots and surveys must have been added.
    pub fn finish(&self) -> RecordedPace {
        let median = |values: Vec<(u64, f64)>| (!values.is_empty()).then(|| Percentiles::weighted(values).median());
        let mostly = |time: Duration| time > self.covered.0 / 2;
        let [surveys, samples, mappings, clears] = self.not_afforded.map(mostly);
        RecordedPace {
            survey_interval_ns: median(self.surveys.clone()),
            sampling_interval_ns: median(self.gaps.clone()),
            cpu_percent: self.cpu_percent(),
            budget_percent: self.budget,
            windows: Windows::of(self.over_windows()),
            holds: self.holds,
            unsampled: self.tells_samples && self.gaps.is_empty(),
            limited: mostly(self.covered.1),
            not_afforded: NotAfforded { surveys, samples, mappings, clears },
        }
    }

    fn cpu_percent(&self) -> Option<f64> {
        let after = |start: u64| self.spent.iter().filter(move |spent| spent.from >= start);
        let start = if after(START).next().is_some() { START } else { 0 };
        let (cpu, wall) = after(start).fold((0_u128, 0_u128), |(cpu, wall), spent| {
            (cpu + u128::from(spent.cpu), wall + u128::from(spent.to.saturating_sub(spent.from)))
        });
        (wall > 0).then(|| cpu as f64 / wall as f64 * 100.0)
    }

    /// The CPU time over each 10 s that begin with a snapshot, after the first 3 s, in per cent of one CPU. What a
    /// snapshot took counts evenly over its time.
    pub fn over_windows(&self) -> Vec<f64> {
        let spent = &self.spent[self.spent.partition_point(|spent| spent.from < START)..];
        let mut shares = vec![];
        // The CPU time of the snapshots that lie in the window, which are those up to `last`.
        let (mut cpu, mut last) = (0_u64, 0);
        for (first, Spent { from, cpu: of_first, .. }) in spent.iter().enumerate() {
            let end = from.saturating_add(WINDOW);
            while let Some(inside) = spent.get(last).filter(|spent| spent.to < end) {
                cpu = cpu.saturating_add(inside.cpu);
                last += 1;
            }
            let Some(across) = spent.get(last) else { break };
            let length = across.to.saturating_sub(across.from).max(1) as f64;
            let inside = end.saturating_sub(across.from) as f64 / length;
            let all = cpu as f64 + across.cpu as f64 * inside.min(1.0);
            shares.push(all / WINDOW as f64 * 100.0);
            if last > first {
                cpu = cpu.saturating_sub(*of_first);
            } else {
                last = first + 1;
            }
        }
        shares
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
