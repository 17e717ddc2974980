//! The evaluation of isotherm: runs real programs with and without it, and prints the tables of the DAMON papers.
//!
//! A [`Suite`] describes programs. [`evaluate`](fn@evaluate) runs each of them under some [`Configuration`]s, and adds
//! one [`Run`] after the other to a [`Results`] directory. A [`Report`] is made from such a directory; a [`Rendering`]
//! shows it.
//!
//! Programs are started by this crate, and isotherm by its command line, as users start it: `isotherm record` or
//! `isotherm run` on a process that runs. So a run is measured from outside, in the same way with and without isotherm.
//!
//! [`pressure`](fn@pressure) runs programs with less memory than they use, without and with schemes.
//!
//! [`tune`](fn@tune) finds the best values of a scheme's free parameters by such runs.
//!
//! Settings of the machine are not changed unless [`MayChange`] names them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod child;
mod configuration;
mod error;
mod evaluate;
mod machine;
mod needs;
mod papers;
mod pressure;
mod progress;
mod recorded;
mod report;
mod results;
mod run;
mod run_options;
mod runs_file;
mod sampler;
mod settings;
mod statistics;
mod store;
mod suite;
mod tune;

pub use configuration::Configuration;
pub use error::EvalError;
pub use evaluate::{Evaluation, Summary, evaluate};
pub use machine::Machine;
pub use needs::{Lack, LeftOut};
pub use papers::Paper;
pub use pressure::{PressureCase, PressureOptions, PressureResult, PressureRow, PressureScheme, pressure};
pub use progress::Progress;
pub use recorded::Recorded;
pub use report::{Cell, Detail, Metric, Rendering, Report, Row, Table};
pub use results::{Results, Session};
pub use run::{Isotherm, Run};
pub use run_options::RunOptions;
pub use settings::MayChange;
pub use statistics::Change;
pub use suite::{Suite, Workload};
pub use tune::{Changes, Objective, Search, TuneOptions, Tuned, tune};
