//! Frequencies: how often a page is accessed, by samples of several lengths.
//!
//! A sample of a length `t` shows whether a page was accessed within `t` after it was cleared. Samples of one length
//! tell frequencies of about `1 / t` only: with a lower one nearly none of them finds an access, and with a higher one
//! each does. So a sample is read at several [lengths](LENGTHS), and a survey is one more, as long as its interval.
//!
//! The frequency is the most likely one, given how many samples of each length found an access. How that depends on the
//! frequency is known up to the order in which accesses come. Of four [shapes](SHAPES), which run from accesses at a
//! fixed beat to memory of which only a fifth is ever accessed, the most likely one counts. Its bounds are those of all
//! shapes: frequencies whose likelihood is less by a factor of `e^3` at most.

use std::sync::LazyLock;
use std::time::Duration;

/// How long after it was cleared a page is read, beside the end of its round. Pages of a round are read at every other
/// one of them.
pub(crate) const LENGTHS: [Duration; 5] = [
    Duration::from_micros(2_500),
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(160),
    Duration::from_millis(640),
];

/// Samples up to twice one of the [`LENGTHS`] count together, and the longest with the last of them. The surveys are
/// one more class.
const SURVEYS: usize = LENGTHS.len();

/// Samples of the past count less by a factor of `e` after this time, unless there are fewer than [`FEW`].
const MEMORY: f64 = 8.0;
const FEW: f32 = 10.0;

/// A class has at most so many samples, and a survey counts as so many.
const MOST: f32 = 400.0;
const SURVEY: f32 = 32.0;

/// The frequency has turned if a frequency for the samples of the past and one for the new ones explain them better
/// than one for both, by this much in the logarithm of the likelihood, all classes together. It is the ratio test of
/// S. S. Wilks (1938). For one class, 4.5 is chance in 1 of 400 cases; there are several, which are not independent.
const TURNED: f32 = 7.0;

/// So many samples of the past suffice for that.
const ENOUGH: f32 = 3.0;

/// How often a page is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frequency {
    millihertz: u32,
    /// The factor of the error in tenths. `None` if there is no upper bound.
    error: Option<u16>,
}

impl Frequency {
    /// No sample found an access.
    pub const NONE: Self = Self { millihertz: 0, error: Some(10) };

    /// A frequency in hertz, and the factor of its error, at least 1. Without a factor, it is the least that there may
    /// be. Frequencies are rounded to two digits, and at least a millihertz unless they are 0.
    pub fn new(hz: f64, factor: Option<f64>) -> Self {
        if hz <= 0.0 {
            return Self::NONE;
        }
        let millihertz = (hz * 1e3).clamp(1.0, 4e9);
        let unit = 10_f64.powf(millihertz.log10().floor() - 1.0);
        Self {
            millihertz: ((millihertz / unit).round() * unit).round() as u32,
            error: factor.map(|factor| (factor * 10.0).round().clamp(10.0, f64::from(u16::MAX)) as u16),
        }
    }

    /// Accesses of a page in a second, on the mean of the pages. If [`is_least`](Self::is_least), no less than that.
    pub fn hz(self) -> f64 {
        f64::from(self.millihertz) / 1e3
    }

    /// The factor, at least 1, within which the frequency is right in 19 of 20 cases. `None` if there is no upper
    /// bound.
    pub fn factor(self) -> Option<f64> {
        self.error.map(|tenths| f64::from(tenths) / 10.0)
    }

    /// Whether each of the shortest samples found an access, so that there may be any number of accesses.
    pub const fn is_least(self) -> bool {
        self.error.is_none()
    }

