//! Refusals: why memory was not acted on.

use std::fmt;

/// Why an action on some memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Refusal {
    /// The kind of the reason.
    pub reason: RefusalReason,
    /// The error number of the operating system, if there was one. Its meaning depends on the system.
    pub code: Option<i32>,
}

/// The kinds of reasons for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The target has ended.
    TargetGone,
    /// No memory is mapped at the addresses.
    NotMapped,
    /// The system has too little memory for the action, or a limit on memory is reached.
    NoMemory,
    /// There is no free swap that the memory could be written to.
    NoSwap,
    /// The memory was changed, and is not in its file yet.
    Dirty,
    /// The memory or the target is in use in a way that excludes the action for now.
    Busy,
    /// The caller may not act on the target.
    NotPermitted,
    /// The system cannot carry out the action.
    Unsupported,
    /// The action does not apply to this kind of memory, for example because it is locked.
    Unsuitable,
    /// A signal or a deadline ended the action before it was complete.
    Interrupted,
    /// Any other reason. The error number says more.
    Other,
}

impl RefusalReason {
    /// All reasons, in the order in which they are documented.
    pub const ALL: [Self; 11] = [
        Self::TargetGone,
        Self::NotMapped,
        Self::NoMemory,
        Self::NoSwap,
        Self::Dirty,
        Self::Busy,
        Self::NotPermitted,
        Self::Unsupported,
        Self::Unsuitable,
        Self::Interrupted,
        Self::Other,
    ];

    /// Its name in recordings and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TargetGone => "target_gone",
            Self::NotMapped => "not_mapped",
            Self::NoMemory => "no_memory",
            Self::NoSwap => "no_swap",
            Self::Dirty => "dirty",
            Self::Busy => "busy",
            Self::NotPermitted => "not_permitted",
            Self::Unsupported => "unsupported",
            Self::Unsuitable => "unsuitable",
            Self::Interrupted => "interrupted",
            Self::Other => "other",
        }
    }

    /// The reason of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// The refusal for this reason, with the error number of the operating system.
    pub const fn with_code(self, code: i32) -> Refusal {
        Refusal { reason: self, code: Some(code) }
    }
}

impl From<RefusalReason> for Refusal {
    /// The refusal for this reason, without an error number.
    fn from(reason: RefusalReason) -> Self {
        Self { reason, code: None }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TargetGone => "the target has ended",
            Self::NotMapped => "not mapped",
            Self::NoMemory => "too little memory",
            Self::NoSwap => "no free swap",
            Self::Dirty => "not written to its file yet",
            Self::Busy => "busy",
            Self::NotPermitted => "not permitted",
            Self::Unsupported => "not supported",
            Self::Unsuitable => "not for this kind of memory",
            Self::Interrupted => "interrupted",
            Self::Other => "another reason",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_found_by_its_name() {
        for reason in RefusalReason::ALL {
            assert_eq!(RefusalReason::named(reason.name()), Some(reason));
        }
        assert_eq!(RefusalReason::named("EINVAL"), None);
    }
}
