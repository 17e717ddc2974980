//! What schemes are worth: programs with and without them, how long they take and how much memory they hold.
//!
//! A [`Run`] is one program under one [`Configuration`]; a [`Line`](summary::Line) is what came of all runs of the same.

pub mod machine;
mod prepare;
mod redis;
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
    /// Huge pages never, no isotherm: what the others are held against
    Orig,
    /// Huge pages wherever the kernel can make them
    Thp,
    /// Huge pages where schemes/ethp.yaml has them made
    Ethp,
    /// No huge pages, and schemes/prcl.yaml
    Prcl,
    /// No huge pages, and isotherm records without acting: what watching alone costs
    Rec,
}

impl Configuration {
    /// As it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Orig => "orig",
            Self::Thp => "thp",
            Self::Ethp => "ethp",
            Self::Prcl => "prcl",
            Self::Rec => "rec",
        }
    }

    /// For which memory the kernel makes huge pages by itself.
    pub fn huge_pages(self) -> HugePages {
        match self {
            Self::Orig | Self::Prcl | Self::Rec => HugePages::Never,
            Self::Thp => HugePages::Always,
            Self::Ethp => HugePages::Madvise,
        }
    }
}

/// What one run of a program took. Memory is in bytes, means are over the samples of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Where: `laboratory`, or `here` for the machine itself.
    pub place: String,
    /// Which program.
    pub workload: String,
    /// Under which configuration.
    pub configuration: Configuration,
    /// Which of the runs of the same; from 1.
    pub nth: u32,
    /// How long the program took, without the start and end of isotherm.
    pub seconds: f64,
    /// CPU time of the program, and of the kernel on its behalf.
    pub cpu_seconds: f64,
    /// CPU time of isotherm.
    pub isotherm_cpu_seconds: f64,
    /// Resident memory of the program's processes.
    pub rss_mean: f64,
    /// The same over the last quarter of the run.
    pub rss_late: f64,
    /// The most of it.
    pub rss_max: f64,
    /// Memory of the system that is not free, less what was not free before the run.
    pub system_mean: f64,
    /// The same over the last quarter of the run.
    pub system_late: f64,
    /// Anonymous memory in huge pages.
    pub huge_mean: f64,
    /// Memory in swap.
    pub swap_mean: f64,
    /// Samples taken.
    pub samples: usize,
    /// What isotherm said last, if it said something.
    #[serde(default)]
    pub said: String,
}
