//! The files of the user that isotherm reads: opened without waiting, of a known kind, up to a limit.
//!
//! [`Input`] describes an input, and opens or reads it. [`Background`] reads what may never answer, [`Lines`] a stream
//! line by line. The README lists what holds for all inputs.

#![forbid(unsafe_code)]

mod background;
mod error;
mod input;
mod lines;

pub use background::Background;
pub use error::{InputError, Problem};
pub use input::{DEFAULT_LIMIT, Input};
pub use lines::Lines;

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
