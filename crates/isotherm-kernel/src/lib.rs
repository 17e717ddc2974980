//! Readers and callers of the Linux kernel's interfaces to memory.
//!
//! Which processes there are and what they have mapped ([`Processes`]), where physical memory is ([`PhysicalMemory`]), the kernel's tables
//! of pages ([`pages`]), control groups ([`cgroup`]), advice on memory ([`madvise`]), how much memory is in use ([`memory_use`],
//! [`SystemGauges`]), and waiting for the next round ([`Waiter`]).

pub mod cgroup;
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
pub use host::{Host, monitor_cpu_time};
pub use pages::{RamError, TableError};
pub use physical::PhysicalMemory;
pub use pidfd::Pidfd;
pub use process::{Process, TargetError, mapping};
pub use processes::{Member, Processes, Roster};
pub use scratch::{HUGE, NoScratch, Scratch};
pub use usage::{memory_use, system_memory};
pub use wait::{Rest, Stop, Waiter, Woken};
