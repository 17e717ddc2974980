//! The temperature of memory: how many bytes are accessed how often, by mapping name and by group.
//!
//! Rates are in Hz: how often a page is accessed. Sizes are means over the selected time.

mod course;
mod scale;

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{TargetId, units};
use isotherm_record::Needs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::extent::shown_name;
use crate::groups::{GroupBy, Grouping};
use crate::histogram::{self, Histogram, Moment, NamedSizes, Sizes, sorted};
use crate::intervals::IntervalRange;
use crate::of_mappings::{ByName, OfMappings};
use crate::source::{Accumulator, KnownPiece, Seen, Selection, Source, Takes, walk};

use course::Course;

/// What the memory of a band has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BandKind {
    /// Nothing found an access.
    NotAccessed,
    /// A survey found it accessed, and no sample did: it is accessed less often than samples can tell.
    SurveysOnly,
    /// Samples found it accessed at a rate.
    Rate,
}

/// A band of access rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Band {
    /// What its memory has in common.
    pub kind: BandKind,
    /// The lowest rate, in Hz. `None` if samples do not tell it.
    pub from_hz: Option<f64>,
    /// The rate that is not reached, in Hz.
    pub to_hz: Option<f64>,
    /// Bytes of the band whose rate is only the least that there may be.
    pub at_least_bytes: u64,
}

/// The temperature of the memory of a selection.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Temperatures {
    /// The start of the time.
    pub from_ns: u64,
    /// The end of the time.
    pub to_ns: u64,
    /// The sampling intervals: the time over which a sample finds an access.
    #[serde(flatten)]
    pub intervals: IntervalRange,
    /// The number of targets.
    pub targets: usize,
    /// The bands, the coldest first.
    pub bands: Vec<Band>,
    /// All memory. What several targets share counts for each of them.
    pub total: Sizes,
    /// The names of mappings, the largest first.
    pub mappings: Vec<NamedSizes>,
    /// What groups are by.
    #[serde(rename = "group_by")]
    pub by: GroupBy,
    /// The groups, the largest first. Empty if they are by mapping.
    pub groups: Vec<NamedSizes>,
    /// All memory at each snapshot; in a recording of more than 8,192, the means of as many of them one after another.
    pub over_time: Vec<Moment>,
}

impl Temperatures {
    /// The temperature of a selection, and of its groups: of programs unless `by` names others.
    ///
    /// # Errors
    /// If the source cannot be read or has nothing in the selection, or does not tell the cgroups that groups are by.
    pub fn new(source: &dyn Source, selection: &Selection, by: Option<GroupBy>) -> Result<Self, ReportError> {
        let by = by.or(Some(GroupBy::Command));
        let (mut groups, mut builder) = (Grouping::reader(selection, by), TemperatureBuilder::default());
        walk(source, selection, &mut [&mut groups, &mut builder])?;
        Ok(builder.finish(&Grouping::of_reader(groups, source, selection, by)?))
    }

    /// The report, ready to be rendered.
    pub(crate) fn histogram(&self) -> Histogram<'_> {
        let count = self.bands.len();
        let heat = |band: usize| band as f64 / count.saturating_sub(1).max(1) as f64;
        let bands = self.bands.iter().enumerate();
        let bands = bands.map(|(nth, band)| histogram::Band { name: band.name(), heat: heat(nth) }).collect();
        let known = self.total.known();
        let idle = self.total.bytes.first().copied().unwrap_or(0) as f64 / known.max(1) as f64;
        let mut notes = vec![format!("mean over {}", units::nanoseconds(self.to_ns.saturating_sub(self.from_ns)))];
        if let Some(intervals) = self.intervals.text() {
            notes[0] += &format!("; pages are sampled every {intervals}");
        }
        let at_least = self.bands.iter().map(|band| band.at_least_bytes).fold(0, u64::saturating_add);
        if at_least > 0 {
            notes.push(format!(
                "of {}, only the least frequency is known, so that it may be hotter than its band",
                units::bytes(at_least)
            ));
        }
        if self.targets > 1 {
            notes.push("what several targets share counts for each of them".into());
        }
        Histogram {
            title: format!("Temperature of {}: {} not accessed", units::bytes(known), units::percent(idle)),
            notes,
            quantity: "access rate",
            bands,
            total: &self.total,
            mappings: &self.mappings,
            by: self.by,
            groups: &self.groups,
            over_time: &self.over_time,
            is_state: false,
            chart: (count > 1).then(|| ("accessed memory over time".to_owned(), 1..count)),
        }
    }
}

