//! Reading a recording: its batches out of the file, by a thread of their own if there are many.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use crate::RecordError;
use crate::ahead::Ahead;
use crate::column::{Context, Wanted};
use crate::decode::{self, Rows};
use crate::message::{Begins, Checksum, Fault, find};
use crate::shape::Refused;
use crate::source::Source;

/// The least bytes of a recording whose batches are decoded by a thread of their own.
const MANY: u64 = 8 << 20;
/// The bytes of the batches that the thread hands over at a time, as they are in the file.
const CHUNK: u64 = 256 << 10;

/// A batch whose rows are being handed out.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The first byte of its message.
    pub(crate) at: u64,
    /// In which of the spans between damaged parts it is.
    pub(crate) span: usize,
    pub(crate) rows: Rows,
    /// The number of its rows, and of those that were handed out.
    pub(crate) count: usize,
    pub(crate) next: usize,
}

/// The columns that are read of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) wanted: Wanted,
    /// Those of a batch that has merged snapshots. `None` if these are not read.
    pub(crate) beside_merged: Option<Wanted>,
}

/// A batch, or why it cannot be read.
type Decoded = Result<Batch, RecordError>;

/// Where batches come from.
#[derive(Debug)]
pub(crate) enum Feed {
    /// They are decoded when they are asked for.
    Here(Box<Decoder>),
    /// A thread decodes them, while the reader works on those before.
    Ahead(Thread),
    /// There is no further one.
    Ended,
}

/// A thread that decodes batches.
#[derive(Debug)]
pub(crate) struct Thread {
    /// `None` after its end.
    chunks: Option<Receiver<Vec<Decoded>>>,
    chunk: std::vec::IntoIter<Decoded>,
    handle: Option<JoinHandle<()>>,
}

/// The number of these threads in the process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread while it runs.
struct Counted;

