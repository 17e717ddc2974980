//! How an action is carried out.

use isotherm_core::scheme::Action;

use super::error::ActError;
use super::inside::InsideCall;
use isotherm_kernel::madvise::Advice;

/// What does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallMethod {
    /// There is nothing to do.
    Nothing,
    /// Advice from outside.
    Outside(Advice),
    /// A call inside the target.
    Inside(InsideCall),
}

impl CallMethod {
    /// The way in which `action` is carried out, where a call inside the target is allowed or not: it is made only
    /// where nothing
    /// else does the same.
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
        };
        match method {
            Self::Inside(_) if !may_be_inside => Err(ActError::NeedsInside(action)),
            method => Ok(method),
        }
    }

    /// The call that does it, as manuals name it.
    pub(super) fn by(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Outside(advice) => advice.name(),
            Self::Inside(call) => call.name(),
        }
    }
}
