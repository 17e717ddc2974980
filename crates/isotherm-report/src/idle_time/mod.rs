//! For how long memory has been idle: how many bytes were accessed last how long ago, by mapping name and by group.
//!
//! Surveys tell it of each page. A recording without surveys has an estimate only: the age of the regions in which no
//! sample found an access.

mod sampled;
mod surveyed;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use isotherm_core::survey::WINDOWS;
use isotherm_core::units;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::groups::{GroupBy, Grouping};
use crate::histogram::{Band, Histogram, Moment, NamedSizes, Sizes, sorted};
use crate::schema::{ns, serialized_as};
use crate::source::{Selection, Source, walk};
use crate::wss::Basis;

pub(crate) use surveyed::Surveys;

/// For how long memory has been idle at the last survey of a selection, and over its time.
#[derive(Clone, Debug, Default)]
pub struct IdleTime {
    /// What it rests on.
    pub basis: Basis,
    /// The time of the last survey of the selection; without surveys, that of the last snapshot.
    pub time: Duration,
    /// The start of each band: memory of the band has been idle for at least this long, and for less than the start of
    /// the next band. The first is 0.
    pub edges: Vec<Duration>,
    /// The median time from a survey to the next. `None` without surveys.
    pub survey_interval: Option<Duration>,
    /// Bytes of the bands that are estimated, because a survey had not cleared their accessed bits.
    pub estimated_bytes: u64,
    /// Whether each page counts once in the total and over time. What several targets share counts for each of them in
    /// the rest.
    pub counts_once: bool,
    /// All memory.
    pub total: Sizes,
    /// The names of mappings, the largest first.
    pub mappings: Vec<NamedSizes>,
    /// What groups are by.
    pub by: GroupBy,
    /// The groups, the largest first. Empty if they are by mapping.
    pub groups: Vec<NamedSizes>,
    /// All memory at each survey, or at each snapshot.
    pub over_time: Vec<Moment>,
}

impl IdleTime {
    /// The idle times of a selection, and of its groups: of programs unless `by` names others.
    ///
    /// # Errors
    /// If the source cannot be read or has nothing in the selection, or does not tell the cgroups that groups are by.
    pub fn new(source: &dyn Source, selection: &Selection, by: Option<GroupBy>) -> Result<Self, ReportError> {
        let by = by.or(Some(GroupBy::Command));
        let (mut groups, mut surveys) = (Grouping::reader(selection, by), Surveys::new(selection));
        match walk(source, selection, &mut [&mut groups, &mut surveys]) {
            // A recording may have surveys alone.
            Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {}
            walked => walked?,
        }
        let grouping = Grouping::of_reader(groups, source, selection, by)?;
        Self::after(surveys, source, selection, &grouping)
    }

    /// The idle times of a selection with these groups, and with these surveys, which a walk has found.
    pub(crate) fn after(
        surveys: Surveys,
        source: &dyn Source,
        selection: &Selection,
        grouping: &Grouping,
    ) -> Result<Self, ReportError> {
        surveys.idle_time(grouping).map_or_else(|| sampled::idle_time(source, selection, grouping), Ok)
    }

    /// The limits of a band: for how long its memory has been idle at least, and less than. `None` for the last band.
    fn limits(&self, band: usize) -> (Duration, Option<Duration>) {
        (self.edges.get(band).copied().unwrap_or_default(), self.edges.get(band + 1).copied())
    }

    /// The limits of a band as text: `under 5 s`, `5 s to 10 s`, `10 s or more`.
    fn band(&self, band: usize) -> String {
        match self.limits(band) {
            (start, Some(end)) if start.is_zero() => format!("under {}", units::duration(end)),
            (start, Some(end)) => format!("{} to {}", units::duration(start), units::duration(end)),
            (start, None) => format!("{} or more", units::duration(start)),
        }
    }

    /// The report, ready to be rendered.
    pub(crate) fn histogram(&self) -> Histogram<'_> {
        let last = self.edges.len().saturating_sub(1);
        let heat = |band: usize| 1.0 - band as f64 / last.max(1) as f64;
        let bands = (0..self.edges.len()).map(|band| Band { name: self.band(band), heat: heat(band) }).collect();
        let mut title = format!("Idle time of {}", units::bytes(self.total.known()));
        if let Some(half) = self.total.percentile(50) {
            title += &match self.limits(half) {
                (_, Some(end)) => format!(": half of it for less than {}", units::duration(end)),
                (start, None) => format!(": half of it for {} or more", units::duration(start)),
            };
        }
        let mut notes = vec![match (self.basis, self.survey_interval) {
            (Basis::Survey, interval) => {
                let every =
                    interval.map_or_else(String::new, |every| format!(", surveys every {}", units::duration(every)));
                format!("at the survey at {}{every}", units::duration(self.time))
            }
            (Basis::Samples, _) => format!(
                "at the snapshot at {}, estimated from samples: the age of regions without an access",
                units::duration(self.time)
            ),
        }];
        if self.estimated_bytes > 0 {
            notes.push(format!("of this, {} are estimated", units::bytes(self.estimated_bytes)));
        }
        if !self.counts_once {
            notes.push("what several targets share counts for each of them".into());
        }
        // Of the bands that last long enough to be seen to change.
        let from = self.edges.iter().rposition(|edge| *edge * 2 <= self.time).unwrap_or(0);
        let title_of_chart = || format!("idle for at least {}, over time", units::duration(self.edges[from]));
        Histogram {
            title,
            notes,
            quantity: "idle for",
            bands,
            total: &self.total,
            mappings: &self.mappings,
            by: self.by,
            groups: &self.groups,
            over_time: &self.over_time,
            is_state: true,
            chart: (from > 0).then(|| (title_of_chart(), from..self.edges.len())),
        }
    }
}

