//! The intervals of records and snapshots, and counts and ages in terms of them.

use super::file::{Accesses, Age, Record, Region, Snapshot};

/// DAMON's default aggregation interval.
const AGGREGATION_NS: u64 = 100_000_000;
/// The samples in an aggregation with DAMON's defaults: 100 ms / 5 ms.
const SAMPLES: u32 = 20;

/// The intervals of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) aggregation_ns: u64,
    /// The number of samples in an aggregation.
    pub(super) samples: u32,
}

/// The intervals of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordTiming {
    /// The intervals at the start.
    pub(super) initial: Timing,
    /// Whether the file does not give the intervals.
    pub(super) is_guess: bool,
    /// Whether each snapshot has its own intervals, because the kernel tunes them. It keeps the number of samples.
    is_tuned: bool,
    /// Whether the sampling intervals of the snapshots are in nanoseconds, although their name says microseconds: so
    /// damo 3.4.3 writes them.
    are_ns: bool,
}

impl RecordTiming {
    /// The intervals of `record`.
    ///
    /// # Errors
    /// What is wrong with the intervals.
    pub(super) fn of(record: &Record) -> Result<Self, String> {
        let Some(intervals) = &record.intervals else {
            return Ok(Self { initial: guess(&record.snapshots), is_guess: true, is_tuned: false, are_ns: false });
        };
        let (sample, aggregation) = (intervals.sample_us.0, intervals.aggr_us.0);
        if sample == 0 || aggregation == 0 {
            return Err("an interval of zero".into());
        }
        let samples =
            u32::try_from(aggregation / sample).map_err(|_| "more than 2^32 samples in an aggregation")?.max(1);
        let initial = Timing { aggregation_ns: aggregation, samples };
        let mut snapshots = (0, 0);
        for snapshot in &record.snapshots {
            if let (Some(sample), Some(length)) = (snapshot.sample_interval_us, length(snapshot)) {
                let aggregation = sample.0.saturating_mul(samples.into());
                snapshots.0 += 1;
                snapshots.1 += usize::from(nearest(length, [aggregation, aggregation / 1000]) != aggregation);
            }
        }
        // After a gap, a snapshot is so long that the other unit fits it.
        let are_ns = 2 * snapshots.1 > snapshots.0;
        Ok(Self { initial, is_guess: false, is_tuned: intervals.are_tuned(), are_ns })
    }

    /// The intervals of one snapshot of the record.
    pub(super) fn of_snapshot(&self, snapshot: &Snapshot) -> Timing {
        let Timing { aggregation_ns: initial_ns, samples } = self.initial;
        if !self.is_tuned {
            return self.initial;
        }
        let aggregation_ns = match (snapshot.sample_interval_us, length(snapshot)) {
            (Some(sample), _) => {
                let aggregation = sample.0.saturating_mul(samples.into()) / if self.are_ns { 1000 } else { 1 };
                // The sampling interval was rounded to nanoseconds.
                aggregation.saturating_add(500) / 1000 * 1000
            }
            // A snapshot is always a little longer than its aggregation.
            (None, Some(length)) if length.abs_diff(initial_ns) > initial_ns / 10 => length,
            (None, _) => initial_ns,
        };
        Timing { aggregation_ns: aggregation_ns.max(1), samples }
    }
}

impl Timing {
    /// The number of samples that found a region accessed, at most all; and whether the file has a higher number.
    pub(super) fn nr_accesses(self, region: &Region) -> (u32, bool) {
        let count = match region.accesses {
            Accesses::Samples(count) => count,
            Accesses::Percent(thousandths) => {
                let count = (u64::from(thousandths) * u64::from(self.samples) + 50_000) / 100_000;
                u32::try_from(count).unwrap_or(u32::MAX)
            }
        };
        (count.min(self.samples), count > self.samples)
    }

    /// The age of a region in aggregations; 0 if the file does not give it.
    pub(super) fn age(self, region: &Region) -> u32 {
        match region.age {
            Age::Unknown => 0,
            Age::Aggregations(age) => age,
            Age::Nanoseconds(age) => {
                let half = self.aggregation_ns / 2;
                u32::try_from(age.saturating_add(half) / self.aggregation_ns).unwrap_or(u32::MAX)
            }
        }
    }
}

