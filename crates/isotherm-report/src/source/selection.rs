//! The part of a recording that a report is about.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{AddrRange, TargetId, units};
use isotherm_record::{Header, Part};

use crate::parts::HOT_HZ;

/// The part of a recording that a report is about. `None` selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Time since the start of the recording. A snapshot covers the time before it, so a snapshot at `t` belongs to a
    /// range with `start < t <= end` (one at 0 to a range from 0).
    pub time: Option<Range<Duration>>,
    /// Addresses. Regions and mappings are cut to them.
    pub address: Option<AddrRange>,
    /// One target. If several processes had the process ID one after another, all of these.
    pub target: Option<SelectedTarget>,
    /// The frequency in hertz from which on memory is hot. `None` is [`HOT_HZ`].
    pub hot_hz: Option<f64>,
}

/// A target as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedTarget {
    /// The processes with this process ID.
    Process(u32),
    /// Physical memory, or the page cache of files.
    PhysicalMemory,
}

impl SelectedTarget {
    pub(crate) fn holds(self, id: TargetId) -> bool {
        match self {
            Self::Process(pid) => id.pid() == Some(pid),
            Self::PhysicalMemory => matches!(id, TargetId::PhysicalMemory | TargetId::PageCache),
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Process(pid) => pid,
            Self::PhysicalMemory => 0,
        }
    }
}

impl Selection {
    /// The frequency in hertz from which on memory is hot.
    pub fn hot(&self) -> f64 {
        self.hot_hz.unwrap_or(HOT_HZ)
    }

    /// The selection without what a recording that was cut has from before and after its part.
    pub(crate) fn within_part(&self, header: &Header) -> Self {
        let Some(Part { from_ns, to_ns }) = header.part else { return self.clone() };
        let part = Duration::from_nanos(from_ns)..to_ns.map_or(Duration::MAX, Duration::from_nanos);
        let time = match &self.time {
            Some(time) => time.start.max(part.start)..time.end.min(part.end),
            None => part,
        };
        Self { time: Some(time), ..self.clone() }
    }

    pub(crate) fn holds_target(&self, id: TargetId) -> bool {
        self.target.is_none_or(|wanted| wanted.holds(id))
    }

    /// Whether the selection has all memory of all targets of a survey.
    pub(crate) fn holds_all(&self, survey: &SurveySnapshot) -> bool {
        self.address.is_none() && survey.targets.iter().all(|target| self.holds_target(target.id))
    }

    pub(crate) fn holds_time(&self, t: Duration) -> bool {
        self.time.as_ref().is_none_or(|range| Part::holds_from(range.start, t) && t <= range.end)
    }

    /// The selected part of a range.
    pub(crate) fn clip(&self, range: AddrRange) -> Option<AddrRange> {
        self.address.map_or(Some(range), |wanted| wanted.intersection(range))
    }

    pub(crate) fn describe(&self) -> String {
        let mut parts = vec![];
        if let Some(time) = &self.time {
            parts.push(format!("time {} to {}", units::duration(time.start), units::duration(time.end)));
        }
        if let Some(range) = self.address {
            parts.push(format!("addresses {:#x} to {:#x}", range.start(), range.end()));
        }
        if let Some(target) = self.target {
            parts.push(format!("target {}", target.number()));
        }
        parts.join(", ")
    }
}
