//! Acting on another process's memory: what each action does to it, what it costs, and what keeps it safe is told in
//! `docs/acting.md`.
//!
//! Most is done from [outside], by advice to the kernel that changes no content. What a process can do for itself only
//! is done
//! [inside] it, by a system call that it is made to make, where that is asked for. [`ProcessActuator`] does either for
//! schemes.

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
