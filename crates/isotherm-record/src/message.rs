//! The messages that a recording consists of: framing them, and recognising a torn or damaged one.
//!
//! A message is Arrow's: the marker `0xFFFFFFFF`, the length of the metadata (32 bits, little-endian), the metadata
//! (a flatbuffer `Message`), the body. Arrow allows padding after the metadata. In a recording the padding ends
//! in four words (32 bits, little-endian), which other readers of Arrow pass over: the number of the segment, whether
//! the message is all of the segment, and two checksums (CRC-32), of all bytes before them in the message, and of the
//! body.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use arrow_ipc as ipc;

use crate::ahead::Ahead;

pub(crate) const MARKER: [u8; 4] = [0xff; 4];
pub(crate) const PREFIX_LEN: usize = 8;
/// The bytes of the number of the segment, and of whether the message is all of it.
const PLACE_LEN: usize = 8;
const CHECKSUMS_LEN: usize = 8;
/// Ends a stream: a message whose metadata has no bytes.
pub(crate) const END_MARKER: [u8; PREFIX_LEN] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The most bytes of metadata that are read. The messages of a recording have a few thousand.
const MAX_METADATA: usize = 16 << 20;
/// The most bytes of one body that are read, compressed or not.
pub(crate) const MAX_BODY: u64 = 1 << 30;

/// The longest beginning of a file in which a wrong bit is corrected, in bytes. A header has about 12 KiB.
const MAX_CORRECTED: usize = 16 << 10;
/// How many bytes of a body are read at a time where it need not be in memory.
const CHUNK: u64 = 1 << 16;

/// Where a batch belongs.
///
/// A segment is some seconds of a recording. While it is recorded, it grows by batches that are a part of it. Then one
/// batch that is all of it takes their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Counts from 1.
    pub(crate) number: u32,
    /// Whether the batch has all rows of the segment, and takes the place of those of this number before it.
    pub(crate) is_whole: bool,
}

/// A message as bytes: `flatbuffer` and `body` framed, with their place and checksums.
pub(crate) fn frame(flatbuffer: &[u8], body: &[u8], segment: Segment) -> Option<Vec<u8>> {
    let padded = flatbuffer.len().next_multiple_of(8);
    let metadata_len = padded + PLACE_LEN + CHECKSUMS_LEN;
    let metadata_len = u32::try_from(metadata_len).ok().filter(|&len| len as usize <= MAX_METADATA)?;
    let mut bytes = Vec::with_capacity(PREFIX_LEN + metadata_len as usize + body.len());
    bytes.extend(MARKER);
    bytes.extend(metadata_len.to_le_bytes());
    bytes.extend(flatbuffer);
    bytes.resize(PREFIX_LEN + padded, 0);
    bytes.extend([segment.number, u32::from(segment.is_whole)].into_iter().flat_map(u32::to_le_bytes));
    let checksums = [crc32fast::hash(&bytes), crc32fast::hash(body)];
    bytes.extend(checksums.into_iter().flat_map(u32::to_le_bytes));
    bytes.extend(body);
    (body.len() as u64 <= MAX_BODY).then_some(bytes)
}

/// A message in a file.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its first byte.
    pub(crate) at: u64,
    /// Marker, length and metadata.
    head: Vec<u8>,
    body_len: u64,
}

/// What begins at a byte of a file.
#[derive(Debug)]
pub(crate) enum Begins {
    Message(Message),
    /// The stream's end marker, which ends the file too.
    EndMarker,
    /// The end of the file.
    Nothing,
    /// The beginning of a message whose rest is missing.
    Torn,
}

/// Why a message cannot be read.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Broken(&'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Whether the checksum of a message's metadata is checked before the metadata is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// It is checked.
    Needed,
    /// It is ignored, because the file may be of another program.
    Ignored,
}

