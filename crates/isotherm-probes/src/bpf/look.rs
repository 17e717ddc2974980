//! How a survey visits a mapping.

/// How a survey visits a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// For the first time: the pages are only cleared.
    First,
    /// After an interval: the pages are counted and cleared.
    Again,
    /// The mapping is locked in memory: the pages are only counted.
    Locked,
}
