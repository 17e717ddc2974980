//! Actions: what a scheme does to the memory that it selects.

use std::fmt;

use crate::{NodeId, PAGE_SIZE};

use super::cgroup_limit::CgroupLimit;
use super::destination::{Destinations, HUGE_PAGE_SIZE};

/// An action with its parameters. The names are DAMON's where it has the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Count the memory and change nothing.
    Stat,
    /// Read memory in before it is needed (`MADV_WILLNEED`).
    WillNeed,
    /// Make the memory the next that the kernel reclaims (`MADV_COLD`).
    Cold,
    /// Reclaim the memory now (`MADV_PAGEOUT`).
    PageOut,
    /// Back the memory with huge pages. From outside, make a huge page now where at least seven eighths of one are
    /// in memory (`MADV_COLLAPSE`). From inside, allow huge pages (`MADV_HUGEPAGE`).
    HugePage,
    /// Allow huge pages in all of a mapping that fills up (`MADV_HUGEPAGE`), before the rest of it is used; from inside
    /// only.
    HugePageAhead,
    /// Forbid huge pages (`MADV_NOHUGEPAGE`); from inside only.
    NoHugePage,
    /// Make huge pages now (`MADV_COLLAPSE`), however little of them is in use.
    Collapse,
    /// Keep the memory resident (`mlock`); from inside only.
    MLock,
    /// Allow the memory to be reclaimed again (`munlock`); from inside only.
    MUnlock,
    /// Move the memory to the nearest node with room of the next faster tier (`move_pages`).
    Promote,
    /// Move the memory to the nearest node with room of the next slower tier (`move_pages`).
    Demote,
    /// Move the memory to these nodes, the hottest first (`move_pages`).
    MigrateHot(Destinations),
    /// Move the memory to these nodes, the coldest first (`move_pages`).
    MigrateCold(Destinations),
    /// Take as much from the cgroups of the targets as they have idle: first the idle pages themselves, then what the
    /// kernel finds (`memory.reclaim` of cgroup version 2).
    Reclaim(Reclaim),
    /// The same, and let the limits of the cgroups (`memory.high`) down to what is left. The limits are raised again as
    /// soon as a goal of the scheme is reached that is a [bound](super::Goal::is_bound); without such a goal, none is
    /// set.
    Limit(CgroupLimit),
}

/// How memory of a cgroup is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reclaim {
    /// What is done first to the pages that are known to be idle.
    pub first: First,
    /// How much the kernel prefers memory that needs swap to page cache, 0 to 200, if it takes that. `None` leaves it
    /// to the kernel.
    pub swappiness: Option<u8>,
}

impl Reclaim {
    /// The largest swappiness.
    pub const MOST_SWAPPINESS: u8 = 200;

    /// Idle pages are reclaimed one by one first.
    pub const DEFAULT: Self = Self { first: First::PageOut, swappiness: None };
}

/// What is done to the pages that are known to be idle, before the kernel chooses itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum First {
    /// Nothing: the kernel chooses all.
    Nothing,
    /// They become the next that the kernel chooses (`MADV_COLD`).
    Cold,
    /// They are reclaimed (`MADV_PAGEOUT`), and the kernel chooses for those that were not.
    PageOut,
}

impl First {
    /// All, in the order in which they are documented.
    pub const ALL: [Self; 3] = [Self::PageOut, Self::Cold, Self::Nothing];

    /// Its name in scheme files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Cold => "cold",
            Self::PageOut => "pageout",
        }
    }
}

/// What an action that moves memory between nodes looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// It takes hot memory to where it is served well.
    Hot,
    /// It takes cold memory out of the way.
    Cold,
}

impl Moves {
    /// The direction that undoes this one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Hot => Self::Cold,
            Self::Cold => Self::Hot,
        }
    }
}

/// Which of the memory that matches comes first when a quota does not suffice for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Memory with the lowest access rate for the longest time.
    ColdestFirst,
    /// Memory with the highest access rate for the longest time.
    HottestFirst,
}

