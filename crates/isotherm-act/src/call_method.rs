//! The ways to carry out an action.

use isotherm_core::scheme::{Action, Reclaim};

use super::error::ActError;
use super::files::FileCall;
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

/// How an action is carried out, by what it acts on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    on_processes: CallMethod,
    /// `None` if the action is one on memory of processes.
    pub(super) on_files: Option<FileCall>,
    /// Whether processes can do it to page frames that they map.
    pub(super) on_frames: bool,
}

impl Row {
    /// The table of actions. `may_be_inside` says whether a call inside the target is allowed. Such a call is made only
    /// if nothing else has the same effect.
    pub(super) fn of(action: Action, may_be_inside: bool) -> Self {
        use CallMethod::{Cgroup, Inside, Limit, Migration, Nothing, Outside};
        let row = |on_processes| Self { on_processes, on_files: None, on_frames: false };
        match action {
            Action::Stat => Self { on_files: Some(FileCall::Count), on_frames: true, ..row(Nothing) },
            Action::WillNeed => Self { on_files: Some(FileCall::ReadIn), ..row(Outside(Advice::WillNeed)) },
            Action::Cold => Self { on_frames: true, ..row(Outside(Advice::Cold)) },
            Action::PageOut => {
                Self { on_files: Some(FileCall::Drop), on_frames: true, ..row(Outside(Advice::PageOut)) }
            }
            Action::HugePage if may_be_inside => row(Inside(InsideCall::HugePage)),
            Action::HugePage | Action::Collapse => row(Outside(Advice::Collapse)),
            Action::HugePageAhead => row(Inside(InsideCall::HugePage)),
            Action::NoHugePage => row(Inside(InsideCall::NoHugePage)),
            Action::MLock => row(Inside(InsideCall::MLock)),
            Action::MUnlock => row(Inside(InsideCall::MUnlock)),
            Action::Promote | Action::Demote | Action::MigrateHot(_) | Action::MigrateCold(_) => {
                Self { on_files: Some(FileCall::Move), ..row(Migration) }
            }
            Action::Reclaim(how) => row(Cgroup(how)),
            Action::Limit(limit) => row(Limit(limit.reclaim)),
        }
    }
}

impl CallMethod {
    /// The way in which `action` is carried out on memory of processes. `may_be_inside` says whether a call inside the
    /// target is allowed.
    ///
    /// # Errors
    /// Fails if the action needs a call inside the target, and that is not allowed.
    pub(super) fn of(action: Action, may_be_inside: bool) -> Result<Self, ActError> {
        match Row::of(action, may_be_inside).on_processes {
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
