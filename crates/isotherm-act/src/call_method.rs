//! The ways to carry out an action.

use isotherm_core::scheme::{Action, Reclaim};

use super::error::ActError;
use super::inside::InsideCall;
use isotherm_kernel::madvise::Advice;

/// The way in which an action is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallMethod {
    /// The action does nothing.
    Nothing,
    /// Advice to the kernel, from outside the target.
    Outside(Advice),
    /// A system call inside the target.
    Inside(InsideCall),
    /// Migration between memory nodes, from outside the target.
    Migration,
    /// A request to the kernel to reclaim memory of the target's cgroup.
    Cgroup(Reclaim),
    /// The same. The limit of the cgroup follows by itself.
    Limit(Reclaim),
}

impl CallMethod {
    /// The way in which `action` is carried out. `may_be_inside` says whether a call inside the target is allowed. Such
    /// a call is made only if nothing else has the same effect.
    ///
    /// # Errors
    /// Fails if the action needs a call inside the target, and that is not allowed.
    pub(super) fn of(action: Action, may_be_inside: bool) -> Result<Self, ActError> {
        let method = match action {
            Action::Stat => Self::Nothing,
            Action::WillNeed => Self::Outside(Advice::WillNeed),
            Action::Cold => Self::Outside(Advice::Cold),
            Action::PageOut => Self::Outside(Advice::PageOut),
            Action::HugePage if may_be_inside => Self::Inside(InsideCall::HugePage),
            Action::HugePage | Action::Collapse => Self::Outside(Advice::Collapse),
            Action::NoHugePage => Self::Inside(InsideCall::NoHugePage),
            Action::MLock => Self::Inside(InsideCall::MLock),
            Action::MUnlock => Self::Inside(InsideCall::MUnlock),
            Action::Promote | Action::Demote | Action::MigrateHot(_) | Action::MigrateCold(_) => Self::Migration,
            Action::Reclaim(how) => Self::Cgroup(how),
            Action::Limit(limit) => Self::Limit(limit.reclaim),
        };
        match method {
            Self::Inside(_) if !may_be_inside => Err(ActError::NeedsInside(action)),
            method => Ok(method),
        }
    }

    /// The name of the system call, as in the man-pages, or of the file that is written to. It is empty if there is
    /// none.
    pub(super) fn call_name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Outside(advice) => advice.name(),
            Self::Inside(call) => call.name(),
            Self::Migration => "move_pages",
            Self::Cgroup(_) => "memory.reclaim",
            Self::Limit(_) => "memory.high",
        }
    }
}
