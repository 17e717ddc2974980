//! What the `bpf` probe holds on the kernel that the tests run on. Needs root; a test that cannot run is skipped.

#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, clippy::unwrap_used)]

mod allocations;
mod folios;
mod lives;
mod pages;
mod target;
mod unobservable;
mod watch;
