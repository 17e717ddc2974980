//! What a file is that cannot be read as a recording, as far as its first bytes tell.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::schema::{FORMAT_KEY, HEADER_KEY};

/// First bytes of files that a user might take for a recording.
const KNOWN: [(&[u8], &str); 15] = [
    (b"PAR1", "it is a Parquet file"),
    (b"ARROW1", "it is an Arrow file, not an Arrow stream"),
    (b"PERFILE2", "it is a recording of perf"),
    (b"\x7fELF", "it is a program"),
    (b"\x89PNG", "it is a PNG picture"),
    (b"<!DOCTYPE", "it is an HTML page"),
    (b"<svg", "it is an SVG picture"),
    (b"{", "it looks like JSON"),
    (b"[", "it looks like JSON; if damo wrote it, `isotherm convert FILE NAME.rec` makes a recording of it"),
    (b"\x78\x01", DAMO),
    (b"\x78\x9c", DAMO),
    (b"\x78\xda", DAMO),
    (b"time_ns,", "it looks like a CSV that isotherm converted"),
    (b"\x1f\x8b", "it is compressed with gzip: decompress it"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: decompress it"),
];

const DAMO: &str =
    "it is compressed with zlib; if damo wrote it, `isotherm convert FILE NAME.rec` makes a recording of it";

/// Says what `file` is.
pub(crate) fn what(file: &File) -> &'static str {
    let mut start = [0; 16];
    let there = file.read_at(&mut start, 0).unwrap_or(0);
    let start = &start[..there];
    match KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, what)) => what,
        None if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => "it looks like text",
        None => "it is not an Arrow stream",
    }
}

/// Whether `file` begins like an Arrow stream and names isotherm soon after: a recording whose header is damaged.
pub(crate) fn was_ours(file: &File) -> bool {
    let mut start = vec![0; 1 << 14];
    let there = file.read_at(&mut start, 0).unwrap_or(0);
    let start = &start[..there];
    let names = |key: &str| start.windows(key.len()).any(|window| window == key.as_bytes());
    start.starts_with(&[0xff; 4]) && (names(FORMAT_KEY) || names(HEADER_KEY))
}
