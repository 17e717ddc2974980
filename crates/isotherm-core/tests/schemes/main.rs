//! Schemes on snapshots that the tests make, with an actuator that keeps all calls.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod behaviour;
mod cgroups;
mod exchange;
mod fixtures;
mod goals;
mod limits;
mod moves;
mod properties;
mod surveyed;
