//! A histogram of memory: how many bytes lie in each band of a quantity, by mapping name and by group, and over time.
//!
//! The reports on idle times and on temperature fill it, each format renders it.

mod svg;
mod text;

use std::cmp::Reverse;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::groups::GroupBy;
use crate::text::time_of;
use crate::wss::PERCENTILES;

pub(crate) use svg::draw;
pub(crate) use text::write;

/// The bytes of some memory in each band.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sizes {
    /// The bytes in each band.
    pub bytes: Vec<u64>,
    /// Bytes that could not be observed. They are in no band.
    pub unobservable_bytes: u64,
    /// Bytes whose band is not known.
    pub unknown_bytes: u64,
}

/// The bytes of one name in each band.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NamedSizes {
    /// The name of the mappings, `anonymous` for memory without a name; or that of the group.
    pub name: String,
    /// Its bytes.
    #[serde(flatten)]
    pub sizes: Sizes,
}

/// The bytes in each band at one time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Moment {
    /// The time since the start of the recording.
    pub time_ns: u64,
    /// The bytes.
    #[serde(flatten)]
    pub sizes: Sizes,
}

impl Sizes {
    /// No bytes in this number of bands.
    pub(crate) fn empty(bands: usize) -> Self {
        Self { bytes: vec![0; bands], ..Self::default() }
    }

    /// All bytes in bands.
    pub fn known(&self) -> u64 {
        self.bytes.iter().copied().fold(0, u64::saturating_add)
    }

    /// All bytes.
    pub fn all(&self) -> u64 {
        self.known().saturating_add(self.unobservable_bytes).saturating_add(self.unknown_bytes)
    }

    /// Adds other memory with the same bands.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes.resize(self.bytes.len().max(other.bytes.len()), 0);
        for (sum, bytes) in self.bytes.iter_mut().zip(&other.bytes) {
            *sum = sum.saturating_add(*bytes);
        }
        self.unobservable_bytes = self.unobservable_bytes.saturating_add(other.unobservable_bytes);
        self.unknown_bytes = self.unknown_bytes.saturating_add(other.unknown_bytes);
    }

    /// The band of a percentile of the bytes in bands: the first one such that it and those before it have at least
    /// that share. `None` if there are no bytes.
    pub(crate) fn percentile(&self, p: u32) -> Option<usize> {
        let least = (u128::from(p) * u128::from(self.known())).div_ceil(100).max(1);
        let mut sum = 0;
        self.bytes.iter().position(|&bytes| {
            sum += u128::from(bytes);
            sum >= least
        })
    }

    /// The band of each of [`PERCENTILES`], which is empty without bytes.
    pub(crate) fn percentiles(&self) -> impl Iterator<Item = (u32, usize)> {
        PERCENTILES.into_iter().filter_map(|p| Some((p, self.percentile(p)?)))
    }
}

