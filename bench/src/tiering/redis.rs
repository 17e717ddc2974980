//! A client of redis that sends many requests at once.

use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Requests in flight.
pub(super) const PIPELINE: u64 = 200;

/// Size of a value in bytes.
pub(super) const VALUE: usize = 1000;

/// Connects to the server whose socket is in `place`, and waits until it listens.
pub(super) fn connect(place: &Path) -> Result<UnixStream> {
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
pub(super) fn pipelined(
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
