//! What the `idle` probe makes of the kernel's files, on a made tree. On real kernels it is tried in the laboratory.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that fails may panic")]

mod allocations;
mod made;
mod refusals;
mod rounds;
