//! Reading a recording: opening it, and finding out how it ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow_schema::Fields;
use isotherm_core::{Allocations, PanelSnapshot, sanitise};
use isotherm_input::{Input, Problem};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Deserialize;

use crate::ahead::{Ahead, Tail};
use crate::batches::Batches;
use crate::decode::{Kind, Rows};
use crate::ending::Ending;
use crate::layout::{Damage, Layout, layout};
use crate::limits::Limits;
use crate::message::{Begins, Checksum, Fault, Message, corrected_first, find};
use crate::schema::{FORMAT_KEY, HEADER_KEY, fields, metadata};
use crate::source::Source;
use crate::{
    Activity, Contents, Event, Events, FORMAT, Header, Mark, Missed, Needs, RecordError, SnapshotRecord, SurveyRecord,
    columns, foreign,
};

/// The longest segment that a recorder may be about to replace: its parts have less than 1 MiB, but for the last one.
const MOST_TAIL: u64 = 32 << 20;

/// A recording that is open for reading. Several passes over it are possible, also at the same time.
///
/// Readers see what the file held when it was opened. A recording that is still being made can be opened again.
#[derive(Debug)]
pub struct Recording {
    source: Source,
    header: Header,
    ending: Ending,
    damage: Vec<Damage>,
    is_header_corrected: bool,
    /// The first byte of the last segment.
    last_segment: u64,
    len: u64,
}

