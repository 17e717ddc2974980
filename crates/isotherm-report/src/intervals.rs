//! Sampling intervals that change during a recording.

use std::time::Duration;

use isotherm_core::rate::{is_same_interval, sampling_interval};
use isotherm_core::units;
use isotherm_record::Row;
use schemars::JsonSchema;
use serde::Serialize;

use crate::schema::{ns, serialized_as};

/// The shortest and the longest of some intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalRange(Option<(Duration, Duration)>);

impl IntervalRange {
    pub(crate) fn add(&mut self, interval: Duration) {
        let (least, most) = self.0.unwrap_or((interval, interval));
        self.0 = Some((least.min(interval), most.max(interval)));
    }

    /// Adds the sampling interval of a row, if it has samples.
    pub(crate) fn add_row(&mut self, row: &Row<'_>) {
        if row.target.regions.iter().any(|region| region.nr_samples > 0) {
            self.add(sampling_interval(row.aggregation, row.samples));
        }
    }

    /// The shortest and the longest. `None` if there is no interval.
    pub fn bounds(self) -> Option<(Duration, Duration)> {
        self.0
    }

    /// Whether the intervals differ.
    pub(crate) fn varies(self) -> bool {
        self.0.is_some_and(|(least, most)| !is_same_interval(most, least))
    }

    /// `5 ms`, or `5 ms to 100 ms`.
    pub(crate) fn text(self) -> Option<String> {
        let (least, most) = self.0?;
        let least = units::duration(least);
        Some(if self.varies() { format!("{least} to {}", units::duration(most)) } else { least })
    }
}

/// The bounds in JSON.
#[derive(Serialize, JsonSchema)]
struct Bounds {
    /// The shortest interval. `None` if the recording has no interval.
    interval_min_ns: Option<u64>,
    /// The longest interval.
    interval_max_ns: Option<u64>,
}

serialized_as!(IntervalRange, Bounds);

impl From<&IntervalRange> for Bounds {
    fn from(range: &IntervalRange) -> Self {
        let (least, most) = range.0.unzip();
        Self { interval_min_ns: least.map(ns), interval_max_ns: most.map(ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_both_ends_only_if_they_differ() {
        let mut range = IntervalRange::default();
        assert_eq!(range.text(), None);
        range.add(Duration::from_millis(5));
        assert_eq!(range.text().unwrap(), "5 ms");
        range.add(Duration::from_millis(100));
        assert_eq!(range.text().unwrap(), "5 ms to 100 ms");
    }
}
