//! redis with records that can be found in its memory, and its client.

use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use isotherm_core::NodeId;
use rand_pcg::Pcg64Mcg;

use super::placement::anonymous_mappings;
use super::redis::{PIPELINE, VALUE, connect, pipelined};
use super::ycsb::{Requests, fnv};

/// How each value begins, before the number of its record. The first byte is rare in memory.
const MARK: &[u8] = b"\xf5isotherm record ";

/// The digits of a record's number.
const DIGITS: usize = 12;

/// The header of a redis string of [`VALUE`] bytes: its length, the allocated length, and its type.
const HEADER: usize = 5;
const STRING_16: u8 = 2;

/// Bytes of memory that are read at once.
const CHUNK: usize = 1 << 20;

/// Starts a server that keeps everything in memory and listens on a socket in `place`. Its memory comes from `node`, or
/// from wherever the kernel takes it.
pub(super) fn start(place: &Path, node: Option<NodeId>) -> Result<Child> {
    let socket = place.join("redis.sock");
    let _ = std::fs::remove_file(&socket);
    let mut command = match node {
        Some(node) => {
            let mut bound = Command::new("numactl");
            bound.arg(format!("--membind={node}")).arg("redis-server");
            bound
        }
        None => Command::new("redis-server"),
    };
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--unixsocket"]);
    command.arg(socket).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().context("redis-server cannot be started")
}

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
    records: u64,
}

/// The name of a record's key, as YCSB makes it.
fn key(record: u64) -> String {
    format!("user{:019}", fnv(record))
}

impl Client {
    /// Connects to the server whose socket is in `place`.
    pub(super) fn connect(place: &Path, records: u64) -> Result<Self> {
        let stream = connect(place)?;
        let answers = BufReader::with_capacity(1 << 16, stream.try_clone()?);
        Ok(Self { stream, answers, records })
    }

    /// Writes all records, in their order.
    pub(super) fn load(&mut self) -> Result<()> {
        pipelined(&mut self.stream, &mut self.answers, self.records, |record, out| {
            let name = key(record);
            write!(out, "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${VALUE}\r\n", name.len())?;
            out.extend(value(record));
            Ok(out.write_all(b"\r\n")?)
        })
    }

    /// Reads records until `over`, and counts the answers in `answered`.
    pub(super) fn read(&mut self, requests: &Requests, over: &AtomicBool, answered: &AtomicU64) -> Result<()> {
        let mut rng = Pcg64Mcg::new(3);
        while !over.load(Ordering::Relaxed) {
            pipelined(&mut self.stream, &mut self.answers, PIPELINE, |_, out| {
                let name = key(requests.next(&mut rng));
                Ok(write!(out, "*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len())?)
            })?;
            answered.fetch_add(PIPELINE, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The value of a record.
fn value(record: u64) -> Vec<u8> {
    let mut value = MARK.to_vec();
    value.extend(format!("{record:0DIGITS$}").bytes());
    value.extend((record..).map(|n| b'a' + (n % 26) as u8).take(VALUE - value.len()));
    value
}

/// The address of the value of each record in the memory of the server. Copies in buffers of connections do not count:
/// they have no header of a string.
///
/// # Errors
/// If the memory cannot be read, or a record was found never or more than once.
pub(super) fn find_values(pid: u32, records: u64) -> Result<Vec<u64>> {
    let memory = File::open(format!("/proc/{pid}/mem")).context("the memory of redis cannot be read")?;
    let mut found = vec![0_u64; records as usize];
    let mut twice = 0;
    // A value may lie across the end of a chunk.
    let overlap = HEADER + MARK.len() + DIGITS;
    let mut bytes = vec![0; CHUNK + overlap];
    for (start, end) in anonymous_mappings(pid)? {
        let mut at = start;
        while at < end {
            let length = bytes.len().min((end - at) as usize);
            memory.read_exact_at(&mut bytes[..length], at).context("the memory of redis cannot be read")?;
            for (offset, record) in records_in(&bytes[..length]) {
                let place = found.get_mut(record as usize).context("the memory of redis has an unknown record")?;
                let address = at + offset as u64;
                twice += u64::from(*place != 0 && *place != address);
                *place = address;
            }
            at += CHUNK as u64;
        }
    }
    let never = found.iter().filter(|address| **address == 0).count();
    ensure!(never == 0 && twice == 0, "of {records} records, {never} were not found and {twice} were found twice");
    Ok(found)
}

/// The values in a part of memory: where each begins, and its record.
fn records_in(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let number = |at: usize| {
        let header = bytes.get(at.checked_sub(HEADER)?..at)?;
        let digits = bytes.get(at..)?.strip_prefix(MARK)?.get(..DIGITS)?;
        let is_string = u16::from_le_bytes([header[0], header[1]]) as usize == VALUE && header[4] == STRING_16;
        let record = std::str::from_utf8(digits).ok()?.parse().ok()?;
        is_string.then_some((at, record))
    };
    let marks = bytes.iter().enumerate().filter(|(_, byte)| **byte == MARK[0]);
    marks.filter_map(move |(at, _)| number(at))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_header_and_its_mark() {
        let mut memory = vec![0; 100];
        memory.extend(value(5));
        memory.extend(*b"\xe8\x03\xe9\x03\x02");
        let start = memory.len();
        memory.extend(value(77));
        memory.extend(*b"\xe8\x03\xe9\x03\x02");
        memory.extend(&value(78)[..20]);
        assert_eq!(records_in(&memory).collect::<Vec<_>>(), [(start, 77)]);
    }

    #[test]
    fn values_have_their_size_and_their_record() {
        assert_eq!(value(1).len(), VALUE);
        assert_ne!(value(1), value(2));
        assert_eq!(key(1).len(), 23);
    }
}
