//! What a report says beside its figures: what cannot be relied on, and how often the recording surveyed and sampled.

use serde::Serialize;

use crate::ReportError;
use crate::evidence::{Evidence, missed};
use crate::kind::Kind;
use crate::pace::Pace;
use crate::source::{Selection, Source};

/// The notes of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// What cannot be relied on, the most important first.
    pub(crate) warnings: Vec<String>,
    /// How often the recording surveyed and sampled, and what that cost.
    pub(crate) pace: Pace,
}

impl Notes {
    /// Those of a report of this kind. That there was little to find says nothing of what the monitoring cost.
    pub(crate) fn new(kind: Kind, evidence: &Evidence) -> Self {
        let warnings = match kind {
            Kind::Overhead => evidence.of_monitoring().collect(),
            _ => evidence.warnings().collect(),
        };
        Self { warnings, pace: evidence.pace() }
    }

    /// Those of a report of this kind. A report on schemes can have no evidence: while all schemes are asleep, there
    /// are no snapshots.
    ///
    /// # Errors
    /// That of the evidence.
    pub(crate) fn of(
        kind: Kind,
        source: &dyn Source,
        selection: &Selection,
        evidence: Result<Evidence, ReportError>,
    ) -> Result<Self, ReportError> {
        match evidence {
            Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) if kind == Kind::Schemes => {
                Ok(Self { warnings: missed(source, selection)?.into_iter().collect(), ..Self::default() })
            }
            evidence => evidence.map(|evidence| Self::new(kind, &evidence)),
        }
    }
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
