//! The probe `damon`: configures the kernel's DAMON, collects its results, and removes the configuration.
//!
//! It is not an [`AccessProbe`](isotherm_core::AccessProbe), because the kernel samples, merges and splits by itself. A
//! [`Run`] returns complete [`Aggregation`]s, which replace the snapshots of the monitor. [`act_on_frames`] acts on
//! physical memory.
//!
//! Guarantees:
//! - While a kdamond exists that isotherm did not make, nothing is written to DAMON's sysfs files. Every write needs a
//!   claim, and a claim first looks for other users.
//! - A run leaves nothing behind when it ends. If it is killed, the next run removes what it left (see `claim`).
//! - All paths come from [`DamonPaths`], so a test that uses a directory tree of its own cannot change the machine.
//!
//! The behaviour of the kernel is described in Linux `Documentation/admin-guide/mm/damon/usage.rst` and
//! `Documentation/ABI/testing/sysfs-kernel-mm-damon`.

mod assemble;
mod claim;
mod error;
mod features;
mod files;
mod format;
mod frames;
mod kdamond;
mod look;
mod others;
mod places;
mod records;
mod ring;
mod run;
mod settings;
mod thread;
mod traced;

pub use assemble::Aggregation;
pub use error::{DamonError, TraceError};
pub use features::{Features, check, check_operations};
pub use format::{Format, RegionEvent};
pub use frames::{ActedOnFrames, FrameAction, act_on_frames};
pub use kdamond::Kdamond;
pub use others::{Others, Seen};
pub use places::DamonPaths;
pub use run::{Run, now_ns};
pub use settings::{Scope, Settings};
pub use thread::Thread;
pub use traced::Lost;
