//! Acting in real processes.
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    unsafe_code,
    reason = "a test that fails may panic; a target makes system calls as they are"
)]

mod calls;
mod deaths;
mod play;
mod refusals;
pub(crate) mod target;
