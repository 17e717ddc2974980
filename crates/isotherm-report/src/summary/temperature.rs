//! How much of some memory is hot, warm and cold: the means over time, and the sums that they are made of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::parts::Parts;
use crate::resident::Surveyed;
use crate::source::{KnownPiece, Visit};

/// Hot, warm and cold memory of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Temperature {
    /// The name of the mappings, `anonymous` for memory without a name; that of the group; `total` for all memory, also
    /// that of a target.
    pub name: Arc<str>,
    /// Resident bytes, or mapped bytes without a survey: the sum of the next five.
    pub size_bytes: u64,
    /// Bytes with an access rate of at least one half.
    pub hot_bytes: u64,
    /// Bytes with a lower access rate.
    pub warm_bytes: u64,
    /// Bytes without accesses.
    pub cold_bytes: u64,
    /// Bytes that could not be observed.
    pub unobservable_bytes: u64,
    /// Bytes whose accesses are not known: no sample was taken of them, and a survey could not
    /// tell either.
    pub unknown_bytes: u64,
    /// The working set: bytes that were touched within a survey interval; without surveys, bytes of regions with at
    /// least one access in an aggregation interval. The mean over time.
    pub working_set_bytes: u64,
    /// The largest working set of a single survey or snapshot.
    pub working_set_max_bytes: u64,
    /// The mean time for which cold bytes had been cold at the last snapshot. `None` if there are no cold bytes.
    pub cold_for_ns: Option<u64>,
    /// What surveys found. `None` without them.
    #[serde(flatten)]
    pub surveyed: Surveyed,
}

/// Sums over time, in bytes × seconds.
#[derive(Clone, Default)]
pub(crate) struct Sums {
    unknown: f64,
    hot: f64,
    warm: f64,
    cold: f64,
    unobservable: f64,
    working_set: f64,
    /// The time and the working set of the current snapshot, and the largest working set so far.
    current: (Duration, u64),
    largest: u64,
    /// For each target: the time of its last snapshot, its cold bytes then, and the sum of cold bytes × age.
    idle: BTreeMap<TargetId, (Duration, f64, f64)>,
}

/// The memory of a target in one snapshot, or a part of it, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Added {
    unknown: f64,
    hot: f64,
    warm: f64,
    cold: f64,
    unobservable: f64,
    /// Cold bytes × the seconds for which they have been cold.
    idle: f64,
    in_use: u64,
    pub(crate) bytes: u64,
}

impl Added {
    /// `bytes` of a piece of a region, whose memory is of that age in seconds.
    pub(crate) fn piece(known: &KnownPiece<'_>, bytes: u64, age: f64) -> Self {
        let size = bytes as f64;
        let Parts { hot, warm, cold, unobservable, unknown } = known.parts;
        let cold = size * cold;
        Self {
            unknown: size * unknown,
            hot: size * hot,
            warm: size * warm,
            cold,
            unobservable: size * unobservable,
            idle: cold * age,
            in_use: if known.piece.region.nr_accesses > 0 { bytes } else { 0 },
            bytes,
        }
    }

