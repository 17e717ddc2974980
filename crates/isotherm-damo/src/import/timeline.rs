//! Snapshots of all targets in the order of time, made of records of one target each.

use std::collections::HashMap;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, Permissions, RegionSnapshot, Snapshot, TargetId, TargetSnapshot, push_joined};
use isotherm_record::{TargetInfo, TargetInfos};

use super::ImportError;
use super::file::{self, Record};
use super::sidecar::Kdamond;
use super::targets::{TargetKey, Unidentified, identify};
use super::timing::{RecordTiming, Timing};

/// The name of the mappings of a process, which damo's JSON does not have.
const UNKNOWN: &str = "(mapping unknown)";
/// The name of the mappings of physical memory.
const PHYSICAL: &str = "(physical memory)";

/// Times from here on are counted from the Unix epoch, in nanoseconds: the year 2001. The times of a trace are
/// counted from the boot.
const UNIX_TIME: i64 = 1_000_000_000_000_000_000;

/// The contents of a file in the order of time.
#[derive(Debug)]
pub(super) struct Timeline {
    tracks: Vec<Track>,
    /// The end of each moment, the index of its track, and its index in the track.
    order: Vec<(i64, usize, usize)>,
    /// The start of the run, on damo's clock.
    start: i64,
    pub(super) findings: Findings,
}

/// What the header and the notes for the user need to know of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Findings {
    /// The intervals of the first record.
    pub(super) timing: Option<Timing>,
    pub(super) sampling_ns: Option<u64>,
    pub(super) update_ns: Option<u64>,
    /// The number of regions.
    pub(super) regions: u64,
    /// The number of regions with more accesses than samples.
    pub(super) over_full: u64,
    /// The number of regions without an age.
    pub(super) without_age: u64,
    /// The number of records that do not give their intervals.
    pub(super) guessed_timings: u64,
}

/// The snapshots of one target.
#[derive(Debug)]
struct Track {
    target: Unidentified,
    id: TargetId,
    info: Arc<TargetInfo>,
    moments: Vec<Moment>,
    mappings: Arc<[Mapping]>,
}

/// One target at the end of one aggregation.
#[derive(Debug)]
struct Moment {
    start: Option<i64>,
    end: i64,
    timing: Timing,
    regions: Vec<RegionSnapshot>,
    /// The indices of the record in the file and of the snapshot in the record.
    place: (usize, usize),
}

impl Timeline {
    /// Sorts the contents of `records` by time.
    ///
    /// # Errors
    /// When the records have no snapshots, or their values contradict each other.
    pub(super) fn new(
        path: &Path,
        records: Vec<Record>,
        kdamonds: &[Kdamond],
        pids: &[u32],
    ) -> Result<Self, ImportError> {
        let mut findings = Findings::default();
        let mut tracks: Vec<Track> = Vec::new();
        let mut numbers = HashMap::new();
        for (number, record) in records.into_iter().enumerate() {
            let key = TargetKey::of(&record);
            let track = *numbers.entry(key).or_insert_with(|| {
                tracks.push(Track::new(key));
                tracks.len() - 1
            });
            tracks[track].add(number, record, &mut findings).map_err(|reason| ImportError::invalid(path, reason))?;
        }
        tracks.retain(|track| !track.moments.is_empty());
        if tracks.is_empty() {
            return Err(ImportError::invalid(path, "it has no snapshots; record for longer"));
        }
        for track in &mut tracks {
            track.moments.sort_by_key(|moment| moment.end);
            track.check().map_err(|reason| ImportError::invalid(path, reason))?;
        }

        let targets: Vec<_> = tracks.iter().map(|track| track.target).collect();
        for (track, (id, info)) in tracks.iter_mut().zip(identify(path, &targets, kdamonds, pids)?) {
            (track.id, track.info) = (id, info);
        }
        let start = tracks.iter().filter_map(Track::start).min().unwrap_or(0);
        let ends = |(i, track): (usize, &Track)| {
            track.moments.iter().enumerate().map(|(j, moment)| (moment.end, i, j)).collect::<Vec<_>>()
        };
        let mut order: Vec<_> = tracks.iter().enumerate().flat_map(ends).collect();
        order.sort_unstable();
        Ok(Self { tracks, order, start, findings })
    }

    /// The start of the run since the Unix epoch. None if the times are counted from the boot.
    pub(super) fn started_unix_ns(&self) -> Option<u64> {
        u64::try_from(self.start).ok().filter(|_| self.start >= UNIX_TIME)
    }

    /// The key of the first target.
    pub(super) fn first(&self) -> Option<TargetKey> {
        self.tracks.first().map(|track| track.target.key)
    }

    /// The targets, each with its command line.
    pub(super) fn targets(&self) -> impl Iterator<Item = (TargetId, String)> {
        self.tracks.iter().map(|track| (track.id, track.info.command.clone()))
    }

    /// The information on each target for the recording.
    pub(super) fn infos(&self) -> TargetInfos {
        self.tracks.iter().map(|track| (track.id, Arc::clone(&track.info))).collect()
    }

