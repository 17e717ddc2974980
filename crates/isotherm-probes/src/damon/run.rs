//! One use of the kernel's DAMON: claimed, set up, turned on, collected from, and put back as it was.

use std::time::Duration;

use isotherm_core::RegionSnapshot;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::assemble::Aggregation;
use super::format::Format;
use super::kdamond::Kdamond;
use super::ring::Ring;
use super::settings::Settings;
use super::traced::{Lost, Traced};
use super::{DamonError, Places, TraceError};

/// Bytes that an event takes in the ring, at most: its record's header, time and length, and the fields.
const EVENT_BYTES: usize = 96;

/// For how many aggregations of the maximum number of regions there is room, if nobody collects them.
const ROOM: usize = 8;

/// A ring is at least and at most this long.
const RING_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=16 << 20;

/// The kernel's DAMON in isotherm's use. Dropping it leaves nothing of it behind.
#[derive(Debug)]
pub struct Run {
    kdamond: Kdamond,
    way: Way,
    collection: Option<Collection>,
    /// A ring of another size than the number of regions asks for.
    ring_bytes: Option<usize>,
}

/// How the kernel's findings reach us.
#[derive(Clone, Debug)]
enum Way {
    /// Every aggregation, by the tracepoint.
    Trace(Format),
    /// One aggregation whenever asked for, by `tried_regions`: where there are no tracepoints.
    Tried,
}

/// What the collection needs while the kdamond is on.
#[derive(Debug)]
enum Collection {
    Trace(Box<Traced>),
    Tried { samples: u32 },
}

impl Run {
    /// Claims the kernel's DAMON and finds out how to collect what it finds. Nothing is turned on yet.
    ///
    /// # Errors
    /// If another uses DAMON, the kernel has none, or its findings cannot be collected.
    pub fn prepare(places: Places) -> Result<Self, DamonError> {
        let trace = trace(&places);
        let kdamond = Kdamond::claim(places)?;
        let way = match trace {
            Ok(format) => Way::Trace(format),
            Err(trace) => match kdamond.has_tried_regions() {
                Ok(true) => Way::Tried,
                Ok(false) => {
                    return Err(DamonError::NoFindings {
                        trace,
                        tried: Some("the kernel is older than Linux 6.2".into()),
                    });
                }
                Err(error) => return Err(DamonError::NoFindings { trace, tried: Some(error.to_string()) }),
            },
        };
        Ok(Self { kdamond, way, collection: None, ring_bytes: None })
    }

    /// With a ring of this many bytes for the kernel's events.
    #[must_use]
    pub fn with_ring(self, bytes: usize) -> Self {
        Self { ring_bytes: Some(bytes), ..self }
    }

    /// Whether the kernel can watch this: `vaddr`, `fvaddr` or `paddr`.
    ///
    /// # Errors
    /// If it cannot.
    pub fn can_watch(&self, operations: &'static str) -> Result<(), DamonError> {
        self.kdamond.can_watch(operations)
    }

    /// Whether every aggregation is collected, or only one now and then.
    pub fn is_complete(&self) -> bool {
        matches!(self.way, Way::Trace(_))
    }

    /// Sets up what is to be watched, and begins.
    ///
    /// # Errors
    /// If the kernel refuses, a target has ended, or another came in between.
    pub fn start(&mut self, settings: &Settings) -> Result<(), DamonError> {
        let attributes = &settings.attributes;
        let targets = settings.scope.targets();
        if matches!(self.way, Way::Tried) && targets.len() > 1 {
            // Its regions do not tell whose they are.
            let what = "without the kernel's tracepoints only one target can be watched; mount tracefs \
                        (mount -t tracefs tracefs /sys/kernel/tracing)";
            return Err(DamonError::Settings(what.into()));
        }
        self.kdamond.set_up(settings, matches!(self.way, Way::Tried))?;
        let thread = self.kdamond.turn_on(settings)?;
        let samples = attributes.samples();
        self.collection = Some(match &self.way {
            Way::Tried => Collection::Tried { samples },
            Way::Trace(format) => {
                let wanted = attributes.max_regions().saturating_mul(EVENT_BYTES * ROOM);
                let size = self.ring_bytes.unwrap_or(wanted.clamp(*RING_BYTES.start(), *RING_BYTES.end()));
                match Traced::new(format, thread, size, targets.len(), samples) {
                    // Ended within an instant, as it does when its targets have.
                    Err(TraceError::Perf { source: Errno::SRCH }) => return Err(DamonError::TurnedOff),
                    traced => Collection::Trace(Box::new(traced?)),
                }
            }
        });
        Ok(())
    }

    /// The aggregations that have ended since the last call, the oldest first. By `tried_regions`, waits for the end of one.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn collect(&mut self) -> Result<Vec<Aggregation>, DamonError> {
        match &mut self.collection {
            None => Ok(Vec::new()),
            Some(Collection::Trace(traced)) => Ok(traced.collect()),
            Some(Collection::Tried { samples }) => {
                let samples = *samples;
                let tried = match self.kdamond.tried_regions() {
                    // Refused because there is no one to ask any more.
                    Err(_) if !self.kdamond.is_on() => return Ok(Vec::new()),
                    tried => tried?,
                };
                let region = |(range, nr_accesses, age): (_, u32, _)| RegionSnapshot {
                    range,
                    nr_accesses: nr_accesses.min(samples),
                    nr_samples: samples,
                    nr_unobservable: 0,
                    age,
                };
                let regions: Vec<_> = tried.into_iter().map(region).collect();
                let targets = if regions.is_empty() { vec![] } else { vec![(0, regions)] };
                Ok(vec![Aggregation { time_ns: now_ns(), targets, gap: true }])
            }
        }
    }

    /// Whether it watches still: it ends when all targets have ended, or another turns it off.
    pub fn is_on(&self) -> bool {
        match &self.collection {
            None => false,
            Some(Collection::Trace(traced)) => !traced.has_ended(),
            Some(Collection::Tried { .. }) => self.kdamond.is_on(),
        }
    }

    /// The CPU time that the kernel's thread has taken so far.
    pub fn cpu_time(&self) -> Duration {
        self.kdamond.cpu_time()
    }

    /// What did not reach us so far.
    pub fn lost(&self) -> Lost {
        match &self.collection {
            Some(Collection::Trace(traced)) => traced.lost(),
            _ => Lost::default(),
        }
    }

    /// Turns the kdamond off and removes it.
    ///
    /// # Errors
    /// If the kernel refuses; the next run tries again.
    pub fn end(self) -> Result<(), DamonError> {
        self.kdamond.release()
    }
}

/// That events of the tracepoint can be had, tried on this very thread.
pub(super) fn trace(places: &Places) -> Result<Format, TraceError> {
    let format = Format::read(places)?;
    Ring::open(format.id, 0, 1)?;
    Ok(format)
}

/// Now, by the monotonic clock, in nanoseconds: the clock of [`Aggregation::time_ns`].
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
