//! Which probe a run uses.

use std::time::Duration;

use anyhow::Result;
use isotherm_core::{AccessProbe, Granularity};
use isotherm_linux::RefsProbe;
use isotherm_linux::bpf::BpfProbe;

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
    /// The probe that was asked for, or the best that works here.
    pub fn new(choice: ProbeChoice) -> Result<Self> {
        match choice {
            ProbeChoice::Bpf => Ok(Self::bpf(BpfProbe::open()?)),
            ProbeChoice::Refs => Ok(Self::refs()),
            ProbeChoice::Auto => Ok(match BpfProbe::open() {
                Ok(probe) => Self::bpf(probe),
                Err(why) => {
                    eprintln!("isotherm: using the probe refs, which is coarse: a mapping at a time. bpf: {why}");
                    Self::refs()
                }
            }),
        }
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
