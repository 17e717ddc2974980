//! The recording: a file of snapshots, which monitoring writes and reports read.
//!
//! A recording is an Apache Arrow IPC stream; `docs/recording.md` has its columns. [`Recorder`] writes one. What it has
//! handed to the kernel stays readable however the recorder ends. [`Recording`] reads one. It distinguishes a file that
//! is cut short from a damaged and from a foreign one, and believes nothing in a file before it is checked.
//! [`convert()`] turns a recording into Parquet, CSV or JSON.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod activity;
mod ahead;
mod allocations;
mod batches;
mod blocks;
mod cells;
mod check;
mod column;
mod columns;
mod convert;
mod decode;
mod described;
mod encode;
mod ending;
mod error;
mod events;
mod examine;
mod feed;
mod foreign;
mod frequency;
#[cfg(test)]
mod hostile;
mod id;
mod identities;
mod joined;
mod layout;
mod level;
mod limits;
mod mark;
mod message;
mod missed;
mod model;
mod output;
mod panel;
mod permissions;
mod reader;
mod schema;
mod segment;
mod shape;
mod snapshots;
mod source;
mod stream;
mod surroundings;
mod survey;
mod surveyed;
mod surveys;
mod table;
mod target;
mod time;
mod writer;

pub use columns::column_table;
pub use columns::{Cost, NotAfforded};
pub use convert::{
    ConvertError, Cut, Format, MergeError, Merged, TransferError, convert, convert_with, cut, merge, recover,
};
pub use ending::Ending;
pub use error::RecordError;
pub use events::{Event, Events, Needs};
pub use examine::{Condition, Examination, Missing, Punctuality, examine};
pub use id::{identity, pid_column};
pub use joined::{JoinError, Joined, JoinedEvents};
pub use layout::Damage;
pub use level::{LEVEL_NEEDS, Level, Levelled, MERGED, MergedEvents, Merger, level, levelled, merged, write_level};
pub use mark::{Mark, MarkText};
pub use missed::{Missed, MissedKind, missed_words};
pub use model::{
    Activity, Header, Host, Part, RecordedBudget, Row, Run, Sight, SnapshotRecord, SurveyDetail, SurveyRecord,
    TargetInfo, TargetInfos,
};
pub use permissions::permission_letters;
pub use reader::{Items, Recording};
pub use schema::Contents;
pub use stream::StreamReader;
pub use surroundings::{AnonymousMemory, Cgroup, Limit, Surroundings};
pub use writer::{Recorder, recording_at};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The format of recordings that this version writes and reads.
pub const FORMAT: u64 = 4;
