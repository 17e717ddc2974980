//! Tests of the `idle` probe: on a directory tree with copies of the kernel's files, and on real pages if the running
//! kernel has idle page tracking.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that fails may panic")]

mod allocations;
#[path = "../common/counting.rs"]
mod counting;
mod look;
mod made;
mod panel;
mod physical;
#[cfg(target_arch = "x86_64")]
mod real;
mod refusals;
mod rounds;
mod survey;
// A process that executes commands.
#[cfg(target_arch = "x86_64")]
#[path = "../bpf_probe/target.rs"]
mod target;
