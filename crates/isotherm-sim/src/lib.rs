//! Access patterns with a known truth, and simulated memory that follows them.
//!
//! A [`Pattern`] says which memory is touched when and how often. A real process can run it, [`SimMemory`] can
//! simulate it, and either way [`Pattern::access_rate`] is the truth that a monitor's findings are held against.
//! [`SimActuator`] lets schemes act on simulated memory, so that all of them can be tried where nothing can be
//! harmed.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stderr, clippy::print_stdout)]

mod acting;
mod memory;
mod pattern;

pub use acting::{Costs, SimActuator};
pub use memory::{SimClock, SimMemory};
pub use pattern::{Area, Order, Pattern, PatternError, Phase, Touch};
