//! What the scan of all page frames makes of the kernel's files, on a made tree.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that fails may panic")]

mod cgroups;
mod faults;
mod made;
mod pages;
mod processes;
