//! The ways to learn which memory was accessed.
//!
//! The probes [`bpf`], [`idle`] and [`RefsProbe`] tell for single pages or mappings whether they were accessed; [`damon`] takes
//! the kernel's own monitor instead. [`idle_scan`] looks at all pages for how long they have been idle. [`doctor`] tells which of these work here.

pub mod bpf;
pub mod damon;
pub mod doctor;
pub mod idle;
pub mod idle_scan;
mod mark;
mod refs;

pub use refs::{RefsError, RefsProbe};
