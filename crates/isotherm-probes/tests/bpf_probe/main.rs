//! What the `bpf` probe holds on the kernel that the tests run on. Needs root; says loudly what it skips.

#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, clippy::unwrap_used)]

mod allocations;
mod folios;
mod lives;
mod pages;
mod target;
mod unobservable;
mod watch;
