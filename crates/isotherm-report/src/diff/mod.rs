//! The difference of two recordings, or of two parts of one: working set, resident, hot and cold memory, by mapping
//! name and by program.
//!
//! Memory is matched by the names of mappings and programs, not by addresses and process IDs, which differ from run to
//! run. Lengths may differ: means over time and peaks are compared. A figure that cannot be compared is told by a
//! warning.

mod comparable;
mod gather;
mod html;
mod json;
mod quantity;
mod svg;
mod text;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use isotherm_core::survey::WINDOWS;
use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::schema::as_ns;
use crate::source::{Selection, Source, walk};
use crate::wss::Basis;
use crate::{Format, Options, ReportError, escape, png};

use gather::{Gathered, Kind, SurveyTimes};

pub use quantity::{Amount, Change, Count};

/// One of the two recordings.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The name that the report shows, such as that of the file.
    pub name: &'a str,
    /// The recording.
    pub source: &'a dyn Source,
    /// The part of it that is compared.
    pub selection: &'a Selection,
}

/// What is compared of one of the recordings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Compared {
    /// The name of the recording, and its part if only one is compared.
    #[serde(rename = "recording")]
    pub name: String,
    /// The start of the compared time.
    #[serde(rename = "from_ns", serialize_with = "as_ns")]
    #[schemars(with = "u64")]
    pub from: Duration,
    /// The end of the compared time.
    #[serde(rename = "to_ns", serialize_with = "as_ns")]
    #[schemars(with = "u64")]
    pub to: Duration,
    /// The number of snapshots.
    pub snapshots: u64,
    /// The number of targets.
    pub targets: usize,
    /// The probe.
    pub probe: String,
    /// What one answer of the probe is about: `page` or `mapping`.
    pub granularity: String,
    /// The number of surveys that have one before them.
    pub surveys: usize,
    /// The median time from a survey to the next. `None` without surveys.
    #[serde(rename = "survey_interval_ns", serialize_with = "as_ns")]
    #[schemars(with = "Option<u64>")]
    pub survey_interval: Option<Duration>,
    /// The median sampling interval: the time over which a sample finds an access. `None` without samples.
    #[serde(rename = "sampling_interval_ns", serialize_with = "as_ns")]
    #[schemars(with = "Option<u64>")]
    pub sampling: Option<Duration>,
    /// The median aggregation interval.
    #[serde(rename = "aggregation_interval_ns", serialize_with = "as_ns")]
    #[schemars(with = "u64")]
    pub aggregation: Duration,
    /// Whether a survey has a whole window before it. True without surveys.
    #[serde(skip)]
    pub covers_window: bool,
}

/// What both recordings have of one name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Changes {
    /// The name of the mappings, `anonymous` for memory without a name; or that of the program.
    pub name: String,
    #[serde(flatten, serialize_with = "json::quantities")]
    #[schemars(with = "json::Quantities")]
    of: [Change; Count::ALL.len()],
}

/// The difference of two recordings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diff {
    /// What is compared of the first recording.
    pub before: Compared,
    /// What is compared of the second recording.
    pub after: Compared,
    /// Why some figures cannot be compared, or rest on little.
    pub warnings: Vec<String>,
    /// What the working set rests on, in both.
    #[serde(rename = "source")]
    pub basis: Basis,
    /// The window of the working set. Without surveys, the longer of the two aggregation intervals.
    #[serde(rename = "window_ns", serialize_with = "as_ns")]
    #[schemars(with = "u64")]
    pub window: Duration,
    /// Whether each page counts once in the working set and the resident memory of the total. In all other figures,
    /// what several targets share counts for each of them.
    #[serde(rename = "counted_once")]
    pub counts_once: bool,
    /// All memory.
    #[serde(serialize_with = "json::unnamed")]
    #[schemars(with = "json::Quantities")]
    pub total: Changes,
    /// The names of mappings. Those whose working set grew most come first.
    pub mappings: Vec<Changes>,
    /// The programs, in the same order.
    #[serde(rename = "commands")]
    pub programs: Vec<Changes>,
}

