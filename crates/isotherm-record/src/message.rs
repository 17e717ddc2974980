//! The messages that a recording consists of: framing them, and recognising a torn or damaged one.
//!
//! A message is Arrow's: the marker `0xFFFFFFFF`, the length of the metadata (32 bits, little-endian), the metadata
//! (a flatbuffer `Message`), the body. Arrow allows padding after the metadata. In a recording the padding ends
//! in two checksums (CRC-32, little-endian): of all bytes before them in the message, and of the body. Other readers of
//! Arrow pass over them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use arrow_ipc as ipc;

const MARKER: [u8; 4] = [0xff; 4];
const PREFIX_LEN: usize = 8;
const CHECKSUMS_LEN: usize = 8;
/// Ends a stream: a message whose metadata has no bytes.
pub(crate) const END_MARKER: [u8; PREFIX_LEN] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The most bytes of metadata that are read. The messages of a recording have a few thousand.
const MAX_METADATA: usize = 16 << 20;
/// The most bytes of one body that are read, compressed or not.
pub(crate) const MAX_BODY: u64 = 1 << 30;

/// A message as bytes: `flatbuffer` and `body` framed, with their checksums.
pub(crate) fn frame(flatbuffer: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let padded = flatbuffer.len().next_multiple_of(8);
    let metadata_len = u32::try_from(padded + CHECKSUMS_LEN).ok().filter(|&len| len as usize <= MAX_METADATA)?;
    let mut bytes = Vec::with_capacity(PREFIX_LEN + metadata_len as usize + body.len());
    bytes.extend(MARKER);
    bytes.extend(metadata_len.to_le_bytes());
    bytes.extend(flatbuffer);
    bytes.resize(PREFIX_LEN + padded, 0);
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
pub(crate) enum Found {
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
pub(crate) fn find(file: &File, at: u64, len: u64, checksum: Checksum) -> Result<Found, Fault> {
    let rest = len.saturating_sub(at);
    if rest == 0 {
        return Ok(Found::Nothing);
    }
    let mut prefix = [0; PREFIX_LEN];
    let there = PREFIX_LEN.min(usize::try_from(rest).unwrap_or(PREFIX_LEN));
    file.read_exact_at(&mut prefix[..there], at)?;

    let marker = &prefix[..there.min(MARKER.len())];
    if *marker != MARKER[..marker.len()] {
        return if only_zeros(file, at, len)? { Ok(Found::Torn) } else { Err(Fault::Broken("no message begins here")) };
    }
    if there < PREFIX_LEN {
        return Ok(Found::Torn);
    }
    let [.., a, b, c, d] = prefix;
    let metadata_len = u32::from_le_bytes([a, b, c, d]) as usize;
    if metadata_len == 0 {
        return if rest == PREFIX_LEN as u64 {
            Ok(Found::EndMarker)
        } else {
            Err(Fault::Broken("there are bytes after the end marker"))
        };
    }
    if metadata_len > MAX_METADATA {
        return Err(Fault::Broken("the length of a message is impossible"));
    }
    let head_len = PREFIX_LEN + metadata_len;
    if head_len as u64 > rest {
        return Ok(Found::Torn);
    }
    let mut message = Message { at, head: vec![0; head_len], body_len: 0 };
    file.read_exact_at(&mut message.head, at)?;
    if checksum == Checksum::Needed {
        message.check_head()?;
    }
    message.body_len = match u64::try_from(message.flatbuffer()?.bodyLength()) {
        Ok(length) if length <= MAX_BODY => length,
        _ => return Err(Fault::Broken("the length of a message's body is impossible")),
    };
    if message.end() > len { Ok(Found::Torn) } else { Ok(Found::Message(message)) }
}

impl Message {
    /// The byte after its last.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.head.len() as u64 + self.body_len
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
    pub(crate) fn body(&self, file: &File) -> Result<Vec<u8>, Fault> {
        // No more than MAX_BODY, and no more than the file holds.
        let mut body = vec![0; self.body_len as usize];
        file.read_exact_at(&mut body, self.at + self.head.len() as u64)?;
        match self.checksums() {
            Some((_, _, sum)) if crc32fast::hash(&body) == sum => Ok(body),
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