    /// The snapshots in the order of time.
    ///
    /// damo's times of the same aggregation differ a little from target to target. Moments of different targets with
    /// the same intervals and less than half an aggregation apart become one snapshot, at the latest of their times.
    pub(super) fn into_snapshots(mut self) -> impl Iterator<Item = Snapshot> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let &(begin, track, moment) = self.order.get(next)?;
            let timing = self.tracks[track].moments[moment].timing;
            let latest = begin.saturating_add(i64::try_from(timing.aggregation_ns / 2).unwrap_or(i64::MAX));
            let mut snapshot = Snapshot {
                aggregation: Duration::from_nanos(timing.aggregation_ns),
                samples: timing.samples,
                ..Snapshot::default()
            };
            let mut end = begin;
            while let Some(&(at, track, moment)) = self.order.get(next)
                && at <= latest
            {
                let track = &mut self.tracks[track];
                let is_in_snapshot = snapshot.targets.iter().any(|target| target.id == track.id);
                if is_in_snapshot || track.moments[moment].timing != timing {
                    break;
                }
                snapshot.targets.push(track.take(moment));
                end = at;
                next += 1;
            }
            snapshot.time = Duration::from_nanos(end.abs_diff(self.start));
            Some(snapshot)
        })
    }
}

impl Track {
    fn new(key: TargetKey) -> Self {
        Self {
            target: Unidentified { key, end: 0 },
            id: TargetId::PhysicalMemory,
            info: Arc::new(TargetInfo::default()),
            moments: Vec::new(),
            mappings: Arc::from([]),
        }
    }

    /// Adds a record of this target, the one with index `number` in the file.
    fn add(&mut self, number: usize, record: Record, findings: &mut Findings) -> Result<(), String> {
        let timing = RecordTiming::of(&record)
            .map_err(|reason| format!("[{number}].intervals has {reason}; write the intervals of the run"))?;
        findings.guessed_timings += u64::from(timing.is_guess && !record.snapshots.is_empty());
        findings.timing = findings.timing.or(Some(timing.initial));
        if let Some(intervals) = &record.intervals {
            findings.sampling_ns = findings.sampling_ns.or(Some(intervals.sample_us.0));
            findings.update_ns = findings.update_ns.or(intervals.ops_update_us.map(|update| update.0));
        }
        for (i, snapshot) in record.snapshots.into_iter().enumerate() {
            // damo marks the end of a period with such a region.
            if matches!(&snapshot.regions[..], [region] if region.start == 0 && region.end == 0) {
                continue;
            }
            let timing = timing.of_snapshot(&snapshot);
            let regions = regions(&snapshot.regions, timing, findings)
                .map_err(|reason| format!("[{number}].snapshots[{i}].regions has {reason}"))?;
            self.target.end = self.target.end.max(regions.last().map_or(0, |region| region.range.end()));
            let (start, end) = (snapshot.start_time.map(|start| start.0), snapshot.end_time.0);
            self.moments.push(Moment { start, end, timing, regions, place: (number, i) });
        }
        Ok(())
    }

    /// Checks that no two moments have the same time.
    fn check(&self) -> Result<(), String> {
        match self.moments.windows(2).find(|pair| pair[0].end == pair[1].end) {
            Some([a, b, ..]) => {
                let place = |moment: &Moment| format!("[{}].snapshots[{}]", moment.place.0, moment.place.1);
                Err(format!(
                    "{} and {} are of the same target and end at the same time; \
                     remove one of them",
                    place(a),
                    place(b)
                ))
            }
            _ => Ok(()),
        }
    }

    /// When monitoring of the target began: at the start of its first snapshot, or one aggregation before its end if
    /// that start is more than two aggregations before the end.
    fn start(&self) -> Option<i64> {
        let first = self.moments.first()?;
        let aggregation = i64::try_from(first.timing.aggregation_ns).unwrap_or(i64::MAX);
        let earliest = first.end.saturating_sub(aggregation.saturating_mul(2));
        Some(match first.start {
            Some(start) if start < first.end && start >= earliest => start,
            _ => first.end.saturating_sub(aggregation),
        })
    }

    /// The snapshot of a moment, whose regions are moved out.
    fn take(&mut self, moment: usize) -> TargetSnapshot {
        let regions = mem::take(&mut self.moments[moment].regions);
        let name = if self.id == TargetId::PhysicalMemory { PHYSICAL } else { UNKNOWN };
        let mappings = mappings(&regions, name);
        if *self.mappings != *mappings {
            self.mappings = mappings.into();
        }
        TargetSnapshot { id: self.id, regions, mappings: Arc::clone(&self.mappings) }
    }
}

/// The regions of a snapshot, sorted by address.
fn regions(regions: &[file::Region], timing: Timing, findings: &mut Findings) -> Result<Vec<RegionSnapshot>, String> {
    let mut converted = Vec::with_capacity(regions.len());
    for region in regions {
        let Some(range) = AddrRange::new(region.start, region.end) else { continue };
        let (nr_accesses, is_over_full) = timing.nr_accesses(region);
        findings.over_full += u64::from(is_over_full);
        findings.without_age += u64::from(region.age == file::Age::Unknown);
        converted.push(RegionSnapshot {
            nr_accesses,
            nr_samples: timing.samples,
            age: timing.age(region),
            ..RegionSnapshot::new(range)
        });
    }
    findings.regions += converted.len() as u64;
    converted.sort_by_key(|region| region.range);
    match converted.windows(2).find(|pair| pair[0].range.end() > pair[1].range.start()) {
        Some([a, b, ..]) => Err(format!(
            "two regions that overlap, {} and {}; if they belong to several targets, which `damo record --snapshot` \
             does \
             not distinguish, record without --snapshot, or record one target",
            a.range, b.range
        )),
        _ => Ok(converted),
    }
}

/// One mapping for each run of adjacent regions.
fn mappings(regions: &[RegionSnapshot], name: &str) -> Vec<Mapping> {
    let mut runs: Vec<AddrRange> = Vec::new();
    regions.iter().for_each(|region| push_joined(&mut runs, region.range));
    runs.into_iter()
        .map(|range| Mapping { permissions: Permissions::NONE, name: name.into(), ..Mapping::anonymous(range) })
        .collect()
}