/// The part of a region that an action is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Pages in memory that have been idle for the age asked for.
    IdlePages,
    /// Pages in memory that surveys have found in use.
    PagesInUse,
    /// Pages in memory.
    PresentPages,
    /// Parts of 2 MiB that have a page in memory.
    PresentBlocks,
    /// All of a region that has a page in memory.
    Region,
}

/// What is true of an action whatever its parameters.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    order: Order,
    granule: u64,
    reach: Reach,
    moves: Option<Moves>,
    needs_inside: bool,
}

impl Action {
    /// All actions, in the order in which they are documented. Those that move memory to nodes that a scheme names have
    /// node 0.
    pub const ALL: [Self; 16] = [
        Self::Stat,
        Self::WillNeed,
        Self::Cold,
        Self::PageOut,
        Self::HugePage,
        Self::HugePageAhead,
        Self::NoHugePage,
        Self::Collapse,
        Self::MLock,
        Self::MUnlock,
        Self::Promote,
        Self::Demote,
        Self::MigrateHot(Destinations::one(NodeId(0))),
        Self::MigrateCold(Destinations::one(NodeId(0))),
        Self::Reclaim(Reclaim::DEFAULT),
        Self::Limit(CgroupLimit::DEFAULT),
    ];

    /// The table of actions. A huge page moves whole. Memory is locked by blocks, as there can be as many calls and
    /// mappings as there are parts.
    const fn row(&self) -> Row {
        use Moves::{Cold, Hot};
        use Order::{ColdestFirst, HottestFirst};
        use Reach::{IdlePages, PagesInUse, PresentBlocks, PresentPages, Region};
        const HUGE: u64 = HUGE_PAGE_SIZE;
        const PAGE: u64 = PAGE_SIZE;
        const fn row(name: &'static str, order: Order, granule: u64, reach: Reach, moves: Option<Moves>) -> Row {
            Row { name, order, granule, reach, moves, needs_inside: false }
        }
        const fn inside(row: Row) -> Row {
            Row { needs_inside: true, ..row }
        }
        match self {
            Self::Stat => row("stat", HottestFirst, PAGE, PresentPages, None),
            Self::WillNeed => row("willneed", HottestFirst, PAGE, Region, None),
            Self::Cold => row("cold", ColdestFirst, PAGE, IdlePages, None),
            Self::PageOut => row("pageout", ColdestFirst, PAGE, IdlePages, None),
            Self::HugePage => row("hugepage", HottestFirst, HUGE, PresentBlocks, None),
            Self::HugePageAhead => inside(row("hugepage_ahead", HottestFirst, HUGE, Region, None)),
            Self::NoHugePage => inside(row("nohugepage", ColdestFirst, HUGE, Region, None)),
            Self::Collapse => row("collapse", HottestFirst, HUGE, PresentBlocks, None),
            Self::MLock => inside(row("mlock", HottestFirst, PAGE, PresentBlocks, None)),
            Self::MUnlock => inside(row("munlock", ColdestFirst, PAGE, Region, None)),
            Self::Promote => row("promote", HottestFirst, HUGE, PagesInUse, Some(Hot)),
            Self::Demote => row("demote", ColdestFirst, HUGE, IdlePages, Some(Cold)),
            Self::MigrateHot(_) => row("migrate_hot", HottestFirst, HUGE, PagesInUse, Some(Hot)),
            Self::MigrateCold(_) => row("migrate_cold", ColdestFirst, HUGE, IdlePages, Some(Cold)),
            Self::Reclaim(_) => row("reclaim", ColdestFirst, PAGE, IdlePages, None),
            Self::Limit(_) => row("limit", ColdestFirst, PAGE, IdlePages, None),
        }
    }

    /// The action of this name, with node 0 if it moves memory to nodes that a scheme names.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// The nodes that the scheme names as those to move memory to. `None` for actions to which it names none.
    pub const fn destinations(&self) -> Option<&Destinations> {
        if let Self::MigrateHot(nodes) | Self::MigrateCold(nodes) = self { Some(nodes) } else { None }
    }

