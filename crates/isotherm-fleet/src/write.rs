//! Writes what recordings have into a dataset.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use isotherm_core::BoxError;
use isotherm_record::{Host, Joined, RecordError, Recording};

use crate::dataset::{Dataset, QUARTER, Quarter};
use crate::error::FleetError;
use crate::minutes::Reader;
use crate::row::{Row, int};
use crate::rows::{NamesOf, rows};

/// How long after its end a quarter of an hour is written: recordings have all of it then.
const SETTLED: i64 = 120;

/// For how long after its end a quarter waits for a recording that cannot be read. Then it is written without it.
const PATIENCE: i64 = 86_400;

/// How many quarters are in memory at once: six hours.
const WINDOW: i64 = 24;

/// Recordings of one group, of any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The name of the group.
    pub group: String,
    /// The recordings, in any order.
    pub paths: Vec<PathBuf>,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Rows.
    pub rows: u64,
    /// Quarters of an hour of hosts.
    pub quarters: u64,
    /// Quarters that were there already.
    pub present: u64,
    /// Quarters that are not over, and are not written before they are.
    pub unfinished: u64,
    /// Quarters in the future: the clock of the host was wrong when it recorded, or that of this one is.
    pub future: u64,
    /// Quarters that wait for a recording that cannot be read, for a day at most.
    pub waiting: u64,
    /// Minutes that two runs say something of, because the clock of the host was set back. The first run counts.
    pub twice: u64,
    /// Recordings that were left out or that are incomplete, and why.
    pub problems: Vec<String>,
}

/// A recording that is not open.
struct File {
    path: PathBuf,
    host: Host,
    started: u64,
    /// Since the start of the run.
    from: Duration,
    /// Its time in seconds since the Unix epoch.
    time: (i64, i64),
}

/// Writes the quarters of an hour that are over at `now`, in seconds since the Unix epoch, and not there yet.
///
/// # Errors
/// If a recording does not say of which machine it is, or the dataset cannot be written. Quarters that were written
/// before are whole.
pub fn write(dataset: &Dataset, sources: &[Source], names: NamesOf, now: i64) -> Result<Written, FleetError> {
    let mut written = Written::default();
    let mut groups: BTreeMap<&str, Vec<File>> = BTreeMap::new();
    // The times of recordings that cannot be read, in seconds since the Unix epoch.
    let mut unread = Vec::new();
    for source in sources {
        let files = groups.entry(&source.group).or_default();
        for path in &source.paths {
            match described(path) {
                Ok(Some(file)) if file.host.id.is_empty() => return Err(FleetError::NoHost { path: path.clone() }),
                Ok(Some(file)) if !is_identifier(&file.host.id) => {
                    return Err(FleetError::WrongHost { path: path.clone() });
                }
                Ok(file) => files.extend(file),
                Err(error) => {
                    written.problems.push(isotherm_core::chain(&error));
                    unread.push(likely_time(path, now));
                }
            }
        }
    }
    groups.values_mut().for_each(|files| files.sort_by_key(|file| (file.started, file.from)));
    let hosts: BTreeMap<String, Host> =
        groups.values().flatten().map(|file| (file.host.id.clone(), file.host.clone())).collect();
    for (id, host) in hosts {
        let mut wanted = BTreeSet::new();
        for file in groups.values().flatten().filter(|file| file.host.id == id) {
            wanted.extend(file.time.0.div_euclid(QUARTER)..=file.time.1.div_euclid(QUARTER));
        }
        let mut missing: BTreeMap<i64, Vec<Quarter>> = BTreeMap::new();
        let mut present: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
        for number in wanted {
            let quarter = Quarter { host: id.clone(), number };
            if quarter.start() > now {
                written.future += 1;
                continue;
            }
            if quarter.start() + QUARTER + SETTLED > now {
                written.unfinished += 1;
                continue;
            }
            let of_date = match present.entry(quarter.date()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let found = dataset.present(unknown.key(), &id)?;
                    unknown.insert(found)
                }
            };
            if of_date.contains(&quarter.of_day()) {
                written.present += 1;
            } else if waits(&quarter, &unread, now) {
                written.waiting += 1;
            } else {
                missing.entry(number.div_euclid(WINDOW)).or_default().push(quarter);
            }
        }
        for quarters in missing.into_values() {
            window(dataset, &groups, &host, &quarters, (names, now), &mut written)?;
        }
    }
    Ok(written)
}

