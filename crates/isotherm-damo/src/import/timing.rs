//! How fast damo sampled: what its intervals mean for counts and ages.

use super::file::{Accesses, Age, Record, Region, Snapshot};

/// DAMON's own, where a file tells nothing that another one could be had from.
const AGGREGATION_NS: u64 = 100_000_000;
/// Samples an aggregation by DAMON's defaults: 5 ms of 100 ms.
const SAMPLES: u32 = 20;

/// The intervals of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) aggregation_ns: u64,
    /// Samples an aggregation.
    pub(super) samples: u32,
}

/// The intervals of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paces {
    pub(super) usual: Pace,
    /// Whether the file tells them.
    pub(super) told: bool,
    /// Whether each snapshot has its own: the kernel tunes them, and keeps the number of samples.
    tuned: bool,
}

impl Paces {
    /// Those of a record.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn of(record: &Record) -> Result<Self, String> {
        let Some(intervals) = &record.intervals else {
            return Ok(Self { usual: guess(&record.snapshots), told: false, tuned: false });
        };
        let (sample, aggregation) = (intervals.sample_us.0, intervals.aggr_us.0);
        if sample == 0 || aggregation == 0 {
            return Err("an interval of zero".into());
        }
        let samples = u32::try_from(aggregation / sample).map_err(|_| "more than 2^32 samples an aggregation")?.max(1);
        let usual = Pace { aggregation_ns: aggregation, samples };
        Ok(Self { usual, told: true, tuned: intervals.are_tuned() })
    }

    /// Those in force in one snapshot of the record.
    pub(super) fn at(&self, snapshot: &Snapshot) -> Pace {
        if !self.tuned {
            return self.usual;
        }
        let samples = self.usual.samples;
        let lasted = duration(snapshot);
        let aggregation_ns = match (snapshot.sample_interval_us, lasted) {
            (Some(sample), Some(lasted)) => {
                let aggregation = sample.0.saturating_mul(samples.into());
                // damo writes this interval in nanoseconds, though its name says microseconds.
                nearest(lasted, [aggregation, aggregation / 1000])
            }
            (Some(sample), None) => sample.0.saturating_mul(samples.into()) / 1000,
            // A snapshot comes a little later than its aggregation ends.
            (None, Some(lasted)) if lasted.abs_diff(self.usual.aggregation_ns) > self.usual.aggregation_ns / 10 => {
                lasted
            }
            (None, _) => self.usual.aggregation_ns,
        };
        Pace { aggregation_ns: aggregation_ns.max(1), samples }
    }
}

impl Pace {
    /// In how many samples, of all, a region was accessed; and whether damo says that it was in more than that.
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

    /// In aggregations; 0 if damo does not say.
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

/// The intervals of a record that does not tell them: aggregations last as long as most of its snapshots, and have as many samples as
/// DAMON's by default, or as the highest count.
fn guess(snapshots: &[Snapshot]) -> Pace {
    let mut lasted: Vec<u64> = snapshots.iter().filter_map(duration).collect();
    if lasted.is_empty() {
        let apart = |pair: &[Snapshot]| u64::try_from(pair[1].end_time.0.checked_sub(pair[0].end_time.0)?).ok();
        lasted = snapshots.windows(2).filter_map(apart).filter(|&lasted| lasted > 0).collect();
    }
    lasted.sort_unstable();
    let counts = snapshots.iter().flat_map(|snapshot| &snapshot.regions).filter_map(|region| match region.accesses {
        Accesses::Samples(count) => Some(count),
        Accesses::Percent(_) => None,
    });
    Pace {
        aggregation_ns: lasted.get(lasted.len() / 2).copied().unwrap_or(AGGREGATION_NS),
        samples: counts.max().unwrap_or(0).max(SAMPLES),
    }
}

/// How long a snapshot took, as far as it says so.
fn duration(snapshot: &Snapshot) -> Option<u64> {
    let lasted = snapshot.end_time.0.checked_sub(snapshot.start_time?.0)?;
    u64::try_from(lasted).ok().filter(|&lasted| lasted > 0)
}

/// That of `choices` whose ratio to `wanted` is nearest to one.
fn nearest(wanted: u64, choices: [u64; 2]) -> u64 {
    let off = |value: u64| ((value.max(1) as f64).ln() - (wanted.max(1) as f64).ln()).abs();
    if off(choices[0]) <= off(choices[1]) { choices[0] } else { choices[1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: serde_json::Value) -> Record {
        serde_json::from_value(json).unwrap()
    }

    fn snapshot(start: u64, end: u64) -> serde_json::Value {
        let count = serde_json::json!({"samples": 3});
        serde_json::json!({"start_time": start, "end_time": end, "regions": [{"start": 0, "end": 4096, "nr_accesses": count}]})
    }

    #[test]
    fn intervals_that_are_not_told_are_those_of_most_snapshots() {
        let snapshots = [(0, 190), (190, 300), (300, 400), (400, 501), (501, 602)]
            .map(|(start, end)| snapshot(start * 1_000_000, end * 1_000_000));
        let paces = Paces::of(&record(serde_json::json!({"snapshots": snapshots}))).unwrap();
        assert_eq!((paces.told, paces.usual), (false, Pace { aggregation_ns: 101_000_000, samples: 20 }));
    }

    #[test]
    fn tuned_intervals_are_those_of_the_snapshot_in_whichever_unit_fits_its_time() {
        let intervals = serde_json::json!({"sample_us": "5 ms", "aggr_us": "100 ms", "ops_update_us": "1 s",
            "intervals_goal": {"access_bp": "4 %", "aggrs": "3", "min_sample_us": "5 ms", "max_sample_us": "10 s"}});
        for sample in [40_000, 40_000_000] {
            let mut tuned = snapshot(0, 801_000_000);
            tuned["sample_interval_us"] = sample.into();
            let record =
                record(serde_json::json!({"intervals": intervals, "snapshots": [tuned, snapshot(0, 104_000_000)]}));
            let paces = Paces::of(&record).unwrap();
            assert_eq!(paces.at(&record.snapshots[0]), Pace { aggregation_ns: 800_000_000, samples: 20 });
            assert_eq!(paces.at(&record.snapshots[1]), Pace { aggregation_ns: 100_000_000, samples: 20 });
        }
    }

    #[test]
    fn counts_and_ages_in_other_units_become_ours() {
        let pace = Pace { aggregation_ns: 100_000_000, samples: 20 };
        let region = |nr_accesses: &str, age: &str| -> Region {
            let text = format!(r#"{{"start": 0, "end": 4096, "nr_accesses": {nr_accesses}, "age": {age}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let in_percent =
            region(r#"{"samples": null, "percent": 45}"#, r#"{"usec": "5 s 290 ms", "aggr_intervals": null}"#);
        assert_eq!((pace.nr_accesses(&in_percent), pace.age(&in_percent)), ((9, false), 53));
        let over = region(r#"{"samples": 22, "percent": null}"#, "null");
        assert_eq!((pace.nr_accesses(&over), pace.age(&over)), ((20, true), 0));
    }
}
