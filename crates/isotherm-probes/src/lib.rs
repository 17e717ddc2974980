//! The access probes: how isotherm learns which memory was accessed.
//!
//! - [`bpf`], [`idle`] and [`RefsProbe`] report for single pages or single mappings whether they were accessed.
//! - [`damon`] uses the kernel's own monitor instead.
//! - [`mapped`] surveys physical memory through the page tables of all processes.
//! - [`files`] surveys the page cache of files.
//! - [`idle_scan`] visits every page and reports how long it has been idle.
//! - [`stacks`] records which code maps memory.
//! - [`doctor`] finds out which of these work on this machine.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bpf;
pub mod damon;
pub mod doctor;
mod elsewhere;
pub mod files;
pub mod idle;
pub mod idle_scan;
mod left_out;
pub mod mapped;
mod mapping;
mod mark;
mod page_nodes;
mod refs;
pub mod stacks;
#[cfg(target_arch = "x86_64")]
mod watched;

pub use refs::{MOST_PAUSE, RefsError, RefsProbe, expected_pause};

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
