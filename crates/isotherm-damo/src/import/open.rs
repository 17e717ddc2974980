//! Reading the records of a file: plain or compressed JSON, distinguished by the first bytes.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use isotherm_input::{Input, Problem};
use serde_json::error::Category;

use super::allowance;
use super::file::Record;
use super::{ImportError, MAX_JSON};

/// The first bytes of files that a user of damo may mistake for its JSON, and what to tell the user.
const KNOWN: [(&[u8], &str); 5] = [
    (b"\xff\xff\xff\xff", "it may be a recording of isotherm, which needs no import"),
    (
        b"PERFILE2",
        "it is a recording of perf; convert it first with `damo convert_record_format --format json_compressed`",
    ),
    (b"damon_recfmt_ver", "it is in an old format; convert it first with `damo convert_record_format` of damo 2.0.0"),
    (b"\x1f\x8b", "it is compressed with gzip; decompress it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; decompress it first"),
];

/// The bytes at the start of a file that are enough to distinguish formats.
const START: usize = 1024;

/// Whether the file at `path` begins as one that damo or its helpers write, in a format that
/// [`import`](crate::import()) reads or names.
///
/// # Errors
/// When the file cannot be read.
pub fn is_recording(path: &Path) -> Result<bool, ImportError> {
    let (_, start) = open(path)?;
    let others: [&[u8]; 2] = [b"PERFILE2", b"damon_recfmt_ver"];
    Ok(is_zlib(&start)
        || start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
        || others.iter().any(|magic| start.starts_with(magic))
        || version(&start).is_some()
        || String::from_utf8_lossy(&start).contains("damon_aggregated:"))
}

/// Opens a file, and reads its start, at most [`START`] bytes.
fn open(path: &Path) -> Result<(File, Vec<u8>), ImportError> {
    let file = Input::new(path).open().map_err(|error| match error.problem {
        Problem::System(source) => ImportError::Open { path: path.into(), source },
        Problem::Directory => ImportError::Open { path: path.into(), source: io::ErrorKind::IsADirectory.into() },
        _ => ImportError::NotAFile { path: path.into() },
    })?;
    let mut start = vec![0; START];
    let len = file.read_at(&mut start, 0).map_err(|source| ImportError::Read { path: path.into(), source })?;
    start.truncate(len);
    Ok((file, start))
}

/// Reads all records of a file, within about `max_memory` bytes of memory if that is given.
///
/// # Errors
/// When the file cannot be read, is in another format, is cut short, damaged or too large, or is malformed.
pub(super) fn records(path: &Path, max_memory: Option<u64>) -> Result<Vec<Record>, ImportError> {
    let (file, start) = open(path)?;
    let start = start.as_slice();
    if start.is_empty() {
        return Err(ImportError::Empty { path: path.into() });
    }
    let bytes = file.metadata().map_err(|source| ImportError::Open { path: path.into(), source })?.len();
    let limits = Limits::new(bytes, max_memory);
    if is_zlib(start) {
        if let Some(version) = version(&inflated(start)) {
            return Err(ImportError::foreign(path, of_version(&version)));
        }
        return parse(path, limits, ZlibDecoder::new(BufReader::new(file)), "if the file is damaged, use a good copy");
    }
    match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => parse(path, limits, file, "give the file as damo wrote it"),
        _ => Err(ImportError::foreign(path, what(start))),
    }
}

/// The beginning of what `start`, the beginning of a zlib stream, holds.
fn inflated(start: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The stream goes on after `start`, so reading ends with an error.
    let _ = ZlibDecoder::new(start).take(START as u64).read_to_end(&mut bytes);
    bytes
}

/// The version that a file names, if it is an object and not a list: damo has begun a layout with one.
fn version(start: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(start);
    // damo 3.4.3 reads the second name.
    let rest = ["\"damo_record_ver\"", "\"damo_reocrd_ver\""].iter().find_map(|name| text.split_once(name))?.1;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let value = value.split([',', '}', '\n']).next()?.trim().trim_matches('"');
    (text.trim_start().starts_with('{') && !value.is_empty()).then(|| value.to_owned())
}

fn of_version(version: &str) -> String {
    format!(
        "it has damo_record_ver {version}, a layout that isotherm does not read; give a list of records, as `damo \
         record` of damo 1.9 to 3.4.3 writes it"
    )
}

/// What a file is that does not begin with a list in JSON, and how to get one.
fn what(start: &[u8]) -> String {
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return (*what).into();
    }
    if let Some(version) = version(start) {
        return of_version(&version);
    }
    let text = String::from_utf8_lossy(start);
    let what = if text.starts_with("{\"format\":") {
        "it looks like JSON that isotherm converted; give the file that damo wrote"
    } else if text.trim_start().starts_with('{') {
        "damo's JSON is a list, this is an object; give the file that `damo record` wrote"
    } else if text.contains("damon_aggregated:") {
        "it is text of perf script; convert it first with `damo convert_record_format --format json_compressed`"
    } else {
        "it does not begin with a list in JSON; give a file that `damo record` wrote, such as damon.data"
    };
    what.into()
}

