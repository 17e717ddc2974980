//! Reports on a recording: heatmap, working set, regions, summary, overhead, activity of schemes, attributes and
//! advice, and a page with most of them.
//!
//! Each report is computed once, as plain data, in a module of its own ([`heatmap`], [`wss`], [`regions`],
//! [`summary`], [`idle_time`], [`temperature`], [`overhead`], [`schemes`], [`tune`]), and so are the difference of two
//! recordings ([`diff`]), the trial of two tiers of memory ([`tiering`]), and the result of tuning a scheme
//! ([`tuning`]). A [`sheet`] has answers that were computed elsewhere. Each format renders that data. A
//! recording is read row by row and never held as a whole, so memory grows with its length by a few numbers per
//! snapshot only. Nothing in a recording is trusted: names and commands come from the watched process, and are escaped
//! for each format.
//!
//! [`write`](fn@write) makes a report in one call:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use isotherm_report::{Format, Kind, Options, Selection};
//! let recording = isotherm_record::Recording::open("isotherm.rec".as_ref())?;
//! let mut out = std::io::stdout().lock();
//! let (selection, options) = (Selection::default(), Options::default());
//! isotherm_report::write(Kind::Summary, Format::Text, &recording, &selection, &options, &mut out)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod accumulated;
pub mod axis;
mod brief;
mod bytes;
pub mod colour;
mod command;
mod course;
pub mod diff;
mod error;
mod escape;
mod estimated;
mod evidence;
mod extension;
pub mod extent;
mod facts;
mod format;
pub mod groups;
pub mod heatmap;
pub mod histogram;
mod html;
pub mod idle;
pub mod idle_time;
mod intervals;
mod marks;
mod measure;
mod names;
mod node_memory;
mod notes;
mod of_mappings;
mod options;
mod outside;
pub mod overhead;
mod pace;
mod parts;
mod placement;
mod png;
mod punctuality;
pub mod regions;
mod report;
mod resident;
pub mod right_size;
pub mod schema;
pub mod schemes;
pub mod sheet;
mod source;
mod stacks;
pub mod summary;
mod surveyed;
mod surveys;
mod svg;
pub mod temperature;
mod text;
pub mod ticks;
pub mod tiering;
pub mod tune;
pub mod tuning;
mod used;
pub mod wss;

pub use accumulated::Accumulated;
pub use bytes::Bytes;
pub use command::{program, shown_command, shown_pid};
pub use course::Life;
pub use error::ReportError;
pub use escape::sanitise;
pub use extension::{UnknownExtension, format_of};
pub use format::Format;
pub use groups::GroupBy;
pub use html::{LiveHeatmap, LivePage, live_heatmap, live_page};
pub use intervals::IntervalRange;
pub use measure::Measure;
pub use options::{Options, Picture};
pub use outside::{Outside, SwappedRange};
pub use pace::{Holds, Pacing, RecordedPace, Windows, shown_interval};
pub use parts::{HOT_HZ, Parts};
pub use placement::Placement;
pub use punctuality::STARVED;
pub use regions::{Limits, RegionOptions, Sort};
pub use report::{Choice, Kind, write};
pub use resident::{KindBytes, Surveyed};
pub use source::{
    Accumulator, Detail, Events, Piece, Seen, SelectedTarget, Selection, Share, Source, Takes, Visit, pieces, walk,
};
pub use summary::SummarySort;
pub use text::{Colour, Terminal, net_freed, part_in, width, wrap};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
