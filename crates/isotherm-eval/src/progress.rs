//! What an evaluation tells while it runs.

use std::fmt;
use std::time::Duration;

use isotherm_core::units;

use crate::{LeftOut, Run};

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
            Self::Ran { run, number, of, left } => {
                write!(f, "{number}/{of}  {} {} {}: ", run.workload, run.configuration.name(), run.nth)?;
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
