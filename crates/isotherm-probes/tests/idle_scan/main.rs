//! Tests of the scan of all page frames, on a directory tree with copies of the kernel's files.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that fails may panic")]

mod cgroups;
mod faults;
mod made;
mod nodes;
mod pages;
mod processes;