    /// Whether two frequencies are about the same: they differ by at most the factor `alike`, and by a part of both
    /// errors.
    pub(crate) fn is_alike(self, other: Self, alike: f64) -> bool {
        if self.millihertz == 0 || other.millihertz == 0 {
            return self.millihertz == other.millihertz;
        }
        let (low, high) = if self.millihertz <= other.millihertz { (self, other) } else { (other, self) };
        let errors = low.factor().map(|low| low * high.factor().unwrap_or(1.0));
        errors.is_none_or(|errors| high.hz() <= low.hz() * alike * errors.powf(SPREAD))
    }

    /// The mean of two frequencies of memory, of which this one has the share `share`.
    pub(crate) fn mixed(self, other: Self, share: f64) -> Self {
        let factor = self.factor().zip(other.factor()).map(|(one, other)| one.max(other));
        Self::new(self.hz() * share + other.hz() * (1.0 - share), factor)
    }
}

/// How much of the errors of two frequencies, in powers of them, may lie between these.
const SPREAD: f64 = 0.25;

/// Samples of about the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Class {
    taken: f32,
    hits: f32,
    /// The sum of their lengths, in seconds.
    seconds: f32,
}

impl Class {
    fn scaled(self, by: f32) -> Self {
        Self { taken: self.taken * by, hits: self.hits * by, seconds: self.seconds * by }
    }

    fn plus(self, other: Self) -> Self {
        let sum = Self {
            taken: self.taken + other.taken,
            hits: self.hits + other.hits,
            seconds: self.seconds + other.seconds,
        };
        if sum.taken > MOST { sum.scaled(MOST / sum.taken) } else { sum }
    }

    fn share(self) -> f32 {
        self.hits / self.taken
    }

    /// The logarithm of how likely the hits and misses are, if so great a share of samples finds an access.
    fn likelihood(self, share: f32) -> f32 {
        let of = |count: f32, chance: f32| if count > 0.0 { count * chance.max(f32::EPSILON).ln() } else { 0.0 };
        of(self.hits, share) + of(self.taken - self.hits, 1.0 - share)
    }

    /// By how much more likely the samples of both are with a share for each than with one for both, as a logarithm.
    fn difference(self, other: &Self) -> f32 {
        if self.taken <= 0.0 || other.taken <= 0.0 {
            return 0.0;
        }
        let both = (self.hits + other.hits) / (self.taken + other.taken);
        let apart = self.likelihood(self.share()) + other.likelihood(other.share());
        apart - self.likelihood(both) - other.likelihood(both)
    }
}

/// What samples of several lengths found in some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hits {
    classes: [Class; SURVEYS + 1],
}

impl Hits {
    pub(crate) const NONE: Self = Self { classes: [Class { taken: 0.0, hits: 0.0, seconds: 0.0 }; SURVEYS + 1] };

    /// Adds a sample.
    pub(crate) fn add(&mut self, length: Duration, accessed: bool) {
        let class = LENGTHS[..SURVEYS - 1].iter().take_while(|of| length > **of * 2).count();
        let one = Class { taken: 1.0, hits: f32::from(u8::from(accessed)), seconds: length.as_secs_f32() };
        self.classes[class] = self.classes[class].plus(one);
    }

    /// Takes in what the last survey found, in place of the one before: of the pages that it knows, the share that was
    /// accessed since.
    pub(crate) fn set_survey(&mut self, interval: Duration, accessed: Option<f64>) {
        self.classes[SURVEYS] = match accessed.filter(|_| !interval.is_zero()) {
            Some(share) => Class { taken: 1.0, hits: share as f32, seconds: interval.as_secs_f32() }.scaled(SURVEY),
            None => Class::default(),
        };
    }

    /// Forgets the samples.
    pub(crate) const fn forget_samples(&mut self) {
        let survey = self.classes[SURVEYS];
        *self = Self::NONE;
        self.classes[SURVEYS] = survey;
    }

    /// The same for a part of the memory, of which its samples say less.
    pub(crate) fn of_part(mut self, share: f64) -> Self {
        self.samples_mut().for_each(|class| *class = class.scaled(share as f32));
        self
    }

