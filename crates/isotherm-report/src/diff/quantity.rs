//! The quantities that are compared, and what two recordings have of one of them.

use schemars::JsonSchema;
use serde::Serialize;

/// A quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// What was accessed within a window.
    WorkingSet,
    /// What is in memory; what is mapped, if one of the recordings has no surveys.
    Resident,
    /// What samples found accessed at least half of the time.
    Hot,
    /// What was not accessed.
    Cold,
}

impl Count {
    /// All quantities, in the order of reports.
    pub const ALL: [Self; 4] = [Self::WorkingSet, Self::Resident, Self::Hot, Self::Cold];
}

/// Bytes over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Amount {
    /// The mean over the time. Memory that existed for a part of the time counts for that part.
    pub mean_bytes: u64,
    /// The most at one time.
    pub peak_bytes: u64,
}

/// What both recordings have of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What the first one has. `None` if it does not have the name, or tells nothing of the quantity.
    pub before: Option<Amount>,
    /// What the second one has.
    pub after: Option<Amount>,
}

impl Change {
    /// The mean after less the mean before. What is not there counts as 0.
    pub fn difference(&self) -> i64 {
        let mean = |amount: Option<Amount>| amount.map_or(0, |amount| amount.mean_bytes);
        difference(mean(self.before), mean(self.after))
    }

    /// The larger mean of both.
    pub(super) fn largest(&self) -> u64 {
        [self.before, self.after].into_iter().flatten().map(|amount| amount.mean_bytes).max().unwrap_or(0)
    }

    /// The sums of both.
    pub(super) fn plus(self, other: Self) -> Self {
        let both = |a: Option<Amount>, b: Option<Amount>| match (a, b) {
            (Some(a), Some(b)) => Some(Amount {
                mean_bytes: a.mean_bytes.saturating_add(b.mean_bytes),
                peak_bytes: a.peak_bytes.saturating_add(b.peak_bytes),
            }),
            (a, b) => a.or(b),
        };
        Self { before: both(self.before, other.before), after: both(self.after, other.after) }
    }
}

/// `after` less `before`.
pub(super) fn difference(before: u64, after: u64) -> i64 {
    let distance = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after < before { -distance } else { distance }
}
