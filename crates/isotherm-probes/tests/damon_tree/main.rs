//! Tests the probe `damon` on a directory tree that stands for the kernel's files. The DAMON of the machine is not
//! used.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod faults;
mod frames;
mod left_behind;
mod made;
mod others;
mod set_up;
