//! A run of the kernel's DAMON, from its claim to its removal.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{RegionSnapshot, chain};
use isotherm_kernel::ClockOffsets;
use rustix::io::Errno;

use super::assemble::Aggregation;
use super::format::Format;
use super::kdamond::Kdamond;
use super::ring::Ring;
use super::settings::Settings;
use super::traced::{Lost, Traced};
use super::{DamonError, DamonPaths, TraceError};

/// The maximum size of an event in the ring buffer, in bytes: the header, the time and the length of the record, and
/// the fields.
const EVENT_BYTES: usize = 96;

/// The number of uncollected aggregations that the ring buffer can hold if each has the maximum number of regions.
const UNCOLLECTED: usize = 8;

/// The minimum and the maximum size of the ring buffer, in bytes.
const RING_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=16 << 20;

/// A run of the kernel's DAMON. Dropping it turns the kdamond off and removes it.
#[derive(Debug)]
pub struct Run {
    kdamond: Kdamond,
    method: Method,
    collection: Option<Collection>,
    /// The size of the ring buffer in bytes, if it does not depend on the number of regions.
    ring_bytes: Option<usize>,
}

/// How the results of the kernel are read.
#[derive(Clone, Debug)]
enum Method {
    /// Every aggregation, from the tracepoint.
    Trace(Format),
    /// One aggregation per request, from `tried_regions`. Used if the tracepoint is not available.
    Tried,
}

/// The state of the collection while the kdamond is on.
#[derive(Debug)]
enum Collection {
    Trace(Box<Traced>),
    Tried { samples: u32 },
}

impl Run {
    /// Claims the kernel's DAMON and finds out how to read its results. Does not turn the kdamond on.
    ///
    /// # Errors
    /// Fails if DAMON is in use, if the kernel has no DAMON, or if its results cannot be read.
    pub fn prepare(places: DamonPaths) -> Result<Self, DamonError> {
        let trace = trace(&places);
        let kdamond = Kdamond::claim(places)?;
        let method = match trace {
            Ok(format) => Method::Trace(format),
            Err(trace) => match kdamond.has_tried_regions() {
                Ok(true) => Method::Tried,
                Ok(false) => {
                    return Err(DamonError::NoFindings {
                        trace,
                        tried: Some("the kernel is older than Linux 6.2".into()),
                    });
                }
                Err(error) => return Err(DamonError::NoFindings { trace, tried: Some(chain(&error)) }),
            },
        };
        Ok(Self { kdamond, method, collection: None, ring_bytes: None })
    }

    /// Sets the size of the ring buffer in bytes. It is rounded up to a power of two and to a page.
    #[must_use]
    pub fn with_ring(self, bytes: usize) -> Self {
        Self { ring_bytes: Some(bytes), ..self }
    }

    /// Checks that the kernel has these operations: `vaddr`, `fvaddr` or `paddr`.
    ///
    /// # Errors
    /// Returns [`DamonError::Operations`] if the kernel does not have them.
    pub fn can_watch(&self, operations: &'static str) -> Result<(), DamonError> {
        self.kdamond.can_watch(operations)
    }

    /// Whether every aggregation is collected. If not, each call of [`collect`](Self::collect) returns only the next
    /// one.
    pub fn is_complete(&self) -> bool {
        matches!(self.method, Method::Trace(_))
    }

    /// Writes the settings and turns the kdamond on.
    ///
    /// # Errors
    /// Fails if the settings are invalid, if a target has ended, if the kernel refuses, or if another program changes
    /// DAMON's settings meanwhile.
    pub fn start(&mut self, settings: &Settings) -> Result<(), DamonError> {
        let attributes = &settings.attributes;
        let targets = settings.scope.targets();
        if matches!(self.method, Method::Tried) && targets.len() > 1 {
            // The regions in tried_regions do not contain their target.
            let what = "without the kernel's tracepoints, DAMON can monitor only one target \
                        (run: mount -t tracefs tracefs /sys/kernel/tracing)";
            return Err(DamonError::Settings(what.into()));
        }
        self.kdamond.set_up(settings, matches!(self.method, Method::Tried))?;
        let thread = self.kdamond.turn_on(settings)?;
        let samples = attributes.samples();
        self.collection = Some(match &self.method {
            Method::Tried => Collection::Tried { samples },
            Method::Trace(format) => {
                let wanted = attributes.max_regions().saturating_mul(EVENT_BYTES * UNCOLLECTED);
                let size = self.ring_bytes.unwrap_or(wanted.clamp(*RING_BYTES.start(), *RING_BYTES.end()));
                match Traced::new(format, thread, size, targets.len(), samples) {
                    // The kdamond has already ended, because its targets have.
                    Err(TraceError::Perf { source: Errno::SRCH }) => return Err(DamonError::TurnedOff),
                    traced => Collection::Trace(Box::new(traced?)),
                }
            }
        });
        Ok(())
    }

    /// Returns the aggregations that have ended since the last call, the oldest first. With `tried_regions`, waits for
    /// the end of the next aggregation and returns it.
    ///
    /// # Errors
    /// Fails if `tried_regions` cannot be read while the kdamond is on.
    pub fn collect(&mut self) -> Result<Vec<Aggregation>, DamonError> {
        match &mut self.collection {
            None => Ok(Vec::new()),
            Some(Collection::Trace(traced)) => Ok(traced.collect()),
            Some(Collection::Tried { samples }) => {
                let samples = *samples;
                let tried = match self.kdamond.tried_regions() {
                    // The request fails because the kdamond is off.
                    Err(_) if !self.kdamond.is_on() => return Ok(Vec::new()),
                    tried => tried?,
                };
                let region = |(range, nr_accesses, age): (_, u32, _)| RegionSnapshot {
                    nr_accesses: nr_accesses.min(samples),
                    nr_samples: samples,
                    age,
                    ..RegionSnapshot::new(range)
                };
                let regions: Vec<_> = tried.into_iter().map(region).collect();
                let targets = if regions.is_empty() { vec![] } else { vec![(0, regions)] };
                Ok(vec![Aggregation { time_ns: now_ns(), targets, gap: true }])
            }
        }
    }

    /// Whether the kdamond is on. It turns off when all targets have ended, or when another program turns it off.
    pub fn is_on(&self) -> bool {
        match &self.collection {
            None => false,
            Some(Collection::Trace(traced)) => !traced.has_ended(),
            Some(Collection::Tried { .. }) => self.kdamond.is_on(),
        }
    }

    /// The CPU time that the thread of the kdamond has used so far.
    pub fn cpu_time(&self) -> Duration {
        self.kdamond.cpu_time()
    }

    /// The losses so far.
    pub fn lost(&self) -> Lost {
        match &self.collection {
            Some(Collection::Trace(traced)) => traced.lost(),
            _ => Lost::default(),
        }
    }

    /// Turns the kdamond off and removes it.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The next run tries again.
    pub fn end(self) -> Result<(), DamonError> {
        self.kdamond.release()
    }
}

/// Checks that the tracepoint can be used, by opening it for the calling thread, and returns its layout.
pub(super) fn trace(places: &DamonPaths) -> Result<Format, TraceError> {
    let format = Format::read(places)?;
    Ring::open(format.id, 0, 1)?;
    Ok(format)
}

/// The current time of the kernel's monotonic clock in nanoseconds, like [`Aggregation::time_ns`].
pub fn now_ns() -> u64 {
    ClockOffsets::read(Path::new("/")).kernel_monotonic().as_nanos() as u64
}
