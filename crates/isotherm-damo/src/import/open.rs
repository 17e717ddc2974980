//! From a file to what damo wrote into it: plain or compressed JSON, told apart by the first bytes, as damo does.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use serde::Deserialize;
use serde_json::error::Category;

use super::file::Record;
use super::{DamoError, MAX_JSON};

/// First bytes of files that a user of damo might take for its JSON.
const KNOWN: [(&[u8], &str); 5] = [
    (b"\xff\xff\xff\xff", "it may be a recording of isotherm, which needs no import"),
    (b"PERFILE2", "it is of perf; make JSON of it first with `damo convert_record_format --format json_compressed`"),
    (
        b"damon_recfmt_ver",
        "it is in a format of old; make JSON of it with `damo convert_record_format` of damo 2.0.0 first",
    ),
    (b"\x1f\x8b", "it is compressed with gzip; decompress it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; decompress it first"),
];

/// Reads all records of a file.
///
/// # Errors
/// Each of [`DamoError`], but those of what the records mean and of writing.
pub(super) fn records(path: &Path) -> Result<Vec<Record>, DamoError> {
    let open_error = |source| DamoError::Open { path: path.into(), source };
    // Opening a pipe would wait for its writer.
    let kind = std::fs::metadata(path).map_err(open_error)?;
    if kind.is_dir() {
        return Err(open_error(io::ErrorKind::IsADirectory.into()));
    }
    if !kind.is_file() {
        return Err(DamoError::NotAFile { path: path.into() });
    }
    let file = File::open(path).map_err(open_error)?;
    let mut start = [0; 1024];
    let there = file.read_at(&mut start, 0).map_err(|source| DamoError::Read { path: path.into(), source })?;
    let start = &start[..there];
    if start.is_empty() {
        return Err(DamoError::Empty { path: path.into() });
    }
    if is_zlib(start) {
        return parse(path, ZlibDecoder::new(BufReader::new(file)), "it may be damaged: use a good copy");
    }
    match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => parse(path, file, "is it a recording of damo, as damo wrote it?"),
        _ => Err(DamoError::foreign(path, what(start))),
    }
}

/// What a file is that is no list in JSON, and the mend.
fn what(start: &[u8]) -> String {
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return (*what).into();
    }
    let text = String::from_utf8_lossy(start);
    if text.starts_with("{\"format\":") {
        return "it looks like JSON that isotherm converted; give what damo wrote".into();
    }
    if text.trim_start().starts_with('{') {
        return "damo's is a list, this is an object; give the file that `damo record` wrote".into();
    }
    if text.contains("damon_aggregated:") {
        let mend = "make JSON of it first with `damo convert_record_format --format json_compressed`";
        return format!("it is the text of perf script; {mend}");
    }
    "it does not begin as a list in JSON does; give a file that `damo record` wrote, such as damon.data".into()
}

/// Whether a stream of zlib begins here: deflate, with a window that there is, and a check of both bytes.
fn is_zlib(start: &[u8]) -> bool {
    matches!(start, [method, flags, ..]
        if method & 0xf == 8 && method >> 4 <= 7 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31))
}

/// Reads the JSON; `mend` is for what cannot be understood.
fn parse(path: &Path, input: impl Read, mend: &'static str) -> Result<Vec<Record>, DamoError> {
    let beyond = Rc::new(Cell::new(false));
    let input = BufReader::with_capacity(1 << 16, Limited { input, left: MAX_JSON, beyond: Rc::clone(&beyond) });
    let mut json = serde_json::Deserializer::from_reader(input);
    let mut track = serde_path_to_error::Track::new();
    let read = Vec::deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    let whole = read.and_then(|records| json.end().map(|()| records));
    whole.map_err(|error| {
        // Where something is missing, the path ends in a question mark.
        let place = track.path().to_string();
        let place = place.trim_end_matches(".?").to_owned();
        if beyond.get() {
            return DamoError::TooLarge { path: path.into() };
        }
        let place = match (error.line(), place.as_str()) {
            (0, "." | "?" | "") => "its start".to_owned(),
            (0, place) => place.to_owned(),
            (line, "." | "?" | "") => format!("line {line}, column {}", error.column()),
            (line, place) => format!("{place} (line {line}, column {})", error.column()),
        };
        let path = path.into();
        match error.classify() {
            Category::Eof => DamoError::CutShort { path, place },
            Category::Io if error.io_error_kind() == Some(io::ErrorKind::UnexpectedEof) => {
                DamoError::CutShort { path, place }
            }
            Category::Io if error.io_error_kind().is_some_and(of_decompression) => {
                DamoError::Damaged { path, place, source: error.into() }
            }
            Category::Io => DamoError::Read { path, source: error.into() },
            Category::Syntax | Category::Data => DamoError::Misread { path, place, reason: reason(&error), mend },
        }
    })
}

/// What serde says of an error, without the place, which is told otherwise.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

fn of_decompression(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// What a small file can hold is endless when it is decompressed.
struct Limited<R> {
    input: R,
    left: u64,
    beyond: Rc<Cell<bool>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                self.beyond.set(true);
                return Err(io::Error::other("too much JSON"));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_levels_of_zlib_are_known_and_other_text_is_not_taken_for_it() {
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
    fn json_beyond_the_limit_ends_the_reading() {
        let beyond = Rc::new(Cell::new(false));
        let mut limited = Limited { input: io::repeat(b' '), left: 10_000, beyond: Rc::clone(&beyond) };
        let read = io::copy(&mut limited, &mut io::sink());
        assert!(read.is_err() && beyond.get());
    }
}
