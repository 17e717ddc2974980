//! What isotherm has to stand for long: system calls that fail, kills at any time, processes that come and go.
//!
//! The tests of the command line run short forms; `./dev soak` runs all of it. See `soak/README.md`.

#![forbid(unsafe_code)]

pub mod churn;
pub mod daemon;
mod evaluation;
pub mod faults;
pub mod target;

pub use evaluation::make_evaluation;
