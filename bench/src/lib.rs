//! What isotherm finds held against the truth, and what it costs.
//!
//! A [`Watching`] is one run of the monitor on one pattern, [simulated](simulated::watch) or [real](real::watch); a
//! [`Score`] is what it is worth.

pub mod real;
pub mod schemes;
mod score;
pub mod simulated;
pub mod speed;
pub mod straight;
pub mod table;
mod truth;
pub mod waking;

use std::time::Duration;

use isotherm_core::RegionSnapshot;
use isotherm_record::Cost;

pub use score::Score;
pub use truth::{AreaTruth, PhaseTruth};

/// What one run of the monitor on one pattern found, and what there was to find.
#[derive(Debug, Default)]
pub struct Watching {
    /// The phases of the pattern, in the order of time.
    pub phases: Vec<PhaseTruth>,
    /// The snapshots, in the order of time.
    pub snapshots: Vec<Taken>,
}

/// What is needed of one snapshot.
#[derive(Debug)]
pub struct Taken {
    /// Since the start of the run.
    pub time: Duration,
    /// The aggregation interval.
    pub aggregation: Duration,
    /// Samples an aggregation.
    pub samples: u32,
    /// The regions, sorted.
    pub regions: Vec<RegionSnapshot>,
    /// What it took.
    pub cost: Cost,
}

impl Watching {
    /// CPU time of the monitor's thread over the time of the run, in per cent of one CPU.
    pub fn cpu_percent(&self) -> f64 {
        let cpu: u64 = self.snapshots.iter().map(|taken| taken.cost.cpu_ns).sum();
        let wall = self.snapshots.last().map_or(Duration::ZERO, |taken| taken.time);
        cpu as f64 / wall.as_nanos().max(1) as f64 * 100.0
    }

    /// Pages read in a sampling round, on the mean and at most.
    pub fn reads(&self) -> (f64, u32) {
        let rounds: u64 = self.snapshots.iter().map(|taken| u64::from(taken.cost.rounds)).sum();
        let reads: u64 = self.snapshots.iter().map(|taken| taken.cost.reads).sum();
        let most = self.snapshots.iter().map(|taken| taken.cost.max_reads).max();
        (reads as f64 / rounds.max(1) as f64, most.unwrap_or(0))
    }
}
