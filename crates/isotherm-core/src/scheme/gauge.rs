//! Gauges: figures of the system and its work, that watermarks and goals go by.

use std::sync::Arc;

use crate::{BoxError, Snapshot};

/// A figure that schemes go by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Free memory as a share of all memory, 0 to 1.
    FreeMemory,
    /// The share of the last ten seconds in which some task waited for memory, 0 to 1 (PSI `some avg10`).
    Pressure,
    /// For how long, in seconds since any fixed moment, some task has waited for memory (PSI `some total`). It never falls.
    StallTime,
    /// The share of the working set that is resident, 0 to 1: of the mapped bytes of accessed regions, those in memory.
    WorkingSetResident,
    /// A figure that the user feeds in, from the source of this name.
    Fed(Arc<str>),
}

/// Reads metrics. They are asked for only when a watermark or a goal needs them.
pub trait Gauges {
    /// Whether this metric can be known here, asked before the first application of a scheme that goes by it.
    ///
    /// # Errors
    /// Says why not, and what would mend it.
    fn supports(&mut self, _metric: &Metric) -> Result<(), BoxError> {
        Ok(())
    }

    /// The metric's value now; nothing if it cannot be known now. `snapshot` is the last one; it is empty while nothing is
    /// monitored.
    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64>;
}

/// Knows no figure: watermarks let every scheme be awake, and goals leave quotas as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGauges;

impl Gauges for NoGauges {
    fn read(&mut self, _metric: &Metric, _snapshot: &Snapshot) -> Option<f64> {
        None
    }
}

impl<G: Gauges + ?Sized> Gauges for Box<G> {
    fn supports(&mut self, metric: &Metric) -> Result<(), BoxError> {
        (**self).supports(metric)
    }

    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        (**self).read(metric, snapshot)
    }
}