impl Changes {
    /// What both recordings have of a quantity.
    pub fn of(&self, quantity: Count) -> &Change {
        &self.of[quantity as usize]
    }

    fn new(name: &str, of: impl Fn(Count) -> Change) -> Self {
        Self { name: name.into(), of: Count::ALL.map(of) }
    }
}

impl Diff {
    /// The difference of two recordings. The working set is that within `window`, which is one of
    /// [`WINDOWS`]; without one, within the shortest that is no shorter than the survey
    /// interval of both. If one of them has no surveys, it is an estimate from samples in both.
    ///
    /// # Errors
    /// If one of them cannot be read, has nothing in its selection, or has no surveys although there is a `window`.
    pub fn new(before: Side<'_>, after: Side<'_>, window: Option<Duration>) -> Result<Self, ReportError> {
        let parts = [before, after].map(|side| side.selection.within_part(side.source.header()));
        let sides = [Side { selection: &parts[0], ..before }, Side { selection: &parts[1], ..after }];
        let [first, second] = sides.map(|side| SurveyTimes::read(side.source, side.selection));
        let surveys = [first?, second?];
        let intervals = surveys.each_ref().map(SurveyTimes::interval);
        let surveyed = match intervals {
            [Some(first), Some(second)] => Some(window.unwrap_or_else(|| shortest(first.max(second)))),
            _ => None,
        };
        if let (None, Some(window)) = (surveyed, window) {
            return Err(ReportError::NoSurveys { window });
        }
        let [first, second] = [0, 1].map(|nth| gathered(sides[nth], &surveys[nth], surveyed));
        let found = [first?, second?];
        let aggregation = || found[0].aggregation().max(found[1].aggregation());
        let window = surveyed.unwrap_or_else(aggregation);
        let [before, after] = [0, 1].map(|nth| compared(sides[nth], &found[nth], &surveys[nth], surveyed));
        let mut warnings = comparable::warnings(&before, &after, surveyed);
        for side in sides {
            let evidence = Evidence::of(side.source, side.selection)?;
            let of_side = side.source.cut_short().into_iter().chain(evidence.warnings());
            warnings.extend(of_side.map(|warning| format!("{}: {warning}", side.name)));
        }
        let counts_once = found.iter().all(Gathered::counts_once);
        let change = |of: &dyn Fn(&Gathered) -> Option<Amount>| Change { before: of(&found[0]), after: of(&found[1]) };
        let total = Changes::new("total", |quantity| change(&|found| found.total(quantity, counts_once)));
        let [mappings, programs] = [Kind::Mapping, Kind::Program].map(|kind| {
            let names: BTreeSet<&str> = found.iter().flat_map(|found| found.names(kind)).collect();
            let of = |name: &&str| Changes::new(name, |quantity| change(&|found| found.named(kind, name, quantity)));
            let mut all: Vec<Changes> = names.iter().map(of).collect();
            let key = |changes: &Changes| Count::ALL.map(|quantity| Reverse(changes.of(quantity).difference()));
            all.sort_by_key(key);
            all
        });
        let basis = if surveyed.is_some() { Basis::Survey } else { Basis::Samples };
        Ok(Self { before, after, warnings, basis, window, counts_once, total, mappings, programs })
    }

    /// Writes the difference.
    ///
    /// # Errors
    /// If `out` cannot be written to, or the picture cannot be drawn.
    pub fn write(&self, format: Format, options: &Options, out: &mut dyn Write) -> Result<(), ReportError> {
        match format {
            Format::Text => text::write(out, &options.terminal, self)?,
            Format::Json => writeln!(out, "{}", escape::json(self)?)?,
            Format::Svg => out.write_all(svg::draw(self, options.picture).standalone().as_bytes())?,
            Format::Png => out.write_all(&png::from_svg(&svg::draw(self, options.picture).standalone())?)?,
            Format::Html => html::page(self, options.picture, out)?,
        }
        out.flush()?;
        Ok(())
    }

