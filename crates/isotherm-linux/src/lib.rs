//! Every touch of the kernel that isotherm makes.
//!
//! Which processes there are and what they have mapped ([`Processes`]), where memory is ([`PhysicalMemory`]), whether a page was
//! accessed (the probes [`idle`], [`bpf`] and [`RefsProbe`]), which of these work here ([`doctor`]), how much memory is idle and whose it
//! is ([`idle_scan`], [`cgroup`]), acting on memory ([`act`]), how much there is in use ([`memory_use`], [`SystemGauges`]), and waiting for
//! the next round ([`Waiter`]).

pub mod act;
pub mod bpf;
pub mod cgroup;
pub mod damon;
pub mod doctor;
mod gauges;
mod host;
pub mod idle;
pub mod idle_scan;
mod pages;
mod physical;
mod process;
mod processes;
mod refs;
mod scratch;
mod usage;
mod wait;

pub use gauges::{GaugeError, SystemGauges};
pub use host::{Host, monitor_cpu_time};
pub use pages::{RamError, TableError};
pub use physical::PhysicalMemory;
pub use process::{Process, TargetError};
pub use processes::{Member, Processes, Roster};
pub use refs::{RefsError, RefsProbe};
pub use scratch::NoScratch;
pub use usage::{memory_use, system_memory};
pub use wait::{Rest, Stop, Waiter, Woken};
