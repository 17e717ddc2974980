//! The figures of a target and of its mappings, as means over about a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_record::Row;
use isotherm_report::HOT;
use isotherm_report::pieces;

use super::shares::Shares;

/// The temperature of some memory, in bytes. `size` is the sum of the next four fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Temperature {
    pub size: f64,
    pub hot: f64,
    pub warm: f64,
    pub cold: f64,
    pub unobservable: f64,
    pub working_set: f64,
}

impl Temperature {
    fn over(self, n: f64) -> Self {
        let Self { size, hot, warm, cold, unobservable, working_set } = self;
        let [size, hot, warm, cold, unobservable, working_set] =
            [size, hot, warm, cold, unobservable, working_set].map(|sum| sum / n);
        Self { size, hot, warm, cold, unobservable, working_set }
    }
}

/// The figures of all mappings of one name, or of one contiguous range without a name.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingFigures {
    /// The name as in [`isotherm_core::Mapping::name`].
    pub name: Arc<str>,
    /// From its first to its last address.
    pub range: AddrRange,
    pub temperature: Temperature,
    /// The access rate of its observable part, 0 to 1.
    pub rate: f64,
    /// Accesses that samples found in a second. Zero without samples.
    pub hz: f64,
    /// How long the access frequency has stayed as it is; the mean over its bytes.
    pub age: Duration,
}

/// The figures of one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub total: Temperature,
    pub mappings: Vec<MappingFigures>,
}

/// A name, or the start of a contiguous range without a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Name(Arc<str>),
    Anonymous(u64),
}

#[derive(Clone, Copy)]
struct MappingSums {
    range: AddrRange,
    temperature: Temperature,
    snapshots: u32,
    observed: f64,
    accessed: f64,
    /// Accesses found in a second.
    found: f64,
    age: f64,
    /// The last snapshot it was in.
    last: Duration,
}

/// Sums of snapshots, from which figures are made.
#[derive(Clone, Default)]
pub struct Sums {
    snapshots: u32,
    last: Duration,
    total: Temperature,
    mappings: HashMap<Key, MappingSums>,
}

impl Sums {
    /// Adds a snapshot.
    pub fn add(&mut self, row: &Row) {
        self.snapshots += 1;
        self.last = row.time;
        let mut stretch: Option<AddrRange> = None;
        let shares = Shares::new(row);
        let sampling = shares.sampling();
        for piece in pieces(row, None) {
            let range = piece.range;
            let key = if piece.mapping.name.is_empty() {
                let start = stretch.filter(|before| before.touches(range)).map_or(range.start(), AddrRange::start);
                stretch = AddrRange::new(start, range.end());
                Key::Anonymous(start)
            } else {
                Key::Name(piece.mapping.label())
            };
            let fresh = MappingSums {
                range,
                temperature: Temperature::default(),
                snapshots: 0,
                observed: 0.0,
                accessed: 0.0,
                found: 0.0,
                age: 0.0,
                last: Duration::MAX,
            };
            let sums = self.mappings.entry(key).or_insert(fresh);
            if sums.last != row.time {
                (sums.last, sums.range) = (row.time, range);
                sums.snapshots += 1;
            }
            let hull = AddrRange::new(sums.range.start().min(range.start()), sums.range.end().max(range.end()));
            sums.range = hull.unwrap_or(range);

            let bytes = range.size() as f64 * shares.weight(piece.region);
            let share = shares.of(piece.region);
            let touched = shares.touched(piece.region);
            sums.observed += bytes * share.observed;
            sums.accessed += bytes * share.accessed;
            sums.found += if sampling.is_zero() { 0.0 } else { bytes * share.accessed / sampling.as_secs_f64() };
            sums.age += bytes * f64::from(piece.region.age) * row.aggregation.as_secs_f64();
            for temperature in [&mut sums.temperature, &mut self.total] {
                temperature.size += bytes;
                temperature.unobservable += bytes * (1.0 - share.observed);
                match share.rate() {
                    _ if touched.is_some() => {
                        temperature.warm += bytes * share.accessed;
                        temperature.cold += bytes * (share.observed - share.accessed);
                    }
                    Some(rate) if rate >= HOT => temperature.hot += bytes * share.observed,
                    Some(rate) if rate > 0.0 => temperature.warm += bytes * share.observed,
                    Some(_) => temperature.cold += bytes * share.observed,
                    None => {}
                }
                match touched {
                    Some(touched) => temperature.working_set += bytes * touched,
                    None if piece.region.nr_accesses > 0 => temperature.working_set += bytes,
                    None => {}
                }
            }
        }
    }

    /// The means since the last call, of mappings that still exist.
    pub fn take(&mut self) -> Figures {
        let Self { snapshots, last, total, mappings } = std::mem::take(self);
        let there = mappings.into_iter().filter(|(_, sums)| sums.last == last);
        let mappings = there.map(|(key, sums)| MappingFigures {
            name: match key {
                Key::Name(name) => name,
                Key::Anonymous(_) => "".into(),
            },
            range: sums.range,
            temperature: sums.temperature.over(f64::from(sums.snapshots.max(1))),
            rate: if sums.observed > 0.0 { sums.accessed / sums.observed } else { 0.0 },
            hz: if sums.observed > 0.0 { sums.found / sums.observed } else { 0.0 },
            age: Duration::try_from_secs_f64(sums.age / sums.temperature.size.max(1.0)).unwrap_or_default(),
        });
        Figures { total: total.over(f64::from(snapshots.max(1))), mappings: mappings.collect() }
    }
}