impl Band {
    /// Its limits as text: `5 Hz to 10 Hz`.
    fn name(&self) -> String {
        match (self.kind, self.from_hz, self.to_hz) {
            (BandKind::Rate, Some(from), Some(to)) => format!("{} to {}", scale::hertz(from), scale::hertz(to)),
            (BandKind::SurveysOnly, ..) => "by surveys only".into(),
            _ => "not accessed".into(),
        }
    }
}

/// Where memory belongs, from cold to hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    NotAccessed,
    SurveysOnly,
    /// A step of the scale of rates.
    Rate(i32),
}

/// Memory by its place.
#[derive(Clone, Default)]
struct Areas {
    /// The places from cold to hot, each with all of its memory, and with the part that is accessed in each sample.
    places: Vec<(Place, f64, f64)>,
    unobservable: f64,
    unknown: f64,
}

impl Areas {
    /// Adds memory to a place.
    fn put(&mut self, place: Place, area: f64, at_least: f64) {
        let nth = match self.places.binary_search_by_key(&place, |(known, ..)| *known) {
            Ok(nth) => nth,
            Err(nth) => {
                self.places.insert(nth, (place, 0.0, 0.0));
                nth
            }
        };
        let (_, all, all_at_least) = &mut self.places[nth];
        *all += area;
        *all_at_least += at_least;
    }

    /// Adds a piece with the place of what is accessed of it, and whether each sample found that.
    fn add(&mut self, KnownPiece { parts, bytes, .. }: &KnownPiece<'_>, (used, is_in_each): (Place, bool)) {
        let bytes = *bytes as f64;
        self.unobservable += bytes * parts.unobservable;
        self.unknown += bytes * parts.unknown;
        if parts.cold > 0.0 {
            self.put(Place::NotAccessed, bytes * parts.cold, 0.0);
        }
        let share = parts.hot + parts.warm;
        if share > 0.0 {
            self.put(used, bytes * share, if is_in_each { bytes * share } else { 0.0 });
        }
    }

    /// Adds other memory, which counts so many times.
    fn join(&mut self, other: &Self, times: f64) {
        other.places.iter().for_each(|(place, area, at_least)| self.put(*place, area * times, at_least * times));
        self.unobservable += other.unobservable * times;
        self.unknown += other.unknown * times;
    }

    /// What is at a place: all, and the part that is accessed in each sample.
    fn at(&self, place: Place) -> (f64, f64) {
        let found = self.places.binary_search_by_key(&place, |(known, ..)| *known).ok();
        found.map_or((0.0, 0.0), |nth| (self.places[nth].1, self.places[nth].2))
    }

    fn clear(&mut self) {
        self.places.clear();
        (self.unobservable, self.unknown) = (0.0, 0.0);
    }

    /// The bytes at each of `places`, where weights are bytes × `seconds`.
    fn sizes(&self, places: &[Place], seconds: f64) -> Sizes {
        let bytes = |area: f64| (area / seconds).round() as u64;
        Sizes {
            bytes: places.iter().map(|place| bytes(self.at(*place).0)).collect(),
            unobservable_bytes: bytes(self.unobservable),
            unknown_bytes: bytes(self.unknown),
        }
    }
}

/// The temperature of a selection, as it is computed.
#[derive(Default)]
pub(crate) struct TemperatureBuilder {
    total: Areas,
    mappings: ByName<Areas>,
    /// The place of the name of each mapping.
    of_mappings: OfMappings<usize>,
    targets: HashMap<TargetId, Areas>,
    over_time: Course,
    /// The memory of a mapping in a snapshot.
    of_mapping: Areas,
    span: Option<(Duration, Duration)>,
    covered: Duration,
    intervals: IntervalRange,
}

