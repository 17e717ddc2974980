//! The ways to act on the memory of another process. `docs/acting.md` describes what each action does to the process,
//! what it costs, and what keeps the process safe.
//!
//! Most actions work from outside, by advice to the kernel (`process_madvise`) that changes no content. Some need a
//! system call that only the process itself can make. It is then made inside the process, if the scheme allows that.
//! [`ProcessActuator`] does both for schemes. [`ProcessInspector`] looks at pages and processes for filters.

mod actuator;
mod call_method;
mod check;
mod dense;
mod error;
mod facts;
mod inside;
mod outside;
mod pages;
mod refusal;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

pub use actuator::ProcessActuator;
pub use check::{Capability, capabilities};
pub use error::ActError;
pub use inside::{Inside, InsideCall, InsideError};

pub use pages::{OpenProbe, ProcessInspector};
