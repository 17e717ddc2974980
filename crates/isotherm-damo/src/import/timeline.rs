//! From records, each of one target, to snapshots of all targets in the order of time.

use std::collections::HashMap;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, Permissions, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};

use super::DamoError;
use super::file::{self, Record};
use super::pace::{Pace, Paces};
use super::sidecar::Kdamond;
use super::targets::{Key, Known, identify};
use isotherm_record::{TargetInfo, TargetInfos};

/// What the memory of a process is called, of which damo's JSON does not say what is mapped where.
const UNKNOWN: &str = "(mapping unknown)";
/// What physical memory is called.
const PHYSICAL: &str = "(physical memory)";

/// Points in time from here on, in nanoseconds, are counted from the Unix epoch: 2001. Those of a trace are counted from the boot.
const UNIX_TIME: i64 = 1_000_000_000_000_000_000;

/// All that a file holds, in the order of time.
#[derive(Debug)]
pub(super) struct Timeline {
    tracks: Vec<Track>,
    /// All moments: when they end, of which track, which of it.
    order: Vec<(i64, usize, usize)>,
    /// The start of the run, on damo's clock.
    start: i64,
    pub(super) found: Found,
}

/// What was come across on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// The intervals of the first record.
    pub(super) pace: Option<Pace>,
    pub(super) sampling_ns: Option<u64>,
    pub(super) update_ns: Option<u64>,
    pub(super) regions: u64,
    /// Regions with more accesses than samples.
    pub(super) clamped: u64,
    /// Regions without an age.
    pub(super) ageless: u64,
    /// Records whose intervals had to be guessed.
    pub(super) guessed: u64,
}

/// One target.
#[derive(Debug)]
struct Track {
    known: Known,
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
    pace: Pace,
    regions: Vec<RegionSnapshot>,
    /// Which record and snapshot of the file it was.
    place: (usize, usize),
}

impl Timeline {
    /// Brings the records into order.
    ///
    /// # Errors
    /// When what they say cannot be a recording, or nothing is in them.
    pub(super) fn new(
        path: &Path,
        records: Vec<Record>,
        kdamonds: &[Kdamond],
        pids: &[u32],
    ) -> Result<Self, DamoError> {
        let mut found = Found::default();
        let mut tracks: Vec<Track> = Vec::new();
        let mut numbers = HashMap::new();
        for (number, record) in records.into_iter().enumerate() {
            let key = Key::of(&record);
            let track = *numbers.entry(key).or_insert_with(|| {
                tracks.push(Track::new(key));
                tracks.len() - 1
            });
            tracks[track].add(number, record, &mut found).map_err(|reason| DamoError::senseless(path, reason))?;
        }
        tracks.retain(|track| !track.moments.is_empty());
        if tracks.is_empty() {
            return Err(DamoError::senseless(path, "it holds no snapshot; record for longer"));
        }
        for track in &mut tracks {
            track.moments.sort_by_key(|moment| moment.end);
            track.check().map_err(|reason| DamoError::senseless(path, reason))?;
        }

        let known: Vec<_> = tracks.iter().map(|track| track.known).collect();
        for (track, (id, info)) in tracks.iter_mut().zip(identify(path, &known, kdamonds, pids)?) {
            (track.id, track.info) = (id, info);
        }
        let start = tracks.iter().filter_map(Track::start).min().unwrap_or(0);
        let ends = |(i, track): (usize, &Track)| {
            track.moments.iter().enumerate().map(|(j, moment)| (moment.end, i, j)).collect::<Vec<_>>()
        };
        let mut order: Vec<_> = tracks.iter().enumerate().flat_map(ends).collect();
        order.sort_unstable();
        Ok(Self { tracks, order, start, found })
    }

    /// When the run started, since the Unix epoch; nothing if damo counted from something else.
    pub(super) fn started_unix_ns(&self) -> Option<u64> {
        u64::try_from(self.start).ok().filter(|_| self.start >= UNIX_TIME)
    }

    /// The key of the first target.
    pub(super) fn first(&self) -> Option<Key> {
        self.tracks.first().map(|track| track.known.key)
    }

    /// The targets, each with its command.
    pub(super) fn targets(&self) -> impl Iterator<Item = (TargetId, String)> {
        self.tracks.iter().map(|track| (track.id, track.info.command.clone()))
    }

    /// What the targets are.
    pub(super) fn infos(&self) -> TargetInfos {
        self.tracks.iter().map(|track| (track.id, Arc::clone(&track.info))).collect()
    }

