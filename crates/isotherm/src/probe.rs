//! Which probe a run uses.

use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::{AccessProbe, Granularity};
use isotherm_probes::RefsProbe;
use isotherm_probes::bpf::BpfProbe;
use isotherm_probes::damon::{self, Places};
use isotherm_probes::idle::IdleProbe;

use crate::cli::ProbeChoice;
use crate::tell;

/// The sampling and aggregation intervals of a probe that looks at pages, if none are asked for: DAMON's.
pub const PAGE_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Those of a probe that looks at mappings: each of its rounds walks all page tables of the targets.
const MAPPING_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A probe, and what depends on which it is.
pub struct Chosen {
    pub name: &'static str,
    pub how: How,
}

/// Who does the work.
pub enum How {
    /// Our own monitor, through a probe.
    Monitor(Box<dyn AccessProbe + Send>),
    /// The kernel's DAMON, which is claimed only when it starts: so that nothing is left of a run that never comes to that.
    Kernel(Places),
}

impl Chosen {
    /// The probe that was asked for, or the best that works here for processes.
    pub fn new(choice: ProbeChoice) -> Result<Self> {
        match choice {
            ProbeChoice::Idle => Ok(Self::idle(IdleProbe::open()?)),
            ProbeChoice::Bpf => Ok(Self::bpf(BpfProbe::open()?)),
            ProbeChoice::Refs => Ok(Self::refs()),
            ProbeChoice::Damon => Self::damon(Places::system()),
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
                tell(format_args!("isotherm: {coarse}. idle: {idle}. bpf: {bpf}"));
                Self::refs()
            }
        }
    }

    /// The best probe that works here for physical memory.
    pub fn for_physical_memory() -> Result<Self> {
        let probe = IdleProbe::open()
            .context("physical memory is watched by the probe idle, which does not work here (--probe damon may)")?;
        Ok(Self::idle(probe))
    }

    fn idle(probe: IdleProbe) -> Self {
        Self { name: "idle", how: How::Monitor(Box::new(probe)) }
    }

    fn bpf(probe: BpfProbe) -> Self {
        Self { name: "bpf", how: How::Monitor(Box::new(probe)) }
    }

    fn refs() -> Self {
        Self { name: "refs", how: How::Monitor(Box::new(RefsProbe::new())) }
    }

    fn damon(places: Places) -> Result<Self> {
        damon::check(&places)?;
        Ok(Self { name: "damon", how: How::Kernel(places) })
    }

    /// What one answer speaks for.
    pub fn granularity(&self) -> Granularity {
        match &self.how {
            How::Monitor(probe) => probe.granularity(),
            How::Kernel(_) => Granularity::Page,
        }
    }

    /// The same, as the recording says it.
    pub fn granularity_name(&self) -> &'static str {
        match self.granularity() {
            Granularity::Page => "page",
            Granularity::Mapping => "mapping",
        }
    }

    /// The sampling and aggregation intervals if none are asked for.
    pub fn default_intervals(&self) -> (Duration, Duration) {
        match self.granularity() {
            Granularity::Page => PAGE_INTERVALS,
            Granularity::Mapping => MAPPING_INTERVALS,
        }
    }
}
