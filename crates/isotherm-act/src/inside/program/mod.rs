//! The modules of the helper program, compiled into the library for their tests. `main.rs` is the program.

mod frame;
pub(super) mod ptrace;
mod status;
pub(super) mod step;
pub(super) mod sys;
mod tracer;

use super::{code, message};