    /// The same after some time, for which the samples of the past say less.
    pub(crate) fn aged(mut self, time: Duration) -> Self {
        let left = (-time.as_secs_f64() / MEMORY).exp() as f32;
        for class in self.samples_mut().filter(|class| class.taken > FEW) {
            *class = class.scaled((FEW / class.taken).max(left));
        }
        self
    }

    fn samples_mut(&mut self) -> impl Iterator<Item = &mut Class> {
        self.classes[..SURVEYS].iter_mut()
    }

    /// Both, of the same memory.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.samples_mut().zip(other.classes).for_each(|(class, other)| *class = class.plus(other));
        self
    }

    /// Those of two pieces of memory together, of which the first has the share `share`.
    pub(crate) fn mixed(mut self, other: &Self, share: f64) -> Self {
        for (class, other) in self.classes.iter_mut().zip(other.classes) {
            if class.taken == 0.0 || other.taken == 0.0 {
                *class = class.plus(other);
                continue;
            }
            let hits = class.share() * share as f32 + other.share() * (1.0 - share as f32);
            *class = class.plus(other);
            class.hits = hits * class.taken;
        }
        self
    }

    /// Whether new samples show another frequency than these.
    pub(crate) fn have_turned(&self, new: &Self) -> bool {
        let samples = self.classes[..SURVEYS].iter().zip(&new.classes);
        let known = samples.filter(|(past, _)| past.taken >= ENOUGH);
        known.map(|(past, new)| past.difference(new)).sum::<f32>() > TURNED
    }

    /// The most likely frequency. `None` without samples and surveys.
    pub(crate) fn frequency(&self) -> Option<Frequency> {
        let with_samples = || self.classes.iter().filter(|class| class.taken > 0.0);
        with_samples().next()?;
        if with_samples().all(|class| class.hits == 0.0) {
            return Some(Frequency::NONE);
        }
        // The place in the table of a length at the lowest frequency, with the hits and the misses.
        let rows = with_samples().map(|class| {
            let place = (f64::from(class.seconds / class.taken) * LOWEST / LEAST_PRODUCT).ln() / STEP;
            (place.round().max(0.0) as usize, class.hits, class.taken - class.hits)
        });
        let mut found = [(0, 0.0, 0.0); SURVEYS + 1];
        let count = found.iter_mut().zip(rows).map(|(found, row)| *found = row).count();
        let found = &found[..count];
        let likelihood = |shape: &[(f32, f32)], step: usize| {
            found.iter().fold(0.0, |sum, &(place, hits, misses)| {
                let (hit, miss) = shape[(place + step).min(shape.len() - 1)];
                sum + hits * hit + misses * miss
            })
        };
        let best_of = |steps: &mut dyn Iterator<Item = usize>, shape| {
            steps.map(|step| (likelihood(shape, step), step)).reduce(|a, b| if b.0 > a.0 + SAME { b } else { a })
        };
        let coarse = || (0..STEPS + 1).step_by(COARSE);
        let all = || TABLE.iter().map(Vec::as_slice).zip(RARE);
        let (mut best, mut at) = (f32::NEG_INFINITY, 0);
        for (shape, rare) in all() {
            let Some((_, near)) = best_of(&mut coarse(), shape) else { continue };
            let mut around = near.saturating_sub(COARSE - 1)..=(near + COARSE - 1).min(STEPS);
            let Some((value, step)) = best_of(&mut around, shape) else { continue };
            if value - rare > best + SAME {
                (best, at) = (value - rare, step);
            }
        }
        let is_likely = |step: &usize| all().any(|(shape, rare)| likelihood(shape, *step) - rare >= best - DROP);
        let least = coarse().find(is_likely).unwrap_or(at).min(at);
        let most = coarse().rev().find(is_likely).unwrap_or(at).max(at);
        let hz = |step: usize| LOWEST * (STEP * step as f64).exp();
        if is_likely(&STEPS) {
            return Some(Frequency::new(hz(least), None));
        }
        Some(Frequency::new(hz(at), Some((hz(most) / hz(at)).max(hz(at) / hz(least)))))
    }
}