/// Whether a zlib stream begins here: the method is deflate with a valid window, and the check of the header is right
/// (RFC 1950, section 2.2).
fn is_zlib(start: &[u8]) -> bool {
    matches!(start, [method, flags, ..]
        if method & 0xf == 8 && method >> 4 <= 7 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31))
}

/// What is read of a file at most.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes of JSON.
    json: u64,
    /// About how many bytes of memory its values take.
    memory: u64,
}

impl Limits {
    /// The limits for a file of so many bytes, which a user may have raised.
    fn new(bytes: u64, max_memory: Option<u64>) -> Self {
        let small = bytes.saturating_mul(64).saturating_add(SMALL);
        match max_memory {
            Some(memory) => Self { json: MAX_JSON, memory },
            None => Self { json: small.saturating_mul(2).min(MAX_JSON), memory: small.min(MOST) },
        }
    }
}

/// The memory that the values of any file may take, in bytes.
const SMALL: u64 = 256 << 20;
/// The memory that the values of a file may take, unless the user says otherwise, in bytes.
const MOST: u64 = 2 << 30;

/// Reads the JSON. `fix` is what to do if it is malformed.
fn parse(path: &Path, limits: Limits, input: impl Read, fix: &'static str) -> Result<Vec<Record>, ImportError> {
    let exceeded = Rc::new(Cell::new(false));
    let input = Limited { input, left: limits.json, exceeded: Rc::clone(&exceeded) };
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, input));
    let mut track = serde_path_to_error::Track::new();
    let (read, wants_more) = allowance::within(limits.memory, || {
        allowance::list(serde_path_to_error::Deserializer::new(&mut json, &mut track))
    });
    let whole = read.and_then(|records| json.end().map(|()| records));
    whole.map_err(|error| {
        if exceeded.get() {
            return ImportError::TooLarge { path: path.into(), limit: limits.json };
        }
        if wants_more {
            return ImportError::TooMuchMemory { path: path.into(), limit: limits.memory };
        }
        let place = place(&track.path().to_string(), &error);
        let path = path.into();
        match (error.classify(), error.io_error_kind()) {
            (Category::Eof, _) | (Category::Io, Some(io::ErrorKind::UnexpectedEof)) => {
                ImportError::CutShort { path, place }
            }
            // The kinds of error with which decompression fails.
            (Category::Io, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)) => {
                ImportError::Damaged { path, place, source: error.into() }
            }
            (Category::Io, _) => ImportError::Read { path, source: error.into() },
            (Category::Syntax | Category::Data, _) => {
                ImportError::Malformed { path, place, reason: reason(&error), fix }
            }
        }
    })
}

/// Where an error is: the path in the JSON, and line and column in the text, as far as they are known.
fn place(path: &str, error: &serde_json::Error) -> String {
    // The path of a missing value ends in a question mark.
    let path = path.trim_end_matches(".?");
    let (line, column) = (error.line(), error.column());
    match (line, path) {
        (0, "." | "?" | "") => "its start".into(),
        (0, path) => path.into(),
        (_, "." | "?" | "") => format!("line {line}, column {column}"),
        (_, path) => format!("{path} (line {line}, column {column})"),
    }
}

/// The message of an error without its line and column, which [`place`] gives.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// Reads up to a limit, because a small compressed file can hold any amount of JSON.
struct Limited<R> {
    input: R,
    left: u64,
    exceeded: Rc<Cell<bool>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                self.exceeded.set(true);
                return Err(io::Error::other("the JSON is too large"));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_levels_of_zlib_are_recognised_and_nothing_else() {
        for level in 0..=9 {
            let mut bytes = Vec::new();
            let mut encoder = flate2::read::ZlibEncoder::new(&b"[]"[..], flate2::Compression::new(level));
            encoder.read_to_end(&mut bytes).unwrap();
            assert!(is_zlib(&bytes), "level {level}");
        }
        for other in [&b"[]"[..], b"{}", b"x", b"xx", b"kdamond.0", b"\x1f\x8b\x08", b"\x78\x02"] {
            assert!(!is_zlib(other), "{other:?}");
        }
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let exceeded = Rc::new(Cell::new(false));
        let mut limited = Limited { input: io::repeat(b' '), left: 10_000, exceeded: Rc::clone(&exceeded) };
        let read = io::copy(&mut limited, &mut io::sink());
        assert!(read.is_err() && exceeded.get());
    }
}
