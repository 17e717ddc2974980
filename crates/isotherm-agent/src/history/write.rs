//! Writes the newest file of a history.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{BoxError, chain};
use isotherm_record::Header;
use isotherm_run::{EndReason, Event, EventSink, RecordingSink};

use super::{Level, path};

/// How much time a file covers at most.
const LONGEST: Duration = Duration::from_secs(3600);

/// About how many bytes it has at most.
const MOST_BYTES: u64 = 64 << 20;

/// How often its size is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The time from a failure to the next attempt.
const PAUSE: Duration = Duration::from_secs(30);

/// About how many bytes all histories together keep in memory before they write them in their final form, and the
/// bounds of each: short segments are larger in the file.
const MEMORY: usize = 6 << 20;
const LEAST_MEMORY: usize = 256 << 10;
const MOST_MEMORY: usize = 2 << 20;

/// Writes the events of a group to one recording after another. A full disk ends that for a while, and nothing else.
pub struct HistoryWriter {
    directory: PathBuf,
    /// Each writer holds it, so that they can be counted.
    count: Arc<()>,
    open: Option<Open>,
    failure: Option<String>,
    /// When writing is tried again.
    retry: Instant,
}

struct Open {
    sink: RecordingSink,
    began: Instant,
    checked: Instant,
}

impl HistoryWriter {
    /// Writes to this directory, which is created with the first file. Those who hold `count` share the memory.
    pub fn new(directory: &Path, count: Arc<()>) -> Self {
        Self { directory: directory.into(), count, open: None, failure: None, retry: Instant::now() }
    }

    /// Why nothing is written at the moment.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Writes an event of a run with this header, from when the group is watched on. `usage` says that nothing else
    /// tells how much memory the processes use. Returns what the user should know: that writing has failed, or goes
    /// on.
    pub fn event(&mut self, event: &Event, of: (&Header, Duration), usage: bool) -> Option<String> {
        match self.write(event, of, usage) {
            Ok(()) => {
                let resumed = self.open.is_some() && self.failure.take().is_some();
                resumed.then(|| "the history goes on".into())
            }
            Err(error) => {
                self.open = None;
                self.retry = Instant::now() + PAUSE;
                let text = chain(&*error);
                let is_new = self.failure.replace(text.clone()).is_none();
                is_new.then(|| format!("the history has stopped: {text}; it is tried again each {}s", PAUSE.as_secs()))
            }
        }
    }

    fn write(&mut self, event: &Event, (header, watched): (&Header, Duration), usage: bool) -> Result<(), BoxError> {
        if let (Event::Snapshot(record), Some(open)) = (event, &mut self.open)
            && open.is_full()
        {
            let from = record.snapshot.time.saturating_sub(record.snapshot.aggregation);
            let complete = self.open.take().map_or(Ok(()), Open::end);
            self.begin(header, from, usage)?;
            complete?;
        }
        match (&self.open, event) {
            (Some(_), _) => {}
            (None, Event::End(_)) => return Ok(()),
            // The first file of a run has all of it that is about the group.
            (None, _) if self.failure.is_none() => self.begin(header, watched, usage)?,
            // Any other one begins with a snapshot.
            (None, Event::Snapshot(record)) if Instant::now() >= self.retry => {
                self.begin(header, record.snapshot.time.saturating_sub(record.snapshot.aggregation), usage)?;
            }
            (None, _) => return Ok(()),
        }
        if let Some(open) = &mut self.open {
            open.sink.event(event)?;
        }
        if matches!(event, Event::End(_)) {
            self.open = None;
        }
        Ok(())
    }

    /// Begins the next file, which has what comes after `from`.
    fn begin(&mut self, header: &Header, from: Duration, usage: bool) -> Result<(), BoxError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let start = header.started_unix_ns / 1_000_000 + from.as_millis() as u64;
        let path = path(&self.directory, Level::Seconds, start);
        let memory = (MEMORY / Arc::strong_count(&self.count)).clamp(LEAST_MEMORY, MOST_MEMORY);
        let sink = RecordingSink::create(&path, header.clone(), from, usage)?.with_segments_of(memory);
        self.open = Some(Open { sink, began: Instant::now(), checked: Instant::now() });
        Ok(())
    }
}

impl Open {
    fn is_full(&mut self) -> bool {
        if self.checked.elapsed() < CHECK_EVERY {
            return false;
        }
        self.checked = Instant::now();
        let bytes = self.sink.path().and_then(|path| path.metadata().ok()).map_or(0, |metadata| metadata.len());
        self.began.elapsed() >= LONGEST || bytes >= MOST_BYTES
    }

    fn end(mut self) -> Result<(), BoxError> {
        self.sink.event(&Event::End(EndReason::Stopped))
    }
}