/// Writes some quarters of a host that follow one another.
fn window(
    dataset: &Dataset,
    groups: &BTreeMap<&str, Vec<File>>,
    host: &Host,
    quarters: &[Quarter],
    (names, now): (NamesOf, i64),
    written: &mut Written,
) -> Result<(), FleetError> {
    let (Some(first), Some(last)) = (quarters.first(), quarters.last()) else { return Ok(()) };
    let (start, end) = (first.start(), last.start() + QUARTER);
    let mut read: BTreeMap<Arc<str>, Reader> = BTreeMap::new();
    let mut boots: BTreeMap<u64, Host> = BTreeMap::new();
    let mut unread = Vec::new();
    for (group, files) in groups {
        let files: Vec<&File> = files.iter().filter(|file| file.host.id == host.id).collect();
        let in_time = |file: &File| file.time.1 >= start && file.time.0 < end;
        // The file before says what schemes had done.
        let skipped = files.iter().position(|file| in_time(file)).map_or(files.len(), |nth| nth.saturating_sub(1));
        let mut reader = Reader::default();
        for file in files.iter().skip(skipped).filter(|file| file.time.0 < end) {
            boots.insert(file.started, file.host.clone());
            let since = files.iter().filter(|of| of.started == file.started).map(|of| of.from).min();
            if let Err(error) = read_file(&file.path, &mut reader, since.unwrap_or(file.from)) {
                written.problems.push(isotherm_core::chain(&*error));
                unread.push(file.time);
            }
        }
        written.twice += reader.twice;
        read.insert((*group).into(), reader);
    }
    for quarter in quarters {
        if waits(quarter, &unread, now) {
            written.waiting += 1;
            continue;
        }
        let mut of_quarter: Vec<Row> = Vec::new();
        for minute in (quarter.start()..quarter.start() + QUARTER).step_by(60) {
            let of_minute: BTreeMap<Arc<str>, _> = read
                .iter()
                .filter_map(|(group, reader)| Some((Arc::clone(group), reader.minutes.get(&minute)?)))
                .collect();
            // All groups of a minute are of one boot.
            let Some(run) = of_minute.values().next().map(|of| of.started) else { continue };
            of_quarter.extend(rows(boots.get(&run).unwrap_or(host), minute, &of_minute, names));
        }
        if !of_quarter.is_empty() {
            if dataset.write(quarter, &of_quarter)? {
                written.rows += int(of_quarter.len()).unsigned_abs();
                written.quarters += 1;
            } else {
                written.present += 1;
            }
        }
    }
    Ok(())
}

/// Whether a quarter lacks what cannot be read, and it may be read yet.
fn waits(quarter: &Quarter, unread: &[(i64, i64)], now: i64) -> bool {
    let (start, end) = (quarter.start(), quarter.start() + QUARTER);
    end + PATIENCE > now && unread.iter().any(|(from, to)| *from < end && *to >= start)
}

/// The time that a recording is of, by the names of a history (`seconds-START.rec`) and the time of the last change.
fn likely_time(path: &Path, now: i64) -> (i64, i64) {
    let changed = path.metadata().and_then(|metadata| metadata.modified()).ok();
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let end = changed.map_or(now, |since| int(since.as_secs()));
    let start = path.file_stem().and_then(|name| name.to_str()?.rsplit_once('-')?.1.parse::<i64>().ok());
    (start.map_or(end, |milliseconds| milliseconds / 1000).min(end), end)
}

/// Whether an identifier of a machine can be part of a path.
fn is_identifier(id: &str) -> bool {
    id.len() <= 128 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// Reads a recording by [`Joined`], which leaves out what a part of a run has from before and after it.
fn read_file(path: &Path, reader: &mut Reader, since: Duration) -> Result<(), BoxError> {
    let recording = Joined::new(vec![Recording::open(path)?])?;
    Ok(reader.read(&recording, since)?)
}

/// What a recording says of itself. `None` if it is empty.
fn described(path: &Path) -> Result<Option<File>, RecordError> {
    let recording = Recording::open(path)?;
    let header = recording.header();
    let from = header.part.map_or(Duration::ZERO, |part| Duration::from_nanos(part.from_ns));
    let Some(last) = recording.last_time() else { return Ok(None) };
    let unix = |time: Duration| int((u128::from(header.started_unix_ns) + time.as_nanos()) / 1_000_000_000);
    Ok(Some(File {
        path: path.to_owned(),
        host: header.host.clone(),
        started: header.started_unix_ns,
        from,
        time: (unix(from), unix(last)),
    }))
}
