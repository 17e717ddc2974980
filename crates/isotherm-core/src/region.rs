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
mod tests;
