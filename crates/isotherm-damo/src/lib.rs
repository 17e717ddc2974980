//! Moving to and from damo, DAMON's own user-space tool: its recordings, and its schemes.
//!
//! [`import`] makes a recording of one that damo wrote; [`export`] makes such a file of a recording. [`read_schemes`] reads
//! scheme files in isotherm's own forms and in damo's. `docs/damo.md` says what is kept and what is not.

mod export;
mod import;
mod schemes;

pub use export::{Format, export};
pub use import::{DamoError, Imported, import};
pub use schemes::{parse_schemes, read_schemes};
