//! Reading a recording: its batches, one after another.

use crate::column::Wanted;
use crate::decode::Rows;
use crate::feed::{Batch, Chosen, Feed};
use crate::source::Source;
use crate::{Needs, RecordError};

/// The rows of a recording one by one, with few batches in memory at a time.
#[derive(Debug)]
pub(crate) struct Batches {
    source: Source,
    feed: Feed,
    /// The batch whose rows are being handed out.
    batch: Option<Batch>,
}

impl Batches {
    /// The rows with those columns that `is_wanted` is true for, by their paths ([`Wanted::of`]). Of the others,
    /// optional ones read as null and lists as empty.
    pub(crate) fn new(source: Source, is_wanted: &dyn Fn(&str) -> bool) -> Self {
        let wanted = Chosen { wanted: Wanted::of(&source.fields, is_wanted), beside_merged: None };
        Self { feed: Feed::new(source.clone(), wanted), source, batch: None }
    }

    /// What is needed. Snapshots have no regions, and surveys no blocks, where merged ones are, if these are needed.
    pub(crate) fn of(source: Source, needs: Needs) -> Self {
        let wanted = |needs: Needs| Wanted::of(&source.fields, &|path| needs.has(path));
        let beside_merged = needs.merged.then(|| wanted(Needs { regions: false, blocks: false, ..needs }));
        let wanted = Chosen { wanted: wanted(needs), beside_merged };
        Self { feed: Feed::new(source.clone(), wanted), source, batch: None }
    }

    /// What `read` makes of the next row of which it makes something. `read` gets the batch of a row and its place in
    /// it, and whether rows before it may be missing, and says what is wrong with the row. After an error there is no
    /// further row.
    pub(crate) fn find<T>(
        &mut self,
        mut read: impl FnMut(&Rows, usize, bool) -> Result<Option<T>, &'static str>,
    ) -> Option<Result<T, RecordError>> {
        loop {
            while let Some(batch) = &mut self.batch
                && batch.next < batch.count
            {
                batch.next += 1;
                match read(&batch.rows, batch.next - 1, batch.span > 0) {
                    Ok(None) => {}
                    Ok(Some(found)) => return Some(Ok(found)),
                    Err(reason) => return Some(Err(self.refuse(reason))),
                }
            }
            match self.feed.next()? {
                Ok(batch) => self.batch = Some(batch),
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            }
        }
    }

    /// The first byte of the batch of the last row.
    fn at(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| batch.at)
    }

    /// The error that the last row is wrong for this reason. There is no further row then.
    pub(crate) fn refuse(&mut self, reason: &'static str) -> RecordError {
        let at = self.at();
        self.end();
        RecordError::damaged(&self.source.path, at, reason)
    }

    /// The error that `part`, to which the last row belongs, takes too much memory. There is no further row then.
    pub(crate) fn too_large(&mut self, part: &'static str) -> RecordError {
        let at = self.at();
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
        let span = self.batch.as_ref().map_or(0, |batch| batch.span);
        Some(time.map(|time| (time, span)))
    }

    fn end(&mut self) {
        self.batch = None;
        self.feed = Feed::Ended;
    }
}
