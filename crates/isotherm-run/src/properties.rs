//! What holds for a run from its beginning.

use std::time::Duration;

use isotherm_core::{Attributes, Granularity};
use isotherm_record::Header;

/// What holds for a run from its beginning.
#[derive(Clone, Debug)]
pub struct Properties {
    /// The name of the probe, such as `bpf`; `simulation`; or the name that a replayed recording has.
    pub probe: String,
    /// The smallest piece of memory that one answer of the probe speaks for.
    pub granularity: Granularity,
    /// The attributes that the run begins with; `None` if a replayed recording does not tell them.
    pub attributes: Option<Attributes>,
    /// Whether all pages are surveyed.
    pub surveys: bool,
}

impl Properties {
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
        Self { probe: header.probe.clone(), granularity, attributes: attributes.ok(), surveys: false }
    }
}
