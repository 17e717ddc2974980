//! Many requests and many streams at once.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::served::{Rounds, Served, ask};
use crate::churn::Used;
use crate::target::Start;

/// What is asked for, in turns.
const PATHS: [&str; 6] =
    ["/v1/groups", "/v1/groups/a", "/v1/groups/a/targets", "/v1/groups/a/schemes", "/v1/health", "/metrics"];

/// So many threads ask.
const ASKING: u64 = 8;

/// The share of the rounds that may be late beyond those that are late without a load.
const LATE: f64 = 0.01;

/// How much is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// For how long. The daemon is watched for as long before, without a load.
    pub time: Duration,
    /// Requests a second, of all threads.
    pub rate: u64,
    /// Streams of events at once.
    pub streams: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Loaded {
    /// Requests that were answered.
    pub answered: u64,
    /// The longest time that an answer took.
    pub longest: Duration,
    /// Events of all streams.
    pub events: u64,
    /// Rounds without and with the load.
    pub rounds: [Rounds; 2],
    /// What the daemon used before and at the end.
    pub used: [Used; 2],
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Counts of all threads.
#[derive(Default)]
struct Counts {
    is_over: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
    longest_ns: AtomicU64,
    events: AtomicU64,
    /// Streams that have had no event.
    silent: AtomicU64,
}

/// Loads a daemon that watches one target.
///
/// # Errors
/// If the harness itself fails.
pub fn load(isotherm: &Path, start: &Start, load: Load) -> io::Result<Loaded> {
    let target = start.target()?;
    let served = Served::start(isotherm, &format!("{{pid: [{}]}}", target.pid()))?;
    let socket = served.socket();
    let first = served.rounds();
    std::thread::sleep(load.time);
    let (quiet, before) = (served.rounds(), Used::of(served.pid())?);
    let counts = Counts::default();
    let begun = Instant::now();
    let after = std::thread::scope(|threads| {
        for _ in 0..load.streams {
            threads.spawn(|| listen(&socket, &counts));
        }
        for nth in 0..ASKING {
            let (socket, counts) = (&socket, &counts);
            threads.spawn(move || keep_asking(socket, counts, load, nth));
        }
        while begun.elapsed() < load.time {
            std::thread::sleep(Duration::from_millis(50));
        }
        let after = Used::of(served.pid());
        counts.is_over.store(true, Ordering::Relaxed);
        after
    })?;
    let rounds = [quiet.since(first), served.rounds().since(quiet)];
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let mut wrong = Vec::new();
    let asked = load.rate * load.time.as_secs();
    if count(&counts.failed) > 0 || count(&counts.answered) * 10 < asked * 9 {
        wrong.push(format!("{} of {asked} were answered, {} failed", count(&counts.answered), count(&counts.failed)));
    }
    if count(&counts.silent) > 0 {
        wrong.push(format!("{} of {} streams had no event", count(&counts.silent), load.streams));
    }
    if rounds[1].late_share() > rounds[0].late_share() + LATE {
        wrong.push(format!("rounds were late: {rounds:?}"));
    }
    Ok(Loaded {
        answered: count(&counts.answered),
        longest: Duration::from_nanos(count(&counts.longest_ns)),
        events: count(&counts.events),
        rounds,
        used: [before, after],
        wrong,
    })
}

/// Asks at a steady rate until the end.
fn keep_asking(socket: &Path, counts: &Counts, load: Load, nth: u64) {
    let each = Duration::from_secs(ASKING) / load.rate.max(1) as u32;
    let mut due = Instant::now();
    for path in PATHS.iter().cycle().skip(nth as usize) {
        if counts.is_over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // What the machine could not keep up with is left out.
        due = (due + each).max(Instant::now());
        let begun = Instant::now();
        let is_answered = ask(socket, path).is_ok_and(|(status, _)| status == 200);
        let of = if is_answered { &counts.answered } else { &counts.failed };
        of.fetch_add(1, Ordering::Relaxed);
        counts.longest_ns.fetch_max(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Reads a stream of events until the end.
fn listen(socket: &Path, counts: &Counts) {
    let mut heard = 0;
    let streamed = (|| {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        write!(stream, "GET /v1/groups/a/events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut bytes = vec![0; 64 << 10];
        while !counts.is_over.load(Ordering::Relaxed) {
            match stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => heard += bytes[..length].windows(6).filter(|text| text == b"\ndata:").count() as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })();
    counts.events.fetch_add(heard, Ordering::Relaxed);
    counts.silent.fetch_add(u64::from(heard == 0 || streamed.is_err()), Ordering::Relaxed);
}
