//! The probe `damon`: the kernel's own DAMON does the work; isotherm sets it up, collects what it finds, and puts it back.
//!
//! It is no [`AccessProbe`](isotherm_core::AccessProbe): the kernel samples, merges and splits by itself, and a [`Run`] gives whole
//! [`Aggregation`]s, which stand in the place of the monitor's snapshots.
//!
//! What always holds:
//! - Nothing is written below DAMON's administration while a kdamond is there that isotherm did not make: the only way to a write is
//!   a claim, and a claim begins by looking.
//! - Nothing is left behind, however a run ends; what one leaves that is killed, the next one removes (see [`claim`]).
//! - Everything goes by [`Places`], so that a test that hands in a tree of its own reaches nothing of the machine.
//!
//! How the kernel behaves is from Linux `Documentation/admin-guide/mm/damon/usage.rst` and `Documentation/ABI/testing/sysfs-kernel-mm-damon`.

mod assemble;
mod claim;
mod error;
mod features;
mod files;
mod format;
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
pub use format::{Format, Told};
pub use kdamond::Kdamond;
pub use others::{Others, Seen};
pub use places::Places;
pub use run::{Run, now_ns};
pub use settings::{Scope, Settings};
pub use thread::Thread;
pub use traced::Lost;