impl Recording {
    /// Opens a recording, reads its header and compares the checksums of its messages, to find out how it ends and what
    /// of it is damaged. Rows are not read yet.
    ///
    /// # Errors
    /// If the file cannot be read, is no recording, is of another format, or has a damaged header.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        Self::open_within(path, None)
    }

    /// As [`open`](Self::open). Each part of the recording, which is a batch, a snapshot or a survey, may take about
    /// `max_memory` bytes of memory when it is read. Without it, that is 512 MiB, and less for a small batch.
    ///
    /// # Errors
    /// As [`open`](Self::open). What takes more memory is an error of the reader that comes upon it.
    pub fn open_within(path: &Path, max_memory: Option<u64>) -> Result<Self, RecordError> {
        let open_error = |source| RecordError::Open { path: path.into(), source };
        let file = Input::new(path).open().map_err(|error| match error.problem {
            Problem::System(source) => open_error(source),
            Problem::Directory => open_error(io::ErrorKind::IsADirectory.into()),
            _ => RecordError::NotAFile { path: path.into() },
        })?;
        let file = Arc::new(file);
        // Until it is unlocked, its recorder replaces nothing.
        let locked = Locked::new(&file);
        let len = file.metadata().map_err(open_error)?.len();
        if len == 0 {
            return Err(RecordError::Empty { path: path.into() });
        }
        let (First { fields, header }, start, is_header_corrected) = match read_header(path, &file, len) {
            Ok((first, start)) => (first, start, false),
            // What cannot be read says nothing of what is in the file.
            Err(error @ RecordError::Read { .. }) => return Err(error),
            Err(error) => match corrected_header(path, &file, len) {
                Some((first, start)) => (first, start, true),
                None if matches!(error, RecordError::Foreign { .. }) && foreign::was_ours(&file) => {
                    return Err(RecordError::damaged(path, 0, "its header is not what was written"));
                }
                None => return Err(error),
            },
        };
        let read_error = |source| RecordError::Read { path: path.into(), offset: start, source };
        let Layout { spans, damage, replaced, last_segment, ending } = layout(&file, start, len).map_err(read_error)?;
        let mut tail = Tail::default();
        if ending != Ending::Whole && len - last_segment <= MOST_TAIL {
            let mut ahead = Ahead::new(Arc::clone(&file), len);
            let bytes = ahead.bytes(last_segment, (len - last_segment) as usize).map_err(read_error)?;
            tail = Tail { at: last_segment, bytes: bytes.to_vec() };
        }
        drop(locked);
        let limits = Limits::new(max_memory);
        let (path, tail) = (path.into(), tail.into());
        let source = Source { file, tail, path, limits, fields, spans: spans.into(), replaced: replaced.into() };
        Ok(Self { source, header, ending, damage, is_header_corrected, last_segment, len })
    }

    /// What is true for the whole recording.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How it ends.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// What of it cannot be read, in the order of the file. Readers pass over it, and give what comes before and after.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Whether one bit of the header was wrong. The checksum told which, so that nothing is missing.
    pub fn is_header_corrected(&self) -> bool {
        self.is_header_corrected
    }

    /// Fails if anything of it is missing.
    ///
    /// # Errors
    /// [`RecordError::Incomplete`] with the first damaged part.
    pub fn must_be_undamaged(&self) -> Result<(), RecordError> {
        let Some(first) = self.damage.first() else { return Ok(()) };
        Err(RecordError::Incomplete { path: self.path().into(), at: first.start, reason: first.reason })
    }

    /// The length of the file when it was opened, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Where it is read from.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// What is needed of it from the start, in the order of time, with few batches in memory at a time.
    pub fn events(&self, needs: Needs) -> Events {
        Events::new(self.source.clone(), needs)
    }

    /// The events of one kind.
    fn only<T>(&self, needs: Needs, item: fn(Event) -> Option<T>) -> Items<T> {
        Items { events: self.events(needs), item }
    }

    /// All snapshots.
    pub fn snapshots(&self) -> Items<SnapshotRecord> {
        self.only(Needs::SNAPSHOTS, |event| if let Event::Snapshot(item) = event { Some(item) } else { None })
    }

    /// The times of all snapshots and surveys, in the order of the file. A time may be repeated. Few other columns are
    /// read.
    pub(crate) fn times(&self) -> impl Iterator<Item = Result<Duration, RecordError>> {
        times(self.source.clone())
    }

    /// The time of the last snapshot or survey in the last segment. `None` if that has none.
    pub fn last_time(&self) -> Option<Duration> {
        let mut source = self.source.clone();
        let last = source.spans.last()?;
        source.spans = std::iter::once(last.start.max(self.last_segment).min(last.end)..last.end).collect();
        times(source).filter_map(Result::ok).max()
    }

    /// All activities. Those of a recording without schemes tell only how much memory is in use, if there are any.
    pub fn activities(&self) -> Items<Activity> {
        self.only(Needs::ACTIVITIES, |event| if let Event::Activity(item) = event { Some(item) } else { None })
    }

    /// All surveys. A recording without surveys has none.
    pub fn surveys(&self) -> Items<SurveyRecord> {
        self.only(Needs::SURVEYS, |event| if let Event::Survey(item) = event { Some(item) } else { None })
    }

    /// All marks.
    pub fn marks(&self) -> Items<Mark> {
        self.only(Needs::MARKS, |event| if let Event::Mark(item) = event { Some(item) } else { None })
    }

    /// All calls that mapped memory. A recording without call stacks has none.
    pub fn allocations(&self) -> Items<Allocations> {
        self.only(Needs::ALLOCATIONS, |event| if let Event::Allocations(item) = event { Some(item) } else { None })
    }

    /// What the recorder could not take in.
    pub fn missed(&self) -> Items<Missed> {
        self.only(Needs::MISSED, |event| if let Event::Missed(item) = event { Some(item) } else { None })
    }

    /// How much memory was in use, about each second. A recording without surveys does not tell.
    pub fn panels(&self) -> Items<PanelSnapshot> {
        self.only(Needs::PANELS, |event| if let Event::Panel(item) = event { Some(item) } else { None })
    }

    /// What the recording has a column for, be it used or not.
    pub fn contents(&self) -> Contents {
        let has = |name: &str| self.source.fields.find(name).is_some();
        Contents {
            activities: has(columns::ACTIVITY),
            surveys: has(columns::SURVEY),
            live: has(columns::MISSED),
            marks: has(columns::MARK),
            allocations: has(columns::ALLOCATIONS),
        }
    }
}

/// The events of one kind, in the order of time. After an error there is no further one.
#[derive(Debug)]
pub struct Items<T> {
    events: Events,
    item: fn(Event) -> Option<T>,
}

impl<T> Iterator for Items<T> {
    type Item = Result<T, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.item;
        self.events.find_map(|event| event.map(item).transpose())
    }
}

