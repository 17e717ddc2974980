//! Regions: neighbouring pages with about the same access frequency, and the statistics of their samples.

use crate::steady::{self, Steadiness, blend, by_chance};
use crate::{AddrRange, Attributes, Observation, RegionPages, RegionSnapshot};

/// Which neighbours are merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeLimits {
    /// The largest difference of their counts.
    pub threshold: u32,
    /// The largest size of the merged region, in bytes.
    pub size: u64,
    /// The size in bytes up to which a region is merged with a neighbour although only one of the two can be
    /// observed. In shared libraries that changes from page to page; without this limit such pages would use up the
    /// budget of regions.
    pub resolution: u64,
    /// Whether memory in use stays apart from memory that the last survey found idle.
    pub keeps_use: bool,
}

/// Neighbouring pages that are taken to be accessed equally often, so that one page of them speaks for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    range: AddrRange,
    /// The number of samples that `accessed` and `unobservable` are counts of. While an aggregation runs, these are
    /// the samples taken so far. [`settle`](Self::settle) turns the counts into counts of a whole aggregation.
    samples: u32,
    accessed: u32,
    unobservable: u32,
    /// The number of samples that were taken in the last whole aggregation.
    nr_samples: u32,
    /// How many samples of a whole aggregation one observed sample stands for: more than one if few were taken.
    weight: u32,
    /// `nr_accesses` at the end of the last aggregation.
    last_nr_accesses: u32,
    /// `nr_unobservable` at the end of the last aggregation.
    last_nr_unobservable: u32,
    age: u32,
    steadiness: Steadiness,
    /// Whether a page was chosen in this round and will be read at its end.
    chosen: bool,
    /// What the last survey found in the region. `None` without a survey.
    pages: Option<RegionPages>,
}

impl Region {
    /// A region without any sample.
    pub const fn new(range: AddrRange) -> Self {
        Self {
            range,
            samples: 0,
            accessed: 0,
            unobservable: 0,
            nr_samples: 0,
            weight: 1,
            last_nr_accesses: 0,
            last_nr_unobservable: 0,
            age: 0,
            steadiness: Steadiness::NEW,
            chosen: false,
            pages: None,
        }
    }

    /// The addresses of the region.
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// For how many aggregations the access frequency has stayed the same.
    pub const fn age(&self) -> u32 {
        self.age
    }

    /// The same region with another range. Its statistics hold for every part of it.
    pub(crate) const fn with_range(self, range: AddrRange) -> Self {
        Self { range, ..self }
    }

    /// What the last survey found in the region. `None` without a survey.
    pub(crate) const fn pages(&self) -> Option<RegionPages> {
        self.pages
    }

    /// The same region with what a survey found in it.
    pub(crate) const fn with_pages(self, pages: RegionPages) -> Self {
        Self { pages: Some(pages), ..self }
    }

    /// The bytes that the region speaks for: those that are present, or all without a survey.
    pub(crate) const fn bytes(&self) -> u64 {
        match self.pages {
            Some(pages) => pages.present,
            None => self.range.size(),
        }
    }

    /// Whether the last survey found any of the region accessed, or could not tell. True without a survey.
    pub(crate) const fn may_be_in_use(&self) -> bool {
        match self.pages {
            Some(pages) => pages.touched > 0 || pages.unknown > 0,
            None => true,
        }
    }

    /// Forgets the age: the region is accessed in another way than before.
    pub(crate) const fn begin_age(&mut self) {
        self.age = 0;
    }

    /// How many rounds there are from one sample of the region to the next, at least 1.
    pub(crate) fn stride(&self, attributes: &Attributes) -> u32 {
        let stride = self.steadiness.stride(self.last_nr_accesses, attributes);
        if self.may_be_in_use() { stride } else { stride.max(steady::idle_stride(attributes)) }
    }

    /// Decides whether a page of the region is chosen in this round of the aggregation, counted from 0. Of the rounds,
    /// one in `every` has samples.
    ///
    /// Memory whose accessed bits were never cleared is not sampled: each sample would have to be cleared alone, which
    /// costs much more than a survey takes for it.
    pub(crate) fn choose(&mut self, round: u32, attributes: &Attributes, every: u32) -> bool {
        let is_worth_it = self.pages.is_none_or(|pages| pages.present > 0 && pages.unknown * 2 <= pages.present);
        self.chosen = is_worth_it && round.is_multiple_of(self.stride(attributes).saturating_mul(every));
        self.chosen
    }

    /// Whether a page of the region was chosen in this round.
    pub(crate) const fn was_chosen(&self) -> bool {
        self.chosen
    }

    /// Counts one sample.
    pub(crate) fn count(&mut self, observation: Observation) {
        self.samples += 1;
        match observation {
            Observation::Idle => {}
            Observation::Accessed => self.accessed += 1,
            Observation::Unobservable => self.unobservable += 1,
        }
    }

