//! What isotherm's recording of a run tells about it.

use std::path::Path;

use isotherm_record::Recording;
use isotherm_report::schemes::Schemes;
use isotherm_report::wss::Wss;
use isotherm_report::{ReportError, Selection};
use isotherm_run::core::scheme::Action;
use serde::{Deserialize, Serialize};

use crate::EvalError;

/// Figures of a recording, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The median working set within the survey interval. `None` if it is not known.
    pub working_set: Option<f64>,
    /// What schemes freed. `None` if no scheme ran that frees memory.
    pub freed: Option<f64>,
    /// What came back of that within the time for which it is watched, in per cent of the working set in a minute.
    pub came_back_percent_per_minute: Option<f64>,
    /// What schemes that free nothing were applied to, such as memory that became huge pages.
    pub applied: Option<f64>,
}

impl Recorded {
    /// Reads a recording of a run that lasted so many seconds.
    pub(crate) fn read(path: &Path, seconds: f64) -> Result<Self, EvalError> {
        let recording = Recording::open(path)?;
        let selection = Selection::default();
        let working_set = match Wss::new(&recording, &selection, None) {
            // Where nothing was surveyed yet, nothing is known.
            Ok(wss) => wss.median().map(|median| median.value as f64).filter(|&bytes| bytes > 0.0),
            Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let schemes = match Schemes::new(&recording, &selection) {
            Ok(schemes) => schemes.schemes,
            Err(ReportError::NoSchemes | ReportError::NothingMatches { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let of = |freeing: bool| {
            let is_one = move |name: &str| Action::named(name).is_some_and(|action| action.frees()) == freeing;
            let found = schemes.iter().filter(move |scheme| is_one(&scheme.action)).map(|scheme| &scheme.total);
            found
                .map(|total| (total.applied_bytes as f64, total.returned_bytes as f64))
                .reduce(|a, b| (a.0 + b.0, a.1 + b.1))
        };
        let per_minute = |returned: f64| Some(returned / working_set? * 100.0 / seconds * 60.0);
        Ok(Self {
            working_set,
            freed: of(true).map(|(freed, _)| freed),
            came_back_percent_per_minute: of(true).and_then(|(_, returned)| per_minute(returned)),
            applied: of(false).map(|(applied, _)| applied),
        })
    }
}
