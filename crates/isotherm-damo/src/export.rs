//! Recordings as JSON that damo reads.
//!
//! A file of damo has one record for each target with all its snapshots, while a recording has the snapshots of all
//! targets in the order of time. One pass over the recording collects as many targets as fit into a bounded memory. A
//! target that does not fit has a pass of its own, which writes each snapshot as it is read.
//!
//! A target has one record, because most commands of damo report on each record, or on the last one of a target. If
//! the intervals change during the recording, the record is as damo writes one of a kernel that tunes its intervals:
//! each snapshot has its sampling interval, and all have the same number of samples.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::{AddrRange, Layout, RegionSnapshot, Snapshot, TargetId, TargetSnapshot, areas};
use isotherm_record::{ConvertError, Header, RecordError, Recording, TransferError, convert_with, pid_column};
use serde::Serialize;

/// The number of regions that are kept in memory, of 32 bytes each.
const KEPT_REGIONS: u64 = 4 << 20;

/// The fields of a record that come before its snapshots.
#[derive(Serialize)]
struct Head {
    kdamond_idx: u32,
    context_idx: u32,
    intervals: Intervals,
    scheme_idx: Option<u32>,
    target_id: u32,
    scheme_filters: [u32; 0],
}

/// Intervals in microseconds, as decimal numbers.
#[derive(Serialize)]
struct Intervals {
    sample_us: String,
    aggr_us: String,
    ops_update_us: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals_goal: Option<Goal>,
}

/// The goal by which damo sees that each snapshot has intervals of its own.
#[derive(Serialize)]
struct Goal {
    access_bp: u32,
    aggrs: u32,
    min_sample_us: u32,
    max_sample_us: u32,
}

/// The goal of isotherm's own intervals, which is that of DAMON's documentation.
const GOAL: Goal = Goal { access_bp: 400, aggrs: 3, min_sample_us: 5_000, max_sample_us: 10_000_000 };

#[derive(Serialize)]
struct SnapshotJson {
    start_time: String,
    end_time: String,
    regions: Vec<RegionJson>,
    total_bytes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_interval_us: Option<String>,
}

#[derive(Serialize)]
struct RegionJson {
    start: String,
    end: String,
    nr_accesses: Accesses,
    age: Age,
}

#[derive(Serialize)]
struct Accesses {
    samples: u32,
    percent: Option<u32>,
}

#[derive(Serialize)]
struct Age {
    usec: Option<u32>,
    aggr_intervals: String,
}

/// A target of the recording.
#[derive(Clone, Copy, Debug)]
struct ExportedTarget {
    pid: u32,
    /// The number of regions in all its snapshots, and 2 for each snapshot.
    regions: u64,
    snapshots: u64,
}

/// The intervals of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timing {
    aggregation: Duration,
    samples: u32,
}

impl Timing {
    fn of(snapshot: &Snapshot) -> Self {
        Self { aggregation: snapshot.aggregation, samples: snapshot.samples.max(1) }
    }

    fn sampling(self) -> Duration {
        self.aggregation / self.samples
    }
}

/// The part of a snapshot of one target that a file of damo can hold.
struct Moment {
    time: Duration,
    timing: Timing,
    regions: Vec<RegionSnapshot>,
}

/// A format of damo, named as damo names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `json`
    Json,
    /// `json_compressed`: JSON in a zlib stream.
    JsonCompressed,
}

/// Writes `recording` to `output` in a format of damo. [`isotherm_record::convert()`] writes the other formats in the
/// same way. Returns what the user of damo has to know of the file.
///
/// # Errors
/// As [`isotherm_record::convert()`].
pub fn export(recording: &Recording, output: &Path, format: Format) -> Result<Vec<String>, ConvertError> {
    let mut notes = Vec::new();
    convert_with(recording, output, |writer| match format {
        Format::Json => write_json(recording, writer, &mut notes),
        Format::JsonCompressed => {
            // damo asks the program `file` for the format, and `file` recognises zlib streams of this level.
            let zlib = ZlibEncoder::new(writer, Compression::default());
            // serde_json writes a few bytes at a time.
            let buffered = write_json(recording, BufWriter::with_capacity(1 << 16, zlib), &mut notes)?;
            let zlib = buffered.into_inner().map_err(|error| error.into_error())?;
            Ok(zlib.finish()?)
        }
    })?;
    Ok(notes)
}

/// The first snapshots of a record that damo's `report wss` and `report nr_regions` leave out.
const LEFT_OUT: u64 = 20;

