//! Writing a recording as damo's JSON, so that damo reads it.
//!
//! damo has a record for each target, with all of its snapshots; a recording has them in the order of time. So each pass over the
//! recording serves as many targets as fit into a bounded memory, or one that is larger than that, snapshot by snapshot.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::RegionSnapshot;
use serde::Serialize;

use isotherm_record::{
    ConvertError, Header, RecordError, Recording, Row, SnapshotRecord, TransferError, convert_with, pid_column,
};

/// Regions that are kept at a time, of 32 bytes each.
const KEPT_REGIONS: u64 = 4 << 20;

/// A record of damo's, but for its snapshots, which come after.
#[derive(Serialize)]
struct Head {
    kdamond_idx: u32,
    context_idx: u32,
    intervals: Intervals,
    scheme_idx: Option<u32>,
    target_id: u32,
    scheme_filters: [u32; 0],
}

/// In microseconds, as decimal numbers.
#[derive(Serialize)]
struct Intervals {
    sample_us: String,
    aggr_us: String,
    ops_update_us: String,
}

#[derive(Serialize)]
struct Snapshot {
    start_time: String,
    end_time: String,
    regions: Vec<Region>,
    total_bytes: String,
}

#[derive(Serialize)]
struct Region {
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

/// A target, and how much there is of it.
#[derive(Clone, Copy, Debug)]
struct Target {
    pid: u32,
    regions: u64,
}

/// What of a row damo can hold.
struct Moment {
    time: Duration,
    aggregation: Duration,
    samples: u32,
    regions: Vec<RegionSnapshot>,
}

/// A format of damo's own, by the name that damo gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `json`
    Json,
    /// `json_compressed`: the same, compressed by zlib.
    JsonCompressed,
}

/// Writes `recording` to `output` in `format`, as [`isotherm_record::convert()`] writes other formats.
///
/// # Errors
/// As [`isotherm_record::convert()`].
pub fn export(recording: &Recording, output: &Path, format: Format) -> Result<(), ConvertError> {
    convert_with(recording, output, |writer| match format {
        Format::Json => write_json(recording, writer),
        Format::JsonCompressed => {
            // damo takes what `file` says of the first bytes, and `file` knows zlib by those of this level.
            let zlib = ZlibEncoder::new(writer, Compression::default());
            // JSON comes in very small pieces.
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
        if let [target] = batch {
            for row in rows(recording)? {
                let row = row?;
                if pid_column(row.target.id) == target.pid {
                    records.add(target.pid, &row.into())?;
                }
            }
            continue;
        }
        let mut kept: Vec<Vec<Moment>> = batch.iter().map(|_| Vec::new()).collect();
        for row in rows(recording)? {
            let row = row?;
            if let Some(i) = batch.iter().position(|target| target.pid == pid_column(row.target.id)) {
                kept[i].push(row.into());
            }
        }
        for (target, moments) in batch.iter().zip(kept) {
            moments.iter().try_for_each(|moment| records.add(target.pid, moment))?;
        }
    }
    Ok(records.end()?)
}

/// The snapshots of `recording`, target by target.
fn rows(recording: &Recording) -> Result<impl Iterator<Item = Result<Row, RecordError>>, RecordError> {
    Ok(recording.snapshots()?.flat_map(|record| {
        let (record, error) = record.map_or_else(|error| (None, Some(Err(error))), |record| (Some(record), None));
        record.into_iter().flat_map(SnapshotRecord::into_rows).map(Ok).chain(error)
    }))
}

/// The targets, in the order of their appearance.
fn targets(recording: &Recording) -> Result<Vec<Target>, TransferError> {
    let mut targets: Vec<Target> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for row in rows(recording)? {
        let row = row?;
        let pid = pid_column(row.target.id);
        let place = *places.entry(pid).or_insert_with(|| {
            targets.push(Target { pid, regions: 0 });
            targets.len() - 1
        });
        // A snapshot without regions takes something, too.
        targets[place].regions += row.target.regions.len() as u64 + 2;
    }
    Ok(targets)
}

/// The targets in runs of no more regions than may be kept, or of one target.
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

impl From<Row> for Moment {
    fn from(row: Row) -> Self {
        Self { time: row.time, aggregation: row.aggregation, samples: row.samples, regions: row.target.regions }
    }
}

/// The list of records, as it is written.
struct Records<'a, W> {
    output: W,
    header: &'a Header,
    record: Option<Open>,
    any: bool,
}

/// The record that snapshots are being added to.
struct Open {
    pid: u32,
    aggregation: Duration,
    samples: u32,
    /// The end of its last snapshot.
    end: Duration,
}

impl<W: Write> Records<'_, W> {
    /// Adds a snapshot of a target, to its record or to a new one: intervals are the same throughout a record.
    fn add(&mut self, pid: u32, moment: &Moment) -> io::Result<()> {
        let before = self.record.take().filter(|open| open.pid == pid);
        let begin = start(moment, before.as_ref().map(|open| open.end));
        match &before {
            Some(open) if (open.aggregation, open.samples) == (moment.aggregation, moment.samples) => {
                self.output.write_all(b",\n")?;
            }
            _ => self.begin(pid, moment)?,
        }
        let unix = |time: Duration| (u128::from(self.header.started_unix_ns) + time.as_nanos()).to_string();
        let snapshot = Snapshot {
            start_time: unix(begin),
            end_time: unix(moment.time),
            total_bytes: moment.regions.iter().map(|region| region.range.size()).sum::<u64>().to_string(),
            regions: moment.regions.iter().map(Region::from).collect(),
        };
        serde_json::to_writer(&mut self.output, &snapshot)?;
        let Moment { time: end, aggregation, samples, .. } = *moment;
        self.record = Some(Open { pid, aggregation, samples, end });
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

    /// The intervals by which the counts of `moment` are rates: the recording's, if these do.
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

/// When the time begins that a snapshot speaks for: with the snapshot before it, unless something is missing in between.
fn start(moment: &Moment, before: Option<Duration>) -> Duration {
    let far = moment.time.saturating_sub(before.unwrap_or_default()) > moment.aggregation.saturating_mul(2);
    if far { moment.time.saturating_sub(moment.aggregation) } else { before.unwrap_or_default() }
}

impl From<&RegionSnapshot> for Region {
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
    fn targets_are_served_together_as_far_as_their_regions_can_be_kept() {
        let target = |pid, regions| Target { pid, regions };
        let targets =
            [target(1, 10), target(2, KEPT_REGIONS - 10), target(3, 1), target(4, KEPT_REGIONS * 3), target(5, 1)];
        let pids: Vec<Vec<u32>> =
            batches(&targets).map(|batch| batch.iter().map(|target| target.pid).collect()).collect();
        assert_eq!(pids, [vec![1, 2], vec![3], vec![4], vec![5]]);
        assert_eq!(batches(&[]).count(), 0);
    }
}
