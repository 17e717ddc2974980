//! Reading a recording that comes piece by piece, such as from a running daemon.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::ahead::{Ahead, Tail};
use crate::limits::Limits;
use crate::message::{Begins, Checksum, find};
use crate::output::IN_MEMORY;
use crate::reader::{First, read_header};
use crate::source::Source;
use crate::{Event, Events, Header, Needs, RecordError};

/// The most bytes of a message that is not whole yet.
const MOST: usize = 64 << 20;

/// Reads a recording that [`Recorder::in_memory`](crate::Recorder::in_memory) makes, as its bytes come. It keeps no
/// more than the message that is not whole yet.
///
/// Events that came in one piece have the order of time. Those of different pieces have the order in which they were
/// written.
#[derive(Debug)]
pub struct StreamReader {
    /// The bytes that are no whole message yet.
    pending: Vec<u8>,
    /// How many bytes came before these.
    passed: u64,
    needs: Needs,
    first: Option<First>,
    events: Option<Events>,
}

impl StreamReader {
    /// A reader of these events, which has got nothing yet.
    pub fn new(needs: Needs) -> Self {
        Self { pending: Vec::new(), passed: 0, needs, first: None, events: None }
    }

    /// What is true for the whole recording. `None` until it has come.
    pub fn header(&self) -> Option<&Header> {
        self.first.as_ref().map(|first| &first.header)
    }

    /// Takes in the next bytes, and returns the events that are whole with them.
    ///
    /// # Errors
    /// If they are no recording, or damaged. The reader is of no use then.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, RecordError> {
        self.pending.extend_from_slice(bytes);
        let mut found = Vec::new();
        while let Some(end) = self.end_of_first()? {
            let message: Vec<u8> = self.pending.drain(..end).collect();
            self.message(&message, &mut found)?;
            self.passed += end as u64;
        }
        if self.pending.len() > MOST {
            return Err(RecordError::damaged(Path::new(IN_MEMORY), self.passed, "a message is too large"));
        }
        Ok(found)
    }

    /// The length of the first message that is pending, if it is whole.
    fn end_of_first(&self) -> Result<Option<usize>, RecordError> {
        let (mut ahead, len) = self.ahead(&self.pending)?;
        // The end of a stream tells nothing that the end of its bytes does not.
        match find(&mut ahead, 0, len, Checksum::Needed).map_err(|fault| fault.at(Path::new(IN_MEMORY), self.passed))? {
            Begins::Message(message) => Ok(Some(message.end() as usize)),
            Begins::EndMarker | Begins::Nothing | Begins::Torn => Ok(None),
        }
    }

    fn message(&mut self, message: &[u8], found: &mut Vec<Event>) -> Result<(), RecordError> {
        let file = self.file(message)?;
        let len = message.len() as u64;
        let Some(first) = &self.first else {
            let (first, _) = read_header(Path::new(IN_MEMORY), &file, len)?;
            self.first = Some(first);
            return Ok(());
        };
        let source = Source {
            file,
            tail: Arc::new(Tail::default()),
            path: Path::new(IN_MEMORY).into(),
            limits: Limits::default(),
            fields: first.fields.clone(),
            spans: std::iter::once(0..len).collect(),
            replaced: Arc::default(),
        };
        let events = match &mut self.events {
            Some(events) => {
                events.resume(source);
                events
            }
            None => self.events.insert(Events::new(source, self.needs)),
        };
        for event in events {
            found.push(event?);
        }
        Ok(())
    }

    /// Bytes as a file, which readers of recordings read.
    fn file(&self, bytes: &[u8]) -> Result<Arc<File>, RecordError> {
        let made = memfd_create("isotherm", MemfdFlags::CLOEXEC).map_err(io::Error::from);
        let written = made.map(File::from).and_then(|mut file| file.write_all(bytes).map(|()| file));
        let failed = |source| RecordError::Read { path: IN_MEMORY.into(), offset: self.passed, source };
        written.map(Arc::new).map_err(failed)
    }

    fn ahead(&self, bytes: &[u8]) -> Result<(Ahead, u64), RecordError> {
        Ok((Ahead::new(self.file(bytes)?, bytes.len() as u64), bytes.len() as u64))
    }
}
