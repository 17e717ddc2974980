//! What the `idle` probe makes of the kernel's files, on a made tree; and what it says of real pages where the kernel tracks them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that fails may panic")]

mod allocations;
mod made;
#[cfg(target_arch = "x86_64")]
mod real;
mod refusals;
mod rounds;
// A process that does what it is told.
#[cfg(target_arch = "x86_64")]
#[path = "../bpf_probe/target.rs"]
mod target;
