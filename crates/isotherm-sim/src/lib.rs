//! Access patterns with a known truth, and simulated memory that follows them.
//!
//! A [`Pattern`] says which memory is touched when and how often. A real process can run it, and [`SimMemory`] can
//! simulate it. [`Pattern::access_rate`] is the truth in both cases: what a monitor finds is compared with it.
//! [`SimActuator`] carries out the actions of schemes on simulated memory.
//!
//! This crate does no I/O, reads no clock and starts no thread. A simulation has a [`SimClock`] of its own, and what
//! is random in it follows from a seed.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stderr, clippy::print_stdout)]

mod acting;
mod memory;
mod pattern;
mod presence;
mod survey;

pub use acting::{Costs, FAST, FastNode, SLOW, SimActuator};
pub use memory::{SimClock, SimMemory};
pub use pattern::{Area, Order, Pattern, PatternError, Phase, Touch};

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
