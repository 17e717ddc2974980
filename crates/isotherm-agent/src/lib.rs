//! The daemon of isotherm: groups of processes that are watched all the time, and the control of them.
//!
//! [`run`] reads a configuration ([`config`]), watches its groups, each by a run of `isotherm-run` on one budget, keeps
//! their history, and serves the control socket until it is told to end. [`Client`] speaks to a running daemon;
//! [`api::OPERATIONS`] is the table of what can be asked. `docs/daemon.md` is for those who operate it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod advice;
pub mod api;
mod cgroups;
mod client;
pub mod config;
mod cri;
mod daemon;
mod encoded;
mod engines;
pub mod fleet;
mod groups;
mod guard;
mod history;
mod hub;
mod idle_files;
mod journal;
mod kept;
mod metrics;
pub mod overview;
mod patience;
mod server;
mod serving;
mod sockets;
mod streams;
pub mod view;
mod watched;

pub use client::{Client, ClientError};
pub use daemon::{Daemon, DaemonError, read_config, run};
