//! Metrics that a program feeds to the goals of schemes while they run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::scheme::{Feed, Gauges, Metric};
use isotherm_core::{BoxError, Snapshot};
use isotherm_kernel::SystemGauges;
use isotherm_kernel::cgroup::{CgroupGauges, SelectedCgroups};

/// The metrics that a program feeds to the schemes of a run, each by its name ([`Feed::Named`]). Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct FedMetrics(Arc<Mutex<BTreeMap<Arc<str>, FedValue>>>);

/// The value of a metric that was fed last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FedValue {
    /// The value.
    pub value: f64,
    /// When it came.
    pub at: Instant,
    /// For how long it is the value. `None` until there is another one.
    pub valid_for: Option<Duration>,
}

impl FedMetrics {
    /// Gives a metric this value from now on, for a time if one is given. Goals of a metric without a value leave the
    /// quota as it is.
    pub fn feed(&self, name: &str, value: f64, valid_for: Option<Duration>) {
        self.lock().insert(name.into(), FedValue { value, at: Instant::now(), valid_for });
    }

    /// The value of a metric now. `None` if it has none.
    pub fn get(&self, name: &str) -> Option<FedValue> {
        let is_valid = |fed: &FedValue| fed.valid_for.is_none_or(|time| fed.at.elapsed() < time);
        self.lock().get(name).copied().filter(is_valid)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, FedValue>> {
        // Each change is one insertion, so a panic of another thread does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gauges of a live run: the system's, and metrics that are fed.
#[derive(Debug)]
pub(crate) struct RunGauges {
    system: SystemGauges,
    /// `None` if nobody can feed them.
    fed: Option<FedMetrics>,
}

impl RunGauges {
    /// `cgroups` are those of the targets. `None` if no processes are selected.
    pub(crate) fn new(fed: Option<FedMetrics>, cgroups: Option<SelectedCgroups>) -> Self {
        let system = SystemGauges::new();
        Self { system: cgroups.map(CgroupGauges::new).into_iter().fold(system, SystemGauges::with_cgroups), fed }
    }

    /// The metrics that are fed, and the name of `metric`, if it is one of them.
    fn named<'a>(&'a self, metric: &'a Metric) -> Option<(&'a FedMetrics, &'a str)> {
        let Metric::Fed(Feed::Named(name)) = metric else { return None };
        Some((self.fed.as_ref()?, name))
    }
}

impl Gauges for RunGauges {
    fn supports(&mut self, metric: &Metric) -> Result<(), BoxError> {
        // Its value may come later.
        if self.named(metric).is_some() { Ok(()) } else { self.system.supports(metric) }
    }

    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        match self.named(metric) {
            Some((fed, name)) => fed.get(name).map(|fed| fed.value),
            None => self.system.read(metric, snapshot),
        }
    }

    fn size(&mut self, metric: &Metric) -> Option<u64> {
        self.system.size(metric)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_the_value_that_was_fed_last_as_long_as_it_is_valid() {
        let fed = FedMetrics::default();
        let mut gauges = RunGauges::new(Some(fed.clone()), None);
        let metric = Metric::Fed(Feed::Named("late".into()));
        let mut read = |fed: &dyn Fn()| {
            fed();
            gauges.read(&metric, &Snapshot::default())
        };
        assert_eq!(read(&|| ()), None);
        assert_eq!(read(&|| fed.feed("late", 4.0, None)), Some(4.0));
        assert_eq!(read(&|| fed.feed("other", 5.0, None)), Some(4.0));
        assert_eq!(read(&|| fed.feed("late", 6.0, Some(Duration::from_secs(3600)))), Some(6.0));
        assert_eq!(read(&|| fed.feed("late", 7.0, Some(Duration::ZERO))), None);
        gauges.supports(&metric).unwrap();
        let refused = RunGauges::new(None, None).supports(&metric).unwrap_err().to_string();
        assert!(refused.contains("isotherm ctl feed") && refused.contains("from: FILE"), "{refused}");
    }
}
