//! Sources of snapshots: each runs on the thread of its session until the end, and hands its results to an
//! [`Outlet`].

mod kernel;
mod monitor;
mod recorded_pages;
mod replay;
mod simulation;

pub(crate) use kernel::KernelSource;
pub(crate) use monitor::MonitorSource;
pub(crate) use replay::ReplaySource;
pub use replay::recorded_facts;
pub(crate) use simulation::SimulationSource;

use crate::outlet::Outlet;
use crate::{EndReason, RunError};

/// A source whose targets have ended before it could watch them.
pub(crate) struct EndedSource;

impl Source for EndedSource {
    fn run(self: Box<Self>, _: &mut Outlet) -> Result<EndReason, RunError> {
        Ok(EndReason::Finished)
    }
}

/// Where snapshots come from.
pub(crate) trait Source: Send {
    /// Runs until the source is over or the session is to end, and says which it was.
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError>;
}
