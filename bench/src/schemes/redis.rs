//! A redis client that writes keys and then reads a part of them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Requests in flight.
pub(crate) const PIPELINE: u64 = 200;

/// Size of a value in bytes.
pub(crate) const VALUE: usize = 1000;

/// One in this many keys is read.
const READ: u64 = 25;

/// Starts a server that keeps everything in memory and listens on a socket in `place`. With `huge`, its
/// allocator asks for huge pages.
pub(crate) fn start(place: &Path, huge: bool) -> Result<Child> {
    let socket = place.join("redis.sock");
    let _ = std::fs::remove_file(&socket);
    // redis-server and redis-check-rdb are one program that acts by its name. Debian's redis-tools has
    // redis-check-rdb only, and unlike redis-server starts no service.
    let mut command = Command::new("redis-check-rdb");
    command.arg0("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
    // Otherwise the server disables huge pages for itself in all configurations.
    command.args(["--disable-thp", "no", "--unixsocket"]).arg(socket);
    if huge {
        command.env("MALLOC_CONF", "thp:always");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("redis-server (redis-check-rdb, of Debian's redis-tools) cannot be started")
}

/// Writes `keys` values, reads some of them `requests` times, and ends the server.
pub(crate) fn drive(place: &Path, keys: u64, requests: u64) -> Result<()> {
    let mut stream = connect(place)?;
    let mut answers = BufReader::with_capacity(1 << 16, stream.try_clone()?);
    let mut rng = Pcg64Mcg::new(1);
    let text: Vec<u8> = (0..1 << 16).map(|_| b"etaoin shrdlu cmfwyp vbgk 012345"[rng.random_range(0..32)]).collect();

    pipelined(&mut stream, &mut answers, keys, |key, out| {
        let at = rng.random_range(0..text.len() - VALUE);
        let name = format!("key:{key:08}");
        write!(out, "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${VALUE}\r\n", name.len())?;
        out.write_all(&text[at..at + VALUE])?;
        Ok(out.write_all(b"\r\n")?)
    })?;
    let some = keys / READ;
    let mut rng = Pcg64Mcg::new(2);
    pipelined(&mut stream, &mut answers, requests, |_, out| {
        let name = format!("key:{:08}", rng.random_range(0..some) * READ);
        Ok(write!(out, "*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len())?)
    })?;
    stream.write_all(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")?;
    Ok(())
}

/// Connects to the server whose socket is in `place`, and waits until it listens.
pub(crate) fn connect(place: &Path) -> Result<UnixStream> {
    let start = Instant::now();
    loop {
        match UnixStream::connect(place.join("redis.sock")) {
            Ok(stream) => return Ok(stream),
            Err(_) if start.elapsed() < Duration::from_secs(30) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error).context("redis-server does not answer"),
        }
    }
}

/// Sends `many` requests and reads the answers, each of which must be a status or a value of [`VALUE`] bytes.
pub(crate) fn pipelined(
    stream: &mut UnixStream,
    answers: &mut impl BufRead,
    many: u64,
    mut request: impl FnMut(u64, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut out = Vec::new();
    let mut line = Vec::new();
    let mut value = vec![0; VALUE + 2];
    let mut sent = 0;
    while sent < many {
        out.clear();
        let batch = PIPELINE.min(many - sent);
        for nth in sent..sent + batch {
            request(nth, &mut out)?;
        }
        stream.write_all(&out)?;
        for _ in 0..batch {
            line.clear();
            answers.read_until(b'\n', &mut line)?;
            match line.first() {
                Some(b'+') => {}
                Some(b'$') => {
                    ensure!(line == format!("${VALUE}\r\n").as_bytes(), "redis-server lost a value");
                    answers.read_exact(&mut value)?;
                }
                _ => bail!("redis-server answered {}", String::from_utf8_lossy(&line)),
            }
        }
        sent += batch;
    }
    Ok(())
}