/// What samples found in a region: in the aggregations before, in this one, and since their answers changed last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    past: Hits,
    new: Hits,
    /// Those of the rounds that all found an access, or all none, also of earlier aggregations.
    run: Hits,
    /// Those of the round under way.
    round: Hits,
}

impl Evidence {
    pub(crate) const NONE: Self = Self { past: Hits::NONE, new: Hits::NONE, run: Hits::NONE, round: Hits::NONE };

    /// Adds a sample of the round under way, or of the last one if that has ended.
    pub(crate) fn add(&mut self, length: Duration, accessed: bool, has_ended: bool) {
        if has_ended {
            self.run.add(length, accessed);
            self.new.add(length, accessed);
        } else {
            self.round.add(length, accessed);
        }
    }

    /// Ends the round, whose answer is another one than that of the round before if it `begins_run`.
    pub(crate) fn end_round(&mut self, begins_run: bool) {
        let round = std::mem::take(&mut self.round);
        self.run = if begins_run { round } else { self.run.plus(&round) };
        self.new = self.new.plus(&round);
    }

    /// Ends the aggregation. If the rounds since the last change of answers have another frequency than those before
    /// (`has_run`), what was before that counts no more; else if the whole aggregation has, what was before it. Returns
    /// whether one of both is so.
    pub(crate) fn end_aggregation(&mut self, aggregation: Duration, has_run: bool) -> bool {
        let new = std::mem::take(&mut self.new);
        let has_turned = has_run || self.past.have_turned(&new);
        self.past = match (has_run, has_turned) {
            (true, _) => self.run,
            (false, true) => new,
            (false, false) => self.past.aged(aggregation).plus(&new),
        };
        has_turned
    }

    /// As [`Hits::set_survey`].
    pub(crate) fn set_survey(&mut self, interval: Duration, accessed: Option<f64>) {
        self.past.set_survey(interval, accessed);
    }

    /// Forgets the samples.
    pub(crate) const fn forget_samples(&mut self) {
        self.past.forget_samples();
        *self = Self { past: self.past, ..Self::NONE };
    }

    /// The same for a part of the memory, of which its samples say less.
    pub(crate) fn of_part(self, share: f64) -> Self {
        Self { past: self.past.of_part(share), ..self }
    }

    /// That of two pieces of memory together, of which the first has the share `share`.
    pub(crate) fn mixed(self, other: &Self, share: f64) -> Self {
        Self {
            past: self.past.mixed(&other.past, share),
            new: self.new.mixed(&other.new, share),
            run: if share >= 0.5 { self.run } else { other.run },
            round: self.round.mixed(&other.round, share),
        }
    }

    /// The most likely frequency. `None` without samples and surveys.
    pub(crate) fn frequency(&self) -> Option<Frequency> {
        self.past.frequency()
    }
}

/// Frequencies are tried from this one on, in hertz, each greater than the one before by a factor of `e^STEP`, about
/// 6 %; the last is about 9,000 Hz. At first, one in [`COARSE`] is tried.
const LOWEST: f64 = 0.001;
const STEP: f64 = 0.058;
const STEPS: usize = 276;
const COARSE: usize = 6;

/// Likelihoods, as logarithms, that differ by less are equal. The lower frequency counts, and the earlier shape.
const SAME: f32 = 1e-3;

/// A frequency is possible if its likelihood, as a logarithm, is less than the greatest one by this at most. Two would
/// be the bounds of 95 % if the samples of several lengths were not of the same pages.
const DROP: f32 = 3.0;

/// The least and the greatest product of a frequency and a length in the table.
const LEAST_PRODUCT: f64 = 1e-7;
const MOST_PRODUCT: f64 = 1e4;

