//! Acts on the memory of other processes. `docs/acting.md` describes what each action does to the process, what it
//! costs, and what keeps the process safe.
//!
//! Most actions work from outside: they are advice to the kernel (`process_madvise(2)`), which changes no content. Some
//! actions need a system call that only the process itself can make. Such a call is made inside the process, if the
//! scheme allows it.
//!
//! Actions between memory nodes move pages (`move_pages(2)`), also from outside. An action on a cgroup asks the kernel
//! to reclaim memory of it, and may set its limit.
//!
//! Page cache of files is dropped by advice on the files (`posix_fadvise(2)`), and only where it is clean and unmapped.
//!
//! - [`ProcessActuator`]: carries out the actions of schemes, from outside and from inside
//! - [`FrameOwners`]: finds the processes that map page frames, to act on physical memory
//! - [`ProcessInspector`]: finds the properties of pages and processes that filters depend on
//! - [`Inside`]: makes system calls inside other processes
//! - [`restore_limits`]: gives back limits of cgroups after a run was killed
//! - [`capabilities`]: tries which actions work on this machine

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod actuator;
mod advice_plan;
mod ahead;
mod cache_age;
mod call_method;
mod check;
mod compressible;
mod dense;
mod error;
mod facts;
mod files;
mod folios;
mod frames;
mod held;
mod inside;
mod limits;
mod lock_room;
mod locked;
mod map_counts;
#[cfg(all(test, target_arch = "x86_64"))]
mod memory_tests;
mod migration;
mod news;
mod outside;
mod pages;
mod physical;
mod reclaim;
mod refusal;
mod resident;
mod swap;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

pub use actuator::{ActOnFrames, ProcessActuator};
pub use check::{Capability, capabilities};
pub use error::ActError;
pub use frames::FramesError;
pub use inside::{Inside, InsideCall, InsideError};
pub use limits::{LeastLimits, restore_limits};
pub use migration::{MIGRATION_MARGIN, MigrationError, PlacesError};
pub use news::News;
pub use pages::{OpenProbe, ProcessInspector};
pub use physical::FrameOwners;
