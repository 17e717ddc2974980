//! Measurements of isotherm: its accuracy, and what it costs.
//!
//! A [`Monitored`] holds one run of the monitor on one pattern, [simulated](simulated::watch) or
//! [real](real::watch), and the truth. A [`Score`] compares the two.

#![forbid(unsafe_code)]

pub mod busy;
pub mod every_page;
pub mod frequency;
pub mod large;
pub mod pairs;
pub mod real;
mod score;
pub mod simulated;
pub mod speed;
pub mod switches;
pub mod table;
pub mod tiering;
mod truth;
pub mod wakeups;
pub mod watch;

use std::time::Duration;

use isotherm_core::RegionSnapshot;
use isotherm_record::Cost;

pub use score::Score;
pub use truth::{AreaTruth, PhaseTruth};

/// One run of the monitor on one pattern: what it found, and what is true.
#[derive(Debug, Default)]
pub struct Monitored {
    /// The phases of the pattern, in order of time.
    pub phases: Vec<PhaseTruth>,
    /// The snapshots, in order of time.
    pub snapshots: Vec<TakenSnapshot>,
    /// When surveys were, since the start of the run. Simulated runs have none.
    pub surveys: Vec<Duration>,
}

/// The parts of a snapshot that are used here.
#[derive(Debug)]
pub struct TakenSnapshot {
    /// Since the start of the run.
    pub time: Duration,
    /// The aggregation interval in force.
    pub aggregation: Duration,
    /// Samples per aggregation: the highest possible `nr_accesses`.
    pub samples: u32,
    /// The regions, sorted.
    pub regions: Vec<RegionSnapshot>,
    /// Its cost.
    pub cost: Cost,
}

impl TakenSnapshot {
    /// The sampling interval in force.
    pub fn sampling(&self) -> Duration {
        self.aggregation / self.samples.max(1)
    }
}

impl Monitored {
    /// CPU time of the monitor's thread during the run, in per cent of one CPU.
    pub fn cpu_percent(&self) -> f64 {
        let cpu: u64 = self.snapshots.iter().map(|taken| taken.cost.cpu_ns).sum();
        let wall = self.snapshots.last().map_or(Duration::ZERO, |taken| taken.time);
        cpu as f64 / wall.as_nanos().max(1) as f64 * 100.0
    }

    /// Pages read in a sampling round: mean and maximum.
    pub fn reads(&self) -> (f64, u32) {
        let rounds: u64 = self.snapshots.iter().map(|taken| u64::from(taken.cost.rounds)).sum();
        let reads: u64 = self.snapshots.iter().map(|taken| taken.cost.reads).sum();
        let most = self.snapshots.iter().map(|taken| taken.cost.max_reads).max();
        (reads as f64 / rounds.max(1) as f64, most.unwrap_or(0))
    }
}
