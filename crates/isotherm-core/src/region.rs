//! Regions: neighbouring pages with about the same access frequency, and the statistics of their samples.

use std::time::Duration;

use crate::frequency::{Evidence, Frequency};
use crate::order::GOLDEN;
use crate::rate::{is_same_interval, possible_shares_over, share_over};
use crate::steady::{self, Run, Steadiness, blend, by_chance, has_turned, likely_shares};
use crate::{AddrRange, Attributes, Figures, Observation, PAGE_SIZE, RegionSnapshot};

/// Which neighbours are merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeLimits {
    /// The largest difference of their counts.
    pub threshold: u32,
    /// The factor by which their frequencies may differ, beside errors. `None` if they may differ by any factor.
    pub alike: Option<f64>,
    /// The largest size of the merged region, in bytes.
    pub size: u64,
    /// The size in bytes up to which a region is merged with a neighbour although only one of the two can be
    /// observed. In shared libraries that changes from page to page; without this limit such pages would use up the
    /// budget of regions.
    pub resolution: u64,
    /// Whether memory in use stays apart from memory that the last survey found idle.
    pub keeps_use: bool,
    /// By how much the ages of two regions that are idle by the last survey may differ, in addition to a quarter of the
    /// younger one. `None` if they may differ by any time.
    pub ages: Option<Duration>,
}

/// Whether two ages are about the same: they differ by at most this time and a quarter of the younger one.
pub(crate) fn is_alike(one: Duration, other: Duration, time: Duration) -> bool {
    one.max(other) <= one.min(other) * 5 / 4 + time
}

/// Neighbouring pages that are taken to be accessed equally often, so that one page of them speaks for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    range: AddrRange,
    /// The number of samples that `accessed` and `unobservable` are counts of. While an aggregation runs, these are
    /// the samples taken so far. [`settle`](Self::settle) turns the counts into counts of a whole aggregation.
    samples: u32,
    accessed: u32,
    unobservable: u32,
    /// The number of pages that were read in this aggregation.
    taken: u32,
    /// The number of samples that were taken in the last whole aggregation.
    nr_samples: u32,
    /// How many samples of a whole aggregation one observed sample stands for: more than one if few were taken.
    weight: u32,
    /// `nr_accesses` at the end of the last aggregation.
    last_nr_accesses: u32,
    /// The least and the greatest count that is no change of frequency: both `last_nr_accesses`, except in the first
    /// aggregation with another sampling interval. How many samples over it find an access depends on more than how
    /// many did before.
    unchanged: (u32, u32),
    /// `nr_unobservable` at the end of the last aggregation.
    last_nr_unobservable: u32,
    /// How many samples the counts of the last aggregation rest on, at most those of a whole aggregation.
    past_samples: u32,
    age: Duration,
    steadiness: Steadiness,
    run: Run,
    /// What samples of each length found.
    evidence: Evidence,
    /// The frequency at the end of the last aggregation.
    frequency: Option<Frequency>,
    /// Which of the round's samples is a page of this region. A part of the region that was cut off has it too.
    sample: Option<u32>,
    /// What the last survey found in the region. `None` without a survey.
    pages: Option<Figures>,
}

impl Region {
    /// A region without any sample.
    pub const fn new(range: AddrRange) -> Self {
        Self {
            range,
            samples: 0,
            accessed: 0,
            unobservable: 0,
            taken: 0,
            nr_samples: 0,
            weight: 1,
            last_nr_accesses: 0,
            unchanged: (0, 0),
            last_nr_unobservable: 0,
            past_samples: 0,
            age: Duration::ZERO,
            steadiness: Steadiness::NEW,
            run: Run::NONE,
            evidence: Evidence::NONE,
            frequency: None,
            sample: None,
            pages: None,
        }
    }

    /// The addresses of the region.
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// For how long the access frequency has stayed the same.
    pub const fn age(&self) -> Duration {
        self.age
    }

