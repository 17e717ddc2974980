//! What `isotherm tier run` does for a key-value store beside cold memory, on two memory nodes.
//!
//! A [`Run`](run::Run) is redis with one [`Distribution`] of requests, beside an amount of cold memory, under a
//! [`Configuration`]. A program of this crate sends the requests, so the share of the requests that read each record is
//! known, and so is the page of each record: that gives the share of the accesses that slow memory serves.
//!
//! [`moving`] measures the same for a hot set that moves.

mod kernel;
mod mover;
pub mod moving;
pub mod placement;
mod redis;
pub mod run;
mod server;
pub mod simulated;
mod steering;
pub mod summary;
pub mod ycsb;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A file that exists in the laboratory only (`lab/boot` makes it).
const LABORATORY: &str = "/lab/settings";

/// Settings of memory nodes are changed in the laboratory only.
///
/// # Errors
/// If this machine is another one.
pub fn ensure_laboratory() -> Result<()> {
    ensure!(Path::new(LABORATORY).exists(), "this measurement runs in the laboratory only: bench/tiering");
    Ok(())
}

/// Which records are read how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Some records are popular, wherever they are: scrambled zipfian with constant 0.99
    Zipfian,
    /// The records that were written last are the most popular
    Latest,
}

impl Distribution {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
        }
    }

    /// The execution time with all memory in the slow tier, normalised to that with all of it in the fast tier: as the
    /// patches for two tiers measured it with DRAM and CXL memory.
    pub fn slow_only(self) -> f64 {
        match self {
            Self::Zipfian => 1.21,
            Self::Latest => 1.18,
        }
    }

    /// The execution time, normalised to the fast tier only, if the slow tier serves this share of the accesses. It is
    /// a model: linear from 1 to [`slow_only`](Self::slow_only).
    pub fn modelled_time(self, slow_share: f64) -> f64 {
        1.0 + slow_share * (self.slow_only() - 1.0)
    }
}

/// Where memory is, and what moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Configuration {
    /// redis on the fast node, no cold memory
    Fast,
    /// redis on the slow node, no cold memory
    Slow,
    /// Where the kernel allocates it: the fast node first
    Default,
    /// The same, and the kernel's DAMON with migrate actions (Linux 6.11 and later)
    Damon,
    /// The same, and the kernel's NUMA balancing
    Balancing,
    /// The same, and `isotherm tier run`
    Isotherm,
}

impl Configuration {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast only",
            Self::Slow => "slow only",
            Self::Default => "default",
            Self::Damon => "DAMON",
            Self::Balancing => "balancing",
            Self::Isotherm => "isotherm",
        }
    }

    /// Whether something moves memory.
    pub const fn moves(self) -> bool {
        matches!(self, Self::Damon | Self::Balancing | Self::Isotherm)
    }

    /// Whether it is measured without cold memory only.
    pub fn is_alone(self) -> bool {
        matches!(self, Self::Fast | Self::Slow)
    }
}