    /// Ends the aggregation: turns the counts of the samples taken into counts of a whole aggregation, and
    /// determines the age.
    ///
    /// The rate of accesses is that of the samples that were taken and could be observed. It is scaled to a whole
    /// aggregation, so that samples that could not be observed, and samples from before the region existed, do not
    /// count. A region with no observable sample counts as not accessed. The samples that a steady region was
    /// spared count as in the last aggregation.
    ///
    /// The region is of age 0 if the scaled count moved by more than the merge threshold since the last
    /// aggregation. Otherwise it is one aggregation older.
    pub(crate) fn settle(&mut self, attributes: &Attributes, every: u32) {
        let samples = attributes.samples();
        let observed = self.samples - self.unobservable;
        let seen = scaled(self.accessed, samples, observed);
        let seen_unobservable = scaled(self.unobservable, samples, self.samples);
        self.weight = samples / observed.max(1);

        let threshold = attributes.merge_threshold();
        let tolerance = self.tolerance(seen, self.last_nr_accesses, samples, threshold);
        let changed = seen.abs_diff(self.last_nr_accesses) > tolerance;
        let by_chance = by_chance(seen, observed, self.last_nr_accesses, samples, threshold);
        // A region that has never been sampled has no past to count.
        let is_known = self.nr_samples > 0 || self.last_nr_accesses > 0;
        let spared = (self.stride(attributes) > 1 || (every > 1 && is_known)) && observed > 0;
        if spared {
            self.accessed = blend(self.last_nr_accesses, seen, self.samples, samples);
            self.unobservable = blend(self.last_nr_unobservable, seen_unobservable, self.samples, samples);
            self.weight = 1;
        } else {
            self.accessed = seen;
            self.unobservable = seen_unobservable;
        }
        // Without evidence, the region grows no older.
        let grows = self.samples == 0 || observed > 0;
        // With few samples, chance moves the count. That does not make the region young.
        let moved = changed && !(every > 1 && by_chance);
        self.age = if moved { 0 } else { self.age.saturating_add(u32::from(grows)) };
        self.steadiness.aggregated(changed && !by_chance);
        self.nr_samples = self.samples;
        self.samples = samples;
    }

    /// By how much two counts of `samples` may differ and still be the same frequency: `threshold`, and between two
    /// hot counts at least one taken sample.
    ///
    /// A page that is never used is never found accessed. A page that is used all the time can still be missed,
    /// because its user was not running in that interval. If few samples were taken, one such miss would look like
    /// a change.
    fn tolerance(&self, one: u32, other: u32, samples: u32, threshold: u32) -> u32 {
        let hot = one.min(other) >= samples / 2;
        if hot { threshold.max(self.weight) } else { threshold }
    }

    /// Whether this region and `next` can be merged: they touch, and their frequencies are the same. Memory that can be
    /// observed stays apart from memory that cannot, unless one of the two regions has at most the `resolution` of the
    /// limits in bytes.
    pub(crate) fn continues_in(&self, next: &Self, limits: MergeLimits) -> bool {
        let MergeLimits { threshold, resolution, keeps_use, .. } = limits;
        self.range.touches(next.range)
            && (!keeps_use || self.may_be_in_use() == next.may_be_in_use())
            && self.accessed.abs_diff(next.accessed)
                <= self.tolerance(self.accessed, next.accessed, self.samples, threshold)
            && (self.unobservable.abs_diff(next.unobservable) <= threshold
                || self.bytes().min(next.bytes()) <= resolution)
    }

    /// Merges `next` into this region, which then covers `range`. All statistics become means, weighted by size.
    pub(crate) fn absorb(&mut self, next: &Self, range: AddrRange) {
        let (a, b) = (u128::from(self.bytes().max(1)), u128::from(next.bytes().max(1)));
        let mean = |x: u32, y: u32| {
            let sum = u128::from(x) * a + u128::from(y) * b;
            // The mean lies between x and y, and so has 32 bits.
            ((sum + (a + b) / 2) / (a + b)) as u32
        };
        *self = Self {
            range,
            samples: mean(self.samples, next.samples),
            accessed: mean(self.accessed, next.accessed),
            unobservable: mean(self.unobservable, next.unobservable),
            nr_samples: mean(self.nr_samples, next.nr_samples),
            weight: self.weight.min(next.weight),
            last_nr_accesses: mean(self.last_nr_accesses, next.last_nr_accesses),
            last_nr_unobservable: mean(self.last_nr_unobservable, next.last_nr_unobservable),
            age: mean(self.age, next.age),
            steadiness: self.steadiness.merged(next.steadiness, mean),
            chosen: false,
            pages: self.pages.zip(next.pages).map(|(pages, next)| pages + next),
        };
    }

    /// Begins the next aggregation.
    pub(crate) fn reset(&mut self) {
        self.last_nr_accesses = self.accessed;
        self.last_nr_unobservable = self.unobservable;
        self.samples = 0;
        self.accessed = 0;
        self.unobservable = 0;
    }

