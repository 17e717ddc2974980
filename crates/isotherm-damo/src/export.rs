//! Recordings as JSON that damo reads.
//!
//! A file of damo has one record for each target with all its snapshots, while a recording has the snapshots of all
//! targets in the order of time. One pass over the recording collects as many targets as fit into a bounded memory. A
//! target that does not fit has a pass of its own, which writes each snapshot as it is read.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::{RegionSnapshot, Snapshot, TargetSnapshot};
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
}

#[derive(Serialize)]
struct SnapshotJson {
    start_time: String,
    end_time: String,
    regions: Vec<RegionJson>,
    total_bytes: String,
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
struct Target {
    pid: u32,
    /// The number of regions in all its snapshots, and 2 for each snapshot.
    regions: u64,
}

/// The part of a snapshot of one target that a file of damo can hold.
struct Moment {
    time: Duration,
    aggregation: Duration,
    samples: u32,
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
/// same way.
///
/// # Errors
/// As [`isotherm_record::convert()`].
pub fn export(recording: &Recording, output: &Path, format: Format) -> Result<(), ConvertError> {
    convert_with(recording, output, |writer| match format {
        Format::Json => write_json(recording, writer),
        Format::JsonCompressed => {
            // damo asks the program `file` for the format, and `file` recognises zlib streams of this level.
            let zlib = ZlibEncoder::new(writer, Compression::default());
            // serde_json writes a few bytes at a time.
            let buffered = write_json(recording, BufWriter::with_capacity(1 << 16, zlib))?;
            let zlib = buffered.into_inner().map_err(|error| error.into_error())?;
            Ok(zlib.finish()?)
        }
    })
}

fn write_json<W: Write>(recording: &Recording, output: W) -> Result<W, TransferError> {
    let targets = targets(recording)?;
    let mut records = Records { output, header: recording.header(), record: None, any: false };
    records.output.write_all(b"[")?;
    for batch in batches(&targets) {
        let mut kept: Vec<Vec<Moment>> = batch.iter().map(|_| Vec::new()).collect();
        for record in recording.snapshots()? {
            let Snapshot { time, aggregation, samples, targets, .. } = record?.snapshot;
            for TargetSnapshot { id, regions, .. } in targets {
                let Some(i) = batch.iter().position(|target| target.pid == pid_column(id)) else { continue };
                let moment = Moment { time, aggregation, samples, regions };
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

/// The targets in the order of their first snapshots.
fn targets(recording: &Recording) -> Result<Vec<Target>, RecordError> {
    let mut targets: Vec<Target> = Vec::new();
    let mut indices = HashMap::new();
    for record in recording.snapshots()? {
        for target in &record?.snapshot.targets {
            let pid = pid_column(target.id);
            let index = *indices.entry(pid).or_insert_with(|| {
                targets.push(Target { pid, regions: 0 });
                targets.len() - 1
            });
            // A snapshot takes memory even without regions.
            targets[index].regions += target.regions.len() as u64 + 2;
        }
    }
    Ok(targets)
}

/// The targets of each pass: as many as have at most [`KEPT_REGIONS`] together, but at least one.
fn batches(targets: &[Target]) -> impl Iterator<Item = &[Target]> {
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
    /// The record that is being written.
    record: Option<OpenRecord>,
    /// Whether a record has been written.
    any: bool,
}

/// A record that snapshots can be added to. All its snapshots have the same intervals.
struct OpenRecord {
    pid: u32,
    aggregation: Duration,
    samples: u32,
    /// The time of its last snapshot.
    end: Duration,
}

impl<W: Write> Records<'_, W> {
    /// Adds a snapshot of a target. A new record begins with a new target and with new intervals.
    fn add(&mut self, pid: u32, moment: &Moment) -> io::Result<()> {
        let previous = self.record.take().filter(|open| open.pid == pid);
        let start = start(moment, previous.as_ref().map(|open| open.end));
        match &previous {
            Some(open) if (open.aggregation, open.samples) == (moment.aggregation, moment.samples) => {
                self.output.write_all(b",\n")?;
            }
            _ => self.begin(pid, moment)?,
        }
        let unix = |time: Duration| (u128::from(self.header.started_unix_ns) + time.as_nanos()).to_string();
        let snapshot = SnapshotJson {
            start_time: unix(start),
            end_time: unix(moment.time),
            total_bytes: moment.regions.iter().map(|region| region.range.size()).sum::<u64>().to_string(),
            regions: moment.regions.iter().map(RegionJson::from).collect(),
        };
        serde_json::to_writer(&mut self.output, &snapshot)?;
        let Moment { time: end, aggregation, samples, .. } = *moment;
        self.record = Some(OpenRecord { pid, aggregation, samples, end });
        Ok(())
    }

    fn begin(&mut self, pid: u32, moment: &Moment) -> io::Result<()> {
        if self.any {
            self.output.write_all(b"\n]},")?;
        }
        self.any = true;
        let head = serde_json::to_string(&Head {
            kdamond_idx: 0,
            context_idx: 0,
            intervals: self.intervals(moment),
            scheme_idx: None,
            target_id: pid,
            scheme_filters: [],
        })?;
        write!(self.output, "\n{},\"snapshots\":[\n", head.strip_suffix('}').unwrap_or(&head))
    }

    /// The intervals of `moment`. The sampling interval is that of the header if it fits the number of samples.
    fn intervals(&self, moment: &Moment) -> Intervals {
        let aggregation = moment.aggregation.as_nanos();
        let recorded = u128::from(self.header.sampling_ns);
        let fits = recorded > 0 && (aggregation / recorded).max(1) == u128::from(moment.samples);
        let sample = if fits { recorded } else { aggregation / u128::from(moment.samples.max(1)) };
        let us = |ns: u128| {
            let text = format!("{}.{:03}", ns / 1000, ns % 1000);
            text.strip_suffix(".000").map(str::to_owned).unwrap_or(text)
        };
        Intervals {
            sample_us: us(sample),
            aggr_us: us(aggregation),
            ops_update_us: us(if self.header.update_ns > 0 { self.header.update_ns.into() } else { 1_000_000_000 }),
        }
    }

    fn end(mut self) -> io::Result<W> {
        self.output.write_all(if self.any { b"\n]}\n]\n" } else { b"]\n" })?;
        Ok(self.output)
    }
}

/// The start of a snapshot of a target: the time of the one before it, or one aggregation earlier if the snapshot is
/// late. damo takes the time from start to end as the length of the aggregation, and extends regions over earlier gaps
/// by their ages. The first snapshot starts with the recording, if it is not more than an aggregation late.
fn start(moment: &Moment, previous: Option<Duration>) -> Duration {
    let longest = match previous {
        // `damo validate` expects 75 to 125 ms of aggregations of 100 ms.
        Some(_) => moment.aggregation.saturating_mul(5) / 4,
        None => moment.aggregation.saturating_mul(2),
    };
    let previous = previous.unwrap_or_default();
    let is_late = moment.time.saturating_sub(previous) > longest;
    if is_late { moment.time.saturating_sub(moment.aggregation) } else { previous }
}

impl From<&RegionSnapshot> for RegionJson {
    fn from(region: &RegionSnapshot) -> Self {
        Self {
            start: region.range.start().to_string(),
            end: region.range.end().to_string(),
            nr_accesses: Accesses { samples: region.nr_accesses, percent: None },
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
            let moment = Moment { time: ms(time), aggregation: ms(100), samples: 20, regions: Vec::new() };
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
        let target = |pid, regions| Target { pid, regions };
        let targets =
            [target(1, 10), target(2, KEPT_REGIONS - 10), target(3, 1), target(4, KEPT_REGIONS * 3), target(5, 1)];
        let pids: Vec<Vec<u32>> =
            batches(&targets).map(|batch| batch.iter().map(|target| target.pid).collect()).collect();
        assert_eq!(pids, [vec![1, 2], vec![3], vec![4], vec![5]]);
        assert_eq!(batches(&[]).count(), 0);
    }
}
