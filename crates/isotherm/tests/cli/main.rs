//! The command line, as users call it.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod bombs;
mod common;
mod cut;
mod diff;
mod eval;
mod federation;
mod files;
mod fleet;
mod import;
mod inputs;
#[path = "../../../isotherm-fleet/tests/made/mod.rs"]
mod made;
mod man;
mod mappings;
mod marks;
mod merge;
mod objects;
mod outputs;
mod packaging;
mod page;
mod paths;
mod prometheus;
mod recording;
mod report;
mod run;
mod schemes;
mod selection;
mod stacks;
mod streams;
mod targets;
mod terminal;
mod tracing;
mod tune;
mod worlds;
mod wrong_calls;
