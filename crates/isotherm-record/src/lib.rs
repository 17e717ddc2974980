//! The recording: a file of snapshots, and the contract between recording and looking.

mod model;

pub use model::{Cost, Header, Host, Row, TargetInfo};