/// Finds out what begins at byte `at` of a `file` of `len` bytes. It reads and allocates no more than the file holds.
pub(crate) fn find(ahead: &mut Ahead, at: u64, len: u64, checksum: Checksum) -> Result<Begins, Fault> {
    let rest = len.saturating_sub(at);
    if rest == 0 {
        return Ok(Begins::Nothing);
    }
    let mut prefix = [0; PREFIX_LEN];
    let there = PREFIX_LEN.min(usize::try_from(rest).unwrap_or(PREFIX_LEN));
    prefix[..there].copy_from_slice(ahead.bytes(at, there)?);

    let marker = &prefix[..there.min(MARKER.len())];
    if *marker != MARKER[..marker.len()] {
        return if only_zeros(ahead.file(), at, len)? {
            Ok(Begins::Torn)
        } else {
            Err(Fault::Broken("no message begins here"))
        };
    }
    if there < PREFIX_LEN {
        return Ok(Begins::Torn);
    }
    let [.., a, b, c, d] = prefix;
    let metadata_len = u32::from_le_bytes([a, b, c, d]) as usize;
    if metadata_len == 0 {
        return if rest == PREFIX_LEN as u64 {
            Ok(Begins::EndMarker)
        } else {
            Err(Fault::Broken("there are bytes after the end marker"))
        };
    }
    if metadata_len > MAX_METADATA {
        return Err(Fault::Broken("the length of a message is impossible"));
    }
    let head_len = PREFIX_LEN + metadata_len;
    if head_len as u64 > rest {
        return Ok(Begins::Torn);
    }
    let mut message = Message { at, head: ahead.bytes(at, head_len)?.to_vec(), body_len: 0 };
    if checksum == Checksum::Needed {
        message.check_head()?;
    }
    message.body_len = match u64::try_from(message.flatbuffer()?.bodyLength()) {
        Ok(length) if length <= MAX_BODY => length,
        _ => return Err(Fault::Broken("the length of a message's body is impossible")),
    };
    if message.end() > len { Ok(Begins::Torn) } else { Ok(Begins::Message(message)) }
}

impl Message {
    /// The byte after its last.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.head.len() as u64 + self.body_len
    }

    /// The first byte of its body.
    pub(crate) fn body_start(&self) -> u64 {
        self.at + self.head.len() as u64
    }

    /// Where it belongs.
    pub(crate) fn segment(&self) -> Segment {
        let place = self.checksums().and_then(|(checked, ..)| checked.last_chunk::<PLACE_LEN>());
        place.map_or_else(Segment::default, |&[a, b, c, d, is_whole, ..]| Segment {
            number: u32::from_le_bytes([a, b, c, d]),
            is_whole: is_whole != 0,
        })
    }

    /// Whether it is a batch of rows.
    pub(crate) fn is_batch(&self) -> bool {
        self.flatbuffer().is_ok_and(|message| message.header_type() == ipc::MessageHeader::RecordBatch)
    }

    /// Whether the checksum of the body is right. It reads the body in parts.
    pub(crate) fn body_is_whole(&self, ahead: &mut Ahead) -> io::Result<bool> {
        let Some((_, _, expected)) = self.checksums() else { return Ok(false) };
        let mut sum = crc32fast::Hasher::new();
        let mut at = self.body_start();
        while at < self.end() {
            let part = (self.end() - at).min(CHUNK);
            sum.update(ahead.bytes(at, part as usize)?);
            at += part;
        }
        Ok(sum.finalize() == expected)
    }

    /// Its metadata.
    pub(crate) fn flatbuffer(&self) -> Result<ipc::Message<'_>, Fault> {
        ipc::root_as_message(&self.head[PREFIX_LEN..])
            .map_err(|_| Fault::Broken("the metadata of a message is not Arrow's"))
    }

    /// Compares the checksum of all that comes before the body.
    pub(crate) fn check_head(&self) -> Result<(), Fault> {
        match self.checksums() {
            Some((checked, sum, _)) if crc32fast::hash(checked) == sum => Ok(()),
            _ => Err(Fault::Broken(
                "the checksum of a message's metadata does not match, or another program has rewritten the file",
            )),
        }
    }

    /// Reads the body and compares its checksum.
    pub(crate) fn body<'a>(&self, ahead: &'a mut Ahead) -> Result<&'a [u8], Fault> {
        // No more than MAX_BODY, and no more than the file holds.
        let body = ahead.bytes(self.body_start(), self.body_len as usize)?;
        match self.checksums() {
            Some((_, _, sum)) if crc32fast::hash(body) == sum => Ok(body),
            _ => Err(Fault::Broken("the checksum of a message's body does not match")),
        }
    }

    /// The bytes before the checksums, and the checksums.
    fn checksums(&self) -> Option<(&[u8], u32, u32)> {
        let (checked, sums) = self.head.split_last_chunk::<CHECKSUMS_LEN>()?;
        let [a, b, c, d, e, f, g, h] = *sums;
        (checked.len() > PREFIX_LEN).then_some((
            checked,
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        ))
    }
}

