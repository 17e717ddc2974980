//! Schemes on made snapshots, with an actuator that keeps everything it was told.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod behaviour;
mod goals;
mod made;
mod properties;
