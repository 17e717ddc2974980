//! Acting on another process's memory.

pub(crate) mod advise;
mod outside;
