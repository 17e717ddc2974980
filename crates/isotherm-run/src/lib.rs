//! Runs of isotherm: the programming interface.
//!
//! A [`RunConfig`] describes a run: where snapshots come from (the monitor on a probe, the kernel's DAMON, a
//! simulation, a
//! recording that is replayed), which targets, which attributes, which schemes, and the recording.
//! [`RunConfig::prepare`]
//! checks it and opens what it needs; [`Prepared::start`] starts it; [`Session::wait`] waits for its end.
//!
//! What happens comes out as [`Event`]s, to any number of receivers: iterators ([`Prepared::subscribe`]) and
//! sinks ([`Prepared::add_sink`]), each behind a bounded queue. A slow receiver never delays a sampling round, and is
//! told what
//! it missed. Commands go in by [`Control`], from any thread: other attributes, other schemes, an update, the end.
//!
//! Nothing here ends the process, writes to the standard streams or handles signals: that is its user's part.
//!
//! # Example
//!
//! Watch a process, change the attributes while it runs, and reclaim what has not been accessed for a minute:
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```

#![forbid(unsafe_code)]

mod command;
mod config;
mod control;
mod delivery;
mod error;
mod event;
mod mailbox;
mod outlet;
mod pace;
mod prepared;
mod probe;
mod properties;
mod recording;
mod schemes;
mod session;
mod source;
mod targets;

pub use command::Command;
pub use config::{
    CommandLine, ProbeChoice, RunConfig, SchemeOptions, SchemeSource, Source, Streams, SurveyChoice, Targets,
};
pub use control::Control;
pub use delivery::{EventSink, Events};
pub use error::{ConfigError, RunError, chain};
pub use event::{EndReason, Event, Missed, Notice, Severity};
pub use prepared::Prepared;
pub use properties::Properties;
pub use recording::RecordingSummary;
pub use session::{Session, Summary};
