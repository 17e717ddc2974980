//! The pattern language: areas of memory, phases of time, and which areas are touched how often in each phase.
//!
//! A pattern is a TOML file:
//!
//! ```toml
//! about = "one small hot area in a large cold one"
//!
//! [[area]]
//! name = "cold"
//! size = "240 MiB"
//!
//! [[area]]
//! name = "hot"
//! size = "16 MiB"
//!
//! [[phase]]
//! time = "10s"
//! touch = [{ area = "hot", every = "2ms" }]
//! ```

use std::time::Duration;

use isotherm_core::{PAGE_SIZE, units};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Zipf};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// The patterns that ship with isotherm, by name.
const SHIPPED: [(&str, &str); 9] = [
    ("stairs", include_str!("../patterns/stairs.toml")),
    ("zigzag", include_str!("../patterns/zigzag.toml")),
    ("hot-small-in-huge", include_str!("../patterns/hot-small-in-huge.toml")),
    ("zipfian", include_str!("../patterns/zipfian.toml")),
    ("periodic", include_str!("../patterns/periodic.toml")),
    ("all-hot", include_str!("../patterns/all-hot.toml")),
    ("all-cold", include_str!("../patterns/all-cold.toml")),
    ("growing-and-shrinking", include_str!("../patterns/growing-and-shrinking.toml")),
    ("strided-and-random", include_str!("../patterns/strided-and-random.toml")),
];

/// An access pattern: areas of memory, and phases that follow each other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// What the pattern does, in one line.
    pub about: String,
    /// The areas, in the order of their addresses.
    #[serde(rename = "area")]
    pub areas: Vec<Area>,
    /// The phases, in the order of time.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// A range of anonymous memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// The name of the area in the pattern.
    pub name: String,
    /// The size in bytes; a whole number of pages.
    #[serde(deserialize_with = "size")]
    pub size: u64,
}

/// A time in which the memory is touched in the same way.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// How long the phase lasts.
    #[serde(deserialize_with = "time")]
    pub time: Duration,
    /// The touches in this phase.
    #[serde(default)]
    pub touch: Vec<Touch>,
    /// Areas that are not mapped in this phase.
    #[serde(default)]
    pub unmapped: Vec<String>,
}

/// How an area is touched.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touch {
    /// The name of the area.
    pub area: String,
    /// The time of a sweep: in this time as many touches are made as the area has pages.
    #[serde(deserialize_with = "time")]
    pub every: Duration,
    /// The order of the pages.
    #[serde(default)]
    pub order: Order,
}

/// In which order the pages of an area are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Order {
    /// From the first page to the last, then again.
    #[default]
    Sequential,
    /// Only every n-th page, from the first to the last. The pages between are not touched.
    Strided(u64),
    /// Each touch goes to a random page; all pages have the same probability.
    Random,
    /// Each touch goes to a random page. The probability of the n-th page is in proportion to n to the power of minus
    /// this exponent (Zipf's law).
    Zipfian(f64),
}

/// Why a pattern cannot be read.
#[derive(Debug, Error)]
pub enum PatternError {
    /// No pattern of this name ships with isotherm.
    #[error("there is no pattern named {0:?}; choose one of: {names}", names = names())]
    Unknown(String),
    /// The text is not in the pattern language.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// A value in the pattern is invalid.
    #[error("{0}")]
    Invalid(String),
}

fn names() -> String {
    Pattern::names().collect::<Vec<_>>().join(", ")
}