    /// The age in whole aggregations of the given interval, so that no region counts as older than it is.
    fn age_in(&self, aggregation: Duration) -> u32 {
        u32::try_from(self.age.as_nanos() / aggregation.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// The same region with another range. Its statistics hold for every part of it.
    pub(crate) const fn with_range(self, range: AddrRange) -> Self {
        Self { range, ..self }
    }

    /// What the last survey found in the region. `None` without a survey.
    #[cfg(test)]
    pub(crate) const fn pages(&self) -> Option<Figures> {
        self.pages
    }

    /// The same region with what a survey found in it.
    pub(crate) const fn with_pages(self, pages: Figures) -> Self {
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

    /// Whether the region is idle as far as is known: the last survey found none of it accessed, and no sample has
    /// found an access since.
    pub(crate) const fn is_idle(&self) -> bool {
        !self.may_be_in_use() && self.last_nr_accesses == 0 && self.accessed == 0
    }

    /// The region was a part of another one, which had `whole` bytes. The smaller the part, the less do the samples of
    /// the whole say about it. Only a run of equal answers goes on: the next samples end it if the part is accessed in
    /// another way.
    pub(crate) fn carved_from(mut self, whole: u64) -> Self {
        let part = self.bytes().min(whole);
        let of_part = |samples: u32| (u128::from(samples) * u128::from(part) / u128::from(whole.max(1))) as u32;
        self.past_samples = of_part(self.past_samples);
        self.run.before = of_part(self.run.before);
        self.evidence = self.evidence.of_part(part as f64 / whole.max(1) as f64);
        self
    }

    /// Forgets the age: the region is accessed in another way than before. Its samples say nothing of that.
    pub(crate) const fn begin_age(&mut self) {
        self.age = Duration::ZERO;
        self.past_samples = 0;
        self.run = Run::NONE;
        self.evidence.forget_samples();
    }

    /// Forgets the accesses that samples have found: they were in another part of the region that it was a part of.
    pub(crate) const fn forget_accesses(&mut self) {
        (self.accessed, self.last_nr_accesses, self.unchanged) = (0, 0, (0, 0));
        self.run = Run::NONE;
        self.evidence.forget_samples();
    }

    /// Takes in what a survey has found in the region, `interval` after the one before. If the region was idle and is
    /// in use now, it begins a new age. If it is idle, it is as old as its pages have been idle, which is `idle` on the
    /// mean. If that is not known, it begins a new age if it was in use. What a survey did not know, or does not know,
    /// says nothing of a change; samples may.
    pub(crate) fn survey(&mut self, pages: Figures, idle: Option<Duration>, interval: Duration) {
        let was_in_use = match self.pages {
            Some(before) => before.touched > 0 || self.last_nr_accesses > 0 || self.accessed > 0,
            None => pages.touched > 0,
        };
        self.pages = Some(pages);
        let known = pages.present.saturating_sub(pages.unobservable + pages.unknown);
        let touched = (known > 0).then(|| (pages.touched as f64 / known as f64).min(1.0));
        // Samples have seen the region turn since the survey before, so that this one tells of the time before as well.
        let has_turned = self.age < interval && self.past_samples > 0;
        self.evidence.set_survey(interval, touched.filter(|_| !has_turned));
        match pages.touched > 0 {
            true if !was_in_use => self.begin_age(),
            false if pages.unknown == 0 => {
                self.evidence.forget_samples();
                if was_in_use {
                    self.begin_age();
                }
                self.age = idle.unwrap_or(self.age);
            }
            true | false => {}
        }
    }

    /// How many rounds there are from one sample of the region to the next, at least 1.
    pub(crate) fn stride(&self, attributes: &Attributes) -> u32 {
        let stride = self.steadiness.stride(self.last_nr_accesses, attributes);
        if self.is_idle() { stride.max(steady::idle_stride(attributes)) } else { stride }
    }

    /// Whether the region has a sample in this round of an aggregation, both counted from 0. Of the rounds, one in
    /// `every` has samples. If that is one in each aggregation, idle regions take turns: their samples of an
    /// aggregation would find nothing else, and what several hundred of them cost would be no less in a longer run.
    pub(crate) fn is_due(&self, (aggregation, round): (u32, u32), attributes: &Attributes, every: u32) -> bool {
        let stride = self.stride(attributes);
        if self.bytes() == 0 || !round.is_multiple_of(stride.saturating_mul(every)) {
            return false;
        }
        let place = (self.range.start() / PAGE_SIZE).wrapping_mul(GOLDEN) >> 32;
        let turn = || (u64::from(aggregation) + place).is_multiple_of(u64::from(stride));
        every < attributes.samples() || !self.is_idle() || turn()
    }

    /// Takes in which of the round's samples is a page of this region.
    pub(crate) const fn set_sample(&mut self, sample: Option<u32>) {
        self.sample = sample;
    }

    /// Which of the round's samples is a page of this region, or of the region that this one is a part of.
    pub(crate) const fn sample(&self) -> Option<u32> {
        self.sample
    }

    /// Counts one sample, which was read this many sampling intervals after it was cleared. A page that was not
    /// accessed in several intervals was accessed in none of them. A page that was accessed was so in one of them, and
    /// nothing is known of the others.
    pub(crate) fn count(&mut self, observation: Observation, intervals: u32) {
        self.taken += 1;
        let before = (self.last_nr_accesses, self.past_samples);
        match observation {
            Observation::Idle => {
                self.samples = self.samples.saturating_add(intervals);
                let begins = self.run.add(false, before);
                self.evidence.end_round(begins);
            }
            Observation::Accessed => {
                self.samples += 1;
                self.accessed += 1;
                let begins = self.run.add(true, before);
                self.evidence.end_round(begins);
            }
            Observation::Unobservable => {
                self.samples += 1;
                self.unobservable += 1;
            }
        }
    }

    /// The region as one of two pieces of it: what they have in common may end here.
    pub(crate) fn piece(self, range: AddrRange) -> Self {
        Self { evidence: self.evidence.of_part(0.5), ..self.with_range(range) }
    }

    /// Takes in that a sample was read so long after its page was cleared, in its round, or after that (`counted`).
    pub(crate) fn look(&mut self, observation: Observation, length: Duration, counted: bool) {
        match observation {
            Observation::Idle => self.evidence.add(length, false, counted),
            Observation::Accessed => self.evidence.add(length, true, counted),
            Observation::Unobservable => {}
        }
    }

    /// Ends the aggregation: turns the counts of the samples taken into counts of a whole aggregation, and
    /// determines the age.
    ///
    /// The rate of accesses is that of the samples that were taken and could be observed. It is scaled to a whole
    /// aggregation, so that samples that could not be observed, and samples from before the region existed, do not
    /// count. A region with no observable sample counts as not accessed. The samples that a region was spared, because
    /// it is steady or because not every round has samples, count as in the aggregations before, as far as these rest
    /// on samples, and unless the frequency has clearly turned into another one.
    ///
    /// The region is of age 0 if the scaled count moved by more than the merge threshold since the last aggregation.
    /// Otherwise it is one aggregation older. If the sampling interval has changed, the count moved by more than that
    /// if nothing else can explain it.
    pub(crate) fn settle(&mut self, attributes: &Attributes, every: u32) {
        let samples = attributes.samples();
        let observed = self.samples - self.unobservable;
        let seen = scaled(self.accessed, samples, observed);
        let seen_unobservable = scaled(self.unobservable, samples, self.samples);
        self.weight = samples / observed.max(1);

        let threshold = attributes.merge_threshold();
        let (least, most) = self.unchanged;
        let last = seen.clamp(least, most.max(least));
        let tolerance = self.tolerance(seen, last, samples, threshold);
        let changed = seen.abs_diff(last) > tolerance;
        let by_chance = by_chance((last, self.past_samples), (seen, observed), samples, threshold);
        let is_spared = (self.stride(attributes) > 1 || every > 1) && observed > 0;
        let before = (self.last_nr_accesses, self.past_samples);
        let found = (self.accessed, self.taken.saturating_sub(self.unobservable));
        let run = self.run;
        let run_turned = run.has_turned(samples, threshold);
        let has_run = is_spared && self.samples < samples && run_turned;
        // Where each round has a sample, another sampling interval may explain the run.
        let run_turned = has_run || changed && run_turned;
        let turned = has_run || has_turned(before, found, samples);
        let counts_before = is_spared && !turned;
        let past = if counts_before { self.past_samples.min(samples.saturating_sub(self.samples)) } else { 0 };
        self.accessed = match has_run {
            true => run.count(samples),
            false => blend((self.last_nr_accesses, past), (seen, self.samples)),
        };
        self.unobservable = blend((self.last_nr_unobservable, past), (seen_unobservable, self.samples));
        self.weight = (samples / (past + observed).max(1)).max(1);
        self.past_samples = if has_run { run.taken } else { past + self.samples }.min(samples);
        // Without evidence, the region grows no older.
        let grows = self.samples == 0 || observed > 0;
        // With few samples, chance moves the count. That does not make the region young.
        let moved = changed && !(every > 1 && by_chance);
        let grown = if grows { attributes.aggregation() } else { Duration::ZERO };
        let other_hits = self.evidence.end_aggregation(attributes.aggregation(), run_turned);
        self.frequency = self.evidence.frequency();
        self.age = match has_run {
            // It was accessed in another way since the run began.
            true => run.time,
            false if moved || other_hits => Duration::ZERO,
            false => self.age.saturating_add(grown),
        };
        self.run = if run_turned { Run::NONE } else { run.aged(attributes.aggregation()) };
        self.steadiness.aggregated(changed && !by_chance);
        self.nr_samples = self.taken;
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
        let MergeLimits { threshold, alike, resolution, keeps_use, ages, .. } = limits;
        let ages = ages.filter(|_| self.is_idle() && next.is_idle());
        self.range.touches(next.range)
            && (!keeps_use || self.may_be_in_use() == next.may_be_in_use())
            && ages.is_none_or(|time| is_alike(self.age, next.age, time))
            && self.accessed.abs_diff(next.accessed)
                <= self.tolerance(self.accessed, next.accessed, self.samples, threshold)
            && alike.is_none_or(|alike| self.has_a_frequency_like(next, alike))
            && (self.unobservable.abs_diff(next.unobservable) <= threshold
                || self.bytes().min(next.bytes()) <= resolution)
    }

    /// Whether both frequencies are about the same, or one of them is not known.
    fn has_a_frequency_like(&self, next: &Self, alike: f64) -> bool {
        self.frequency.zip(next.frequency).is_none_or(|(one, other)| one.is_alike(other, alike))
    }

    /// Merges `next` into this region, which then covers `range`. All statistics become means, weighted by size.
    pub(crate) fn absorb(&mut self, next: &Self, range: AddrRange) {
        let (a, b) = (u128::from(self.bytes().max(1)), u128::from(next.bytes().max(1)));
        let mean_of = |x: u128, y: u128| (x * a + y * b + (a + b) / 2) / (a + b);
        // The mean lies between x and y, and so has 32 bits.
        let mean = |x: u32, y: u32| mean_of(x.into(), y.into()) as u32;
        let share = a as f64 / (a + b) as f64;
        let mixed = |(one, other): (Frequency, Frequency)| one.mixed(other, share);
        *self = Self {
            range,
            samples: mean(self.samples, next.samples),
            accessed: mean(self.accessed, next.accessed),
            unobservable: mean(self.unobservable, next.unobservable),
            taken: mean(self.taken, next.taken),
            nr_samples: mean(self.nr_samples, next.nr_samples),
            weight: self.weight.min(next.weight),
            last_nr_accesses: mean(self.last_nr_accesses, next.last_nr_accesses),
            unchanged: (mean(self.unchanged.0, next.unchanged.0), mean(self.unchanged.1, next.unchanged.1)),
            last_nr_unobservable: mean(self.last_nr_unobservable, next.last_nr_unobservable),
            past_samples: mean(self.past_samples, next.past_samples),
            // 64 bits of nanoseconds are 584 years.
            age: Duration::from_nanos(mean_of(self.age.as_nanos(), next.age.as_nanos()) as u64),
            steadiness: self.steadiness.merged(next.steadiness, mean),
            run: if a >= b { self.run } else { next.run },
            evidence: self.evidence.mixed(&next.evidence, share),
            frequency: self.frequency.zip(next.frequency).map(mixed).or(self.frequency).or(next.frequency),
            // A page of the larger one is more likely to be a page that is chosen from both.
            sample: if a >= b { self.sample.or(next.sample) } else { next.sample.or(self.sample) },
            pages: self.pages.zip(next.pages).map(|(pages, next)| pages + next),
        };
    }

    /// Begins the next aggregation.
    pub(crate) fn reset(&mut self) {
        self.last_nr_accesses = self.accessed;
        self.unchanged = (self.accessed, self.accessed);
        self.last_nr_unobservable = self.unobservable;
        self.samples = 0;
        self.taken = 0;
        self.accessed = 0;
        self.unobservable = 0;
    }

    /// Converts the past to other attributes. Ages are times and stay. Counts become those that samples over the new
    /// interval would have found.
    pub(crate) fn rescale(&mut self, old: &Attributes, new: &Attributes) {
        let (old_samples, samples) = (old.samples(), new.samples());
        let (was, is) = (old.sampling(), new.sampling());
        let share = f64::from(self.last_nr_accesses) / f64::from(old_samples.max(1));
        let count = |share: f64| share * f64::from(samples);
        let (low, high) = match is_same_interval(was, is) {
            true => (share, share),
            false => likely_shares(self.last_nr_accesses, old_samples),
        };
        let (least, most) = (possible_shares_over(low, was, is).0, possible_shares_over(high, was, is).1);
        self.last_nr_accesses = count(share_over(share, was, is)).round() as u32;
        self.unchanged = (count(least).floor() as u32, count(most).ceil() as u32);
        self.last_nr_unobservable = scaled(self.last_nr_unobservable, samples, old_samples);
        // The more the interval changes, the less do the samples of before say.
        let longer = is.as_secs_f64() / was.as_secs_f64().max(1e-9);
        self.past_samples = (f64::from(self.past_samples) * longer.min(1.0 / longer)).round() as u32;
        self.past_samples = self.past_samples.min(samples);
        let count_over = |last: u32| count(share_over(f64::from(last) / f64::from(old_samples.max(1)), was, is));
        self.run = self.run.rescaled(|last| count_over(last).round() as u32, longer.min(1.0 / longer));
        // Where the count is not known, all samples are needed to find it out.
        let factor = old.aggregation().as_secs_f64() / new.aggregation().as_secs_f64();
        let is_known = self.unchanged.0 == self.unchanged.1;
        self.steadiness = if is_known { self.steadiness.rescaled(factor) } else { Steadiness::NEW };
    }

    /// The region as a snapshot has it, with its age in aggregations of this interval.
    pub(crate) fn snapshot(&self, aggregation: Duration) -> RegionSnapshot {
        RegionSnapshot {
            range: self.range,
            nr_accesses: self.accessed,
            nr_samples: self.nr_samples,
            nr_unobservable: self.unobservable,
            age: self.age_in(aggregation),
            frequency: self.frequency,
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

    const AGGREGATION: Duration = Duration::from_millis(100);

    fn region(pages: std::ops::Range<u64>, accessed: u32, age: u32) -> Region {
        Region {
            samples: 20,
            accessed,
            past_samples: 20,
            age: AGGREGATION * age,
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
        assert_eq!((a.accessed, a.age_in(AGGREGATION), a.range.pages()), (15, 6, 4));
    }

    #[test]
    fn the_rate_counts_observable_samples_only() {
        let mut r = region(0..1, 0, 0);
        r.reset();
        for observation in
            [Observation::Accessed, Observation::Idle, Observation::Unobservable, Observation::Unobservable]
        {
            r.count(observation, 1);
        }
        r.settle(&Attributes::default(), 1);
        assert_eq!((r.accessed, r.unobservable), (10, 10));
    }

    #[test]
    fn a_region_without_an_observable_sample_is_not_hot() {
        let mut r = region(0..1, 0, 0);
        r.reset();
        r.count(Observation::Unobservable, 1);
        r.settle(&Attributes::default(), 1);
        assert_eq!((r.accessed, r.unobservable), (0, 20));
    }

    /// Runs one aggregation of `of` samples, `accessed` of which find the region accessed. Returns its count and
    /// its age.
    fn aggregate(r: &mut Region, accessed: u32, of: u32) -> (u32, u32) {
        r.reset();
        (0..of).for_each(|i| r.count(if i < accessed { Observation::Accessed } else { Observation::Idle }, 1));
        r.settle(&Attributes::default(), 1);
        (r.accessed, r.age_in(AGGREGATION))
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
    fn samples_from_before_a_survey_found_another_use_do_not_count() {
        let mut r = Region { past_samples: 19, ..region(0..1, 0, 5) };
        r.begin_age();
        r.reset();
        r.count(Observation::Accessed, 1);
        r.settle(&Attributes::default(), 20);
        assert_eq!(r.accessed, 20);
    }

    #[test]
    fn a_clear_turn_of_the_frequency_is_seen_at_once_although_few_rounds_have_samples() {
        // Of twenty rounds, three have samples.
        let turned = |before: u32, accessed: u32| {
            let mut r = Region { past_samples: 17, ..region(0..1, before, 5) };
            r.reset();
            (0..3).for_each(|i| r.count(if i < accessed { Observation::Accessed } else { Observation::Idle }, 1));
            r.settle(&Attributes::default(), 7);
            r.accessed
        };
        assert_eq!((turned(0, 3), turned(20, 0)), (20, 0));
        // What can be chance is a mean.
        assert_eq!((turned(0, 1), turned(20, 2)), (2, 18));
        assert!((7..=12).contains(&turned(10, 0)) && (8..=13).contains(&turned(10, 3)));
    }

    #[test]
    fn a_region_whose_frequency_moves_by_chance_becomes_steady() {
        let attributes = Attributes::default();
        let mut half = region(0..1, 10, 0);
        for (nth, seen) in [8, 12, 9, 13, 10, 7, 11, 14, 9, 12].into_iter().enumerate() {
            assert_eq!(half.stride(&attributes), 1, "after {nth} aggregations");
            aggregate(&mut half, seen, 20);
        }
        assert!(half.age_in(AGGREGATION) < 10);
        assert_eq!(half.stride(&attributes), 2);
        aggregate(&mut half, 0, 10);
        half.reset();
        assert_eq!(half.stride(&attributes), 1, "chance does not turn a rate of a half into zero");
    }

    #[test]
    fn a_small_part_of_a_region_has_a_rate_of_its_own_after_a_few_samples() {
        let sums = |pages: u64| Figures { present: pages * 4096, touched: pages * 4096, ..Figures::default() };
        let whole = region(0..100, 2, 30).with_pages(sums(100));
        let part = |pages: u64| {
            let mut part = whole.with_range(AddrRange::new(0, pages * 4096).unwrap()).with_pages(sums(pages));
            part = part.carved_from(whole.bytes());
            // One sample in an aggregation, because one round in twenty has samples.
            for _ in 0..3 {
                part.reset();
                part.count(Observation::Accessed, 1);
                part.settle(&Attributes::default(), 20);
            }
            part.accessed
        };
        assert_eq!(part(100), 5, "the whole changes as slowly as its samples allow");
        assert!(part(10) >= 12, "{}", part(10));
        assert_eq!(part(1), 20);
    }

    #[test]
    fn few_samples_of_several_aggregations_show_together_that_the_frequency_has_turned() {
        // Two samples in an aggregation, because one round in ten has samples.
        let after = |of: &Region, answers: &[Observation]| {
            let mut r = *of;
            for answer in answers {
                r.reset();
                (0..2).for_each(|_| r.count(*answer, 1));
                r.settle(&Attributes::default(), 10);
            }
            (r.accessed, r.age_in(AGGREGATION))
        };
        let (hot, idle) = (region(0..1, 20, 30), region(0..1, 0, 30));
        assert_eq!(after(&hot, &[Observation::Idle]), (18, 0));
        assert_eq!(after(&hot, &[Observation::Idle; 2]), (0, 1), "as old as the samples that show it");
        assert_eq!(after(&hot, &[Observation::Idle; 5]), (0, 4));
        assert_eq!(after(&idle, &[Observation::Accessed; 2]), (20, 1));
        assert_eq!(after(&hot, &[Observation::Accessed; 40]), (20, 70), "the same is no change, however often");
        let misses = [Observation::Idle, Observation::Accessed, Observation::Idle, Observation::Accessed];
        assert!(after(&hot, &misses).0 > 10);
        // The change came within the first of two aggregations.
        let mut turning = hot;
        for answers in [[Observation::Accessed, Observation::Idle], [Observation::Idle; 2]] {
            turning.reset();
            answers.into_iter().for_each(|answer| turning.count(answer, 1));
            turning.settle(&Attributes::default(), 10);
        }
        assert_eq!((turning.accessed, turning.age_in(AGGREGATION)), (0, 1));
    }

    #[test]
    fn memory_that_is_idle_from_the_middle_of_an_aggregation_on_has_no_frequency_in_the_next_one() {
        let accessed = Figures { present: 4096, touched: 4096, ..Figures::default() };
        // Four rounds of 200 ms in an aggregation.
        let aggregate = |r: &mut Region, answers: [bool; 4]| {
            r.reset();
            for is_accessed in answers {
                let observation = if is_accessed { Observation::Accessed } else { Observation::Idle };
                [10, 160, 200].iter().for_each(|ms| r.look(observation, Duration::from_millis(*ms), false));
                r.count(observation, 1);
            }
            r.settle(&attributes(40, 800), 5);
            r.frequency.unwrap().hz()
        };
        let mut r = region(0..1, 0, 0).with_pages(accessed);
        let mut hz = 0.0;
        (0..8).for_each(|_| hz = aggregate(&mut r, [true; 4]));
        assert!(hz > 30.0, "{hz} Hz");
        aggregate(&mut r, [true, true, false, false]);
        r.survey(accessed, None, Duration::from_secs(3));
        assert_eq!(aggregate(&mut r, [false; 4]), 0.0);
        r.survey(accessed, None, Duration::from_secs(3));
        assert_eq!(aggregate(&mut r, [false; 4]), 0.0, "most of what the survey tells of was before the turn");
        aggregate(&mut r, [false, false, true, true]);
        let hz = aggregate(&mut r, [true; 4]);
        assert!(hz > 30.0, "in use again, {hz} Hz");
    }

    #[test]
    fn what_a_survey_does_not_know_ends_no_age_and_an_idle_region_is_as_old_as_its_pages_are_idle() {
        let pages = |touched, unknown| Figures { present: 4096, touched, unknown, ..Figures::default() };
        let age = |of: &Region, surveys: &[(u64, u64)]| {
            let mut r = *of;
            let idle = Some(AGGREGATION * 7);
            surveys.iter().for_each(|&(touched, unknown)| r.survey(pages(touched, unknown), idle, AGGREGATION));
            r.age_in(AGGREGATION)
        };
        let mut idle = region(0..1, 0, 30);
        idle.reset();
        assert_eq!((age(&idle, &[(0, 4096)]), age(&idle, &[(0, 4096), (0, 0)])), (30, 7));
        assert_eq!(age(&idle, &[(0, 0), (4096, 0)]), 0);
        assert_eq!(age(&idle, &[(4096, 0), (0, 4096)]), 30, "samples say that it is idle, and the survey cannot tell");
        assert_eq!(age(&idle, &[(4096, 0), (0, 0)]), 7);
        let mut hot = region(0..1, 20, 30);
        hot.reset();
        assert_eq!((age(&hot, &[(0, 4096), (0, 0)]), age(&hot, &[(0, 4096), (4096, 0)])), (7, 30));
    }

    #[test]
    fn idle_memory_of_other_ages_stays_apart_until_the_difference_is_small() {
        let pages = |mib: u64| Figures { present: mib << 20, ..Figures::default() };
        let limits = MergeLimits {
            threshold: 2,
            alike: Some(1.5),
            size: u64::MAX,
            resolution: 0,
            keeps_use: true,
            ages: Some(AGGREGATION * 2),
        };
        let idle = |range, age| region(range, 0, age).with_pages(pages(1));
        let merges = |one, other| idle(0..256, one).continues_in(&idle(256..512, other), limits);
        assert!(merges(0, 2) && !merges(0, 3) && !merges(30, 70) && merges(100, 127) && merges(127, 100));
        assert!(region(0..256, 0, 30).continues_in(&region(256..512, 0, 70), limits), "without a survey");
    }

    #[test]
    fn other_attributes_keep_the_rate_and_the_age_in_time() {
        let mut r = region(0..1, 10, 30);
        r.reset();
        r.rescale(&Attributes::default(), &attributes(5, 200));
        assert_eq!((r.last_nr_accesses, r.age_in(AGGREGATION), r.age_in(AGGREGATION * 2)), (20, 30, 15));
        assert_eq!(r.past_samples, 20);
        r.rescale(&attributes(5, 200), &attributes(20, 800));
        assert_eq!(r.past_samples, 5);
    }

    /// Attributes with this sampling and aggregation interval, in ms.
    fn attributes(sampling: u64, aggregation: u64) -> Attributes {
        let ms = Duration::from_millis;
        Attributes::default().with_intervals(ms(sampling), ms(aggregation)).unwrap()
    }

    #[test]
    fn another_sampling_interval_ends_no_age_that_it_can_explain() {
        // The age in aggregations, after one of these attributes in which this many of 20 samples find an access.
        let after = |of: &Region, from: (u64, u64), to: (u64, u64), found: u32| {
            let mut r = *of;
            r.reset();
            let new = attributes(to.0, to.1);
            r.rescale(&attributes(from.0, from.1), &new);
            let is_found = |i: u32| (i + 1) * found / 20 > i * found / 20;
            (0..20).for_each(|i| r.count(if is_found(i) { Observation::Accessed } else { Observation::Idle }, 1));
            r.settle(&new, 1);
            r.age().as_millis()
        };
        let (short, long) = ((5, 100), (50, 1000));
        // Of memory with accesses in half of the samples of 5 ms, as few of those of 50 ms find one if accesses come in
        // bursts, and each does if they are regular.
        let some = region(0..1, 10, 30);
        let ages = [0, 2, 3, 10, 16, 20].map(|found| after(&some, short, long, found));
        assert_eq!(ages, [0, 0, 4000, 4000, 4000, 4000]);
        // The same interval explains nothing, and 0 to 2 accesses are the same.
        assert_eq!([8, 7].map(|found| after(&some, short, (5, 200), found)), [3200, 0]);
        let (idle, hot) = (region(0..1, 0, 30), region(0..1, 20, 30));
        assert_eq!([0, 2, 3].map(|found| after(&idle, short, long, found)), [4000, 4000, 0]);
        assert_eq!([20, 18, 17].map(|found| after(&hot, short, long, found)), [4000, 4000, 0]);
        // The other way round: what is found in each long sample may be in each short one, or in one of ten.
        assert_eq!([20, 10, 2, 0].map(|found| after(&hot, long, short, found)), [3100; 4]);
        assert_eq!([18, 17, 1, 0].map(|found| after(&some, long, short, found)), [0, 3100, 3100, 3100]);
        assert_eq!([0, 2, 3].map(|found| after(&idle, long, short, found)), [3100, 3100, 0]);
    }
}
