//! Tests of the `bpf` probe on the running kernel. They need root; a test that cannot run is skipped.

#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, clippy::unwrap_used)]

mod aging;
mod allocations;
#[path = "../common/counting.rs"]
mod counting;
mod folios;
mod lives;
mod machine;
mod mapped;
mod markers;
mod pages;
mod resident;
mod rests;
mod scan;
mod shared;
mod survey;
mod target;
mod unobservable;
mod watch;
