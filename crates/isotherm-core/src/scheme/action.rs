//! Actions: what a scheme does to the memory that it selects.

use std::fmt;

use crate::PAGE_SIZE;

use super::destination::{Destinations, HUGE_PAGE_SIZE};

/// An action with its parameters.
///
/// What does not depend on parameters (the name, the order, the granule) is a property of the [`kind`](Self::kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// See [`ActionKind::Stat`].
    Stat,
    /// See [`ActionKind::WillNeed`].
    WillNeed,
    /// See [`ActionKind::Cold`].
    Cold,
    /// See [`ActionKind::PageOut`].
    PageOut,
    /// See [`ActionKind::HugePage`].
    HugePage,
    /// See [`ActionKind::NoHugePage`].
    NoHugePage,
    /// See [`ActionKind::Collapse`].
    Collapse,
    /// See [`ActionKind::MLock`].
    MLock,
    /// See [`ActionKind::MUnlock`].
    MUnlock,
    /// See [`ActionKind::Promote`].
    Promote,
    /// See [`ActionKind::Demote`].
    Demote,
    /// See [`ActionKind::MigrateHot`]. The parameter is where to.
    MigrateHot(Destinations),
    /// See [`ActionKind::MigrateCold`]. The parameter is where to.
    MigrateCold(Destinations),
}

/// The kinds of actions. The names are DAMON's where it has the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Count the memory and change nothing.
    Stat,
    /// Read memory in before it is needed (`MADV_WILLNEED`).
    WillNeed,
    /// Make the memory the next that the kernel reclaims (`MADV_COLD`).
    Cold,
    /// Reclaim the memory now (`MADV_PAGEOUT`).
    PageOut,
    /// Back the memory with huge pages. From outside, make a huge page now where at least half of one is in use
    /// (`MADV_COLLAPSE`). From inside, allow huge pages (`MADV_HUGEPAGE`).
    HugePage,
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
    /// Move the memory to nodes that the scheme names, the hottest first (`move_pages`).
    MigrateHot,
    /// Move the memory to nodes that the scheme names, the coldest first (`move_pages`).
    MigrateCold,
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
    PresentHugePages,
    /// All of a region that has a page in memory.
    Region,
}

impl Action {
    /// The kind of the action.
    pub const fn kind(&self) -> ActionKind {
        match self {
            Self::Stat => ActionKind::Stat,
            Self::WillNeed => ActionKind::WillNeed,
            Self::Cold => ActionKind::Cold,
            Self::PageOut => ActionKind::PageOut,
            Self::HugePage => ActionKind::HugePage,
            Self::NoHugePage => ActionKind::NoHugePage,
            Self::Collapse => ActionKind::Collapse,
            Self::MLock => ActionKind::MLock,
            Self::MUnlock => ActionKind::MUnlock,
            Self::Promote => ActionKind::Promote,
            Self::Demote => ActionKind::Demote,
            Self::MigrateHot(_) => ActionKind::MigrateHot,
            Self::MigrateCold(_) => ActionKind::MigrateCold,
        }
    }

    /// The nodes that the scheme names as those to move memory to. `None` for actions to which it names none.
    pub const fn destinations(&self) -> Option<&Destinations> {
        match self {
            Self::MigrateHot(nodes) | Self::MigrateCold(nodes) => Some(nodes),
            _ => None,
        }
    }

    /// The action of this kind. `to` is where it moves memory to; actions to which a scheme names no node ignore it.
    /// `None` if the action needs nodes and there are none.
    pub const fn of(kind: ActionKind, to: Option<Destinations>) -> Option<Self> {
        Some(match kind {
            ActionKind::Stat => Self::Stat,
            ActionKind::WillNeed => Self::WillNeed,
            ActionKind::Cold => Self::Cold,
            ActionKind::PageOut => Self::PageOut,
            ActionKind::HugePage => Self::HugePage,
            ActionKind::NoHugePage => Self::NoHugePage,
            ActionKind::Collapse => Self::Collapse,
            ActionKind::MLock => Self::MLock,
            ActionKind::MUnlock => Self::MUnlock,
            ActionKind::Promote => Self::Promote,
            ActionKind::Demote => Self::Demote,
            ActionKind::MigrateHot | ActionKind::MigrateCold => match (kind, to) {
                (ActionKind::MigrateHot, Some(to)) => Self::MigrateHot(to),
                (_, Some(to)) => Self::MigrateCold(to),
                (_, None) => return None,
            },
        })
    }
}