/// Whether all bytes from `at` on are zero, as a file system may leave them after a power cut.
fn only_zeros(file: &File, mut at: u64, len: u64) -> io::Result<bool> {
    let mut chunk = [0; 8192];
    while at < len {
        let part = &mut chunk[..usize::try_from(len - at).unwrap_or(usize::MAX).min(8192)];
        file.read_exact_at(part, at)?;
        if part.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}

/// The message at the start of a file of `len` bytes, if it is whole but for one bit of what comes before its body.
/// That bit is corrected.
///
/// A CRC-32 tells which bit was changed. In up to 91,606 bits, it also tells one changed bit from two: its Hamming
/// distance is 4 (Koopman, "32-Bit Cyclic Redundancy Codes for Internet Applications", 2002). Above that, very few
/// pairs of changed bits look like one; the columns and the header, which are parsed after that, tell most of these.
pub(crate) fn corrected_first(file: &File, len: u64) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; MAX_CORRECTED.min(usize::try_from(len).unwrap_or(MAX_CORRECTED))];
    file.read_exact_at(&mut bytes, 0)?;
    let Some((prefix, _)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let [m @ .., a, b, c, d] = *prefix;
    if m.iter().map(|byte| byte.count_zeros()).sum::<u32>() > 1 {
        return Ok(None);
    }
    let length = u32::from_le_bytes([a, b, c, d]);
    let lengths = std::iter::once(length).chain((0..u32::BITS).map(|bit| length ^ (1 << bit)));
    for length in lengths {
        let Some(head) = bytes.get(..PREFIX_LEN.saturating_add(length as usize)) else { continue };
        let mut head = head.to_vec();
        head[4..PREFIX_LEN].copy_from_slice(&length.to_le_bytes());
        let mut message = Message { at: 0, head, body_len: 0 };
        let Some((checked, sum, _)) = message.checksums() else { continue };
        let wrong = crc32fast::hash(checked) ^ sum;
        let place = checked.len();
        // After a change of the length, nothing else is wrong.
        if wrong != 0 {
            if message.head[..PREFIX_LEN] != *prefix {
                continue;
            }
            // A wrong bit of the checksum itself needs no correction.
            if !wrong.is_power_of_two() {
                let Some(bit) = wrong_bit(wrong, place) else { continue };
                message.head[bit / 8] ^= 1 << (bit % 8);
            }
        }
        // The header has no body.
        if message.flatbuffer().is_ok_and(|found| found.bodyLength() == 0) {
            let sum = crc32fast::hash(&message.head[..place]).to_le_bytes();
            message.head[place..place + sum.len()].copy_from_slice(&sum);
            return Ok(Some(message));
        }
    }
    Ok(None)
}

/// The bit of `len` bytes whose change changes their CRC-32 by `wrong`.
fn wrong_bit(wrong: u32, len: usize) -> Option<usize> {
    /// The polynomial of CRC-32, with its bits in reverse order.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    // What a change of the last bit of all changes; each bit before it is one step of the register away.
    let mut change = POLYNOMIAL;
    for at in (0..len).rev() {
        for bit in (0..8).rev() {
            if change == wrong {
                return Some(at * 8 + bit);
            }
            change = (change >> 1) ^ (POLYNOMIAL * (change & 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_that_was_changed_is_found_and_two_are_not() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7) as u8).collect();
        let sum = crc32fast::hash(&bytes);
        for bit in 0..8000 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(wrong_bit(crc32fast::hash(&changed) ^ sum, 1000), Some(bit));
            changed[500] ^= 0x40;
            assert_eq!(wrong_bit(crc32fast::hash(&changed) ^ sum, 1000), None);
        }
    }
}
