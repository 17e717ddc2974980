//! A trial: replays a recording through schemes that act on nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::rate::{is_same_interval, sampling_interval};
use isotherm_core::scheme::{ActedRegion, FilterKind, PageKind, Report, Scheme};
use isotherm_core::{AddrRange, Mapping, Snapshot, TargetId, units};
use isotherm_record::SnapshotRecord;
use isotherm_run::{Event, RunConfig, Source};

/// What schemes would have done.
pub struct Trial {
    pub recording: PathBuf,
    pub duration: Duration,
    pub snapshots: u64,
    pub schemes: Vec<Tried>,
    /// Whether sizes are those of memory that was present. Without surveys they are those of mapped memory.
    pub present: bool,
    /// What the recording does not contain, and what was assumed instead.
    pub notes: Vec<String>,
}

/// What one scheme would have done.
pub struct Tried {
    pub scheme: Scheme,
    pub report: Report,
    /// The bytes on which it would have acted, in all applications.
    pub bytes: u64,
    /// Its applications that found something, in the order of time.
    pub steps: Vec<Step>,
    /// The bytes on which it would have acted. A byte counts once, even if it was selected several times.
    pub distinct_bytes: u64,
    /// The maximum number of bytes that one application left alone because they could not be observed.
    pub most_unobservable: u64,
}

/// One application that found something.
pub struct Step {
    pub time: Duration,
    pub bytes: u64,
    pub held_back: u64,
    pub regions: Vec<(ActedRegion, Arc<str>)>,
}

/// Replays the recording of this path through `schemes`. A part of it may take `max_memory` bytes.
pub fn trial(schemes: Vec<Scheme>, recording: &Path, max_memory: Option<u64>) -> Result<Trial> {
    let source = Source::Replay { path: recording.into(), max_memory };
    let mut run = RunConfig::new(source).schemes(schemes.clone()).prepare()?;
    let events = run.subscribe();
    let session = run.start()?;
    let mut tally = Tally::new(schemes);
    let mut snapshot: Option<Arc<SnapshotRecord>> = None;
    for event in events {
        match event {
            Event::Snapshot(record) => snapshot = Some(record),
            // Each activity follows its snapshot.
            Event::Activity(activity) => {
                if let Some(record) = &snapshot {
                    tally.add(&record.snapshot, &activity.schemes);
                }
            }
            _ => {}
        }
    }
    session.wait()?;
    Ok(tally.into_trial(recording))
}

/// What the schemes have done so far.
struct Tally {
    schemes: Vec<TallyOfOne>,
    snapshots: u64,
    end: Duration,
    surveyed: bool,
    /// The sampling interval at the start, which conditions are about, and the longest one.
    intervals: Option<(Duration, Duration)>,
}

/// What one scheme has done so far.
struct TallyOfOne {
    scheme: Scheme,
    report: Option<Report>,
    steps: Vec<Step>,
    taken: BTreeMap<TargetId, Vec<AddrRange>>,
    most_unobservable: u64,
}

impl Tally {
    fn new(schemes: Vec<Scheme>) -> Self {
        let schemes = schemes.into_iter().map(|scheme| TallyOfOne {
            scheme,
            report: None,
            steps: Vec::new(),
            taken: BTreeMap::new(),
            most_unobservable: 0,
        });
        Self { schemes: schemes.collect(), snapshots: 0, end: Duration::ZERO, surveyed: false, intervals: None }
    }

    /// Adds what the schemes did to a snapshot.
    fn add(&mut self, snapshot: &Snapshot, reports: &[Report]) {
        self.snapshots += 1;
        self.end = snapshot.time;
        self.surveyed |= !snapshot.histories.is_empty();
        let sampling = sampling_interval(snapshot.aggregation, snapshot.samples);
        let (first, longest) = self.intervals.unwrap_or((sampling, sampling));
        self.intervals = Some((first, longest.max(sampling)));
        for (tally, report) in self.schemes.iter_mut().zip(reports) {
            tally.add(snapshot, report);
        }
    }

    fn into_trial(self, recording: &Path) -> Trial {
        let unsurveyed = (!self.surveyed).then(|| NO_SURVEY.to_owned());
        let notes = self.schemes.iter().flat_map(|tally| notes(&tally.scheme));
        let changed =
            self.intervals.filter(|(first, longest)| !is_same_interval(*first, *longest)).map(other_intervals);
        let notes = unsurveyed.into_iter().chain(changed).chain(notes).collect();
        let tried = self.schemes.into_iter().filter_map(|tally| {
            let distinct = tally.taken.into_values().flat_map(merged);
            Some(Tried {
                report: tally.report?,
                bytes: tally.steps.iter().map(|step| step.bytes).sum(),
                scheme: tally.scheme,
                steps: tally.steps,
                distinct_bytes: distinct.map(AddrRange::size).sum(),
                most_unobservable: tally.most_unobservable,
            })
        });
        let (recording, duration) = (recording.to_path_buf(), self.end);
        Trial {
            recording,
            duration,
            snapshots: self.snapshots,
            present: self.surveyed,
            schemes: tried.collect(),
            notes,
        }
    }
}

