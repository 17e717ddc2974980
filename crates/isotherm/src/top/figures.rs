//! The figures of a target and of its mappings, as means over about a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, RegionSnapshot};
use isotherm_record::Row;
use isotherm_report::{Parts, pieces};

use super::shares::Shares;

/// The temperature of some memory, in bytes. `size` is the sum of the next five fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Temperature {
    pub size: f64,
    pub hot: f64,
    pub warm: f64,
    pub cold: f64,
    pub unobservable: f64,
    /// Of which nothing is known yet.
    pub unknown: f64,
    pub working_set: f64,
}

impl Temperature {
    /// Whether nothing is known of any of it.
    pub fn is_in_the_dark(&self) -> bool {
        self.unobservable + self.unknown >= self.size
    }

    fn add(&mut self, other: &Self) {
        self.size += other.size;
        self.hot += other.hot;
        self.warm += other.warm;
        self.cold += other.cold;
        self.unobservable += other.unobservable;
        self.unknown += other.unknown;
        self.working_set += other.working_set;
    }

    fn over(self, n: f64) -> Self {
        let Self { size, hot, warm, cold, unobservable, unknown, working_set } = self;
        let [size, hot, warm, cold, unobservable, unknown, working_set] =
            [size, hot, warm, cold, unobservable, unknown, working_set].map(|sum| sum / n);
        Self { size, hot, warm, cold, unobservable, unknown, working_set }
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
    /// How often a page is accessed, in hertz. Zero without samples.
    pub hz: f64,
    /// Whether that is only the least that there may be.
    pub is_least_hz: bool,
    /// How long the access frequency has stayed as it is; the mean over its bytes.
    pub age: Duration,
}

/// The figures of one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetFigures {
    pub total: Temperature,
    /// The access rate of the observable part, 0 to 1.
    pub rate: f64,
    /// Bytes in memory, as the last survey found them. `None` without a survey.
    pub resident: Option<f64>,
    /// Empty if only the figures of the whole target are known.
    pub mappings: Vec<MappingFigures>,
}

impl TargetFigures {
    /// The figures of one snapshot, without those of its mappings.
    pub fn of_whole(row: &Row<'_>) -> Self {
        let shares = Shares::new(row);
        let mut whole = Part::default();
        pieces(row, None).for_each(|piece| whole.add(&Part::new(&shares, piece.range, piece.region)));
        whole.figures(1, vec![])
    }

    /// The sums of the figures of several targets, without those of their mappings.
    pub fn sum<'a>(of: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        let (mut observed, mut accessed) = (0.0, 0.0);
        for figures in of {
            let bytes = figures.total.size - figures.total.unobservable - figures.total.unknown;
            observed += bytes;
            accessed += bytes * figures.rate;
            sum.total.add(&figures.total);
            sum.resident = sum.resident.map_or(figures.resident, |sum| Some(sum + figures.resident.unwrap_or(0.0)));
        }
        sum.rate = if observed > 0.0 { accessed / observed } else { 0.0 };
        sum
    }
}

/// What some memory adds to the sums: bytes, and bytes times their shares.
#[derive(Clone, Copy, Default)]
struct Part {
    temperature: Temperature,
    /// Whether a survey has found some of it.
    surveyed: bool,
    observed: f64,
    accessed: f64,
}

impl Part {
    /// The part of a region in this range.
    fn new(shares: &Shares<'_>, range: AddrRange, region: &RegionSnapshot) -> Self {
        let bytes = range.size() as f64 * shares.weight(region);
        let share = shares.of(region);
        let Parts { hot, warm, cold, unobservable, unknown } = shares.parts(region);
        let temperature = Temperature {
            size: bytes,
            hot: bytes * hot,
            warm: bytes * warm,
            cold: bytes * cold,
            unobservable: bytes * unobservable,
            unknown: bytes * unknown,
            working_set: bytes * if region.pages.is_some() { hot + warm } else { f64::from(region.nr_accesses > 0) },
        };
        let surveyed = region.pages.is_some();
        Self { temperature, surveyed, observed: bytes * share.observed, accessed: bytes * share.accessed }
    }

    fn add(&mut self, other: &Self) {
        self.temperature.add(&other.temperature);
        self.surveyed |= other.surveyed;
        self.observed += other.observed;
        self.accessed += other.accessed;
    }

    /// The access rate of what was observed, 0 to 1.
    fn rate(&self) -> f64 {
        if self.observed > 0.0 { self.accessed / self.observed } else { 0.0 }
    }

    /// The means of so many snapshots, and the figures of the mappings.
    fn figures(&self, snapshots: u32, mappings: Vec<MappingFigures>) -> TargetFigures {
        let total = self.temperature.over(f64::from(snapshots.max(1)));
        TargetFigures { total, rate: self.rate(), resident: self.surveyed.then_some(total.size), mappings }
    }
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
    part: Part,
    snapshots: u32,
    /// Accesses of a page in a second, times bytes.
    hertz: f64,
    is_least: bool,
    age: f64,
    /// The last snapshot it was in.
    last: Duration,
}

/// Sums of snapshots, from which figures are made.
#[derive(Clone, Default)]
pub struct Sums {
    snapshots: u32,
    last: Duration,
    whole: Part,
    mappings: HashMap<Key, MappingSums>,
}

impl Sums {
    /// Adds a snapshot.
    pub fn add(&mut self, row: &Row<'_>) {
        self.snapshots += 1;
        self.last = row.time;
        let mut stretch: Option<AddrRange> = None;
        let shares = Shares::new(row);
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
                part: Part::default(),
                snapshots: 0,
                hertz: 0.0,
                is_least: false,
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

            let part = Part::new(&shares, range, piece.region);
            sums.part.add(&part);
            self.whole.add(&part);
            sums.hertz += part.observed * shares.of(piece.region).hz;
            sums.is_least |= piece.region.is_least_hz(row.samples);
            sums.age += part.temperature.size * f64::from(piece.region.age) * row.aggregation.as_secs_f64();
        }
    }

    /// The means since the last call, of mappings that still exist.
    pub fn take(&mut self) -> TargetFigures {
        let Self { snapshots, last, whole, mappings } = std::mem::take(self);
        let there = mappings.into_iter().filter(|(_, sums)| sums.last == last);
        let mappings = there.map(|(key, sums)| MappingFigures {
            name: match key {
                Key::Name(name) => name,
                Key::Anonymous(_) => "".into(),
            },
            range: sums.range,
            temperature: sums.part.temperature.over(f64::from(sums.snapshots.max(1))),
            rate: sums.part.rate(),
            hz: if sums.part.observed > 0.0 { sums.hertz / sums.part.observed } else { 0.0 },
            is_least_hz: sums.is_least,
            age: Duration::try_from_secs_f64(sums.age / sums.part.temperature.size.max(1.0)).unwrap_or_default(),
        });
        whole.figures(snapshots, mappings.collect())
    }
}
