//! The properties of a run that are fixed at its start.

use std::time::Duration;

use isotherm_core::{Attributes, Budget, Granularity};
use isotherm_record::{Header, Sight};

use crate::probe::OpenLook;

/// The name in a header of intervals that adapt to the observed accesses.
pub(crate) const AUTO: &str = "auto";

/// The name in a header of intervals that are fixed.
pub(crate) const FIXED: &str = "fixed";

/// The properties of a run that are fixed at its start.
#[derive(Clone, Debug)]
pub struct Properties {
    /// The name of the probe, such as `bpf`; `simulation`; or the name that a replayed recording has.
    pub probe: String,
    /// What the probe sees.
    pub sight: Sight,
    /// The smallest piece of memory that one answer of the probe is about.
    pub granularity: Granularity,
    /// The attributes that the run begins with; `None` if a replayed recording does not have them.
    pub attributes: Option<Attributes>,
    /// Whether pages are sampled.
    pub samples: bool,
    /// Whether all pages are surveyed.
    pub surveys: bool,
    /// The bounds on the cost of the run; `None` if it has no budget, as a simulation.
    pub budget: Option<Budget>,
    /// Whether the intervals adapt to the observed accesses; `None` if a replayed recording does not say.
    pub tunes_intervals: Option<bool>,
    /// Opens what finds for schemes which pages were accessed since the last survey. `None` if page tables are read for
    /// that.
    pub(crate) look: Option<OpenLook>,
}

impl Properties {
    /// Those of a simulation.
    pub(crate) fn of_simulation(attributes: Attributes, samples: bool, surveys: bool) -> Self {
        Self {
            probe: "simulation".into(),
            sight: Sight::default(),
            granularity: Granularity::Page,
            attributes: Some(attributes),
            samples,
            surveys,
            budget: None,
            tunes_intervals: Some(false),
            look: None,
        }
    }

    /// Those of the run that a recording was made of.
    pub(crate) fn of(header: &Header) -> Self {
        let time = Duration::from_nanos;
        let attributes = Attributes::new(
            time(header.sampling_ns),
            time(header.aggregation_ns),
            time(header.update_ns),
            header.min_regions as usize,
            header.max_regions as usize,
        );
        let granularity = if header.granularity == "mapping" { Granularity::Mapping } else { Granularity::Page };
        let budget = header.budget.map(|isotherm_record::RecordedBudget { cpu, targets }| Budget {
            cpu,
            targets,
            ..Budget::default()
        });
        Self {
            probe: header.probe.clone(),
            sight: header.sight.clone(),
            granularity,
            attributes: attributes.ok(),
            samples: true,
            surveys: false,
            budget,
            tunes_intervals: header.intervals.as_ref().map(|intervals| intervals == AUTO),
            look: None,
        }
    }
}
