//! The layout of a recording: where its whole messages are, and what of it is damaged.
//!
//! All checksums are compared before anything is decoded, so that a reader knows from the start what is missing. After
//! damage, the next message is found by its marker; its checksum says whether it is one. Where a recorder was killed
//! while it put one batch in the place of those of a segment, the last batch that is all of it counts.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::ahead::Ahead;
use crate::ending::Ending;
use crate::message::{Begins, Checksum, END_MARKER, Fault, MARKER, Message, PREFIX_LEN, Segment, find};

/// A part of a recording that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Where the messages of a file are.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The whole messages: ranges of bytes, one more than there are damaged parts between them. Any may be empty.
    pub(crate) spans: Vec<Range<u64>>,
    pub(crate) damage: Vec<Damage>,
    /// Parts to be passed over, because a batch after each of them has what was in it.
    pub(crate) replaced: Vec<Range<u64>>,
    /// The first byte of the last segment, which may be replaced while its recorder runs.
    pub(crate) last_segment: u64,
    pub(crate) ending: Ending,
}

/// How far a file was read.
#[derive(Clone, Copy)]
struct Progress {
    /// The byte after the last message.
    at: u64,
    /// The start of the span that is being read.
    span: u64,
    spans: usize,
    damage: usize,
    replaced: usize,
}

/// The longest metadata of a message that is looked for after damage. Those of a recording have a few thousand bytes.
const MAX_SOUGHT: usize = 1 << 20;
/// How often the bytes of a file are read at most. A file that was made for it could have them read without end.
const MAX_PASSES: u64 = 16;
/// The bytes that are always allowed to be read.
const MIN_WORK: u64 = 64 << 20;
const CHUNK: usize = 1 << 16;

/// Finds the messages of a `file` of `len` bytes, from byte `start` on.
pub(crate) fn layout(file: &Arc<File>, start: u64, len: u64) -> io::Result<Layout> {
    let work = len.saturating_mul(MAX_PASSES).saturating_add(MIN_WORK);
    Search { file, ahead: Ahead::new(Arc::clone(file), len), len, work }.layout(start)
}

struct Search<'a> {
    file: &'a File,
    ahead: Ahead,
    len: u64,
    /// How many bytes may still be read.
    work: u64,
}

/// What comes at a place.
enum Next {
    /// A whole message, which ends here, and where it belongs.
    Whole(u64, Segment),
    End(Ending),
    /// Something else. If a message is damaged whose end is known, reading can go on there.
    Damaged(&'static str, Option<u64>),
    /// A message whose rest is missing.
    Torn,
}

impl Search<'_> {
    fn layout(mut self, start: u64) -> io::Result<Layout> {
        let (mut spans, mut damage, mut replaced) = (Vec::new(), Vec::<Damage>::new(), Vec::new());
        let (mut span, mut at, mut number) = (start, start, 0);
        // The ends of the last message, and of the last one of the segment before.
        let mut last = Progress { at, span, spans: 0, damage: 0, replaced: 0 };
        let mut before = last;
        let layout = |spans: Vec<_>, damage, replaced, before: Progress, ending| {
            Ok(Layout { spans, damage, replaced, last_segment: before.at, ending })
        };
        loop {
            let (reason, resume) = match self.next(at)? {
                Next::Whole(end, segment) => {
                    if segment.number != number {
                        (number, before) = (segment.number, last);
                    } else if segment.is_whole {
                        spans.truncate(before.spans);
                        damage.truncate(before.damage);
                        replaced.truncate(before.replaced);
                        replaced.push(before.at..at);
                        span = before.span;
                    }
                    at = end;
                    last = Progress { at, span, spans: spans.len(), damage: damage.len(), replaced: replaced.len() };
                    continue;
                }
                Next::End(ending) => {
                    spans.push(span..at);
                    return layout(spans, damage, replaced, before, ending);
                }
                Next::Damaged(reason, Some(end)) => (reason, Some(end)),
                Next::Damaged(reason, None) => (reason, self.seek(at + 1)?.or(self.end_marker_after(at)?)),
                Next::Torn => match self.seek(at + 1)? {
                    Some(end) => ("the length of a message is wrong", Some(end)),
                    None => {
                        spans.push(span..at);
                        return layout(spans, damage, replaced, before, Ending::CutShort { at });
                    }
                },
            };
            spans.push(span..at);
            damage.push(Damage { start: at, end: resume.unwrap_or(self.len), reason });
            at = resume.unwrap_or(self.len);
            span = at;
        }
    }

