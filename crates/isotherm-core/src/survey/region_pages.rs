//! What a survey says of a region.

/// The memory of a region, as the last survey found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionPages {
    /// Bytes in memory.
    pub present: u64,
    /// Bytes accessed since the survey before.
    pub touched: u64,
    /// Bytes that cannot be observed.
    pub unobservable: u64,
    /// Bytes whose accesses since the survey before are not known.
    pub unknown: u64,
    /// Bytes in swap. `None` if the survey does not know.
    pub swapped: Option<u64>,
}

impl RegionPages {
    /// Bytes in memory or in swap.
    pub fn kept(&self) -> u64 {
        self.present.saturating_add(self.swapped.unwrap_or(0))
    }
}

impl std::ops::Add for RegionPages {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            present: self.present + other.present,
            touched: self.touched + other.touched,
            unobservable: self.unobservable + other.unobservable,
            unknown: self.unknown + other.unknown,
            swapped: self.swapped.zip(other.swapped).map(|(a, b)| a + b),
        }
    }
}