    /// What the quantity is, in a few words.
    pub(crate) fn meaning(&self, quantity: Count) -> String {
        let window = isotherm_core::units::duration(self.window);
        match (quantity, self.basis) {
            (Count::WorkingSet, Basis::Survey) => format!("working set: touched within {window}"),
            (Count::WorkingSet, Basis::Samples) => {
                format!("working set: accessed within {window}, estimated from samples")
            }
            (Count::Resident, Basis::Survey) => "resident: in memory".into(),
            (Count::Resident, Basis::Samples) => "mapped".into(),
            (Count::Hot, _) => "hot: accessed in at least half of the samples".into(),
            (Count::Cold, _) => "cold: not accessed".into(),
        }
    }

    /// The name of a quantity in tables.
    pub(crate) fn name(&self, quantity: Count) -> &'static str {
        match quantity {
            Count::WorkingSet => "working set",
            Count::Resident if self.basis == Basis::Samples => "mapped",
            Count::Resident => "resident",
            Count::Hot => "hot",
            Count::Cold => "cold",
        }
    }
}

/// The shortest window that is no shorter than `interval`, which is not exact; or the longest.
fn shortest(interval: Duration) -> Duration {
    let fits = |window: &&Duration| **window + **window / 20 >= interval;
    WINDOWS.iter().find(fits).or(WINDOWS.last()).copied().unwrap_or(interval)
}

fn gathered(side: Side<'_>, surveys: &SurveyTimes, window: Option<Duration>) -> Result<Gathered, ReportError> {
    let mut found = Gathered::new(window.is_none());
    walk(side.source, side.selection, &mut [&mut found])?;
    if let Some(window) = window {
        found.add_surveys(side.source, side.selection, surveys, window)?;
    }
    Ok(found)
}

fn compared(side: Side<'_>, found: &Gathered, surveys: &SurveyTimes, window: Option<Duration>) -> Compared {
    let (from, to) = found.span.unwrap_or_default();
    let header = side.source.header();
    Compared {
        name: side.name.into(),
        from,
        to,
        snapshots: found.snapshots,
        targets: found.targets.len(),
        probe: header.probe.clone(),
        granularity: header.granularity.clone(),
        surveys: surveys.count(),
        survey_interval: surveys.interval(),
        sampling: found.sampling(),
        aggregation: found.aggregation(),
        covers_window: window.is_none_or(|window| surveys.cover(window)),
    }
}

/// The rows with the largest differences, largest growth first, and the sum of the others.
fn folded(all: &[Changes], quantity: Count, most: usize) -> (Vec<&Changes>, Option<Changes>) {
    let mut shown: Vec<&Changes> = all.iter().filter(|changes| changes.of(quantity).largest() > 0).collect();
    let weight = |changes: &&Changes| {
        let change = changes.of(quantity);
        Reverse((change.difference().unsigned_abs(), change.largest()))
    };
    shown.sort_by_key(weight);
    let rest = if shown.len() > most { shown.split_off(most.saturating_sub(1)) } else { vec![] };
    shown.sort_by_key(|changes| Reverse((changes.of(quantity).difference(), changes.of(quantity).largest())));
    let name = format!("others ({})", rest.len());
    let sum = rest
        .into_iter()
        .cloned()
        .reduce(|sum, next| Changes { name: sum.name, of: std::array::from_fn(|nth| sum.of[nth].plus(next.of[nth])) });
    (shown, sum.map(|sum| Changes { name, ..sum }))
}

/// A difference with its sign: `+1.5 MiB`, `-64 KiB`, `0`.
fn signed(difference: i64) -> String {
    let sign = match difference {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    sign.to_owned() + &isotherm_core::units::table_bytes(difference.unsigned_abs())
}
