//! Why a request is refused: `application/problem+json` (RFC 9457).

use isotherm_core::chain;
use isotherm_report::ReportError;
use isotherm_scheme::Diagnostics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::groups::GroupError;
use crate::history::HistoryError;
use crate::hub::RecordError;

/// The media type.
pub const PROBLEM: &str = "application/problem+json";

/// Why a request is refused.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The status of the answer.
    pub status: u16,
    /// What the status means.
    pub title: String,
    /// What was asked, and why that is not possible.
    pub detail: String,
    /// The places of errors in the body of the request, as `body:LINE:COLUMN: MESSAGE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

impl Problem {
    /// A problem of this status.
    pub fn new(status: u16, detail: impl Into<String>) -> Self {
        let title = match status {
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            413 => "Content Too Large",
            422 => "Unprocessable Content",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        Self { status, title: title.into(), detail: detail.into(), errors: vec![] }
    }
}

impl From<Diagnostics> for Problem {
    fn from(diagnostics: Diagnostics) -> Self {
        let errors = diagnostics.to_string().lines().map(str::to_owned).collect();
        Self { errors, ..Self::new(422, diagnostics.to_string()) }
    }
}

impl From<GroupError> for Problem {
    fn from(error: GroupError) -> Self {
        let status = match error {
            GroupError::Unknown(_) | GroupError::Unfed { .. } => 404,
            GroupError::Exists(_) | GroupError::NotWatched => 409,
            GroupError::Refused(_) => 422,
        };
        Self::new(status, error.to_string())
    }
}

impl From<RecordError> for Problem {
    fn from(error: RecordError) -> Self {
        let status = match error {
            RecordError::NotWatched | RecordError::Running => 409,
            RecordError::Failed(_) | RecordError::Encode(_) => 500,
        };
        Self::new(status, chain(&error))
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        let status = match error {
            HistoryError::Nothing => 404,
            HistoryError::Join(_) => 422,
            HistoryError::Directory { .. } | HistoryError::Record(_) => 500,
        };
        Self::new(status, chain(&error))
    }
}

impl From<ReportError> for Problem {
    fn from(error: ReportError) -> Self {
        let status = if matches!(error, ReportError::Unsupported { .. }) { 400 } else { 422 };
        Self::new(status, chain(&error))
    }
}
