//! The probe `damon` on a made tree: nothing here reaches the machine's own DAMON.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod faults;
mod left_behind;
mod made;
mod others;
mod set_up;
