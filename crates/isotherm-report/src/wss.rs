//! The working set: how much memory was accessed in each snapshot, and the percentiles over the snapshots.

use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::pid_column;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::ReportError;
use crate::source::{View, Visit};

/// The percentiles that reports show.
pub const PERCENTILES: [u32; 7] = [0, 25, 50, 75, 90, 99, 100];

/// Values at [`PERCENTILES`], by the nearest-rank method: the smallest value that at least that share of all values
/// does not exceed. Each is one of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles<T>(pub [T; 7]);

impl<T: Copy + Default + PartialOrd> Percentiles<T> {
    /// The percentiles of some values. All are the default value if there are no values.
    pub fn of(mut values: Vec<T>) -> Self {
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        Self(PERCENTILES.map(|p| {
            let rank = (u64::from(p) * values.len() as u64).div_ceil(100).max(1);
            values.get(rank as usize - 1).copied().unwrap_or_default()
        }))
    }

    /// Each percentile with its value.
    pub fn iter(&self) -> impl Iterator<Item = (u32, T)> {
        PERCENTILES.into_iter().zip(self.0)
    }

    /// The median.
    pub fn median(&self) -> T {
        self.0[2]
    }
}

impl<T: Copy + Serialize> Serialize for Percentiles<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(PERCENTILES.len()))?;
        for (p, value) in PERCENTILES.iter().zip(self.0) {
            map.serialize_entry(&p.to_string(), &value)?;
        }
        map.end()
    }
}

/// The working set of one target in one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The time since the start of the recording.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
    /// The target.
    #[serde(rename = "pid", serialize_with = "as_pid")]
    pub target: TargetId,
    /// Mapped bytes of regions with at least one access.
    pub bytes: u64,
    /// All mapped bytes, for charts.
    #[serde(skip)]
    pub mapped: u64,
}

fn as_ns<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_nanos() as u64)
}

fn as_pid<S: Serializer>(target: &TargetId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(pid_column(*target))
}

/// The working set over time.
#[derive(Clone, Debug, Default)]
pub struct Wss {
    /// A point for each snapshot and target, in the order of time.
    pub points: Vec<Point>,
}

impl Wss {
    /// The sum of all targets in each snapshot: time, working set, mapped bytes.
    pub fn sums(&self) -> Vec<(Duration, u64, u64)> {
        let mut sums: Vec<(Duration, u64, u64)> = vec![];
        for point in &self.points {
            match sums.last_mut() {
                Some((time, bytes, mapped)) if *time == point.time => {
                    *bytes = bytes.saturating_add(point.bytes);
                    *mapped = mapped.saturating_add(point.mapped);
                }
                _ => sums.push((point.time, point.bytes, point.mapped)),
            }
        }
        sums
    }

    /// The percentiles over the snapshots of the sum of all targets.
    pub fn percentiles(&self) -> Percentiles<u64> {
        Percentiles::of(self.sums().into_iter().map(|(_, bytes, _)| bytes).collect())
    }

    /// The number of targets.
    pub fn targets(&self) -> usize {
        self.points.iter().map(|point| point.target).collect::<std::collections::BTreeSet<_>>().len()
    }
}

impl View for Wss {
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if visit.chosen {
            let (mut bytes, mut mapped) = (0, 0);
            for piece in visit.pieces() {
                mapped += piece.range.size();
                if piece.region.nr_accesses > 0 {
                    bytes += piece.range.size();
                }
            }
            self.points.push(Point { time: visit.row.time, target: visit.row.target.id, bytes, mapped });
        }
        Ok(())
    }
}

impl Serialize for Wss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("percentiles", &self.percentiles())?;
        map.serialize_entry("over_time", &self.points)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        assert_eq!(Percentiles::of((1..=100).rev().collect()).0, [1, 25, 50, 75, 90, 99, 100]);
        assert_eq!(Percentiles::of(vec![15, 20, 35, 40, 50]).0, [15, 20, 35, 40, 50, 50, 50]);
        assert_eq!(Percentiles::of(vec![7]).0, [7; 7]);
        assert_eq!(Percentiles::<u64>::of(vec![]).0, [0; 7]);
    }
}