/// The starts of bands: the windows of surveys from `shortest` to `longest`, after 0.
fn edges(shortest: Duration, longest: Duration) -> Vec<Duration> {
    let up_to = || WINDOWS.into_iter().filter(|&window| window <= longest);
    let from = |window: &Duration| *window + *window / 20 >= shortest;
    let windows: Vec<_> = up_to().filter(from).collect();
    let windows = if windows.is_empty() { up_to().next_back().into_iter().collect() } else { windows };
    std::iter::once(Duration::ZERO).chain(windows).collect()
}

/// Memory of several names.
#[derive(Default)]
struct ByName {
    total: Sizes,
    mappings: HashMap<String, Sizes>,
    groups: HashMap<usize, Sizes>,
}

impl ByName {
    fn add(&mut self, mapping: &str, group: Option<usize>, sizes: &Sizes) {
        self.total.add(sizes);
        self.mappings.entry(mapping.into()).or_default().add(sizes);
        group.into_iter().for_each(|nth| self.groups.entry(nth).or_default().add(sizes));
    }

    fn into_names(self, grouping: &Grouping) -> [Vec<NamedSizes>; 2] {
        let groups = self.groups.into_iter().map(|(nth, sizes)| (grouping.name(nth), sizes));
        [sorted(self.mappings), sorted(groups)]
    }
}

/// The idle times in JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IdleTime")]
struct IdleTimeJson<'a> {
    /// What the idle times rest on.
    source: Basis,
    /// The time of the last survey of the selection; without surveys, that of the last snapshot.
    time_ns: u64,
    /// The median time from a survey to the next. `None` without surveys.
    survey_interval_ns: Option<u64>,
    /// The start of each band: memory of the band has been idle for at least this long, and for less than the start of
    /// the next band.
    edges_ns: Vec<u64>,
    /// Bytes of the bands that are estimated, because a survey had not cleared their accessed bits.
    estimated_bytes: u64,
    /// Whether each page counts once in the total and over time. What several targets share counts for each of them in
    /// the rest.
    counted_once: bool,
    /// The limits of the band that holds each percentile of the bytes in bands. Empty without such bytes.
    percentiles: BTreeMap<u32, Limits>,
    /// All memory.
    total: &'a Sizes,
    /// The names of mappings, the largest first.
    mappings: &'a [NamedSizes],
    /// What the groups are by.
    group_by: GroupBy,
    /// The groups, the largest first. Empty if they are by mapping.
    groups: &'a [NamedSizes],
    /// All memory at each survey, or at each snapshot.
    over_time: &'a [Moment],
}

/// The limits of a band.
#[derive(Serialize, JsonSchema)]
struct Limits {
    /// For how long its memory has been idle at least.
    at_least_ns: u64,
    /// The time that is not reached. `None` for the last band.
    less_than_ns: Option<u64>,
}

serialized_as!(IdleTime, IdleTimeJson<'_>);

impl<'a> From<&'a IdleTime> for IdleTimeJson<'a> {
    fn from(of: &'a IdleTime) -> Self {
        let limits = |band| {
            let (start, end) = of.limits(band);
            Limits { at_least_ns: ns(start), less_than_ns: end.map(ns) }
        };
        Self {
            source: of.basis,
            time_ns: ns(of.time),
            survey_interval_ns: of.survey_interval.map(ns),
            edges_ns: of.edges.iter().copied().map(ns).collect(),
            estimated_bytes: of.estimated_bytes,
            counted_once: of.counts_once,
            percentiles: of.total.percentiles().map(|(p, band)| (p, limits(band))).collect(),
            total: &of.total,
            mappings: &of.mappings,
            group_by: of.by,
            groups: &of.groups,
            over_time: &of.over_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_begin_with_the_survey_interval_and_end_with_what_is_known() {
        let seconds = |all: &[u64]| all.iter().map(|&s| Duration::from_secs(s)).collect::<Vec<_>>();
        let of = |shortest: u64, longest: u64| edges(Duration::from_millis(shortest), Duration::from_millis(longest));
        assert_eq!(of(1001, 31_000), seconds(&[0, 1, 2, 5, 10, 30]));
        assert_eq!(of(3200, 18_000), seconds(&[0, 5, 10]));
        assert_eq!(of(6000, 9000), seconds(&[0, 5]));
        assert_eq!(of(100, 900), seconds(&[0]));
    }
}
