//! The place of one recording in the time of several, and among their machines.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::{CgroupId, TargetId};

use crate::{Part, Recording};

/// The starts of processes of one machine are this much later than those of the one before, so that processes of
/// several machines are several targets. It is longer than any machine runs.
const APART: Duration = Duration::from_secs(1 << 33);
/// The same for the numbers of cgroups.
const CGROUPS: u64 = 1 << 48;

/// The place of one recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Which of the machines it is of, by number.
    pub(super) machine: u32,
    /// By how much it started after the first of the recordings.
    pub(super) shift: Duration,
    /// Its part, as it counts time itself. What it has from before and after its part is left out.
    start: Duration,
    end: Duration,
    /// Its last snapshot or survey.
    last: Duration,
}

impl Place {
    /// Reads how long a recording is. The first one started at `started_unix_ns`.
    pub(super) fn new(recording: &Recording, machine: u32, started_unix_ns: u64) -> Self {
        let header = recording.header();
        let shift = Duration::from_nanos(header.started_unix_ns.saturating_sub(started_unix_ns));
        let Part { from_ns, to_ns } = header.part.unwrap_or_default();
        let (start, end) = (Duration::from_nanos(from_ns), to_ns.map_or(Duration::MAX, Duration::from_nanos));
        // An error of reading is told when the events are read.
        let times = recording.times().map_while(Result::ok);
        let last = times.filter(|&time| time <= end).max().unwrap_or_default().max(start);
        Self { machine, shift, start, end, last }
    }

    /// The time that it covers in that of all recordings.
    pub(super) fn time(&self) -> Range<Duration> {
        self.at(self.start)..self.at(self.last)
    }

    /// The start of its part, as it counts time itself.
    pub(super) fn start(&self) -> Duration {
        self.start
    }

    /// Whether something at this time is after the part.
    pub(super) fn is_over(&self, time: Duration) -> bool {
        time > self.end
    }

    /// Whether something at this time, which is not after the part, is in it.
    pub(super) fn holds(&self, time: Duration) -> bool {
        Part::holds_from(self.start, time)
    }

    /// A time of the recording in that of all recordings.
    pub(super) fn at(&self, time: Duration) -> Duration {
        time.saturating_add(self.shift)
    }

    /// A target of the recording among those of all machines.
    pub(super) fn id(&self, id: TargetId) -> TargetId {
        match id {
            TargetId::Process(process) => {
                TargetId::process(process.pid, process.start.saturating_add(APART.saturating_mul(self.machine)))
            }
            TargetId::PhysicalMemory | TargetId::PageCache => id,
            TargetId::Cgroup(CgroupId(id)) => {
                TargetId::Cgroup(CgroupId(id.wrapping_add(CGROUPS.wrapping_mul(u64::from(self.machine)))))
            }
        }
    }
}
