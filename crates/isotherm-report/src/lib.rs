//! Views of a recording for people and programs: heatmap, working set, regions, summary, overhead, what schemes did, and a
//! page with all.
//!
//! Each view is computed once, as plain data, in a module of its own ([`heatmap`], [`wss`], [`regions`], [`summary`],
//! [`overhead`], [`schemes`]); each format renders it. A recording is walked over row by row and never held as a whole, so
//! memory does not grow with its length other than by a few numbers a snapshot. Nothing of a recording is
//! trusted: names and commands are the watched process's, and are escaped for whatever they are shown on.
//!
//! [`write`](fn@write) is the whole of it:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use isotherm_report::{Format, Kind, Options, Selection};
//! let recording = isotherm_record::Recording::open("isotherm.rec".as_ref())?;
//! let mut out = std::io::stdout().lock();
//! isotherm_report::write(Kind::Summary, Format::Text, &recording, &Selection::default(), &Options::default(), &mut out)?;
//! # Ok(())
//! # }
//! ```

pub mod axis;
pub mod colour;
mod error;
mod escape;
mod extension;
mod facts;
pub mod heatmap;
mod html;
pub mod idle;
mod kind;
mod options;
pub mod overhead;
mod png;
pub mod regions;
mod report;
pub mod schemes;
mod source;
pub mod space;
pub mod summary;
mod svg;
mod text;
pub mod ticks;
pub mod wss;

pub use error::ReportError;
pub use escape::sanitise;
pub use extension::UnknownExtension;
pub use kind::{Format, Kind};
pub use options::{Options, Picture};
pub use regions::{Bounds, RegionOptions, Sort};
pub use report::write;
pub use source::{Activities, Piece, Rows, Seen, SelectedTarget, Selection, Share, Source, View, pieces, walk};
pub use text::{Colour, Terminal};