    fn next(&mut self, at: u64) -> io::Result<Next> {
        if self.work == 0 && at < self.len {
            return Ok(Next::Damaged("too many places look like messages", Some(self.len)));
        }
        Ok(match self.find(at)? {
            Ok(Begins::Message(message)) if self.body_is_whole(&message)? => {
                Next::Whole(message.end(), message.segment())
            }
            Ok(Begins::Message(message)) => {
                // If nothing was inserted or left out, the next message begins at the end of this one.
                let end = message.end();
                let goes_on = self.find(end)?.is_ok();
                let resume = if goes_on {
                    Some(end)
                } else {
                    self.seek(message.body_start())?.or(self.end_marker_after(at)?).or(Some(self.len))
                };
                Next::Damaged("the checksum of a message's body does not match", resume)
            }
            Ok(Begins::EndMarker) => Next::End(Ending::Whole),
            Ok(Begins::Nothing) => Next::End(Ending::Unfinished),
            Ok(Begins::Torn) => Next::Torn,
            Err(reason) => {
                // What follows an end is another file.
                let follows = at + PREFIX_LEN as u64;
                let is_end = self.is_end_marker(at)? && matches!(self.find(follows)?, Ok(Begins::Message(_)));
                Next::Damaged(reason, is_end.then_some(self.len))
            }
        })
    }

    /// As [`find`], with what is broken apart from failures to read.
    fn find(&mut self, at: u64) -> io::Result<Result<Begins, &'static str>> {
        match find(&mut self.ahead, at, self.len, Checksum::Needed) {
            Ok(found) => {
                if let Begins::Message(message) = &found {
                    self.spend(message.body_start() - at);
                }
                Ok(Ok(found))
            }
            Err(Fault::Broken(reason)) => Ok(Err(reason)),
            Err(Fault::Io(error)) => Err(error),
        }
    }

    fn spend(&mut self, bytes: u64) {
        self.work = self.work.saturating_sub(bytes);
    }

    fn body_is_whole(&mut self, message: &Message) -> io::Result<bool> {
        self.spend(message.end() - message.body_start());
        message.body_is_whole(&mut self.ahead)
    }

    /// The end marker at the end of the file, after byte `at`. It has no checksum, so that it counts only where the
    /// file does not look as if it was cut.
    fn end_marker_after(&self, at: u64) -> io::Result<Option<u64>> {
        let end = self.len.saturating_sub(PREFIX_LEN as u64);
        Ok((end > at && self.is_end_marker(end)?).then_some(end))
    }

    fn is_end_marker(&self, at: u64) -> io::Result<bool> {
        let mut bytes = END_MARKER;
        let there = self.len.saturating_sub(at) >= bytes.len() as u64;
        if there {
            self.file.read_exact_at(&mut bytes, at)?;
        }
        Ok(there && bytes == END_MARKER)
    }

    /// The first byte, from `from` on, of a batch whose checksum is right.
    fn seek(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut bytes = vec![0; CHUNK];
        let mut at = from;
        while at < self.len && self.work > 0 {
            let there = CHUNK.min(usize::try_from(self.len - at).unwrap_or(CHUNK));
            let chunk = &mut bytes[..there];
            self.file.read_exact_at(chunk, at)?;
            self.spend(there as u64);
            let mut offset = 0;
            while let Some(found) = chunk[offset..].windows(MARKER.len()).position(|window| window == MARKER) {
                offset += found;
                if self.is_message(at + offset as u64)? {
                    return Ok(Some(at + offset as u64));
                }
                offset += 1;
            }
            // A marker may lie across the border of two chunks.
            at += if there == CHUNK { CHUNK - (MARKER.len() - 1) } else { there } as u64;
        }
        Ok(None)
    }

    /// Whether a batch begins here.
    fn is_message(&mut self, at: u64) -> io::Result<bool> {
        let mut prefix = [0; PREFIX_LEN];
        if self.len - at < PREFIX_LEN as u64 {
            return Ok(false);
        }
        self.file.read_exact_at(&mut prefix, at)?;
        let [.., a, b, c, d] = prefix;
        let metadata_len = u32::from_le_bytes([a, b, c, d]) as usize;
        // The metadata of a message is padded to a multiple of 8 bytes.
        if metadata_len > MAX_SOUGHT || !metadata_len.is_multiple_of(8) {
            return Ok(false);
        }
        self.spend(metadata_len as u64);
        Ok(matches!(self.find(at)?, Ok(Begins::Message(message)) if message.is_batch()))
    }
}