/// The memory of each name, with the largest first.
pub(crate) fn sorted(named: impl IntoIterator<Item = (String, Sizes)>) -> Vec<NamedSizes> {
    let mut all: Vec<_> = named.into_iter().map(|(name, sizes)| NamedSizes { name, sizes }).collect();
    all.retain(|of| of.sizes.all() > 0);
    all.sort_by(|a, b| {
        let key = |of: &NamedSizes| Reverse(of.sizes.all());
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    all
}

/// The first `most` names. The last one stands for all others if there are more.
fn folded(all: &[NamedSizes], most: usize) -> Vec<NamedSizes> {
    let shown = if all.len() > most { most.saturating_sub(1) } else { all.len() };
    let (shown, rest) = all.split_at(shown);
    let mut shown = shown.to_vec();
    if !rest.is_empty() {
        let mut sizes = Sizes::default();
        rest.iter().for_each(|of| sizes.add(&of.sizes));
        shown.push(NamedSizes { name: format!("others ({})", rest.len()), sizes });
    }
    shown
}

/// A band.
pub(crate) struct Band {
    /// Its limits, such as `5 s to 10 s`.
    pub(crate) name: String,
    /// How hot its colour is, 0 to 1.
    pub(crate) heat: f64,
}

/// A report with a histogram, ready to be rendered.
pub(crate) struct Histogram<'a> {
    /// What it is about, and what is most important.
    pub(crate) title: String,
    /// What the figures rest on.
    pub(crate) notes: Vec<String>,
    /// What bands are of, such as `idle for`.
    pub(crate) quantity: &'static str,
    pub(crate) bands: Vec<Band>,
    pub(crate) total: &'a Sizes,
    pub(crate) mappings: &'a [NamedSizes],
    pub(crate) by: GroupBy,
    pub(crate) groups: &'a [NamedSizes],
    pub(crate) over_time: &'a [Moment],
    /// Whether a moment is a state at its time, so that it changes evenly from one to the next. Otherwise it holds for
    /// the time since the one before.
    pub(crate) is_state: bool,
    /// A chart over time for text: its title, and the bands that it sums up.
    pub(crate) chart: Option<(String, std::ops::Range<usize>)>,
}

impl Histogram<'_> {
    /// The names of mappings, and the groups unless there is only one that nobody asked for: what they are, and which.
    fn lists(&self) -> impl Iterator<Item = (&'static str, &[NamedSizes])> {
        let has_groups = self.groups.len() > 1 || self.by != GroupBy::Command && !self.groups.is_empty();
        let groups = has_groups.then_some((self.by.word(), self.groups));
        std::iter::once(("mapping", self.mappings)).chain(groups)
    }

    /// The sum of some bands over time: of states at [`STATES`] times, as they change from one to the next.
    fn over_time(&self, bands: &std::ops::Range<usize>) -> Vec<(Duration, f64)> {
        let sum = |moment: &Moment| moment.sizes.bytes.get(bands.clone()).map_or(0, |bytes| bytes.iter().sum::<u64>());
        let points = self.over_time.iter().map(|moment| (Duration::from_nanos(moment.time_ns), sum(moment) as f64));
        let points: Vec<(Duration, f64)> = points.collect();
        if self.is_state { between(&points) } else { points }
    }

    /// The time that the moments cover.
    fn time(&self) -> (Duration, Duration) {
        let times: Vec<_> = self.over_time.iter().map(|moment| (Duration::from_nanos(moment.time_ns), 0.0)).collect();
        match (self.is_state, &times[..]) {
            (true, [(first, _), .., (last, _)]) => (*first, *last),
            _ => time_of(&times),
        }
    }
}

/// How many states a chart shows.
const STATES: u32 = 240;

/// The values of these states at equal distances.
fn between(points: &[(Duration, f64)]) -> Vec<(Duration, f64)> {
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else { return vec![] };
    let at = |time: Duration| {
        let next = points.partition_point(|&(of, _)| of < time).clamp(1, (points.len() - 1).max(1));
        let (Some(&(from, before)), Some(&(to, after))) = (points.get(next - 1), points.get(next)) else { return 0.0 };
        let part = time.saturating_sub(from).as_secs_f64() / to.saturating_sub(from).as_secs_f64().max(1e-9);
        before + (after - before) * part.min(1.0)
    };
    let times = (1..=STATES).map(|nth| first + (last - first) * nth / STATES);
    times.map(|time| (time, at(time))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_band_that_holds_it() {
        let sizes = Sizes { bytes: vec![10, 0, 40, 50], ..Sizes::default() };
        let bands: Vec<_> = sizes.percentiles().map(|(_, band)| band).collect();
        assert_eq!(bands, [0, 2, 2, 3, 3, 3, 3]);
        assert_eq!(Sizes::empty(3).percentiles().count(), 0);
    }

    #[test]
    fn a_state_changes_evenly_from_one_survey_to_the_next() {
        let second = Duration::from_secs(1);
        let found = between(&[(second * 10, 0.0), (second * 20, 0.0), (second * 34, 700.0)]);
        let at = |seconds: u32| found.iter().find(|(time, _)| *time == second * seconds).map(|(_, value)| *value);
        assert_eq!((found.len(), at(20), at(27), at(34)), (240, Some(0.0), Some(350.0), Some(700.0)));
        assert_eq!(between(&[(second, 7.0)]).len(), 240);
    }

    #[test]
    fn names_beyond_the_most_are_summed_up() {
        let named = |name: &str, bytes| (name.to_owned(), Sizes { bytes: vec![bytes], ..Sizes::default() });
        let all = sorted([named("a", 1), named("b", 3), named("c", 2), named("d", 0)]);
        let names = |most| folded(&all, most).iter().map(|of| (of.name.clone(), of.sizes.all())).collect::<Vec<_>>();
        assert_eq!(names(3), [("b".into(), 3), ("c".into(), 2), ("a".into(), 1)]);
        assert_eq!(names(2), [("b".into(), 3), ("others (2)".into(), 3)]);
    }
}
