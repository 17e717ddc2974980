//! The recording: a file of snapshots, and the contract between recording and looking.
//!
//! A recording is an Apache Arrow IPC stream (`docs/recording.md` has its schema). [`Recorder`] writes one, so that
//! what was handed to the kernel stays readable however the recorder ends; [`Recording`] reads one, and tells a file that
//! is cut short from a damaged and from a foreign one, without ever trusting a byte of it; [`convert()`] turns one into
//! Parquet, CSV or JSON.

mod activities;
mod activity;
mod arrays;
mod batches;
mod check;
mod columns;
mod compat;
mod convert;
mod decode;
mod encode;
mod error;
mod foreign;
#[cfg(test)]
mod hostile;
mod message;
mod model;
mod output;
mod reader;
mod rows;
mod schema;
mod shape;
mod snapshots;
mod source;
mod time;
mod writer;

pub use activities::Activities;
pub use compat::{identity, permission_letters, pid_column};
pub use convert::{ConvertError, Format, TransferError, convert, convert_with};
pub use error::RecordError;
pub use model::{Activity, Cost, Header, Host, Row, SnapshotRecord, TargetInfo, TargetInfos};
pub use reader::{Ending, Recording};
pub use snapshots::Snapshots;
pub use writer::Recorder;

/// The highest format of recordings that this version reads.
///
/// It writes a recording without activities in format 1, which has no column for them, so that it costs nothing that there could be some.
pub const FORMAT: u64 = WITH_ACTIVITIES;

/// The format without activities.
const PLAIN: u64 = 1;
/// The format with activities.
const WITH_ACTIVITIES: u64 = 2;