impl TemperatureBuilder {
    /// The temperature after the walk, with these groups of targets.
    pub(crate) fn finish(self, grouping: &Grouping) -> Temperatures {
        let mut places = vec![Place::NotAccessed];
        let found: Vec<Place> = self.total.places.iter().map(|(place, ..)| *place).collect();
        if found.contains(&Place::SurveysOnly) {
            places.push(Place::SurveysOnly);
        }
        let steps = || found.iter().filter_map(|place| if let Place::Rate(step) = place { Some(*step) } else { None });
        if let (Some(first), Some(last)) = (steps().min(), steps().max()) {
            places.extend((first..=last).map(Place::Rate));
        }
        let seconds = self.covered.as_secs_f64().max(1e-9);
        let named = |(name, areas): (String, Areas)| (name, areas.sizes(&places, seconds));
        let mut groups: HashMap<usize, Areas> = HashMap::new();
        for (id, areas) in &self.targets {
            let group = grouping.of_target(*id);
            group.into_iter().for_each(|nth| groups.entry(nth).or_default().join(areas, 1.0));
        }
        let groups = groups.into_iter().map(|(nth, areas)| (grouping.name(nth), areas));
        let mappings = self.mappings.into_all().into_iter().map(|(name, areas)| (name.to_string(), areas));
        let moment = |moment: &course::Moment| Moment {
            time_ns: moment.time.as_nanos() as u64,
            sizes: moment.areas.sizes(&places, moment.snapshots.into()),
        };
        let band = |place: &Place| {
            let (_, at_least) = self.total.at(*place);
            let (kind, limits) = match *place {
                Place::NotAccessed => (BandKind::NotAccessed, Some((0.0, 0.0))),
                Place::SurveysOnly => (BandKind::SurveysOnly, None),
                Place::Rate(step) => (BandKind::Rate, Some((scale::start(step), scale::start(step + 1)))),
            };
            let (from_hz, to_hz) = limits.unzip();
            Band { kind, from_hz, to_hz, at_least_bytes: (at_least / seconds).round() as u64 }
        };
        let (from, to) = self.span.unwrap_or_default();
        Temperatures {
            from_ns: from.as_nanos() as u64,
            to_ns: to.as_nanos() as u64,
            intervals: self.intervals,
            targets: self.targets.len(),
            bands: places.iter().map(band).collect(),
            total: self.total.sizes(&places, seconds),
            over_time: self.over_time.moments().iter().map(moment).collect(),
            mappings: sorted(mappings.map(named)),
            by: grouping.by(),
            groups: sorted(groups.map(named)),
        }
    }
}

impl Accumulator for TemperatureBuilder {
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
        let row = &visit.row;
        let (start, end) = self.span.unwrap_or((visit.since, row.time));
        self.span = Some((start.min(visit.since), end.max(row.time)));
        if self.over_time.begin(row.time) {
            self.covered += visit.span();
        }
        self.intervals.add_row(row);
        let target = self.targets.entry(row.target.id).or_default();
        let seconds = visit.span().as_secs_f64();
        let of_mappings = self.of_mappings.of(row.target);
        for of_mapping in visit.known().chunk_by(|a, b| a.piece.nth_mapping == b.piece.nth_mapping) {
            let Some(KnownPiece { piece, .. }) = of_mapping.first() else { continue };
            self.of_mapping.clear();
            for known in of_mapping {
                let step = (known.share.hz > 0.0).then(|| scale::step(known.share.hz));
                let is_least = known.piece.region.is_least_hz(row.samples);
                self.of_mapping.add(known, (step.map_or(Place::SurveysOnly, Place::Rate), is_least));
            }
            let name = || self.mappings.place(shown_name(&piece.mapping.label()));
            let name = *of_mappings[piece.nth_mapping].get_or_insert_with(name);
            self.total.join(&self.of_mapping, seconds);
            self.mappings.at(name).into_iter().for_each(|areas| areas.join(&self.of_mapping, seconds));
            target.join(&self.of_mapping, seconds);
            if let Some(areas) = self.over_time.now() {
                areas.join(&self.of_mapping, 1.0);
            }
        }
        Ok(())
    }
}
