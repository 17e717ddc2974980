//! Memory that came back recently after it was freed.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{BoxError, Snapshot};

use super::{Gauges, Metric, WORKING_SET};

/// For how long what came back counts.
const RECENT: Duration = Duration::from_secs(60);

/// The bytes that came back, with the time at which that was found.
#[derive(Clone, Debug, Default)]
pub struct CameBack(VecDeque<(Duration, u64)>);

impl CameBack {
    /// Takes in that so many bytes were found in memory again at the time `now`, since the start of the run.
    pub fn take(&mut self, now: Duration, bytes: u64) {
        self.0.extend((bytes > 0).then_some((now, bytes)));
        self.forget(now);
    }

    /// What came back within a minute before a snapshot, as a share of its [working set](WORKING_SET). `None` if there
    /// is none.
    pub fn share_of_working_set(&mut self, snapshot: &Snapshot) -> Option<f64> {
        let bytes = self.recently(snapshot.time);
        let working_set = snapshot.in_use_within(WORKING_SET);
        (working_set > 0).then(|| bytes as f64 / working_set as f64)
    }

    /// The bytes that came back within a minute before `now`.
    fn recently(&mut self, now: Duration) -> u64 {
        self.forget(now);
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Forgets what counts no longer.
    fn forget(&mut self, now: Duration) {
        while self.0.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= RECENT) {
            self.0.pop_front();
        }
    }
}

/// Gauges with the figure that the schemes know themselves: [`Metric::Returns`].
pub(crate) struct WithReturns<'a, G> {
    pub gauges: &'a mut G,
    /// What came back of the memory that the scheme has freed.
    pub returned: &'a mut CameBack,
}

impl<G: Gauges> Gauges for WithReturns<'_, G> {
    fn supports(&mut self, metric: &Metric) -> Result<(), BoxError> {
        self.gauges.supports(metric)
    }

    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        if *metric != Metric::Returns {
            return self.gauges.read(metric, snapshot);
        }
        self.returned.share_of_working_set(snapshot)
    }

    fn size(&mut self, metric: &Metric) -> Option<u64> {
        self.gauges.size(metric)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::scheme::NoGauges;
    use crate::{AddrRange, Figures, Mapping, PAGE_SIZE, RegionSnapshot, TargetId, TargetSnapshot};

    #[test]
    fn what_came_back_is_a_share_of_the_working_set() {
        let range = AddrRange::new(0, 1000 * PAGE_SIZE).unwrap();
        let pages = Figures { present: range.size(), touched: 500 * PAGE_SIZE, ..Figures::default() };
        let region = RegionSnapshot { pages: Some(pages), ..RegionSnapshot::new(range) };
        let id = TargetId::process(1, Duration::ZERO);
        let target = TargetSnapshot { id, regions: vec![region], mappings: [Mapping::anonymous(range)].into() };
        let snapshot = Snapshot { targets: vec![target], ..Snapshot::default() };
        let mut returned = CameBack::default();
        returned.take(snapshot.time, PAGE_SIZE);
        let mut gauges = WithReturns { gauges: &mut NoGauges, returned: &mut returned };
        assert_eq!(gauges.read(&Metric::Returns, &snapshot), Some(0.002));
        assert_eq!(gauges.read(&Metric::Returns, &Snapshot::default()), None);
        assert_eq!(gauges.read(&Metric::Refaults, &snapshot), None);
    }

    #[test]
    fn what_came_back_counts_for_a_minute() {
        let second = Duration::from_secs;
        let mut returned = CameBack::default();
        returned.take(second(1), 10);
        returned.take(second(2), 0);
        returned.take(second(31), 5);
        assert_eq!(returned.recently(second(60)), 15);
        assert_eq!(returned.recently(second(61)), 5);
        assert_eq!(returned.recently(second(91)), 0);
    }
}
