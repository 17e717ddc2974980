//! Acting on another process's memory.

pub(crate) mod advise;
mod inside;
mod outside;

pub use inside::{Inside, InsideCall, InsideError};