impl ActionKind {
    /// All kinds, in the order in which they are documented.
    pub const ALL: [Self; 13] = [
        Self::Stat,
        Self::WillNeed,
        Self::Cold,
        Self::PageOut,
        Self::HugePage,
        Self::NoHugePage,
        Self::Collapse,
        Self::MLock,
        Self::MUnlock,
        Self::Promote,
        Self::Demote,
        Self::MigrateHot,
        Self::MigrateCold,
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
            Self::Promote => "promote",
            Self::Demote => "demote",
            Self::MigrateHot => "migrate_hot",
            Self::MigrateCold => "migrate_cold",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Which memory comes first under a quota: the coldest for actions that take memory away, else the hottest.
    pub const fn order(self) -> Order {
        match self {
            Self::Cold | Self::PageOut | Self::NoHugePage | Self::MUnlock | Self::Demote | Self::MigrateCold => {
                Order::ColdestFirst
            }
            Self::Stat
            | Self::WillNeed
            | Self::HugePage
            | Self::Collapse
            | Self::MLock
            | Self::Promote
            | Self::MigrateHot => Order::HottestFirst,
        }
    }

    /// A range may be cut at multiples of this many bytes.
    pub const fn granule(self) -> u64 {
        match self {
            Self::HugePage | Self::NoHugePage | Self::Collapse => HUGE_PAGE_SIZE,
            // A huge page moves whole.
            Self::Promote | Self::Demote | Self::MigrateHot | Self::MigrateCold => HUGE_PAGE_SIZE,
            Self::Stat | Self::WillNeed | Self::Cold | Self::PageOut | Self::MLock | Self::MUnlock => PAGE_SIZE,
        }
    }

    /// Whether the action does nothing to less than a whole granule.
    pub(crate) const fn whole_granules_only(self) -> bool {
        matches!(self, Self::HugePage | Self::Collapse)
    }

    /// Whether the action takes memory away from its user, who has to wait if it is accessed after all.
    pub const fn takes_away(self) -> bool {
        matches!(self, Self::Cold | Self::PageOut | Self::Demote | Self::MigrateCold)
    }

    /// What the action looks for, if it moves memory between nodes.
    pub const fn moves(self) -> Option<Moves> {
        match self {
            Self::Promote | Self::MigrateHot => Some(Moves::Hot),
            Self::Demote | Self::MigrateCold => Some(Moves::Cold),
            _ => None,
        }
    }

    /// Whether the scheme has to name the nodes to move memory to.
    pub const fn needs_destinations(self) -> bool {
        matches!(self, Self::MigrateHot | Self::MigrateCold)
    }

    /// Whether the action frees the memory, so that it can be seen to come back.
    pub const fn frees(self) -> bool {
        matches!(self, Self::PageOut)
    }

    /// The part of a region that the action is for, if a survey knows which pages are in memory.
    pub(crate) const fn reach(self) -> Reach {
        match self {
            Self::Cold | Self::PageOut | Self::Demote | Self::MigrateCold => Reach::IdlePages,
            Self::Promote | Self::MigrateHot => Reach::PagesInUse,
            // Locking memory that is absent would fill it.
            Self::Stat | Self::MLock => Reach::PresentPages,
            Self::HugePage | Self::Collapse => Reach::PresentHugePages,
            Self::WillNeed | Self::NoHugePage | Self::MUnlock => Reach::Region,
        }
    }

    /// Whether the action changes the memory, so that its age starts again.
    pub const fn changes_memory(self) -> bool {
        !matches!(self, Self::Stat)
    }

    /// Whether no other process can carry out the action: it needs a call made inside the target.
    pub const fn needs_inside(self) -> bool {
        matches!(self, Self::NoHugePage | Self::MLock | Self::MUnlock)
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn each_kind_is_found_by_its_name_and_makes_an_action_of_its_kind() {
        let to = Destinations::one(NodeId(1));
        for kind in ActionKind::ALL {
            assert_eq!(ActionKind::named(kind.name()), Some(kind));
            assert_eq!(Action::of(kind, Some(to)).map(|action| action.kind()), Some(kind));
            assert_eq!(Action::of(kind, None).is_none(), kind.needs_destinations());
        }
    }
}