/// The times of the snapshots and surveys of a source.
fn times(source: Source) -> impl Iterator<Item = Result<Duration, RecordError>> {
    let mut batches = Batches::new(source, &|path| columns::TIMES.contains(&path));
    std::iter::from_fn(move || {
        batches.find(|rows, index, _| {
            Ok(match rows.kind(index) {
                Kind::Target => Some(Duration::from_nanos(rows.time_ns(index))),
                Kind::Survey => rows.columns().survey_time(index).map(Duration::from_nanos),
                Kind::Activity
                | Kind::Mark
                | Kind::Allocations
                | Kind::Missed
                | Kind::Panel
                | Kind::Merged
                | Kind::Unknown => None,
            })
        })
    })
}

/// A file that is locked while it is opened.
struct Locked(Arc<File>);

impl Locked {
    /// The time for which a recorder has a file locked is that of two writes.
    const MOST_TRIES: usize = 100;

    fn new(file: &Arc<File>) -> Self {
        for _ in 0..Self::MOST_TRIES {
            if flock(file, FlockOperation::NonBlockingLockShared) != Err(Errno::WOULDBLOCK) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        Self(Arc::clone(file))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// What the first message of a recording says.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) fields: Fields,
    pub(crate) header: Header,
}

/// Reads the first message: what it says, and the byte after it.
pub(crate) fn read_header(path: &Path, file: &Arc<File>, len: u64) -> Result<(First, u64), RecordError> {
    let mut ahead = Ahead::new(Arc::clone(file), len);
    match find(&mut ahead, 0, len, Checksum::Ignored) {
        Ok(Begins::Message(message)) => {
            let first = first(path, &message)?;
            message.body(&mut ahead).map_err(|fault| fault.at(path, 0))?;
            Ok((first, message.end()))
        }
        Ok(Begins::Torn) => Err(RecordError::CutInHeader { path: path.into(), at: len }),
        Err(Fault::Io(source)) => Err(RecordError::Read { path: path.into(), offset: 0, source }),
        _ => Err(RecordError::foreign(path, foreign::what(file))),
    }
}

/// What the first message of a recording says of which one bit is wrong, and the byte after it.
fn corrected_header(path: &Path, file: &File, len: u64) -> Option<(First, u64)> {
    let message = corrected_first(file, len).ok().flatten()?;
    Some((first(path, &message).ok()?, message.end()))
}

/// What the first message says.
fn first(path: &Path, message: &Message) -> Result<First, RecordError> {
    let damaged = |reason: &str| RecordError::damaged(path, 0, reason);
    let flatbuffer = message.flatbuffer().map_err(|fault| fault.at(path, 0))?;
    let Some(schema) = flatbuffer.header_as_schema() else {
        return Err(RecordError::foreign(path, "it begins with a message of Arrow's that is not a schema"));
    };
    let Some(format) = metadata(&schema, FORMAT_KEY) else {
        return Err(RecordError::foreign(path, "it is an Arrow stream, but not isotherm's"));
    };
    let text = metadata(&schema, HEADER_KEY).unwrap_or_default();
    let format: u64 = format.parse().map_err(|_| damaged("the number of its format is not a number"))?;
    if format != FORMAT {
        return Err(RecordError::OtherFormat { path: path.into(), made_by: made_by(text), format });
    }
    message.check_head().map_err(|fault| fault.at(path, 0))?;
    let fields = fields(&schema).map_err(damaged)?;
    Rows::check(&fields).map_err(damaged)?;
    let header = serde_json::from_str(text);
    let header = header.map_err(|error| damaged(&format!("its header cannot be understood: {error}")))?;
    Ok(First { fields, header })
}

/// The version of isotherm in the header of a format that is not known.
fn made_by(header: &str) -> String {
    #[derive(Deserialize)]
    struct Version {
        isotherm_version: String,
    }
    serde_json::from_str(header).map_or_else(
        |_| "of an unknown version".to_owned(),
        |made: Version| sanitise(&made.isotherm_version).into_owned(),
    )
}

impl Fault {
    /// As an error of the recording at `path`, in the message that begins at byte `at`.
    pub(crate) fn at(self, path: &Path, at: u64) -> RecordError {
        match self {
            Self::Io(source) => RecordError::Read { path: PathBuf::from(path), offset: at, source },
            Self::Broken(reason) => RecordError::damaged(path, at, reason),
        }
    }
}
