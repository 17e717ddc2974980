//! The effect of schemes: runtime and memory of programs with and without them.
//!
//! A [`Run`] is one run of a program under a [`Configuration`]. A [`Line`](summary::Line) sums up all runs of
//! the same.

pub mod machine;
mod prepare;
pub(crate) mod redis;
pub mod run;
mod sampler;
pub mod summary;
pub mod switches;
pub mod work;
pub mod workload;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use machine::HugePages;

/// How the system and isotherm are set while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Configuration {
    /// No huge pages, no isotherm: the baseline
    Orig,
    /// Transparent huge pages always
    Thp,
    /// Huge pages where schemes/ethp.yaml makes them
    Ethp,
    /// No huge pages; isotherm applies schemes/prcl.yaml
    Prcl,
    /// No huge pages; isotherm records and does not act
    Rec,
}

impl Configuration {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Orig => "orig",
            Self::Thp => "thp",
            Self::Ethp => "ethp",
            Self::Prcl => "prcl",
            Self::Rec => "rec",
        }
    }

    /// The kernel's setting of transparent huge pages.
    pub fn huge_pages(self) -> HugePages {
        match self {
            Self::Orig | Self::Prcl | Self::Rec => HugePages::Never,
            Self::Thp => HugePages::Always,
            Self::Ethp => HugePages::Madvise,
        }
    }
}

/// The figures of one run of a program. Memory is in bytes. Means are over the samples of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The machine: `laboratory` or `here`.
    pub place: String,
    /// Name of the program.
    pub workload: String,
    /// The configuration.
    pub configuration: Configuration,
    /// Number of the run among those of the same program and configuration, from 1.
    pub nth: u32,
    /// Runtime of the program, without the start and end of isotherm.
    pub seconds: f64,
    /// CPU time of the program, user and system.
    pub cpu_seconds: f64,
    /// CPU time of isotherm.
    pub isotherm_cpu_seconds: f64,
    /// Mean resident memory of the program's processes.
    pub rss_mean: f64,
    /// The same over the last quarter of the run.
    pub rss_late: f64,
    /// Maximum of the resident memory.
    pub rss_max: f64,
    /// Mean memory of the system that is not free, minus the same before the run.
    pub system_mean: f64,
    /// The same over the last quarter of the run.
    pub system_late: f64,
    /// Mean anonymous memory in huge pages.
    pub huge_mean: f64,
    /// Mean memory in swap.
    pub swap_mean: f64,
    /// Number of samples.
    pub samples: usize,
    /// Standard error of the run.
    #[serde(default)]
    pub said: String,
}
