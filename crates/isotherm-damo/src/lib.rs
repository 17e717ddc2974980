//! Recordings and schemes of damo, the user-space tool of DAMON.
//!
//! [`import`] makes a recording of a file that damo wrote, and [`export`] makes a file for damo of a recording.
//! [`read_schemes`] reads scheme files in isotherm's own forms and in damo's JSON. `docs/damo.md` lists what is kept
//! and what is lost.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod export;
mod import;
mod schemes;

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use export::{Format, export};
pub use import::{ImportError, Imported, import, import_within, is_recording};
pub use schemes::{parse_schemes, read_schemes};