/// The share of samples that miss accesses although there must be some, because the program did not run.
const NOT_RUNNING: f64 = 0.03;

/// The chance that a sample finds no access, by the number of accesses in its length on the mean. The first is that of
/// accesses at a fixed beat, the second that of accesses at random; in the others, a half and a fifth of the pages have
/// all accesses.
const SHAPES: [fn(f64) -> f64; 4] = [
    |mean| NOT_RUNNING * (-mean).exp() + (1.0 - NOT_RUNNING) * (1.0 - mean).max(0.0),
    |mean| (-mean).exp(),
    |mean| 0.5 + 0.5 * (-2.0 * mean).exp(),
    |mean| 0.8 + 0.2 * (-5.0 * mean).exp(),
];

/// By how much less likely each shape is before there are samples, as a logarithm: regions are made of pages that are
/// accessed alike. With few samples, frequencies would be too high on the mean otherwise.
const RARE: [f32; 4] = [0.0, 0.0, 1.0, 2.0];

/// The least chance that a sample misses, and that it finds an access.
const LEAST_MISS: f64 = 1e-3;
const LEAST_HIT: f64 = 1e-7;

/// For each shape, the logarithms of the chances that a sample finds an access, and that it finds none, by the product
/// of the frequency and the length.
static TABLE: LazyLock<[Vec<(f32, f32)>; 4]> = LazyLock::new(|| {
    let products = (0..((MOST_PRODUCT / LEAST_PRODUCT).ln() / STEP) as usize).map(|nth| nth as f64 * STEP);
    SHAPES.map(|shape| {
        let chances = products.clone().map(|step| shape(LEAST_PRODUCT * step.exp()));
        chances.map(|miss| ((1.0 - miss).max(LEAST_HIT).ln() as f32, miss.max(LEAST_MISS).ln() as f32)).collect()
    })
});

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// The time until the next access of a page, in seconds, at a frequency on the mean of the pages.
    type Gap = fn(f64, &mut Pcg64Mcg) -> f64;

    const REGULAR: Gap = |hz, rng| rng.random::<f64>() / hz;
    const RANDOM: Gap = |hz, rng| -(1.0 - rng.random::<f64>()).ln() / hz;
    const HALF: Gap = |hz, rng| if rng.random_bool(0.5) { RANDOM(2.0 * hz, rng) } else { 1e9 };

    /// What `count` samples find, read as the monitor reads those of rounds of 400 ms.
    fn sampled(gap: Gap, hz: f64, count: usize, rng: &mut Pcg64Mcg) -> Hits {
        let mut hits = Hits::NONE;
        for nth in 0..count {
            let access = gap(hz, rng);
            let lengths = LENGTHS[..4].iter().skip(nth % 2).step_by(2).copied();
            lengths
                .chain([Duration::from_millis(400)])
                .for_each(|length| hits.add(length, access < length.as_secs_f64()));
        }
        hits
    }

    #[test]
    fn frequencies_from_half_a_hertz_to_200_are_found_whatever_the_order_of_accesses_is() {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        for (name, gap) in [("regular", REGULAR), ("random", RANDOM), ("half of the pages", HALF)] {
            // With 200 Hz on the mean of pages of which half are never accessed, the others have 400.
            let most = if name == "half of the pages" { 100.0 } else { 200.0 };
            for hz in [0.5, 1.0, 3.0, 10.0, 30.0, 100.0, 200.0].into_iter().filter(|hz| *hz <= most) {
                let found: Vec<f64> =
                    (0..200).map(|_| sampled(gap, hz, 60, &mut rng).frequency().unwrap().hz() / hz).collect();
                let mean = found.iter().map(|ratio| ratio.ln()).sum::<f64>() / 200.0;
                assert!(mean.abs() < 0.25, "{name}, {hz} Hz: off by a factor of {} on the mean", mean.exp());
            }
        }
    }

    #[test]
    fn the_bounds_hold_the_truth_in_nineteen_of_twenty_cases() {
        let mut rng = Pcg64Mcg::seed_from_u64(8);
        let mut right = 0;
        let cases = [REGULAR, RANDOM, HALF].into_iter().flat_map(|gap| [0.7, 4.0, 25.0, 150.0].map(|hz| (gap, hz)));
        for (gap, hz) in cases.cycle().take(1_200) {
            let found = sampled(gap, hz, 30, &mut rng).frequency().unwrap();
            let most = found.factor().map_or(f64::INFINITY, |factor| found.hz() * factor);
            let least = found.hz() / found.factor().unwrap_or(1.0);
            right += u32::from(least <= hz * 1.06 && hz <= most * 1.06);
        }
        assert!(right >= 1_140, "{right} of 1,200");
    }

    #[test]
    fn memory_without_accesses_has_no_frequency_and_memory_in_use_all_the_time_has_a_least_one() {
        assert_eq!(Hits::NONE.frequency(), None);
        let mut hits = Hits::NONE;
        (0..20).for_each(|_| hits.add(Duration::from_millis(5), false));
        assert_eq!(hits.frequency(), Some(Frequency::NONE));
        let mut hits = Hits::NONE;
        (0..20).for_each(|_| hits.add(Duration::from_millis(5), true));
        let found = hits.frequency().unwrap();
        assert!(found.is_least() && (50.0..=400.0).contains(&found.hz()), "{found:?}");
    }

    #[test]
    fn a_survey_tells_the_frequency_of_memory_that_samples_cannot_observe() {
        let mut hits = Hits::NONE;
        hits.set_survey(Duration::from_secs(5), Some(0.3));
        let found = hits.frequency().unwrap();
        assert!((0.03..=0.15).contains(&found.hz()), "{found:?}");
        hits.set_survey(Duration::from_secs(5), Some(1.0));
        let found = hits.frequency().unwrap();
        assert!(found.is_least() && (0.1..=1.0).contains(&found.hz()), "{found:?}");
    }

    #[test]
    fn another_frequency_is_noticed_and_chance_is_not() {
        let mut rng = Pcg64Mcg::seed_from_u64(9);
        let turns = |from: f64, to: f64, rng: &mut Pcg64Mcg| {
            let turned = |_| sampled(RANDOM, from, 30, rng).have_turned(&sampled(RANDOM, to, 4, rng));
            (0..200).map(turned).filter(|turned| *turned).count()
        };
        assert!(turns(100.0, 3.0, &mut rng) > 180 && turns(3.0, 100.0, &mut rng) > 160);
        assert!(turns(100.0, 100.0, &mut rng) < 10 && turns(3.0, 3.0, &mut rng) < 10);
    }

    #[test]
    fn two_accesses_of_rare_ones_that_come_together_by_chance_are_no_other_frequency() {
        // Of 1 Hz, by samples of 10 ms and 40 ms, which see the same accesses.
        let of = |accesses: usize, samples: usize| {
            let mut hits = Hits::NONE;
            for nth in 0..samples {
                [10, 40].iter().for_each(|ms| hits.add(Duration::from_millis(*ms), nth < accesses));
            }
            hits
        };
        assert!(!of(5, 124).have_turned(&of(2, 10)));
        assert!(of(5, 124).have_turned(&of(4, 10)));
    }

    #[test]
    fn frequencies_are_rounded_to_two_digits() {
        assert_eq!(Frequency::new(123.4, Some(1.26)).hz(), 120.0);
        assert_eq!(Frequency::new(0.0456, Some(1.26)).hz(), 0.046);
        assert_eq!(Frequency::new(0.0456, Some(1.26)).factor(), Some(1.3));
        assert_eq!((Frequency::new(0.0, None), Frequency::new(1e-9, None).hz()), (Frequency::NONE, 0.001));
    }
}