fn write_json<W: Write>(recording: &Recording, output: W, notes: &mut Vec<String>) -> Result<W, TransferError> {
    let Contents { targets, timing, varies } = Contents::of(recording)?;
    let most = targets.iter().map(|target| target.snapshots).max();
    let few = targets.iter().filter(|target| target.snapshots <= LEFT_OUT).count();
    if most > Some(LEFT_OUT) && few > 0 {
        notes.push(format!(
            "damo's report nr_regions fails, because {few} of {} targets have no more than {LEFT_OUT} snapshots",
            targets.len()
        ));
    }
    if let Some(most) = most.filter(|&most| most <= LEFT_OUT) {
        notes.push(format!(
            "damo's report wss and nr_regions leave out the first {LEFT_OUT} snapshots, and no target has more than \
             {most}: call wss with --exclude_samples 0, or record for longer or with --intervals fixed"
        ));
    }
    let mut records = Records { output, header: recording.header(), timing, varies, record: None };
    records.output.write_all(b"[")?;
    for batch in batches(&targets) {
        let mut kept: Vec<Vec<Moment>> = batch.iter().map(|_| Vec::new()).collect();
        for record in recording.snapshots() {
            let snapshot = record?.snapshot;
            let (time, timing) = (snapshot.time, Timing::of(&snapshot));
            for target in snapshot.targets {
                let Some(i) = batch.iter().position(|kept| kept.pid == pid_column(target.id)) else { continue };
                let moment = Moment { time, timing, regions: without_holes(target) };
                if batch.len() == 1 {
                    records.add(batch[i].pid, &moment)?;
                } else {
                    kept[i].push(moment);
                }
            }
        }
        for (target, moments) in batch.iter().zip(kept) {
            moments.iter().try_for_each(|moment| records.add(target.pid, moment))?;
        }
    }
    Ok(records.end()?)
}

/// The regions of a target, as DAMON has them: they cover its areas. With surveys, regions leave out memory that is not
/// present. That becomes regions without accesses, so that damo finds few contiguous areas.
fn without_holes(target: TargetSnapshot) -> Vec<RegionSnapshot> {
    let TargetSnapshot { id, regions, mappings } = target;
    if regions.iter().all(|region| region.pages.is_none()) {
        return regions;
    }
    let layout = if id == TargetId::PhysicalMemory { Layout::Ranges } else { Layout::Process };
    let mut whole = Vec::with_capacity(2 * regions.len());
    let mut add = |from: u64, to: u64| {
        whole.extend(AddrRange::new(from, to).map(RegionSnapshot::new));
    };
    let mut rest = regions.iter().peekable();
    for area in areas(&mappings, layout, usize::MAX) {
        let mut from = area.start();
        while let Some(region) = rest.next_if(|region| region.range.start() < area.end()) {
            add(from, region.range.start());
            from = region.range.end();
        }
        add(from, area.end());
    }
    whole.extend(regions);
    whole.sort_by_key(|region| region.range);
    whole
}

/// What is written, found by a pass over the recording.
struct Contents {
    /// The targets in the order of their first snapshots.
    targets: Vec<ExportedTarget>,
    /// The intervals of the records.
    timing: Timing,
    /// Whether not all snapshots have these intervals.
    varies: bool,
}

impl Contents {
    fn of(recording: &Recording) -> Result<Self, RecordError> {
        let mut targets: Vec<ExportedTarget> = Vec::new();
        let mut indices = HashMap::new();
        let mut timing: Option<Timing> = None;
        let mut varies = false;
        for record in recording.snapshots() {
            let snapshot = record?.snapshot;
            let own = Timing::of(&snapshot);
            let first = *timing.get_or_insert(own);
            varies |= own != first;
            // A short aggregation has fewer samples than the others.
            if own.samples > first.samples {
                timing = Some(own);
            }
            for target in snapshot.targets {
                let pid = pid_column(target.id);
                let index = *indices.entry(pid).or_insert_with(|| {
                    targets.push(ExportedTarget { pid, regions: 0, snapshots: 0 });
                    targets.len() - 1
                });
                // A snapshot takes memory even without regions.
                targets[index].regions += without_holes(target).len() as u64 + 2;
                targets[index].snapshots += 1;
            }
        }
        // damo's report heatmap fails on a record without a region, as of a process that ended before it was read.
        targets.retain(|target| target.regions > 2 * target.snapshots);
        let timing = timing.unwrap_or(Timing { aggregation: Duration::ZERO, samples: 1 });
        Ok(Self { targets, timing, varies })
    }
}

/// The targets of each pass: as many as have at most [`KEPT_REGIONS`] together, but at least one.
fn batches(targets: &[ExportedTarget]) -> impl Iterator<Item = &[ExportedTarget]> {
    let mut rest = targets;
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = rest.iter().take_while(|target| {
            sum += target.regions;
            sum <= KEPT_REGIONS
        });
        let (batch, after) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Writes the list of records.
struct Records<'a, W> {
    output: W,
    header: &'a Header,
    /// The intervals of all records.
    timing: Timing,
    /// Whether snapshots have intervals of their own.
    varies: bool,
    /// The target whose record is being written, and the time of its last snapshot.
    record: Option<(u32, Duration)>,
}

