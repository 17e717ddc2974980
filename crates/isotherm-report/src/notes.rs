//! What a report says beside its figures: what cannot be relied on, and how often the recording surveyed and sampled.

use schemars::JsonSchema;
use serde::Serialize;

use crate::pace::RecordedPace;

/// The notes of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// What cannot be relied on, the most important first.
    pub(crate) warnings: Vec<String>,
    /// How often the recording surveyed and sampled, and what that cost.
    pub(crate) pace: RecordedPace,
}

/// A report in JSON, with its notes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Noted<T> {
    #[serde(flatten)]
    report: T,
    /// What cannot be relied on, and what to do, the most important first. Empty if nothing spoiled the recording.
    warnings: Vec<String>,
    /// How often the recording surveyed and sampled, and what that cost.
    pace: PaceOut,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecordedPace")]
struct PaceOut {
    #[serde(flatten)]
    pace: RecordedPace,
    /// The same as a line, which also says whether the budget was kept. `None` if nothing of it is known.
    text: Option<String>,
}

impl<T> Noted<T> {
    pub(crate) fn new(report: T, notes: Notes) -> Self {
        let Notes { warnings, pace } = notes;
        Self { report, warnings, pace: PaceOut { text: pace.line(), pace } }
    }
}
