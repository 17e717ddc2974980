//! Reads and calls the Linux kernel's interfaces to memory.
//!
//! - [`Processes`]: the processes of a run and their mappings
//! - [`PhysicalMemory`]: the ranges of physical memory
//! - [`pages`]: the kernel's tables of pages
//! - [`cgroup`]: control groups
//! - [`clear_refs`]: clears the accessed bits of a process
//! - [`madvise`]: advice on the memory of another process
//! - [`memory_use`], [`system_memory`], [`SystemGauges`]: how much memory is in use
//! - [`Waiter`]: waits for the next sampling round

pub mod cgroup;
pub mod clear_refs;
mod gauges;
mod host;
pub mod madvise;
pub mod pages;
mod physical;
mod pidfd;
mod process;
mod processes;
mod scratch;
mod usage;
mod wait;

pub use gauges::{GaugeError, SystemGauges};
pub use host::{Host, monitor_cpu_time, now_since_boot, unix_ns};
pub use pages::{RamError, TableError};
pub use physical::PhysicalMemory;
pub use pidfd::Pidfd;
pub use process::{Process, TargetError, mapping, since_boot};
pub use processes::{Member, ProcessTable, Processes};
pub use scratch::{HUGE, NoScratch, Scratch};
pub use usage::{major_faults, memory_use, system_memory};
pub use wait::{Rest, Stop, Waiter, Woken};
