//! The files that isotherm writes: whole or not at all, for their owner, one writer at a time.
//!
//! [`Output`] describes an output, and [`OutputFile`] is one that is being written. [`standard_output`] is the output
//! of a command without `-o`. The README lists what holds for all outputs.

#![forbid(unsafe_code)]

mod error;
mod file;
mod lock;
mod options;
mod place;
mod standard;
mod walk;

pub use error::{OutputError, Refusal};
pub use file::{LockedOutput, OutputFile};
pub use options::Output;
pub use standard::{StandardOutput, standard_output};

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
