//! The working set as samples estimate it.
//!
//! A region counts as a whole if a sample found it accessed. What single samples of random pages say of a region is
//! bounded by the binomial distribution. The band runs from the pages that were accessed within a single sampling
//! interval at least (the lower bound of Wilson's interval, E. B. Wilson, 1927) to all regions with an access and what
//! may be accessed unseen in the others (the exact bound for no hit in n samples, 1 − 0.05^(1/n)).

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{RegionSnapshot, TargetId};

use super::{Amount, Basis, Percentiles, Point, Wss};
use isotherm_record::Needs;

use crate::ReportError;
use crate::intervals::IntervalRange;
use crate::source::{self, Accumulator, Seen, Selection, Source, Takes, walk};

/// The quantile of the normal distribution for 95 % on both sides.
const Z: f64 = 1.96;

/// The working set as samples estimate it.
pub(super) fn wss(source: &dyn Source, selection: &Selection) -> Result<Wss, ReportError> {
    let mut sampled = Sampled { resident: Resident::read(source)?, ..Sampled::default() };
    walk(source, selection, &mut [&mut sampled])?;
    // The aggregation interval may change during the run.
    let window = Duration::from_nanos(Percentiles::weighted(sampled.aggregations).median());
    let Sampled { intervals, points, .. } = sampled;
    Ok(Wss { basis: Basis::Samples, once: None, window, intervals, by_interval: true, points, resident: None })
}

#[derive(Default)]
struct Sampled {
    points: Vec<Point>,
    /// The aggregation intervals in nanoseconds, each with the time for which it was in force.
    aggregations: Vec<(u64, f64)>,
    intervals: IntervalRange,
    resident: Resident,
}

impl Accumulator for Sampled {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, regions: true, ..Needs::NOTHING }
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen {
            return Ok(());
        }
        self.intervals.add_row(&visit.row);
        let samples = visit.row.samples;
        let mut amount = Amount::default();
        let (mut unobservable, mut low, mut high) = (0.0, 0.0, 0.0);
        let mut present = None;
        for (piece, size) in visit.present_pieces() {
            amount.mapped += piece.range.size();
            if piece.region.pages.is_some() {
                *present.get_or_insert(0) += size;
            }
            let (least, most) = bounds(piece.region, samples);
            unobservable += size as f64 * piece.region.unobservable_share(samples).min(1.0);
            low += size as f64 * least;
            high += size as f64 * most;
            if piece.region.nr_accesses > 0 {
                amount.bytes += size;
            }
        }
        amount.unobservable_bytes = Some(unobservable as u64);
        amount.low_bytes = Some((low as u64).min(amount.bytes));
        amount.high_bytes = Some((high as u64).max(amount.bytes));
        let (time, target) = (visit.row.time, visit.row.target.id);
        amount.present_bytes = present.or_else(|| self.resident.at(target, time));
        self.aggregations.push((visit.row.aggregation.as_nanos() as u64, visit.span().as_secs_f64()));
        self.points.push(Point { time, target, amount, warm_up: false, span: visit.span() });
        Ok(())
    }
}

/// The least and the most share of a region that is in use, by its samples.
fn bounds(region: &RegionSnapshot, samples: u32) -> (f64, f64) {
    let n = f64::from(region.nr_samples) * (1.0 - region.unobservable_share(samples)).clamp(0.0, 1.0);
    if n < 1.0 {
        return (0.0, 1.0);
    }
    if region.nr_accesses == 0 {
        return (0.0, 1.0 - 0.05_f64.powf(1.0 / n));
    }
    let p = region.access_rate(samples).min(1.0);
    let centre = p + Z * Z / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    (((centre - spread) / (1.0 + Z * Z / n)).clamp(0.0, 1.0), 1.0)
}

/// The resident bytes of targets over time, from the activities.
#[derive(Default)]
struct Resident(HashMap<TargetId, Vec<(Duration, u64)>>);

impl Resident {
    fn read(source: &dyn Source) -> Result<Self, ReportError> {
        let mut resident = Self::default();
        for activity in source::activities(source)? {
            let activity = activity?;
            for (id, used) in &activity.memory {
                resident.0.entry(*id).or_default().push((activity.time, used.resident));
            }
        }
        Ok(resident)
    }

    /// The last value at `time`, or the first one after it.
    fn at(&self, target: TargetId, time: Duration) -> Option<u64> {
        let values = self.0.get(&target)?;
        let later = values.partition_point(|&(at, _)| at <= time);
        values.get(later.saturating_sub(1)).map(|&(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;

    fn region(nr_accesses: u32, nr_samples: u32) -> RegionSnapshot {
        let range = AddrRange::new(0, 4096).unwrap();
        RegionSnapshot { nr_accesses, nr_samples, ..RegionSnapshot::new(range) }
    }

    #[test]
    fn more_samples_narrow_the_band() {
        let most = |samples| bounds(&region(0, samples), 20).1;
        assert!(most(1) > 0.94 && most(20) > 0.1 && most(20) < 0.15 && most(0) == 1.0);
        let least = |samples| bounds(&region(20, samples), 20).0;
        assert!(least(20) > 0.8 && least(2) < least(20) && least(2) > 0.3);
    }
}
