//! What an evaluation tells while it runs.

use std::fmt;
use std::time::Duration;

use isotherm_core::units;

use crate::{LeftOut, Run, statistics};

/// Something to tell the user. Its text is a line.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// Something is not run.
    LeftOut(&'a LeftOut),
    /// The programs of a workload or of the suite are prepared.
    Preparing(&'a str),
    /// A workload runs once, without being measured.
    WarmingUp(&'a str),
    /// A recording is made for estimates.
    Recording(&'a str),
    /// So many values are tried on recordings.
    Estimating(usize),
    /// A run of a scheme that is tuned has ended.
    Tried {
        /// The values; empty if no scheme ran.
        values: String,
        /// What came of it: changes to runs without a scheme, or figures.
        figures: String,
        /// Its number among all, from 1.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// A run has ended.
    Ran {
        /// The run.
        run: &'a Run,
        /// The name of its configuration.
        under: &'a str,
        /// Its number among all, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// How long the rest will take. `None` if nothing is known of it.
        left: Option<Duration>,
    },
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOut(LeftOut { workload, configuration, why }) => {
                let under = configuration.map_or_else(String::new, |c| format!(" under {}", c.name()));
                write!(f, "{workload} is not run{under}: {why}")
            }
            Self::Preparing(what) => write!(f, "{what}: preparation"),
            Self::WarmingUp(what) => write!(f, "{what}: warm-up"),
            Self::Recording(what) => write!(f, "{what}: recording"),
            Self::Estimating(count) => write!(f, "{count} values are tried on recordings"),
            Self::Tried { values, figures, number, of } => {
                let values = if values.is_empty() { "without a scheme" } else { values };
                write!(f, "{number}/{of}  {values}: {figures}")
            }
            Self::Ran { run, under, number, of, left } => {
                write!(f, "{number}/{of}  {} {under} {}: ", run.workload, run.nth)?;
                match &run.failed {
                    Some(why) => write!(f, "failed: {why}")?,
                    None => {
                        let [rss, system] = [run.rss, run.system].map(|bytes| units::bytes(bytes.max(0.0) as u64));
                        write!(f, "{:.2} s, RSS {rss}, system {system}", run.seconds)?;
                    }
                }
                match left {
                    Some(left) if !left.is_zero() => {
                        write!(f, "; {} left", units::duration(Duration::from_secs(left.as_secs().max(1))))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// How long so many runs of each of these workloads take, by those that were made. `None` if there were none.
pub(crate) fn time_left<'a>(
    made: impl Iterator<Item = &'a Run>,
    rest: impl Iterator<Item = (&'a str, usize)>,
) -> Option<Duration> {
    let times: Vec<(&str, f64)> = made.map(|run| (&*run.workload, run.command_seconds)).collect();
    let mean = |of: &dyn Fn(&str) -> bool| {
        let times: Vec<f64> = times.iter().filter(|(workload, _)| of(workload)).map(|(_, time)| *time).collect();
        (!times.is_empty()).then(|| statistics::mean(&times))
    };
    let of_any = mean(&|_| true)?;
    let of_each = |(name, count)| mean(&|workload| workload == name).unwrap_or(of_any) * count as f64;
    Some(Duration::from_secs_f64(rest.map(of_each).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_runs_of_the_same_workload_or_else_of_all() {
        let run =
            |workload: &str, command_seconds: f64| Run { workload: workload.into(), command_seconds, ..Run::default() };
        let made = [run("a", 1.0), run("a", 3.0), run("b", 8.0)];
        let left = |rest: &[(&'static str, usize)]| time_left(made.iter(), rest.iter().copied());
        assert_eq!(left(&[("a", 2), ("b", 1)]), Some(Duration::from_secs(12)));
        assert_eq!(left(&[("c", 1)]), Some(Duration::from_secs(4)));
        assert_eq!(time_left([].iter(), [("a", 1)].into_iter()), None);
    }
}