    /// The snapshots, in the order of time. Their regions are given away.
    ///
    /// damo has a time for each target of the same aggregation, a little apart: those less than half an aggregation apart, and of the
    /// same intervals, are one snapshot, at the time of the last of them.
    pub(super) fn into_snapshots(mut self) -> impl Iterator<Item = Snapshot> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let &(begin, track, moment) = self.order.get(next)?;
            let pace = self.tracks[track].moments[moment].pace;
            let latest = begin.saturating_add(i64::try_from(pace.aggregation_ns / 2).unwrap_or(i64::MAX));
            let mut snapshot = Snapshot {
                aggregation: Duration::from_nanos(pace.aggregation_ns),
                samples: pace.samples,
                ..Snapshot::default()
            };
            let mut end = begin;
            while let Some(&(at, track, moment)) = self.order.get(next)
                && at <= latest
            {
                let track = &mut self.tracks[track];
                let there = snapshot.targets.iter().any(|target| target.id == track.id);
                if there || track.moments[moment].pace != pace {
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
    fn new(key: Key) -> Self {
        Self {
            known: Known { key, highest: 0 },
            id: TargetId::PhysicalMemory,
            info: Arc::new(TargetInfo { command: String::new(), started_unix_ns: 0 }),
            moments: Vec::new(),
            mappings: Arc::from([]),
        }
    }

    /// Takes in a record of this target, the file's number `number`.
    fn add(&mut self, number: usize, record: Record, found: &mut Found) -> Result<(), String> {
        let paces = Paces::of(&record)
            .map_err(|reason| format!("[{number}].intervals has {reason}; give it those that it was recorded with"))?;
        found.guessed += u64::from(!paces.told && !record.snapshots.is_empty());
        found.pace = found.pace.or(Some(paces.usual));
        if let Some(intervals) = &record.intervals {
            found.sampling_ns = found.sampling_ns.or(Some(intervals.sample_us.0));
            found.update_ns = found.update_ns.or(intervals.ops_update_us.map(|update| update.0));
        }
        for (i, snapshot) in record.snapshots.into_iter().enumerate() {
            // damo's mark for the end of a time.
            if matches!(&snapshot.regions[..], [region] if region.start == 0 && region.end == 0) {
                continue;
            }
            let pace = paces.at(&snapshot);
            let regions = regions(&snapshot.regions, pace, found)
                .map_err(|reason| format!("[{number}].snapshots[{i}].regions has {reason}"))?;
            self.known.highest = self.known.highest.max(regions.last().map_or(0, |region| region.range.end()));
            let (start, end) = (snapshot.start_time.map(|start| start.0), snapshot.end_time.0);
            self.moments.push(Moment { start, end, pace, regions, place: (number, i) });
        }
        Ok(())
    }

    /// One time has one snapshot.
    fn check(&self) -> Result<(), String> {
        match self.moments.windows(2).find(|pair| pair[0].end == pair[1].end) {
            Some([a, b, ..]) => {
                let place = |moment: &Moment| format!("[{}].snapshots[{}]", moment.place.0, moment.place.1);
                Err(format!(
                    "{} and {} are of the same target and end at the same time; \
                     leave one of them out",
                    place(a),
                    place(b)
                ))
            }
            _ => Ok(()),
        }
    }

    /// When it was first watched: the start of its first snapshot, if that is not far off.
    fn start(&self) -> Option<i64> {
        let first = self.moments.first()?;
        let aggregation = i64::try_from(first.pace.aggregation_ns).unwrap_or(i64::MAX);
        let earliest = first.end.saturating_sub(aggregation.saturating_mul(2));
        Some(match first.start {
            Some(start) if start < first.end && start >= earliest => start,
            _ => first.end.saturating_sub(aggregation),
        })
    }

    /// One of its moments, which gives its regions away.
    fn take(&mut self, moment: usize) -> TargetSnapshot {
        let regions = mem::take(&mut self.moments[moment].regions);
        let name = if self.id == TargetId::PhysicalMemory { PHYSICAL } else { UNKNOWN };
        let mappings = watched(&regions, name);
        if *self.mappings != *mappings {
            self.mappings = mappings.into();
        }
        TargetSnapshot { id: self.id, regions, mappings: Arc::clone(&self.mappings) }
    }
}

/// The regions of a snapshot in our form, in order.
fn regions(regions: &[file::Region], pace: Pace, found: &mut Found) -> Result<Vec<RegionSnapshot>, String> {
    let mut ours = Vec::with_capacity(regions.len());
    for region in regions {
        let Some(range) = AddrRange::new(region.start, region.end) else { continue };
        let (nr_accesses, clamped) = pace.nr_accesses(region);
        found.clamped += u64::from(clamped);
        found.ageless += u64::from(region.age == file::Age::Unknown);
        ours.push(RegionSnapshot {
            range,
            nr_accesses,
            nr_samples: pace.samples,
            nr_unobservable: 0,
            age: pace.age(region),
        });
    }
    found.regions += ours.len() as u64;
    ours.sort_by_key(|region| region.range);
    match ours.windows(2).find(|pair| pair[0].range.end() > pair[1].range.start()) {
        Some([a, b, ..]) => Err(format!(
            "two regions that overlap, {} and {}; if they are of several targets (`damo record --snapshot` puts all into one \
             list), they cannot be told apart: record without --snapshot, or one target",
            a.range, b.range
        )),
        _ => Ok(ours),
    }
}

/// What was watched, as mappings: each run of regions that touch.
fn watched(regions: &[RegionSnapshot], name: &str) -> Vec<Mapping> {
    let mut runs: Vec<AddrRange> = Vec::new();
    for region in regions {
        match runs.last_mut() {
            Some(last) if last.touches(region.range) => {
                *last = AddrRange::new(last.start(), region.range.end()).unwrap_or(*last);
            }
            _ => runs.push(region.range),
        }
    }
    let mapping = |range| Mapping { range, permissions: Permissions::NONE, name: name.into(), node: None };
    runs.into_iter().map(mapping).collect()
}
