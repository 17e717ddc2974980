//! Reports on made recordings.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod accumulated;
mod browser;
mod cut;
mod diff;
mod evidence;
mod formats;
mod groups;
mod histograms;
mod html_browser;
mod idle;
mod intervals;
mod lanes;
mod live;
mod long;
mod made;
mod marks;
mod merge;
mod right_size;
mod schemas;
mod sheet;
mod stacks;
mod surveys;
mod tiering;
mod tune;
mod views;
