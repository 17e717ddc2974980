//! What came of the runs under pressure: a row for each workload, limit and scheme.

use std::io::Write;

use serde::Serialize;

use super::store::Kept;
use super::table::text;
use super::{PressureCase, PressureScheme};
use crate::statistics::mean;
use crate::{Change, EvalError, LeftOut, Machine, Run};

/// The runs of a workload in one case. Figures are means over the runs that did not fail.
#[derive(Clone, Debug, Serialize)]
pub struct PressureRow {
    /// The workload.
    pub workload: String,
    /// The limit, and what isotherm did.
    #[serde(flatten)]
    pub case: PressureCase,
    /// The most bytes of memory without a limit, of which the limit is a share.
    pub unlimited: u64,
    /// The number of runs.
    pub runs: usize,
    /// The runtime, in seconds.
    pub seconds: f64,
    /// The runtime as the change to the runs without a limit.
    pub slowdown: Option<Change>,
    /// The speed as the change to the runs with the same limit and without isotherm. `None` of those runs.
    pub speedup: Option<Change>,
    /// The most bytes of memory.
    pub peak: f64,
    /// Major page faults of the program.
    pub major_faults: f64,
    /// Refaults of the system, in pages.
    pub refaults: f64,
    /// Pages of the system that were written to swap.
    pub swapped_out: f64,
    /// The share of the time in which some task of the system waited for memory, in per cent.
    pub some_stalled_percent: Option<f64>,
    /// The share of the time in which all tasks did, in per cent.
    pub all_stalled_percent: Option<f64>,
    /// CPU time of isotherm, in per cent of one CPU over the time of the command.
    pub isotherm_cpu_percent: Option<f64>,
}

/// The runs under pressure that a directory has.
#[derive(Clone, Debug, Serialize)]
pub struct PressureResult {
    /// The machine.
    pub machine: Machine,
    /// The rows, in the order of the suite, without a limit first, then from the highest limit to the lowest.
    pub rows: Vec<PressureRow>,
    /// What was not run, and why.
    pub left_out: Vec<LeftOut>,
    /// Runs that failed and were not made again: how they ran, and why they failed.
    pub failed: Vec<String>,
}

impl PressureResult {
    pub(super) fn of(machine: &Machine, workloads: &[&str], runs: &[Kept], left_out: Vec<LeftOut>) -> Self {
        let mut cases: Vec<PressureCase> = runs.iter().map(|kept| kept.case).collect();
        // A limit that is lower comes later, and none comes first.
        cases.sort_unstable_by_key(|case| (case.limit.map(std::cmp::Reverse), case.scheme));
        cases.dedup();
        let each = workloads.iter().flat_map(|name| cases.iter().map(move |case| (*name, *case)));
        let rows = each.filter_map(|(name, case)| row(name, case, runs)).collect();
        let is_made = |failed: &Kept| {
            runs.iter().any(|kept| kept.is_of(&failed.run.workload, failed.case) && kept.run.nth == failed.run.nth)
        };
        let mut failed: Vec<String> = Vec::new();
        for kept in runs.iter().filter(|kept| !is_made(kept)) {
            let Some(why) = &kept.run.failed else { continue };
            let what = format!("{} {}, run {}: {why}", kept.run.workload, kept.case.name(), kept.run.nth);
            if !failed.contains(&what) {
                failed.push(what);
            }
        }
        Self { machine: machine.clone(), rows, left_out, failed }
    }

    /// Writes it as text for people.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write_text(&self, out: &mut dyn Write) -> Result<(), EvalError> {
        write!(out, "{}", text(self)).map_err(EvalError::Write)
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<(), EvalError> {
        serde_json::to_writer_pretty(&mut *out, self).map_err(|error| EvalError::Write(error.into()))?;
        writeln!(out).map_err(EvalError::Write)
    }
}