impl<W: Write> Records<'_, W> {
    /// Adds a snapshot of a target. A new record begins with a new target.
    fn add(&mut self, pid: u32, moment: &Moment) -> io::Result<()> {
        let previous = self.record.filter(|(of, _)| *of == pid).map(|(_, end)| end);
        if previous.is_some() {
            self.output.write_all(b",\n")?;
        } else {
            self.begin(pid)?;
        }
        let unix = |time: Duration| (u128::from(self.header.started_unix_ns) + time.as_nanos()).to_string();
        let samples = (moment.timing.samples, self.timing.samples);
        let snapshot = SnapshotJson {
            start_time: unix(start(moment, previous)),
            end_time: unix(moment.time),
            total_bytes: moment.regions.iter().map(|region| region.range.size()).sum::<u64>().to_string(),
            regions: moment.regions.iter().map(|region| RegionJson::new(region, samples)).collect(),
            sample_interval_us: self.varies.then(|| us((moment.timing.aggregation / self.timing.samples).as_nanos())),
        };
        serde_json::to_writer(&mut self.output, &snapshot)?;
        self.record = Some((pid, moment.time));
        Ok(())
    }

    fn begin(&mut self, pid: u32) -> io::Result<()> {
        if self.record.is_some() {
            self.output.write_all(b"\n]},")?;
        }
        let head = serde_json::to_string(&Head {
            kdamond_idx: 0,
            context_idx: 0,
            intervals: self.intervals(),
            scheme_idx: None,
            target_id: pid,
            scheme_filters: [],
        })?;
        write!(self.output, "\n{},\"snapshots\":[\n", head.strip_suffix('}').unwrap_or(&head))
    }

    /// The intervals of the records. The sampling interval is that of the header if it fits the number of samples.
    fn intervals(&self) -> Intervals {
        let Timing { aggregation, samples } = self.timing;
        let aggregation = aggregation.as_nanos();
        let recorded = u128::from(self.header.sampling_ns);
        let fits = recorded > 0 && (aggregation / recorded).max(1) == u128::from(samples);
        Intervals {
            sample_us: us(if fits { recorded } else { self.timing.sampling().as_nanos() }),
            aggr_us: us(aggregation),
            ops_update_us: us(if self.header.update_ns > 0 { self.header.update_ns.into() } else { 1_000_000_000 }),
            intervals_goal: self.varies.then_some(GOAL),
        }
    }

    fn end(mut self) -> io::Result<W> {
        self.output.write_all(if self.record.is_some() { b"\n]}\n]\n" } else { b"]\n" })?;
        Ok(self.output)
    }
}

/// A time in microseconds, as a decimal number.
fn us(ns: u128) -> String {
    let text = format!("{}.{:03}", ns / 1000, ns % 1000);
    text.strip_suffix(".000").map(str::to_owned).unwrap_or(text)
}

/// The start of a snapshot of a target: the time of the one before it, or one aggregation earlier if the snapshot is
/// late. damo takes the time from start to end as the length of the aggregation, and extends regions over earlier gaps
/// by their ages. The first snapshot starts with the recording, if it is not more than an aggregation late.
fn start(moment: &Moment, previous: Option<Duration>) -> Duration {
    let longest = match previous {
        // `damo validate` expects 75 to 125 ms of aggregations of 100 ms.
        Some(_) => moment.timing.aggregation.saturating_mul(5) / 4,
        None => moment.timing.aggregation.saturating_mul(2),
    };
    let previous = previous.unwrap_or_default();
    let is_late = moment.time.saturating_sub(previous) > longest;
    if is_late { moment.time.saturating_sub(moment.timing.aggregation) } else { previous }
}

impl RegionJson {
    /// A region of a snapshot with so many samples in a record with so many.
    fn new(region: &RegionSnapshot, (samples, of_record): (u32, u32)) -> Self {
        // An access stays one.
        let scaled = (f64::from(region.nr_accesses) * f64::from(of_record) / f64::from(samples)).round() as u32;
        Self {
            start: region.range.start().to_string(),
            end: region.range.end().to_string(),
            nr_accesses: Accesses { samples: scaled.max(region.nr_accesses.min(1)), percent: None },
            age: Age { usec: None, aggr_intervals: region.age.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_snapshot_starts_one_aggregation_before_its_end() {
        let ms = Duration::from_millis;
        let start_of = |time, previous: Option<u64>| {
            let timing = Timing { aggregation: ms(100), samples: 20 };
            let moment = Moment { time: ms(time), timing, regions: Vec::new() };
            start(&moment, previous.map(ms))
        };
        for (time, previous, expected) in [
            (1080, Some(1000), 1000),
            (1125, Some(1000), 1000),
            (1126, Some(1000), 1026),
            (5000, Some(1000), 4900),
            (200, None, 0),
            (201, None, 101),
        ] {
            assert_eq!(start_of(time, previous), ms(expected), "{time} ms after {previous:?}");
        }
    }

    #[test]
    fn a_pass_has_as_many_targets_as_have_regions_that_fit_in_memory() {
        let target = |pid, regions| ExportedTarget { pid, regions, snapshots: 1 };
        let targets =
            [target(1, 10), target(2, KEPT_REGIONS - 10), target(3, 1), target(4, KEPT_REGIONS * 3), target(5, 1)];
        let pids: Vec<Vec<u32>> =
            batches(&targets).map(|batch| batch.iter().map(|target| target.pid).collect()).collect();
        assert_eq!(pids, [vec![1, 2], vec![3], vec![4], vec![5]]);
        assert_eq!(batches(&[]).count(), 0);
    }
}