impl Counted {
    /// `None` if there are `most` of them.
    fn new(most: usize) -> Option<Self> {
        let counted = Self;
        (THREADS.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Feed {
    /// The batches of a recording, with these columns. A thread pays for long recordings only.
    pub(crate) fn new(source: Source, wanted: Chosen) -> Self {
        let bytes = source.spans.iter().map(|span| span.end - span.start).sum::<u64>();
        // The reader has a processor, too.
        let most = thread::available_parallelism().map_or(0, |processors| processors.get() - 1);
        let thread = if bytes < MANY { None } else { Thread::start(&source, &wanted, most) };
        thread.map_or_else(|| Self::Here(Box::new(Decoder::new(source, wanted))), Self::Ahead)
    }

    pub(crate) fn next(&mut self) -> Option<Decoded> {
        match self {
            Self::Here(decoder) => decoder.next(),
            Self::Ahead(thread) => thread.next(),
            Self::Ended => None,
        }
    }
}

impl Thread {
    /// `None` if there are `most` of them, or the system does not give one.
    fn start(source: &Source, wanted: &Chosen, most: usize) -> Option<Self> {
        let counted = Counted::new(most)?;
        // The thread waits with its chunk until the reader takes it, so that there are two of them in memory.
        let (sender, chunks) = sync_channel(0);
        let mut decoder = Decoder::new(source.clone(), wanted.clone());
        let decode = move || {
            let _counted = counted;
            // The reader may have gone.
            while let Some(chunk) = decoder.chunk()
                && sender.send(chunk).is_ok()
            {}
        };
        let handle = thread::Builder::new().name("decode".into()).spawn(decode).ok()?;
        Some(Self { chunks: Some(chunks), chunk: Vec::new().into_iter(), handle: Some(handle) })
    }

    fn next(&mut self) -> Option<Decoded> {
        if let Some(batch) = self.chunk.next() {
            return Some(batch);
        }
        if let Ok(chunk) = self.chunks.as_ref()?.recv() {
            self.chunk = chunk.into_iter();
            return self.chunk.next();
        }
        // A panic of the thread is one of its reader, too, and not the end of the recording.
        if let Some(Err(panic)) = self.end() {
            resume_unwind(panic);
        }
        None
    }

    /// Waits for the end of the thread, which comes with the end of the recording or of its reader. So the next reader
    /// can have a thread again.
    fn end(&mut self) -> Option<thread::Result<()>> {
        self.chunks = None;
        self.handle.take().map(JoinHandle::join)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// Decodes batches in the order of the file. After an error there is no further batch.
#[derive(Debug)]
pub(crate) struct Decoder {
    source: Source,
    /// The columns that are read.
    wanted: Chosen,
    context: Context,
    ahead: Ahead,
    /// The span that is being read.
    span: usize,
    /// The first byte of the next message.
    at: u64,
}

impl Decoder {
    fn new(source: Source, wanted: Chosen) -> Self {
        let at = source.spans.first().map_or(0, |span| span.start);
        let end = source.spans.last().map_or(0, |span| span.end);
        let ahead = Ahead::with_tail(source.file.clone(), end, Arc::clone(&source.tail));
        Self { at, span: 0, source, wanted, context: Context::default(), ahead }
    }

    /// The next batches. `None` after the last one.
    fn chunk(&mut self) -> Option<Vec<Decoded>> {
        let start = self.at;
        let mut chunk = Vec::new();
        while self.at.saturating_sub(start) < CHUNK
            && let Some(batch) = self.next()
        {
            chunk.push(batch);
        }
        (!chunk.is_empty()).then_some(chunk)
    }

    fn next_batch(&mut self, end: u64) -> Decoded {
        let (path, at) = (&self.source.path, self.at);
        let fault = |fault: Fault| fault.at(path, at);
        let Begins::Message(message) = find(&mut self.ahead, at, end, Checksum::Needed).map_err(fault)? else {
            return Err(RecordError::damaged(path, at, "the file has changed since it was opened"));
        };
        let body = message.body(&mut self.ahead).map_err(fault)?;
        let flatbuffer = message.flatbuffer().map_err(fault)?;
        let Source { fields, limits, .. } = &self.source;
        let Chosen { wanted, beside_merged } = &self.wanted;
        let context = &mut self.context;
        let mut decode = |wanted| decode::batch(flatbuffer, body, fields, wanted, *limits, context);
        // Only a batch that is all of a segment has merged snapshots.
        let merged = beside_merged.as_ref().filter(|_| message.segment().is_whole).map(&mut decode).transpose();
        let batch = match merged {
            Ok(Some((rows, count))) if rows.has_merged => Ok((rows, count)),
            Ok(_) => decode(wanted),
            Err(refused) => Err(refused),
        };
        let (rows, count) = batch.map_err(|refused| match refused {
            Refused::Wrong(reason) => RecordError::damaged(path, at, reason),
            Refused::TooLarge(limit) => RecordError::TooLarge { path: path.to_path_buf(), at, part: "a batch", limit },
        })?;
        self.at = message.end();
        Ok(Batch { at, span: self.span, rows, count, next: 0 })
    }
}

impl Iterator for Decoder {
    type Item = Decoded;

    fn next(&mut self) -> Option<Decoded> {
        let mut span = self.source.spans.get(self.span)?;
        loop {
            if let Ok(nth) = self.source.replaced.binary_search_by_key(&self.at, |range| range.start) {
                self.at = self.source.replaced[nth].end;
            }
            if self.at < span.end {
                break;
            }
            self.span += 1;
            span = self.source.spans.get(self.span)?;
            self.at = span.start;
        }
        let batch = self.next_batch(span.end);
        if batch.is_err() {
            self.span = self.source.spans.len();
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hostile::header;
    use crate::{Contents, Mark, MarkText, Recorder, Recording};

    /// What a feed gives: the place and the rows of each batch, and why there is no further one.
    fn all(mut next: impl FnMut() -> Option<Decoded>) -> Vec<Result<(u64, usize), String>> {
        let batches = std::iter::from_fn(|| next().map(|batch| batch.map_err(|error| error.to_string())));
        batches.map(|batch| batch.map(|batch| (batch.at, batch.count))).collect()
    }

    #[test]
    fn a_thread_gives_the_batches_of_the_file_and_its_errors_and_ends_with_its_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec");
        let contents = Contents { marks: true, ..Contents::default() };
        let mut recorder = Recorder::create_with(&path, &header(), contents).unwrap().appearing_whole();
        for nth in 0..200 {
            let text = MarkText::new(format!("mark {nth}").as_bytes()).unwrap();
            recorder.write_mark(&Mark { time: Duration::from_secs(60 * nth), text }).unwrap();
        }
        recorder.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        let source = recording.source();
        let wanted = Chosen { wanted: Wanted::of(&source.fields, &|_| true), beside_merged: None };
        let here = || {
            all({
                let mut decoder = Decoder::new(source.clone(), wanted.clone());
                move || decoder.next()
            })
        };
        let by_thread = || {
            let mut thread = Thread::start(source, &wanted, 8).unwrap();
            all(|| thread.next())
        };
        let found = here();
        assert!(found.len() > 100 && found.iter().all(Result::is_ok));
        assert_eq!(by_thread(), found);

        // A reader that stops leaves no thread, so that there is room for others.
        (0..100).for_each(|_| drop(Thread::start(source, &wanted, 8).unwrap().next()));

        let len = std::fs::metadata(&path).unwrap().len();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len / 2).unwrap();
        let found = here();
        assert_eq!(found.iter().filter(|batch| batch.is_err()).count(), 1);
        assert!(found.last().is_some_and(Result::is_err));
        assert_eq!(by_thread(), found);
    }
}