    /// The same action, which moves memory to these nodes if it is one to which a scheme names nodes.
    #[must_use]
    pub const fn with_destinations(self, to: Destinations) -> Self {
        if let Self::MigrateHot(_) = self {
            Self::MigrateHot(to)
        } else if let Self::MigrateCold(_) = self {
            Self::MigrateCold(to)
        } else {
            self
        }
    }

    /// How it reclaims memory of cgroups, if it does.
    pub const fn reclaim(&self) -> Option<Reclaim> {
        if let Self::Reclaim(how) = self {
            Some(*how)
        } else if let Self::Limit(limit) = self {
            Some(limit.reclaim)
        } else {
            None
        }
    }

    /// The same action, which reclaims in this way if it reclaims memory of cgroups.
    #[must_use]
    pub const fn with_reclaim(self, how: Reclaim) -> Self {
        if let Self::Reclaim(_) = self {
            Self::Reclaim(how)
        } else if let Self::Limit(limit) = self {
            Self::Limit(CgroupLimit { reclaim: how, ..limit })
        } else {
            self
        }
    }

    /// How it sets limits of cgroups, if it does.
    pub const fn limit(&self) -> Option<CgroupLimit> {
        if let Self::Limit(how) = self { Some(*how) } else { None }
    }

    /// The same action, which sets limits with this margin if it sets limits of cgroups.
    #[must_use]
    pub const fn with_margin(self, margin: u16) -> Self {
        if let Self::Limit(limit) = self { Self::Limit(CgroupLimit { margin, ..limit }) } else { self }
    }

    /// The same action, which protects the memory in use or not if it sets limits of cgroups.
    #[must_use]
    pub const fn with_keep(self, keep: bool) -> Self {
        if let Self::Limit(limit) = self { Self::Limit(CgroupLimit { keep, ..limit }) } else { self }
    }

    /// Its name in scheme files and reports.
    pub const fn name(&self) -> &'static str {
        self.row().name
    }

    /// Which memory comes first under a quota: the coldest for actions that take memory away, else the hottest.
    pub const fn order(&self) -> Order {
        self.row().order
    }

    /// A range may be cut at multiples of this many bytes.
    pub const fn granule(&self) -> u64 {
        self.row().granule
    }

    /// The part of a region that the action is for, if a survey knows which pages are in memory.
    pub(crate) const fn reach(&self) -> Reach {
        self.row().reach
    }

    /// What the action looks for, if it moves memory between nodes.
    pub const fn moves(&self) -> Option<Moves> {
        self.row().moves
    }

    /// Whether no other process can carry out the action: it needs a call made inside the target.
    pub const fn needs_inside(&self) -> bool {
        self.row().needs_inside
    }

    /// Whether the action does nothing to less than a whole granule.
    pub(crate) const fn whole_granules_only(&self) -> bool {
        matches!(self.reach(), Reach::PresentBlocks) && self.granule() == HUGE_PAGE_SIZE
    }

    /// Whether the action takes memory away from its user, who has to wait if it is accessed after all.
    pub const fn takes_away(&self) -> bool {
        matches!(self.reach(), Reach::IdlePages)
    }

    /// Whether the action frees the memory, so that it can be seen to come back.
    pub const fn frees(&self) -> bool {
        matches!(self, Self::PageOut | Self::Reclaim(_) | Self::Limit(_))
    }

    /// Whether the action changes the memory or what may become of it.
    pub const fn changes_memory(&self) -> bool {
        !matches!(self, Self::Stat)
    }

    /// Whether the age of the memory starts again.
    pub const fn restarts_age(&self) -> bool {
        !matches!(self, Self::Stat | Self::HugePageAhead)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_found_by_its_name_and_keeps_it_with_other_nodes() {
        let to = Destinations::one(NodeId(1));
        for action in Action::ALL {
            assert_eq!(Action::named(action.name()), Some(action));
            let other = action.with_destinations(to);
            assert_eq!(
                (other.name(), other.destinations().copied()),
                (action.name(), action.destinations().map(|_| to))
            );
        }
    }
}
