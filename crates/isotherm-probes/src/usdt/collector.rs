//! Hits of USDT probes, and the looks at processes that find the probes.

use std::fmt;
use std::time::{Duration, Instant};

use super::hits::{self, Report};
use super::looks::Looks;
use super::{MOST_HITS, UsdtError, UsdtHit, UsdtHits, UsdtTracer};
use crate::watched::{AT_A_TIME, Reports, monotonic};

/// Looks at processes take at most this long before hits are read again.
const MOST_LOOKING: Duration = Duration::from_millis(20);

/// Finds the USDT probes of processes, and reads their hits. It stays on one thread.
pub struct UsdtCollector {
    tracer: UsdtTracer,
    reports: Reports<Report>,
    looks: Looks,
    /// One moment by both clocks.
    moment: (Instant, Duration),
}

impl fmt::Debug for UsdtCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsdtCollector").field("looks", &self.looks).finish_non_exhaustive()
    }
}

impl UsdtCollector {
    /// Collects the hits that `tracer` reports, on the thread that calls this.
    ///
    /// # Errors
    /// If the memory that the eBPF programs write to cannot be read.
    pub fn new(tracer: UsdtTracer) -> Result<Self, UsdtError> {
        let reports = tracer.reports()?;
        let moment = moment();
        Ok(Self { tracer, reports, looks: Looks::new(moment.0), moment })
    }

    /// Watches a process from now on, and its descendants from their start if `descendants` says so.
    ///
    /// # Errors
    /// If there are too many processes.
    pub fn watch(&mut self, pid: u32, descendants: bool) -> Result<(), UsdtError> {
        self.tracer.watch(pid, descendants)?;
        self.looks.join(pid, Instant::now());
        Ok(())
    }

    /// Watches a process no more. Does nothing if it has ended.
    pub fn leave(&mut self, pid: u32) {
        self.tracer.leave(pid);
        self.looks.leave(pid);
    }

    /// Watches no probe any more. Hits up to now can still be read.
    pub fn end(&mut self) {
        self.tracer.end();
    }

    /// Looks at the processes that are due, and then waits for hits for at most `within`. Takes no more than 64 at a
    /// time.
    ///
    /// # Errors
    /// If the hits cannot be waited for.
    pub fn next(&mut self, within: Duration) -> Result<UsdtHits, UsdtError> {
        let next = self.look();
        let reports = self.reports.next(within.min(next)).map_err(UsdtError::Wait)?;
        let more = reports.len() >= AT_A_TIME;
        let mut hits = Vec::new();
        for report in reports {
            match report {
                Report::Hit { time, pid, probe, text } => {
                    let Some(probe) = self.tracer.probe(probe) else { continue };
                    hits.push(UsdtHit { time: self.instant(time), pid, text: hits::text(probe, text) });
                }
                Report::NewProgram { pid } => self.looks.new_program(pid, Instant::now()),
            }
        }
        Ok(UsdtHits { hits, more })
    }

    /// Looks at the processes that are due. Returns how long it is until another one is.
    fn look(&mut self) -> Duration {
        let begin = Instant::now();
        let mut now = begin;
        while now.duration_since(begin) < MOST_LOOKING
            && let Some(due) = self.looks.next(now)
        {
            if !self.tracer.look(due.pid, due.first) {
                self.looks.leave(due.pid);
            }
            let ended = Instant::now();
            self.looks.looked(due, ended, ended.duration_since(now));
            now = ended;
        }
        self.looks.until_next(now).unwrap_or(Duration::MAX)
    }

    /// The moment at which `CLOCK_MONOTONIC` has this time.
    fn instant(&self, time: Duration) -> Instant {
        let (instant, then) = self.moment;
        let before = then.checked_sub(time).and_then(|before| instant.checked_sub(before));
        before.or_else(|| instant.checked_add(time.saturating_sub(then))).unwrap_or(instant)
    }

    /// Whether [`MOST_HITS`](super::MOST_HITS) are reached.
    pub fn is_exhausted(&self) -> bool {
        self.tracer.hits() >= MOST_HITS
    }

    /// How many hits were lost since the start, because there were too many.
    pub fn lost(&self) -> u64 {
        self.tracer.lost()
    }

    /// Whether a process was checked for as long as libraries usually take to be loaded.
    pub fn has_settled(&self) -> bool {
        self.looks.have_settled()
    }

    /// For each wanted probe that no watched program has, a sentence that says so and names what is there instead.
    pub fn missing(&self) -> Vec<String> {
        self.tracer.missing()
    }

    /// Why the wanted probes of a file are not watched: the first time that this happened.
    pub fn failure(&self) -> Option<&str> {
        self.tracer.failure()
    }
}

/// This moment by both clocks. The thread may be interrupted between the readings: of several pairs, that counts which
/// took least time.
fn moment() -> (Instant, Duration) {
    let pair = || {
        let (time, instant) = (monotonic(), Instant::now());
        (monotonic().saturating_sub(time), (instant, time))
    };
    (1..PAIRS).map(|_| pair()).fold(pair(), |best, pair| if pair.0 < best.0 { pair } else { best }).1
}

/// How many pairs of readings are made.
const PAIRS: usize = 16;
