//! The CPU time that a monitor takes.

use std::time::Duration;

/// Tells how much CPU time the monitor has taken so far, if it is measured.
#[derive(Default)]
pub(super) struct CpuClock(pub(super) Option<Box<dyn FnMut() -> Duration + Send>>);

impl CpuClock {
    /// The CPU time so far. `None` if it is not measured.
    pub(super) fn now(&mut self) -> Option<Duration> {
        self.0.as_mut().map(|clock| clock())
    }

    /// The CPU time since `began`.
    pub(super) fn since(&mut self, began: Option<Duration>) -> Option<Duration> {
        Some(self.now()?.saturating_sub(began?))
    }
}
