//! Actions: what a scheme does to the memory that it wants.

use std::fmt;

use crate::PAGE_SIZE;

/// The size of a huge page of x86-64, in bytes: what the huge page actions work in.
pub const HUGE_PAGE_SIZE: u64 = 512 * PAGE_SIZE;

/// What to do to memory. The names are those of DAMON, where it has the action.
///
/// More will come (migration between memory nodes): whoever acts refuses what it does not know in [`Actuator::supports`](super::Actuator::supports).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Only count.
    Stat,
    /// Read in ahead what will be needed (`MADV_WILLNEED`).
    WillNeed,
    /// Make it the next that reclaim looks at (`MADV_COLD`).
    Cold,
    /// Reclaim it now (`MADV_PAGEOUT`).
    PageOut,
    /// Back it with huge pages: from outside by making them now where at least half of one is in use
    /// (`MADV_COLLAPSE`), from inside by allowing them
    /// (`MADV_HUGEPAGE`).
    HugePage,
    /// Forbid huge pages (`MADV_NOHUGEPAGE`); from inside only.
    NoHugePage,
    /// Make huge pages now (`MADV_COLLAPSE`), wherever it is called from, and however little of them is in use.
    Collapse,
    /// Keep it in memory (`mlock`); from inside only.
    MLock,
    /// Let it go again (`munlock`); from inside only.
    MUnlock,
}

/// Which of the memory that matches comes first when a quota does not suffice for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What is accessed least, and for longest.
    ColdestFirst,
    /// What is accessed most, and for longest.
    HottestFirst,
}

impl Action {
    /// All actions, in the order in which they are documented.
    pub const ALL: [Self; 9] = [
        Self::Stat,
        Self::WillNeed,
        Self::Cold,
        Self::PageOut,
        Self::HugePage,
        Self::NoHugePage,
        Self::Collapse,
        Self::MLock,
        Self::MUnlock,
    ];

    /// Its name in scheme files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::WillNeed => "willneed",
            Self::Cold => "cold",
            Self::PageOut => "pageout",
            Self::HugePage => "hugepage",
            Self::NoHugePage => "nohugepage",
            Self::Collapse => "collapse",
            Self::MLock => "mlock",
            Self::MUnlock => "munlock",
        }
    }

    /// The action of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Which memory comes first under a quota: the coldest for what takes memory away from it, else the hottest.
    pub const fn order(self) -> Order {
        match self {
            Self::Cold | Self::PageOut | Self::NoHugePage | Self::MUnlock => Order::ColdestFirst,
            Self::Stat | Self::WillNeed | Self::HugePage | Self::Collapse | Self::MLock => Order::HottestFirst,
        }
    }

    /// Where a range may be cut: at multiples of this many bytes.
    pub const fn granule(self) -> u64 {
        match self {
            Self::HugePage | Self::NoHugePage | Self::Collapse => HUGE_PAGE_SIZE,
            _ => PAGE_SIZE,
        }
    }

    /// Whether it does nothing to less than a whole granule.
    pub(crate) const fn whole_granules_only(self) -> bool {
        matches!(self, Self::HugePage | Self::Collapse)
    }

    /// Whether it does something to the memory, so that its age starts again.
    pub const fn changes_memory(self) -> bool {
        !matches!(self, Self::Stat)
    }

    /// Whether no process can do it to another: it needs a call made inside the target.
    pub const fn needs_inside(self) -> bool {
        matches!(self, Self::NoHugePage | Self::MLock | Self::MUnlock)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
