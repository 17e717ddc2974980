//! Every touch of the kernel that isotherm makes.
//!
//! Which processes there are and what they have mapped ([`Processes`]), whether a page was accessed (the probes
//! [`bpf`] and [`RefsProbe`]), which of these work here ([`doctor`]), and waiting for the next round ([`Waiter`]).

pub mod bpf;
pub mod damon;
pub mod doctor;
mod host;
mod process;
mod processes;
mod refs;
mod wait;

pub use host::{Host, monitor_cpu_time};
pub use process::{Process, TargetError};
pub use processes::{Member, Processes, Roster};
pub use refs::{RefsError, RefsProbe};
pub use wait::{Stop, Waiter, Woken};
