//! What a report says beside its figures: what cannot be relied on, and how often the recording surveyed and sampled.

use serde::Serialize;

use crate::pace::Pace;

/// The notes of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// What cannot be relied on, the most important first.
    pub(crate) warnings: Vec<String>,
    /// How often the recording surveyed and sampled, and what that cost.
    pub(crate) pace: Pace,
}

/// A report in JSON, with its notes.
#[derive(Serialize)]
pub(crate) struct Noted<T> {
    #[serde(flatten)]
    report: T,
    warnings: Vec<String>,
    pace: PaceOut,
}

#[derive(Serialize)]
struct PaceOut {
    #[serde(flatten)]
    pace: Pace,
    /// The line that the report has as text.
    text: Option<String>,
}

impl<T> Noted<T> {
    pub(crate) fn new(report: T, notes: Notes) -> Self {
        let Notes { warnings, pace } = notes;
        Self { report, warnings, pace: PaceOut { text: pace.line(), pace } }
    }
}