/// The intervals of a record that does not give them: an aggregation is as long as the median snapshot, and has as
/// many samples as with DAMON's defaults, or as the highest count.
fn guess(snapshots: &[Snapshot]) -> Timing {
    let mut lengths: Vec<u64> = snapshots.iter().filter_map(length).collect();
    if lengths.is_empty() {
        let apart = |pair: &[Snapshot]| u64::try_from(pair[1].end_time.0.checked_sub(pair[0].end_time.0)?).ok();
        lengths = snapshots.windows(2).filter_map(apart).filter(|&length| length > 0).collect();
    }
    lengths.sort_unstable();
    let counts = snapshots.iter().flat_map(|snapshot| &snapshot.regions).filter_map(|region| match region.accesses {
        Accesses::Samples(count) => Some(count),
        Accesses::Percent(_) => None,
    });
    Timing {
        // Of two in the middle, the longer one may be that of a gap.
        aggregation_ns: lengths.get(lengths.len().saturating_sub(1) / 2).copied().unwrap_or(AGGREGATION_NS),
        samples: counts.max().unwrap_or(0).max(SAMPLES),
    }
}

/// The time between start and end of a snapshot. None if the file does not give a start before the end.
fn length(snapshot: &Snapshot) -> Option<u64> {
    let length = snapshot.end_time.0.checked_sub(snapshot.start_time?.0)?;
    u64::try_from(length).ok().filter(|&length| length > 0)
}

/// The one of `choices` whose ratio to `target` is nearest to 1.
fn nearest(target: u64, choices: [u64; 2]) -> u64 {
    let distance = |value: u64| ((value.max(1) as f64).ln() - (target.max(1) as f64).ln()).abs();
    if distance(choices[0]) <= distance(choices[1]) { choices[0] } else { choices[1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: serde_json::Value) -> Record {
        serde_json::from_value(json).unwrap()
    }

    fn snapshot(start: u64, end: u64) -> serde_json::Value {
        let region = serde_json::json!({"start": 0, "end": 4096, "nr_accesses": {"samples": 3}});
        serde_json::json!({"start_time": start, "end_time": end, "regions": [region]})
    }

    #[test]
    fn intervals_that_are_not_given_are_those_of_the_median_snapshot() {
        let snapshots = [(0, 190), (190, 300), (300, 400), (400, 501), (501, 602)]
            .map(|(start, end)| snapshot(start * 1_000_000, end * 1_000_000));
        let timing = RecordTiming::of(&record(serde_json::json!({"snapshots": snapshots}))).unwrap();
        assert_eq!((timing.is_guess, timing.initial), (true, Timing { aggregation_ns: 101_000_000, samples: 20 }));
    }

    #[test]
    fn tuned_intervals_are_those_of_the_snapshot_in_the_unit_that_fits_its_length() {
        let intervals = serde_json::json!({"sample_us": "5 ms", "aggr_us": "100 ms", "ops_update_us": "1 s",
            "intervals_goal": {"access_bp": "4 %", "aggrs": "3", "min_sample_us": "5 ms", "max_sample_us": "10 s"}});
        for sample in [40_000, 40_000_000] {
            let mut tuned = snapshot(0, 801_000_000);
            tuned["sample_interval_us"] = sample.into();
            let record =
                record(serde_json::json!({"intervals": intervals, "snapshots": [tuned, snapshot(0, 104_000_000)]}));
            let timing = RecordTiming::of(&record).unwrap();
            assert_eq!(timing.of_snapshot(&record.snapshots[0]), Timing { aggregation_ns: 800_000_000, samples: 20 });
            assert_eq!(timing.of_snapshot(&record.snapshots[1]), Timing { aggregation_ns: 100_000_000, samples: 20 });
        }
    }

    #[test]
    fn counts_in_percent_become_samples_and_ages_in_time_become_aggregations() {
        let timing = Timing { aggregation_ns: 100_000_000, samples: 20 };
        let region = |nr_accesses: &str, age: &str| -> Region {
            let text = format!(r#"{{"start": 0, "end": 4096, "nr_accesses": {nr_accesses}, "age": {age}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let in_percent =
            region(r#"{"samples": null, "percent": 45}"#, r#"{"usec": "5 s 290 ms", "aggr_intervals": null}"#);
        assert_eq!((timing.nr_accesses(&in_percent), timing.age(&in_percent)), ((9, false), 53));
        let over = region(r#"{"samples": 22, "percent": null}"#, "null");
        assert_eq!((timing.nr_accesses(&over), timing.age(&over)), ((20, true), 0));
    }
}
