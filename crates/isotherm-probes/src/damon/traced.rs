//! Collects every aggregation from the kernel's tracepoint.

use super::TraceError;
use super::assemble::{Aggregation, Assembler};
use super::format::Format;
use super::records::{Record, records};
use super::ring::Ring;
use super::thread::Thread;

/// The losses of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The number of lost events. Each event is one region.
    pub events: u64,
    /// The number of aggregations dropped because some of their events were lost.
    pub torn: u64,
}

/// Reads the events of one kdamond and assembles aggregations from them.
#[derive(Debug)]
pub(super) struct Traced {
    format: Format,
    ring: Ring,
    assembler: Assembler,
    /// The records of the last collection. The buffer is kept so that a collection does not allocate.
    bytes: Vec<u8>,
}

impl Traced {
    /// Opens the tracepoint for the thread of a kdamond with this number of targets and of samples per aggregation. The
    /// ring buffer has at least `ring_bytes` bytes.
    ///
    /// # Errors
    /// Fails if the tracepoint cannot be opened or the thread has ended.
    pub(super) fn new(
        format: &Format,
        thread: Thread,
        ring_bytes: usize,
        targets: usize,
        samples: u32,
    ) -> Result<Self, TraceError> {
        let ring = Ring::open(format.id, thread.pid, ring_bytes)?;
        Ok(Self { format: format.clone(), ring, assembler: Assembler::new(targets, samples), bytes: Vec::new() })
    }

    /// Returns the aggregations that have ended since the last call, the oldest first.
    pub(super) fn collect(&mut self) -> Vec<Aggregation> {
        self.bytes.clear();
        self.ring.drain(&mut self.bytes);
        let mut found = Vec::new();
        for record in records(&self.bytes) {
            match record {
                Record::Lost(events) => self.assembler.lost(events),
                Record::Event(time, event) => {
                    found.extend(self.format.decode(event).and_then(|event| self.assembler.push(time, event)));
                }
            }
        }
        found
    }

    /// Whether the kdamond has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ring.has_ended()
    }

    /// The losses so far.
    pub(super) fn lost(&self) -> Lost {
        Lost { events: self.assembler.lost_events, torn: self.assembler.dropped }
    }
}
