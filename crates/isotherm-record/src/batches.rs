//! Reading a recording: its batches, one after another.

use std::sync::Arc;

use crate::RecordError;
use crate::column::{Context, Wanted};
use crate::decode::{self, Rows};
use crate::message::{Checksum, Fault, Found, find};
use crate::shape::Refused;
use crate::source::Source;

/// The rows of a recording one by one, with one batch in memory at a time.
#[derive(Debug)]
pub(crate) struct Batches {
    source: Source,
    /// The columns that are read.
    wanted: Wanted,
    context: Context,
    /// The span that is being read.
    span: usize,
    /// The first byte of the next message.
    at: u64,
    batch: Option<Batch>,
}

/// A batch whose rows are being handed out.
#[derive(Debug)]
struct Batch {
    /// The first byte of its message.
    at: u64,
    rows: Arc<Rows>,
    count: usize,
    next: usize,
}

impl Batches {
    /// The rows with those columns that `is_wanted` is true for, by their paths ([`Wanted::of`]). Of the others,
    /// optional ones read as null and lists as empty.
    pub(crate) fn new(source: Source, is_wanted: &dyn Fn(&str) -> bool) -> Self {
        let at = source.spans.first().map_or(0, |span| span.start);
        let wanted = Wanted::of(&source.fields, is_wanted);
        Self { at, span: 0, source, wanted, context: Context::default(), batch: None }
    }

    /// The next row: its batch, and its place in it. After an error there is no further row.
    ///
    /// # Errors
    /// When the batch cannot be read.
    fn next_row(&mut self) -> Result<Option<(Arc<Rows>, usize)>, RecordError> {
        loop {
            if let Some(batch) = &mut self.batch
                && batch.next < batch.count
            {
                batch.next += 1;
                return Ok(Some((Arc::clone(&batch.rows), batch.next - 1)));
            }
            while self.source.spans.get(self.span).is_some_and(|span| self.at >= span.end) {
                self.span += 1;
                self.at = self.source.spans.get(self.span).map_or(0, |span| span.start);
            }
            if self.span >= self.source.spans.len() {
                return Ok(None);
            }
            match self.next_batch() {
                Ok(batch) => self.batch = Some(batch),
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
    }

    /// What `read` makes of the next row of which it makes something. `read` gets the batch of a row and its place in
    /// it, and whether rows before it may be missing, and says what is wrong with the row. After an error there is no
    /// further row.
    pub(crate) fn find<T>(
        &mut self,
        mut read: impl FnMut(&Rows, usize, bool) -> Result<Option<T>, &'static str>,
    ) -> Option<Result<T, RecordError>> {
        loop {
            let (rows, index) = match self.next_row().transpose()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            };
            match read(&rows, index, self.span > 0) {
                Ok(None) => {}
                Ok(Some(found)) => return Some(Ok(found)),
                Err(reason) => return Some(Err(self.refuse(reason))),
            }
        }
    }

    /// The error that the last row is wrong for this reason. There is no further row then.
    pub(crate) fn refuse(&mut self, reason: &'static str) -> RecordError {
        let at = self.batch.as_ref().map_or(self.at, |batch| batch.at);
        self.end();
        RecordError::damaged(&self.source.path, at, reason)
    }

    /// The error that `part`, to which the last row belongs, takes too much memory. There is no further row then.
    pub(crate) fn too_large(&mut self, part: &'static str) -> RecordError {
        let at = self.batch.as_ref().map_or(self.at, |batch| batch.at);
        self.end();
        let Source { path, limits, .. } = &self.source;
        RecordError::TooLarge { path: path.to_path_buf(), at, part, limit: limits.of_part() }
    }

    /// The most bytes that a snapshot or a survey may take.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.source.limits.of_part()
    }

    /// The time of the next row in nanoseconds, and in which of the spans between damaged parts it is.
    pub(crate) fn next_time(&mut self) -> Option<Result<(u64, usize), RecordError>> {
        let time = self.find(|rows, index, _| Ok(Some(rows.time_ns(index))))?;
        Some(time.map(|time| (time, self.span)))
    }

    fn end(&mut self) {
        self.batch = None;
        self.span = self.source.spans.len();
    }

    fn next_batch(&mut self) -> Result<Batch, RecordError> {
        let (path, file, at) = (&self.source.path, &self.source.file, self.at);
        let fault = |fault: Fault| fault.at(path, at);
        let end = self.source.spans.get(self.span).map_or(at, |span| span.end);
        let Found::Message(message) = find(file, at, end, Checksum::Needed).map_err(fault)? else {
            return Err(RecordError::damaged(path, at, "the file has changed since it was opened"));
        };
        let body = message.body(file).map_err(fault)?;
        let flatbuffer = message.flatbuffer().map_err(fault)?;
        let Source { fields, limits, .. } = &self.source;
        let batch = decode::batch(flatbuffer, &body, fields, &self.wanted, *limits, &mut self.context);
        let (rows, count) = batch.map_err(|refused| match refused {
            Refused::Wrong(reason) => RecordError::damaged(path, at, reason),
            Refused::TooLarge(limit) => RecordError::TooLarge { path: path.to_path_buf(), at, part: "a batch", limit },
        })?;
        self.at = message.end();
        Ok(Batch { at, rows: Arc::new(rows), count, next: 0 })
    }
}
