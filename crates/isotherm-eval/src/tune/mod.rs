//! Finds the best values of the free parameters of a scheme, for a program: DAMOOS of the DAMON papers, with estimates
//! and a model.
//!
//! First, values are tried on a recording, which needs no runs ([`estimate`](fn@estimate::estimate)). Then the program
//! runs with the values that promise most, by what is believed after each run ([`search`]). Runs without a scheme are
//! among them, so that a machine that becomes slower is no cost of a scheme.

mod course;
mod estimate;
mod objective;
mod result;
mod search;
mod store;
mod surrogate;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use isotherm_report::tuning::Tuning;
use isotherm_scheme::FreeSchemes;

pub use objective::{Changes, Objective};
pub use search::Search;

use crate::{EvalError, Progress, RunOptions, Workload};

/// What to tune, and how.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The schemes, with ranges in place of values.
    pub schemes: FreeSchemes,
    /// The text of the schemes.
    pub text: String,
    /// The program, and the directory of its suite. Without one, there are estimates only.
    pub workload: Option<(Workload, PathBuf)>,
    /// Recordings of the program. Without any, one is made, if estimates are possible.
    pub recordings: Vec<PathBuf>,
    /// What is best.
    pub objective: Objective,
    /// How values are chosen.
    pub search: Search,
    /// The most runs of schemes. Those without a scheme come on top: two, and one for each five.
    pub runs: usize,
    /// The most time for all runs. No run begins later.
    pub time: Option<Duration>,
    /// What the page fault costs by which a page comes back, in estimates.
    pub fault: Duration,
    /// How runs are made, and where their results go.
    pub how: RunOptions,
    /// Where chance begins.
    pub seed: u64,
}

/// What came of tuning.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The result, for people and programs.
    pub result: Tuning,
    /// The files of the result: the schemes with the best values, unless no run succeeded; JSON; a picture.
    pub files: Vec<PathBuf>,
    /// Runs that failed.
    pub failed: usize,
}

/// Tunes a scheme. Ends early when `stop` is set.
///
/// # Errors
/// If the schemes cannot be estimated and no program is given, they do not work on this machine, the program fails
/// without a scheme, or files cannot be read or written. A run with a scheme that fails is worthless, and no error.
pub fn tune(options: &TuneOptions, stop: &AtomicBool, tell: &mut dyn FnMut(Progress<'_>)) -> Result<Tuned, EvalError> {
    course::run(options, stop, tell)
}
