//! Sinks: where the monitor's findings go. A sink never touches the monitor.

use crate::{BoxError, Snapshot, TargetSpace};

/// What one sampling interval took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Pages read, one for each region at most.
    pub reads: usize,
    /// How many of them were found accessed.
    pub accessed: usize,
}

/// Takes what the monitor finds. The four methods are the monitor's hooks, in the order of their calls.
pub trait Sink {
    /// Before the first round: the targets as they are then.
    ///
    /// # Errors
    /// Ends the run.
    fn start(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    /// After each sampling interval at whose end pages were read.
    ///
    /// # Errors
    /// Ends the run.
    fn sampled(&mut self, _round: Round) -> Result<(), BoxError> {
        Ok(())
    }

    /// After each aggregation interval.
    ///
    /// # Errors
    /// Ends the run.
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError>;

    /// Before the end of the run, however it came about.
    ///
    /// # Errors
    /// Makes the run a failed one.
    fn end(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}
