//! Collecting every aggregation from the kernel's tracepoint.

use super::TraceError;
use super::assemble::{Aggregation, Assembler};
use super::format::Format;
use super::records::{Record, records};
use super::ring::Ring;
use super::thread::Thread;

/// What of the kernel's findings did not reach us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events, one a region.
    pub events: u64,
    /// Aggregations of which only a part came.
    pub torn: u64,
}

/// The events of one kdamond, and the aggregations that they make.
#[derive(Debug)]
pub(super) struct Traced {
    format: Format,
    ring: Ring,
    assembler: Assembler,
    /// What the ring held last; kept for its memory only.
    bytes: Vec<u8>,
}

impl Traced {
    /// Listens to this kdamond, which watches so many targets with so many samples an aggregation; events that are not
    /// collected yet have room in `ring_bytes`.
    ///
    /// # Errors
    /// If the kernel hands out no events, or the thread has ended.
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

    /// The aggregations that have ended since the last call.
    pub(super) fn collect(&mut self) -> Vec<Aggregation> {
        self.bytes.clear();
        self.ring.drain(&mut self.bytes);
        let mut found = Vec::new();
        for record in records(&self.bytes) {
            match record {
                Record::Lost(events) => self.assembler.lost(events),
                Record::Event(time, event) => {
                    found.extend(self.format.decode(event).and_then(|told| self.assembler.push(time, told)));
                }
            }
        }
        found
    }

    /// Whether the kdamond has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ring.has_ended()
    }

    pub(super) fn lost(&self) -> Lost {
        Lost { events: self.assembler.lost_events, torn: self.assembler.dropped }
    }
}