    /// Adds more of the same snapshot.
    pub(crate) fn add(&mut self, more: &Self) {
        self.unknown += more.unknown;
        self.hot += more.hot;
        self.warm += more.warm;
        self.cold += more.cold;
        self.unobservable += more.unobservable;
        self.idle += more.idle;
        self.in_use = self.in_use.saturating_add(more.in_use);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

impl Sums {
    /// Adds memory of the target of a row.
    pub(crate) fn add(&mut self, visit: &Visit<'_>, added: &Added) {
        let (time, seconds) = (visit.row.time, visit.span().as_secs_f64());
        self.unobservable += added.unobservable * seconds;
        self.unknown += added.unknown * seconds;
        self.hot += added.hot * seconds;
        self.warm += added.warm * seconds;
        self.cold += added.cold * seconds;
        let idle = self.idle.entry(visit.row.target.id).or_insert((time, 0.0, 0.0));
        if idle.0 != time {
            *idle = (time, 0.0, 0.0);
        }
        idle.1 += added.cold;
        idle.2 += added.idle;
        self.working_set += added.in_use as f64 * seconds;
        if self.current.0 != time {
            self.current = (time, 0);
        }
        self.current.1 = self.current.1.saturating_add(added.in_use);
        self.largest = self.largest.max(self.current.1);
    }

    /// The means over that time.
    pub(crate) fn over(&self, seconds: f64, name: Arc<str>) -> Temperature {
        let mean = |sum: f64| (sum / seconds).round() as u64;
        let parts = [self.hot, self.warm, self.cold, self.unobservable, self.unknown].map(|sum| sum / seconds);
        let parts = whole_parts(parts);
        let [hot, warm, cold, unobservable, unknown] = parts;
        let (bytes, aged) = self.idle.values().fold((0.0, 0.0), |(b, a), &(_, bytes, aged)| (b + bytes, a + aged));
        Temperature {
            name,
            size_bytes: parts.into_iter().fold(0, u64::saturating_add),
            hot_bytes: hot,
            warm_bytes: warm,
            cold_bytes: cold,
            unobservable_bytes: unobservable,
            unknown_bytes: unknown,
            working_set_bytes: mean(self.working_set),
            working_set_max_bytes: self.largest,
            cold_for_ns: (bytes > 0.0).then(|| (aged / bytes * 1e9) as u64),
            surveyed: Surveyed::default(),
        }
    }
}

/// The parts as whole numbers: each to the nearest, and the largest so that all add up to their sum, rounded.
fn whole_parts<const N: usize>(parts: [f64; N]) -> [u64; N] {
    let whole = parts.iter().sum::<f64>().round() as u64;
    let mut parts = parts.map(|part| part.round() as u64);
    let sum = parts.iter().copied().fold(0, u64::saturating_add);
    if let Some(largest) = parts.iter_mut().max() {
        *largest = largest.saturating_add(whole).saturating_sub(sum);
    }
    parts
}

/// The largest rows, and the sum of the others: names with less than the share `least` of the memory, that in swap
/// included, and of the hot memory, or beyond `most` rows.
pub fn folded(mappings: &[Temperature], most: usize, least: f64) -> (Vec<&Temperature>, Option<(usize, Temperature)>) {
    let kept = |m: &Temperature| m.size_bytes.saturating_add(m.surveyed.swapped_bytes.least());
    let size: u64 = mappings.iter().map(kept).fold(0, u64::saturating_add);
    let hot: u64 = mappings.iter().map(|m| m.hot_bytes).fold(0, u64::saturating_add);
    let worth = |m: &Temperature| {
        kept(m) as f64 >= size as f64 * least || (hot > 0 && m.hot_bytes as f64 >= hot as f64 * least)
    };
    let few = mappings.len() <= most.min(4);
    let (mut shown, mut rest): (Vec<_>, Vec<_>) = mappings.iter().partition(|m| few || worth(m));
    if shown.len() + usize::from(!rest.is_empty()) > most {
        rest.extend(shown.drain(most.saturating_sub(1).max(1)..));
    }
    if let [single] = rest[..] {
        shown.push(single);
        return (shown, None);
    }
    let sum = |value: fn(&Temperature) -> u64| rest.iter().map(|m| value(m)).fold(0, u64::saturating_add);
    let idle: f64 = rest.iter().map(|m| m.cold_bytes as f64 * m.cold_for_ns.unwrap_or(0) as f64).sum();
    let cold = sum(|m| m.cold_bytes);
    let others = Temperature {
        name: format!("others ({})", rest.len()).into(),
        size_bytes: sum(|m| m.size_bytes),
        hot_bytes: sum(|m| m.hot_bytes),
        warm_bytes: sum(|m| m.warm_bytes),
        cold_bytes: cold,
        unobservable_bytes: sum(|m| m.unobservable_bytes),
        unknown_bytes: sum(|m| m.unknown_bytes),
        working_set_bytes: sum(|m| m.working_set_bytes),
        working_set_max_bytes: sum(|m| m.working_set_max_bytes),
        cold_for_ns: (cold > 0).then(|| (idle / cold as f64) as u64),
        surveyed: rest.iter().map(|m| m.surveyed).reduce(Surveyed::plus).unwrap_or_default(),
    };
    let rest = (!rest.is_empty()).then_some((rest.len(), others));
    (shown, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_parts_add_up_to_the_whole() {
        assert_eq!(whole_parts([60.5, 35.5]), [60, 36]);
        assert_eq!(whole_parts([4.4, 2.4, 3.2]), [5, 2, 3]);
        assert_eq!(whole_parts([2.999_999, 5.0]), [3, 5]);
        assert_eq!(whole_parts([0.0, 7.0]), [0, 7]);
        assert_eq!(whole_parts([0.0; 5]), [0; 5]);
    }
}
