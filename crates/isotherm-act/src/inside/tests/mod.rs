//! Tests of acting inside real processes.
#![allow(
    clippy::unwrap_used,
    unsafe_code,
    reason = "a test that fails may panic; a target makes system calls without wrappers"
)]

mod calls;
mod deaths;
mod refusals;
mod roles;
pub(crate) mod target;
