//! How a mapping is looked at in a survey.

/// How a mapping is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// For the first time: its pages are only cleared.
    First,
    /// After an interval.
    Again,
    /// It is locked in memory: its pages are only counted.
    Locked,
}