impl TallyOfOne {
    fn add(&mut self, snapshot: &Snapshot, report: &Report) {
        let last = &report.last;
        self.most_unobservable = self.most_unobservable.max(last.unobservable_bytes);
        let before = self.report.replace(report.clone()).map_or(0, |report| report.total.applications);
        let found = !last.regions.is_empty() || last.held_back_bytes > 0;
        if report.total.applications == before || !found {
            return;
        }
        for region in &last.regions {
            let ranges = self.taken.entry(region.target).or_default();
            match snapshot.history(region.target) {
                Some(pages) => ranges.extend(pages.present_ranges(region.range)),
                None => ranges.push(region.range),
            }
            if ranges.len() > MANY {
                *ranges = merged(std::mem::take(ranges));
            }
        }
        self.steps.push(Step {
            time: snapshot.time,
            bytes: last.regions.iter().map(|region| present(snapshot, region)).sum(),
            held_back: last.held_back_bytes,
            regions: last.regions.iter().map(|region| (*region, mapping(snapshot, region))).collect(),
        });
    }
}

/// The number of ranges after which overlapping ranges are merged, so that the memory for them does not grow with the
/// length of the recording.
const MANY: usize = 1 << 16;

/// Merges ranges that overlap or touch.
fn merged(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| match AddrRange::new(kept.start(), kept.end().max(next.end())) {
        Some(both) if next.start() <= kept.end() => {
            *kept = both;
            true
        }
        _ => false,
    });
    ranges
}

/// What is said of a recording without surveys.
const NO_SURVEY: &str = "the recording has no survey: sizes are those of mapped memory, present or not";

/// What is said of a recording whose sampling interval becomes longer than it was at the start.
fn other_intervals((first, longest): (Duration, Duration)) -> String {
    let [first, longest] = [first, longest].map(units::duration);
    format!(
        "the sampling interval was {first} at first and up to {longest} later: access rates are those that samples \
         over {first} would find, and memory that each longer sample found accessed counts as accessed all the time"
    )
}

/// The bytes of a region that were present, or mapped without a survey.
fn present(snapshot: &Snapshot, region: &ActedRegion) -> u64 {
    snapshot.history(region.target).map_or(region.range.size(), |pages| pages.pages_in(region.range).present)
}

/// The name of the mapping that a region lies in.
fn mapping(snapshot: &Snapshot, region: &ActedRegion) -> Arc<str> {
    let of = snapshot.targets.iter().find(|target| target.id == region.target);
    let found = of.and_then(|target| target.mappings.iter().find(|m| m.range.contains(region.range.start())));
    found.map_or_else(|| "".into(), Mapping::label)
}

/// Notes on what the scheme needs and the recording does not contain, and what is assumed instead.
fn notes(scheme: &Scheme) -> Vec<String> {
    let pages = |kind| scheme.page_kinds().any(|asked| asked == kind);
    let cgroup = scheme.filters.iter().any(|filter| matches!(filter.kind, FilterKind::Cgroup(_)));
    let cases = [
        (pages(PageKind::Young), "a recording does not contain which pages are young: no page counted as young"),
        (pages(PageKind::Huge), "a recording does not contain which pages are huge: no page counted as huge"),
        (
            scheme.page_kinds().any(|asked| matches!(asked, PageKind::Active | PageKind::Folio(..))),
            "a recording does not contain which folios hold pages: no page counted as active or in one of that size",
        ),
        (
            pages(PageKind::Compressible),
            "a recording does not contain what pages hold: no page counted as compressible",
        ),
        (pages(PageKind::Unmapped), "a recording does not contain which pages are mapped: all pages counted as mapped"),
        (cgroup, "a recording does not contain cgroups: no process counted as part of one"),
        (scheme.watermarks.is_some(), "its watermarks were ignored: it was always awake"),
        (!scheme.quota.goals().is_empty(), "its goals were ignored: its quota was not tuned"),
        (scheme.quota.time().is_some(), "its quota of time was ignored: the time that actions take is not known"),
    ];
    cases.into_iter().filter(|(applies, _)| *applies).map(|(_, what)| format!("{}: {what}", scheme.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_whose_sampling_interval_changes_is_told_from_one_with_a_fixed_one() {
        let notes = |aggregations: &[u64]| {
            let mut tally = Tally::new(Vec::new());
            for &aggregation in aggregations {
                let aggregation = Duration::from_millis(aggregation);
                tally.add(&Snapshot { aggregation, samples: 20, ..Snapshot::default() }, &[]);
            }
            tally.into_trial(Path::new("a.rec")).notes
        };
        assert_eq!(notes(&[100, 100]), [NO_SURVEY]);
        let changed = notes(&[100, 2000, 400]);
        assert!(
            changed[1].starts_with("the sampling interval was 5 ms at first and up to 100 ms later"),
            "{changed:?}"
        );
    }
}
