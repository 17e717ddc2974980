//! Sinks: where the monitor hands its results. A sink never changes the monitor.

use crate::survey::SurveySnapshot;
use crate::{BoxError, PanelSnapshot, Snapshot, TargetSpace};

/// The work of one sampling round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Pages read, at most one for each region.
    pub reads: usize,
    /// How many of them were found accessed.
    pub accessed: usize,
}

/// Takes the results of a monitor. The methods are called in this order: `start` once, then `sampled` and
/// `aggregated` in turn, then `end` once.
pub trait Sink {
    /// Takes the targets as they are before the first round.
    ///
    /// # Errors
    /// An error ends the run.
    fn start(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    /// Takes the work of a round, after each round in which pages were read.
    ///
    /// # Errors
    /// An error ends the run.
    fn sampled(&mut self, _round: Round) -> Result<(), BoxError> {
        Ok(())
    }

    /// Takes all regions, at the end of each aggregation interval.
    ///
    /// # Errors
    /// An error ends the run.
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError>;

    /// Takes what a survey found, at the end of each survey interval and at the start.
    ///
    /// # Errors
    /// An error ends the run.
    fn surveyed(&mut self, _survey: &SurveySnapshot) -> Result<(), BoxError> {
        Ok(())
    }

    /// Takes what the panel says, after each of its readings but the first.
    ///
    /// # Errors
    /// An error ends the run.
    fn panel_read(&mut self, _panel: &PanelSnapshot) -> Result<(), BoxError> {
        Ok(())
    }

    /// Ends the sink. It is called once, however the run ended.
    ///
    /// # Errors
    /// An error makes the run a failed one.
    fn end(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}