/// The row of a case. `None` without a run that did not fail.
fn row(workload: &str, case: PressureCase, runs: &[Kept]) -> Option<PressureRow> {
    let of = |case: PressureCase| runs.iter().filter(move |kept| kept.is_of(workload, case));
    let own: Vec<&Kept> = of(case).collect();
    let first = own.first()?;
    let figure = |of: &dyn Fn(&Run) -> f64| mean(&own.iter().map(|kept| of(&kept.run)).collect::<Vec<_>>());
    let known = |of: &dyn Fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = own.iter().filter_map(|kept| of(&kept.run)).collect();
        (!values.is_empty()).then(|| mean(&values) * 100.0)
    };
    // The runtimes of the same round in another case and in this one.
    let pairs = |other: PressureCase| {
        let own = own.iter().map(|kept| &kept.run);
        let pair = |run: &Run| Some((of(other).find(|kept| kept.run.nth == run.nth)?.run.seconds, run.seconds));
        own.filter_map(pair).collect::<Vec<_>>()
    };
    let without = PressureCase { scheme: PressureScheme::None, ..case };
    let speeds: Vec<(f64, f64)> = pairs(without).into_iter().map(|(without, with)| (with, without)).collect();
    Some(PressureRow {
        workload: workload.to_owned(),
        case,
        unlimited: first.unlimited,
        runs: own.len(),
        seconds: figure(&|run| run.seconds),
        slowdown: case.limit.and_then(|_| Change::of(&pairs(PressureCase::FREE))),
        speedup: if case == without { None } else { Change::of(&speeds) },
        peak: mean(&own.iter().map(|kept| kept.peak as f64).collect::<Vec<_>>()),
        major_faults: figure(&|run| run.major_faults as f64),
        refaults: figure(&|run| (run.anonymous_refaults + run.file_refaults) as f64),
        swapped_out: figure(&|run| run.swapped_out as f64),
        some_stalled_percent: known(&|run| run.some_stalled),
        all_stalled_percent: known(&|run| run.all_stalled),
        isotherm_cpu_percent: known(&|run| Some(run.isotherm?.cpu_seconds / run.command_seconds)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::pressure::PressureScheme::{MLock, None as Without, Prcl};

    fn kept(limit: Option<u32>, scheme: PressureScheme, nth: u32, seconds: f64, major_faults: u64) -> Kept {
        let run = Run { workload: "a".into(), nth, seconds, command_seconds: seconds, major_faults, ..Run::default() };
        Kept { case: PressureCase { limit, scheme }, unlimited: 1 << 20, peak: 1 << 19, run }
    }

    fn result() -> PressureResult {
        let mut failed = kept(Some(50), MLock, 3, 0.0, 0);
        failed.run.failed = Some("it was killed".into());
        let mut made_again = kept(Some(90), MLock, 1, 0.0, 0);
        made_again.run.failed = Some("disturbed".into());
        let runs = [
            kept(None, Without, 1, 10.0, 0),
            kept(None, Without, 2, 10.0, 0),
            kept(Some(50), Without, 1, 20.0, 800),
            kept(Some(50), Without, 2, 20.0, 1000),
            kept(Some(50), MLock, 1, 8.0, 100),
            kept(Some(50), MLock, 2, 8.0, 100),
            failed,
            made_again,
            kept(Some(90), Without, 1, 12.0, 30),
            kept(Some(90), MLock, 1, 12.0, 30),
            kept(Some(50), Prcl, 1, 40.0, 0),
        ];
        PressureResult::of(&Machine::default(), &["a", "b"], &runs, vec![])
    }

    #[test]
    fn speed_is_compared_at_the_same_limit_and_in_the_same_round() {
        let result = result();
        let cases: Vec<_> = result.rows.iter().map(|row| row.case.name()).collect();
        assert_eq!(cases, ["without limit", "90 % none", "90 % mlock", "50 % none", "50 % mlock", "50 % prcl"]);
        let percent = |change: Option<Change>| change.map(|change| change.percent.round() as i64);
        let changes: Vec<_> = result.rows.iter().map(|row| (percent(row.slowdown), percent(row.speedup))).collect();
        let of = |slowdown: i64, speedup: i64| (Some(slowdown), Some(speedup));
        assert_eq!(changes, [(None, None), (Some(20), None), of(20, 0), (Some(100), None), of(-20, 150), of(300, -50)]);
        assert!((result.rows[3].major_faults - 900.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_that_failed_is_named_until_it_is_made_again() {
        assert_eq!(result().failed, ["a 50 % mlock, run 3: it was killed"]);
    }

    #[test]
    fn the_text_has_a_row_for_each_case_and_the_mean_and_the_best_of_each_scheme() {
        let mut out = Vec::new();
        result().write_text(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        // The mean of 2.5 and 1.
        assert!(text.contains("mlock: 1.75 times as fast on the mean of 2, 2.50 at best (a, 50 %)"), "{text}");
        assert!(text.contains("prcl: 0.50 times") && text.contains("run 3: it was killed"), "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> =
            text.lines().filter(|line| line.trim_start().starts_with("a ")).map(words).collect();
        assert_eq!(rows.len(), 6 + 1, "{text}");
        assert!(rows[4].starts_with(&["a", "50", "mlock", "2"].map(str::to_owned)), "{text}");
        let mut json = Vec::new();
        result().write_json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&json["rows"][4]["scheme"], &json["rows"][4]["limit"]), (&"mlock".into(), &50.into()));
    }
}
