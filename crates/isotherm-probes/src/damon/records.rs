//! Parses the records in the ring buffer of perf events (`perf_event_open(2)`, "MMAP layout").

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// An event: its time on the monotonic clock in nanoseconds, and its fields.
    Event(u64, &'a [u8]),
    /// The number of events that did not fit into the ring buffer.
    Lost(u64),
}

/// The records in `bytes`, which must contain complete records. Records of other kinds are skipped.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let (kind, body, after) = split(rest)?;
            rest = after;
            if let Some(record) = record(kind, body) {
                return Some(record);
            }
        }
    })
}

/// The kind and the body of the first record, and the bytes after it.
fn split(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    const HEADER: usize = 8;
    let header = bytes.get(..HEADER)?;
    let kind = u32::from_ne_bytes(header[..4].try_into().ok()?);
    let size = usize::from(u16::from_ne_bytes(header[6..].try_into().ok()?));
    // A record shorter than its header makes the first range invalid, so the iteration ends.
    Some((kind, bytes.get(HEADER..size)?, bytes.get(size..)?))
}

fn record(kind: u32, body: &[u8]) -> Option<Record<'_>> {
    let word = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    match kind {
        // The ID of the event precedes the count.
        PERF_RECORD_LOST => Some(Record::Lost(word(8)?)),
        // The fields are in the order of the bits of the sample type: the time, then the length and the raw event.
        PERF_RECORD_SAMPLE => {
            let length = u32::from_ne_bytes(body.get(8..12)?.try_into().ok()?) as usize;
            Some(Record::Event(word(0)?, body.get(12..12 + length)?))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod made {
    //! Makes records as the kernel writes them.

    use super::{PERF_RECORD_LOST, PERF_RECORD_SAMPLE};

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend((8 + body.len() as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    pub fn event(time: u64, raw: &[u8]) -> Vec<u8> {
        let mut body = time.to_ne_bytes().to_vec();
        body.extend((raw.len() as u32).to_ne_bytes());
        body.extend(raw);
        record(PERF_RECORD_SAMPLE, &body)
    }

    pub fn lost(count: u64) -> Vec<u8> {
        record(PERF_RECORD_LOST, &[7_u64.to_ne_bytes(), count.to_ne_bytes()].concat())
    }

    pub fn throttled() -> Vec<u8> {
        record(5, &[0; 24])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_losses_are_parsed_and_other_records_skipped() {
        let bytes = [made::event(5, b"abcd"), made::throttled(), made::lost(12), made::event(6, b"")].concat();
        let found: Vec<_> = records(&bytes).collect();
        assert_eq!(found, [Record::Event(5, b"abcd"), Record::Lost(12), Record::Event(6, b"")]);
    }

    #[test]
    fn parsing_ends_at_an_invalid_record() {
        assert_eq!(records(&[0; 64]).count(), 0, "a length of zero");
        let event = made::event(5, b"abcd");
        assert_eq!(records(&event[..event.len() - 1]).count(), 0, "a record cut short");
        let mut long = made::event(5, b"abcd");
        long[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(records(&long).count(), 0, "an event longer than its record");
    }
}