    /// Converts the past to other attributes. Counts of `old_samples` become counts of `new_samples`. Ages are
    /// multiplied by `age_factor`, the old aggregation interval divided by the new one, so that they mean the same
    /// time.
    pub(crate) fn rescale(&mut self, old_samples: u32, new_samples: u32, age_factor: f64) {
        self.last_nr_accesses = scaled(self.last_nr_accesses, new_samples, old_samples);
        self.last_nr_unobservable = scaled(self.last_nr_unobservable, new_samples, old_samples);
        // A cast from f64 saturates.
        self.age = (f64::from(self.age) * age_factor) as u32;
        self.steadiness = self.steadiness.rescaled(age_factor);
    }

    pub(crate) const fn snapshot(&self) -> RegionSnapshot {
        RegionSnapshot {
            range: self.range,
            nr_accesses: self.accessed,
            nr_samples: self.nr_samples,
            nr_unobservable: self.unobservable,
            age: self.age,
            pages: self.pages,
        }
    }
}

/// Scales `count` of `from` to a count of `to`, rounded to the nearest and at most `to`. It is 0 if `from` is 0.
fn scaled(count: u32, to: u32, from: u32) -> u32 {
    if from == 0 {
        return 0;
    }
    let (count, to, from) = (u64::from(count), u64::from(to), u64::from(from));
    ((count * to + from / 2) / from).min(to) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(pages: std::ops::Range<u64>, accessed: u32, age: u32) -> Region {
        Region {
            samples: 20,
            accessed,
            age,
            steadiness: (0..age).fold(Steadiness::NEW, |mut steadiness, _| {
                steadiness.aggregated(false);
                steadiness
            }),
            ..Region::new(AddrRange::new(pages.start * 4096, pages.end * 4096).unwrap())
        }
    }

    #[test]
    fn a_merged_region_has_the_means_weighted_by_size() {
        let mut a = region(0..3, 20, 8);
        let b = region(3..4, 0, 0);
        a.absorb(&b, AddrRange::new(0, 4 * 4096).unwrap());
        assert_eq!((a.accessed, a.age, a.range.pages()), (15, 6, 4));
    }

    #[test]
    fn the_rate_counts_observable_samples_only() {
        let mut r = region(0..1, 0, 0);
        r.reset();
        for observation in
            [Observation::Accessed, Observation::Idle, Observation::Unobservable, Observation::Unobservable]
        {
            r.count(observation);
        }
        r.settle(&Attributes::default(), 1);
        assert_eq!((r.accessed, r.unobservable), (10, 10));
    }

    #[test]
    fn a_region_without_an_observable_sample_is_not_hot() {
        let mut r = region(0..1, 0, 0);
        r.reset();
        r.count(Observation::Unobservable);
        r.settle(&Attributes::default(), 1);
        assert_eq!((r.accessed, r.unobservable), (0, 20));
    }

    /// Runs one aggregation of `of` samples, `accessed` of which find the region accessed. Returns its count and
    /// its age.
    fn aggregate(r: &mut Region, accessed: u32, of: u32) -> (u32, u32) {
        r.reset();
        (0..of).for_each(|i| r.count(if i < accessed { Observation::Accessed } else { Observation::Idle }));
        r.settle(&Attributes::default(), 1);
        (r.accessed, r.age)
    }

    #[test]
    fn the_age_starts_again_when_the_frequency_moves_by_more_than_the_threshold() {
        let mut r = region(0..1, 5, 7);
        assert_eq!(aggregate(&mut r, 7, 20), (7, 8));
        assert_eq!(aggregate(&mut r, 10, 20), (10, 0));
    }

    #[test]
    fn spared_samples_of_a_steady_region_count_as_in_the_last_aggregation() {
        let mut cold = region(0..1, 0, 30);
        assert_eq!(aggregate(&mut cold, 0, 2), (0, 31));
        assert_eq!(
            aggregate(&mut cold, 1, 2),
            (1, 0),
            "one access in two samples does not make a rate of a half, but the age starts again"
        );
        let mut hot = region(0..1, 20, 30);
        assert_eq!(aggregate(&mut hot, 1, 2), (19, 31), "one miss is no change");
        assert_eq!(aggregate(&mut hot, 2, 2), (20, 32));
        assert_eq!(aggregate(&mut hot, 0, 2), (18, 0));
    }

    #[test]
    fn a_region_whose_frequency_moves_by_chance_becomes_steady() {
        let attributes = Attributes::default();
        let mut half = region(0..1, 10, 0);
        for (nth, seen) in [8, 12, 9, 13, 10, 7, 11, 14, 9, 12].into_iter().enumerate() {
            assert_eq!(half.stride(&attributes), 1, "after {nth} aggregations");
            aggregate(&mut half, seen, 20);
        }
        assert!(half.age < 10);
        assert_eq!(half.stride(&attributes), 2);
        aggregate(&mut half, 0, 10);
        half.reset();
        assert_eq!(half.stride(&attributes), 1, "chance does not turn a rate of a half into zero");
    }

    #[test]
    fn other_attributes_keep_the_rate_and_the_age_in_time() {
        let mut r = region(0..1, 10, 30);
        r.reset();
        r.rescale(20, 40, 0.5);
        assert_eq!((r.last_nr_accesses, r.age), (20, 15));
    }
}
