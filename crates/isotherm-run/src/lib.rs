//! Runs of isotherm: the programming interface.
//!
//! A [`RunConfig`] describes a run: the source of snapshots (the monitor on a probe, the kernel's DAMON, a simulation,
//! or a recording that is replayed), the targets, the attributes, the schemes, and the recording.
//! [`RunConfig::prepare`] checks it and opens what it needs; [`Prepared::start`] starts it; [`Session::wait`] waits for
//! its end.
//!
//! A run sends [`Event`]s to any number of receivers: iterators ([`Prepared::subscribe`]) and sinks
//! ([`Prepared::add_sink`]). Each has a bounded queue. A slow receiver never delays a sampling round. It learns how
//! many events it missed. A run can need a sink, or go on without it if it fails ([`Need`]). [`Control`] gives commands
//! to a run from any thread: other attributes, other schemes, an update of the mappings, a mark, the end.
//!
//! Types of other crates that a program needs are in [`core`] (attributes, snapshots, schemes), [`record`] (recordings)
//! and [`sim`] (simulated memory).
//!
//! Nothing here ends the process, writes to the standard streams or handles signals. The program that uses this crate
//! does.
//!
//! # Example
//!
//! Watch a process, change the attributes while it runs, and reclaim what has not been accessed for a minute:
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod allowance;
mod command;
mod config;
mod control;
mod delivery;
mod error;
mod event;
mod mailbox;
mod marking;
mod marks;
mod outlet;
mod pace;
mod plan;
mod prepared;
mod probe;
mod properties;
mod recording;
mod scheduling;
mod schemes;
mod session;
mod shared;
mod sight;
mod source;
mod stacks;
mod surroundings;
mod survey;
mod suspended;
mod targets;
pub mod tiering;
mod trace;
mod unobserved;
mod usage;
mod viewers;
mod watched;

pub use allowance::{Allowance, Member};
pub use command::Command;
pub use config::{
    CommandLine, IntervalsChoice, ProbeChoice, RunConfig, SchemeOptions, SchemeSource, Source, Streams, Targets,
    WatchedFiles,
};
pub use control::Control;
pub use delivery::{EventSink, Events, Need};
pub use error::{ConfigError, RunError, chain};
pub use event::{EndReason, Event, Missed, Notice, NoticeKind, Severity};
pub use isotherm_act::LeastLimits;
pub use isotherm_core as core;
pub use isotherm_kernel::{Glob, NamePattern, Part, PatternError, Selection, Selector, User};
pub use isotherm_probes::bpf::SharedMemory;
pub use isotherm_record as record;
pub use isotherm_sim as sim;
pub use marking::{MarkSocket, RunningRecording, UnreachedError};
pub use marks::MarkError;
pub use pace::{HelperCpu, HelperThread};
pub use prepared::Prepared;
pub use properties::Properties;
pub use recording::{RecordingSink, RecordingSummary};
pub use scheduling::Scheduling;
pub use schemes::{FedMetrics, FedValue, SchemeLimits, restore_limits};
pub use session::{Session, Summary};
pub use shared::{SharedRun, View};
pub use source::recorded_facts;
pub use survey::SurveyChoice;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
