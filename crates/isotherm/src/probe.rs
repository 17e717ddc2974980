//! Which probe a run uses.

use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::{AccessProbe, Granularity};
use isotherm_linux::RefsProbe;
use isotherm_linux::bpf::BpfProbe;
use isotherm_linux::idle::IdleProbe;

use crate::cli::ProbeChoice;

/// The sampling and aggregation intervals of a probe that looks at pages, if none are asked for: DAMON's.
pub const PAGE_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Those of a probe that looks at mappings: each of its rounds walks all page tables of the targets.
const MAPPING_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A probe, and what depends on which it is.
pub struct Chosen {
    pub name: &'static str,
    pub probe: Box<dyn AccessProbe + Send>,
}

impl Chosen {
    /// The probe that was asked for, or the best that works here for processes.
    pub fn new(choice: ProbeChoice) -> Result<Self> {
        match choice {
            ProbeChoice::Idle => Ok(Self::idle(IdleProbe::open()?)),
            ProbeChoice::Bpf => Ok(Self::bpf(BpfProbe::open()?)),
            ProbeChoice::Refs => Ok(Self::refs()),
            ProbeChoice::Auto => Ok(Self::best()),
        }
    }

    fn best() -> Self {
        let idle = match IdleProbe::open() {
            Ok(probe) => return Self::idle(probe),
            Err(why) => why,
        };
        match BpfProbe::open() {
            Ok(probe) => Self::bpf(probe),
            Err(bpf) => {
                let coarse = "using the probe refs, which is coarse: a mapping at a time";
                eprintln!("isotherm: {coarse}. idle: {idle}. bpf: {bpf}");
                Self::refs()
            }
        }
    }

    /// The best probe that works here for physical memory.
    pub fn for_physical_memory() -> Result<Self> {
        let probe =
            IdleProbe::open().context("physical memory is watched by the probe idle, which does not work here")?;
        Ok(Self::idle(probe))
    }

    fn idle(probe: IdleProbe) -> Self {
        Self { name: "idle", probe: Box::new(probe) }
    }

    fn bpf(probe: BpfProbe) -> Self {
        Self { name: "bpf", probe: Box::new(probe) }
    }

    fn refs() -> Self {
        Self { name: "refs", probe: Box::new(RefsProbe::new()) }
    }

    /// What one answer speaks for, as the recording says it.
    pub fn granularity(&self) -> &'static str {
        match self.probe.granularity() {
            Granularity::Page => "page",
            Granularity::Mapping => "mapping",
        }
    }

    /// The sampling and aggregation intervals if none are asked for.
    pub fn default_intervals(&self) -> (Duration, Duration) {
        match self.probe.granularity() {
            Granularity::Page => PAGE_INTERVALS,
            Granularity::Mapping => MAPPING_INTERVALS,
        }
    }
}