impl Pattern {
    /// The names of the patterns that ship with isotherm.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The pattern of this name that ships with isotherm.
    ///
    /// # Errors
    /// If there is no such pattern.
    pub fn shipped(name: &str) -> Result<Self, PatternError> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| PatternError::Unknown(name.into()))?;
        Self::parse(text)
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// If the text is not in the pattern language, if it names an area that does not exist, if a size is not a whole
    /// number of pages, or if a time is zero.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let pattern: Self = toml::from_str(text)?;
        pattern.check()?;
        Ok(pattern)
    }

    fn check(&self) -> Result<(), PatternError> {
        let invalid = |what: String| Err(PatternError::Invalid(what));
        if self.areas.is_empty() || self.phases.is_empty() {
            return invalid("a pattern needs at least one [[area]] and one [[phase]]".into());
        }
        for area in &self.areas {
            if area.size == 0 || !area.size.is_multiple_of(PAGE_SIZE) {
                return invalid(format!(
                    "the size of area {:?}, {}, is not a whole number of pages of {PAGE_SIZE} bytes",
                    area.name,
                    units::setting::bytes(area.size)
                ));
            }
        }
        for (nth, phase) in self.phases.iter().enumerate() {
            if phase.time.is_zero() {
                return invalid(format!("the time of phase {nth} is zero"));
            }
            let named = phase.touch.iter().map(|touch| &touch.area).chain(&phase.unmapped);
            if let Some(missing) = named.into_iter().find(|name| self.area(name).is_none()) {
                return invalid(format!("phase {nth} names the area {missing:?}, which does not exist"));
            }
            for touch in &phase.touch {
                if touch.every.is_zero() || !touch.order.is_valid() {
                    let area = &touch.area;
                    return invalid(format!(
                        "phase {nth} touches area {area:?} with an `every`, a stride or an exponent of zero"
                    ));
                }
                if phase.unmapped.contains(&touch.area) {
                    return invalid(format!("phase {nth} touches area {:?}, which it unmaps", touch.area));
                }
            }
        }
        Ok(())
    }

    /// The index of the area of this name.
    pub fn area(&self, name: &str) -> Option<usize> {
        self.areas.iter().position(|area| area.name == name)
    }

    /// The same pattern with each area `factor` times as large.
    #[must_use]
    pub fn scaled(mut self, factor: u64) -> Self {
        for area in &mut self.areas {
            area.size *= factor;
        }
        self
    }

    /// The sum of the times of all phases.
    pub fn time(&self) -> Duration {
        self.phases.iter().map(|phase| phase.time).sum()
    }

    /// The phase at this time since the start of the pattern. The pattern is repeated after its end.
    pub fn phase_at(&self, time: Duration) -> &Phase {
        let mut left = Duration::from_nanos((time.as_nanos() % self.time().as_nanos()) as u64);
        for phase in &self.phases {
            if left < phase.time {
                return phase;
            }
            left -= phase.time;
        }
        // Not reached: `left` is less than the sum of all times.
        &self.phases[0]
    }

    /// The truth: the probability that page `page` of area `area` is touched within an interval of this length in this
    /// phase.
    pub fn access_rate(&self, phase: &Phase, area: usize, page: u64, interval: Duration) -> f64 {
        let pages = self.areas[area].pages();
        debug_assert!(page < pages, "page {page} of {pages}");
        let not_touched: f64 = (phase.touch.iter())
            .filter(|touch| touch.area == self.areas[area].name)
            .map(|touch| 1.0 - touch.access_rate(page, pages, interval))
            .product();
        1.0 - not_touched
    }
}

/// A size with a unit, or a number of bytes.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a size such as \"4 KiB\", or a number of bytes")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(text) => units::parse_bytes(&text).map_err(D::Error::custom),
    }
}

/// A time with a unit.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    units::parse_duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

impl Area {
    /// The size in pages.
    pub fn pages(&self) -> u64 {
        self.size / PAGE_SIZE
    }
}

impl Order {
    fn is_valid(self) -> bool {
        match self {
            Self::Sequential | Self::Random => true,
            Self::Strided(stride) => stride > 0,
            Self::Zipfian(exponent) => exponent > 0.0 && exponent.is_finite(),
        }
    }
}

impl Touch {
    /// The probability that a page of an area with `pages` pages is touched within an interval of this length.
    pub(crate) fn access_rate(&self, page: u64, pages: u64, interval: Duration) -> f64 {
        let sweeps = interval.as_secs_f64() / self.every.as_secs_f64();
        match self.order {
            Order::Sequential => sweeps.min(1.0),
            // There are as many touches as the area has pages, and so `stride` sweeps in this time.
            Order::Strided(stride) if page.is_multiple_of(stride) => (sweeps * stride as f64).min(1.0),
            Order::Strided(_) => 0.0,
            // Touches of one page are a Poisson process: of one touch a sweep on the mean, or of as many as the
            // page's share.
            Order::Random => 1.0 - (-sweeps).exp(),
            Order::Zipfian(exponent) => {
                let share = ((page + 1) as f64).powf(-exponent) / harmonic(pages, exponent);
                1.0 - (-sweeps * pages as f64 * share).exp()
            }
        }
    }

    /// How often a page of an area with `pages` pages is touched in a second, on the mean.
    pub fn frequency(&self, page: u64, pages: u64) -> f64 {
        let sweeps = 1.0 / self.every.as_secs_f64();
        match self.order {
            Order::Sequential | Order::Random => sweeps,
            Order::Strided(stride) if page.is_multiple_of(stride) => sweeps * stride as f64,
            Order::Strided(_) => 0.0,
            Order::Zipfian(exponent) => {
                sweeps * pages as f64 * ((page + 1) as f64).powf(-exponent) / harmonic(pages, exponent)
            }
        }
    }

    /// The page of the `nth` touch since the start of a phase, in an area with `pages` pages.
    pub fn page(&self, nth: u64, pages: u64, rng: &mut impl Rng) -> u64 {
        match self.order {
            Order::Sequential => nth % pages,
            Order::Strided(stride) => nth % pages.div_ceil(stride) * stride,
            Order::Random => rng.random_range(0..pages),
            // The distribution counts from 1. It exists, because the exponent was checked.
            Order::Zipfian(exponent) => {
                Zipf::new(pages as f64, exponent).map_or(0, |zipf| (zipf.sample(rng) as u64).clamp(1, pages) - 1)
            }
        }
    }
}

