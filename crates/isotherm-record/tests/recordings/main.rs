//! Recordings: written, read, examined, cut and merged.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod activity;
mod allocations;
mod common;
mod convert;
mod cut;
mod events;
mod examine;
mod foreign;
mod joined;
mod level;
mod marks;
mod merge;
mod missed;
mod panel;
mod python;
mod roundtrip;
mod segments;
mod stream;
mod survey;
mod torn;
