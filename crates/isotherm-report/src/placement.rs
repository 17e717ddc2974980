//! Where the memory of a cell of a heatmap is: in memory, in swap, or nowhere.

use crate::bytes::Bytes;
use isotherm_core::TargetId;
use isotherm_core::survey::PageSums;
use isotherm_core::units;

/// Where mapped memory is, as the surveys found it. Shares of its bytes, 0 to 1 each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Placement {
    /// In memory.
    pub present: f64,
    /// In swap. `None` if the surveys do not know.
    pub swapped: Option<f64>,
}

impl Placement {
    /// The share that is neither in memory nor known to be in swap.
    pub fn absent(self) -> f64 {
        (1.0 - self.present - self.swapped.unwrap_or(0.0)).max(0.0)
    }

    /// Whether more is in swap than in memory.
    pub fn is_swapped(self) -> bool {
        self.swapped > Some(self.present)
    }
}

/// The sums behind a placement, in bytes × seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places {
    /// All mapped memory, and the part whose swapped bytes are known.
    pub(crate) mapped: f64,
    pub(crate) known: f64,
    pub(crate) present: f64,
    pub(crate) swapped: f64,
}

impl Places {
    pub(crate) fn placement(self) -> Option<Placement> {
        let share = |part: f64, of: f64| (of > 0.0).then(|| (part / of).min(1.0));
        let present = share(self.present, self.mapped)?;
        Some(Placement { present, swapped: share(self.swapped, self.known) })
    }
}

/// The mapped bytes of a target at a survey, by where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedBytes {
    pub(crate) present: u64,
    pub(crate) swapped: Bytes,
    /// `None` for physical memory.
    pub(crate) absent: Option<u64>,
}

impl PlacedBytes {
    /// Of a target with `mapped` bytes in which a survey found `sums`.
    pub(crate) fn new(target: TargetId, sums: &PageSums, mapped: u64) -> Self {
        let absent = (target != TargetId::PhysicalMemory).then(|| mapped.saturating_sub(sums.figures.kept()));
        Self { present: sums.figures.present, swapped: Bytes(sums.figures.swapped), absent }
    }

    /// `64 MiB in memory, 12 MiB in swap, 20 MiB absent`. What there is nothing of is left out.
    pub(crate) fn text(self) -> String {
        let mut text = format!("{} in memory", units::bytes(self.present));
        for (bytes, what) in [(self.swapped, "in swap"), (self.absent.into(), "absent")] {
            if let Some(bytes) = bytes.some() {
                text += &format!(", {bytes} {what}");
            }
        }
        text
    }
}
