//! Applies schemes in a run: on a separate thread for a live source, or inline for a source without a clock.

mod faults;
mod fed;
mod file;
mod frames;
mod inline;
mod left;
mod limits;
mod returns;
mod wakes;
mod worker;

pub use fed::{FedMetrics, FedValue};
pub(crate) use inline::InlineSchemes;
pub use left::restore_limits;
pub use limits::SchemeLimits;
pub(crate) use worker::{ActedOn, PreparedSchemes, SchemeThread};

use isotherm_core::scheme::Scheme;

use crate::{RunError, SchemeOptions, SchemeSource};

/// The schemes of a run that reads them once, at its beginning.
pub(crate) fn fixed_schemes(options: SchemeOptions) -> Result<Vec<Scheme>, RunError> {
    match options.schemes {
        SchemeSource::Fixed(schemes) => Ok(schemes),
        SchemeSource::File(path) => file::SchemeFile::open(&path).1.map_err(RunError::SchemeFile),
    }
}