/// The sum of n to the power of minus `exponent`, for n from 1 to `pages`: exact for the first terms, and from there by
/// the Euler-Maclaurin formula, whose first omitted term is under 10^-11 of it for exponents up to 2.
fn harmonic(pages: u64, exponent: f64) -> f64 {
    const EXACT: u64 = 64;
    let term = |n: u64| (n as f64).powf(-exponent);
    let exact: f64 = (1..=pages.min(EXACT)).map(term).sum();
    if pages <= EXACT {
        return exact;
    }
    let antiderivative = |n: f64| if exponent == 1.0 { n.ln() } else { n.powf(1.0 - exponent) / (1.0 - exponent) };
    let integral = antiderivative(pages as f64) - antiderivative(EXACT as f64);
    let derivative = |n: u64| -exponent * (n as f64).powf(-exponent - 1.0);
    let third = |n: u64| derivative(n) * (exponent + 1.0) * (exponent + 2.0) / (n as f64).powi(2);
    exact + integral + (term(pages) - term(EXACT)) / 2.0 + (derivative(pages) - derivative(EXACT)) / 12.0
        - (third(pages) - third(EXACT)) / 720.0
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const TWO_AREAS: &str = r#"
        about = "a test"
        [[area]]
        name = "a"
        size = "1 MiB"
        [[area]]
        name = "b"
        size = "4 KiB"
        [[phase]]
        time = "2s"
        touch = [{ area = "a", every = "10ms" }, { area = "b", every = "1ms", order = "random" }]
        [[phase]]
        time = "3s"
        touch = [{ area = "a", every = "10ms", order = { strided = 4 } }]
        unmapped = ["b"]
    "#;

    #[test]
    fn every_shipped_pattern_can_be_read() {
        for name in Pattern::names() {
            Pattern::shipped(name).unwrap();
        }
    }

    #[test]
    fn phases_follow_each_other_and_are_repeated() {
        let pattern = Pattern::parse(TWO_AREAS).unwrap();
        let phase = |s: f64| pattern.phase_at(Duration::from_secs_f64(s)).time.as_secs();
        assert_eq!([phase(0.0), phase(1.9), phase(2.0), phase(4.9), phase(5.0)], [2, 2, 3, 3, 2]);
    }

    #[test]
    fn the_truth_is_the_probability_of_a_touch() {
        let pattern = Pattern::parse(TWO_AREAS).unwrap();
        let rate = |phase: usize, area, page| {
            pattern.access_rate(&pattern.phases[phase], area, page, Duration::from_millis(5))
        };
        assert_eq!(rate(0, 0, 7), 0.5);
        assert!((rate(0, 1, 0) - 0.9933).abs() < 1e-4, "1 - e^-5");
        assert_eq!([rate(1, 0, 4), rate(1, 0, 5), rate(1, 1, 0)], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn the_truth_of_a_zipfian_area_is_the_frequency_of_its_touches() {
        let touch = Touch { area: "a".into(), every: Duration::from_millis(100), order: Order::Zipfian(1.0) };
        let pages = 5_000;
        assert!((harmonic(pages, 1.0) - (1..=pages).map(|n| 1.0 / n as f64).sum::<f64>()).abs() < 1e-9);
        assert!((harmonic(pages, 0.7) - (1..=pages).map(|n| (n as f64).powf(-0.7)).sum::<f64>()).abs() < 1e-9);

        // In each interval, 5 % of a sweep: count the intervals in which some pages are touched.
        let mut rng = Pcg64Mcg::new(1);
        let mut touched_in = [0_u32; 3];
        let watched = [20, 100, 500];
        for _ in 0..2_000 {
            let touched: Vec<u64> = (0..pages / 20).map(|nth| touch.page(nth, pages, &mut rng)).collect();
            for (count, page) in touched_in.iter_mut().zip(watched) {
                *count += u32::from(touched.contains(&page));
            }
        }
        for (count, page) in touched_in.into_iter().zip(watched) {
            let truth = touch.access_rate(page, pages, Duration::from_millis(5));
            assert!((f64::from(count) / 2_000.0 - truth).abs() < 0.04, "page {page}: {count} of 2000, truth {truth}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused_with_the_place_of_the_error() {
        for (from, to, said) in [
            (r#"area = "b""#, r#"area = "c""#, "names the area \"c\""),
            (r#"unmapped = ["b"]"#, r#"unmapped = ["a"]"#, "which it unmaps"),
            ("4 KiB", "5 KB", "not a whole number of pages"),
            ("4 KiB", "5 parsec", "expected a size such as"),
            ("2s", "2", "has no unit"),
            ("1ms", "0s", "of zero"),
            ("3s", "0s", "is zero"),
            ("order = \"random\"", "odor = 1", "odor"),
        ] {
            let error = Pattern::parse(&TWO_AREAS.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_names() {
        assert!(Pattern::shipped("ladder").unwrap_err().to_string().contains("stairs"));
    }
}
