//! Readings of the panel, as columns and back, and reading them.

use std::time::Duration;

use isotherm_core::survey::WINDOWS;
use isotherm_core::{Estimate, MappingPanel, PanelSnapshot, TargetPanel};

use crate::columns;
use crate::id::StoredId;
use crate::identities::Identities;
use crate::target::range;
use crate::time::nanoseconds;

/// The columns of a reading. The start of a process that is not counted from the boot (`from_boot`) is left out.
pub(crate) fn to_column(found: &PanelSnapshot, from_boot: bool) -> columns::Panel {
    let estimates = |within: &[Estimate]| {
        let column = |of: &Estimate| columns::Estimate { low_bytes: of.low, bytes: of.value, high_bytes: of.high };
        within.iter().map(column).collect()
    };
    let mapping = |of: &MappingPanel| columns::MappingPanel {
        start: of.range.start(),
        end: of.range.end(),
        within: estimates(&of.within),
    };
    let target = |of: &TargetPanel| columns::TargetPanel {
        id: StoredId::new(of.id, from_boot).column(),
        within: estimates(&of.within),
        mappings: of.by_mapping.iter().map(mapping).collect(),
    };
    columns::Panel {
        time_ns: nanoseconds(found.time),
        interval_ns: nanoseconds(found.interval),
        observed_ns: nanoseconds(found.observed),
        reads: found.reads,
        clears: found.clears,
        windows_ns: WINDOWS.iter().copied().map(nanoseconds).collect(),
        total: estimates(&found.total),
        targets: found.targets.iter().map(target).collect(),
    }
}

/// The reading that these columns hold. What it says of targets of a type that this version does not know is left out.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(found: columns::Panel, identities: &Identities) -> Result<PanelSnapshot, &'static str> {
    let windows: Vec<u64> = WINDOWS.iter().copied().map(nanoseconds).collect();
    if found.windows_ns != windows {
        return Err("the panel has other windows than this version knows");
    }
    let estimates = |within: &[columns::Estimate]| -> Result<[Estimate; WINDOWS.len()], &'static str> {
        let within: Vec<Estimate> =
            within.iter().map(|of| Estimate { low: of.low_bytes, value: of.bytes, high: of.high_bytes }).collect();
        if within.iter().any(|of| of.low > of.value || of.value > of.high) {
            return Err("the bounds of an estimate do not hold it");
        }
        within.try_into().map_err(|_| "the panel has another number of estimates than of windows")
    };
    let mapping = |of: &columns::MappingPanel| {
        Ok(MappingPanel { range: range(of.start, of.end)?, within: estimates(&of.within)? })
    };
    let targets = found.targets.iter().filter_map(|of| {
        let id = StoredId::read(&of.id).transpose()?;
        let by_mapping = || of.mappings.iter().map(mapping).collect::<Result<_, &'static str>>();
        Some(id.and_then(|id| {
            let within = estimates(&of.within)?;
            Ok(TargetPanel { id: identities.target(id), within, by_mapping: by_mapping()? })
        }))
    });
    Ok(PanelSnapshot {
        time: Duration::from_nanos(found.time_ns),
        interval: Duration::from_nanos(found.interval_ns),
        observed: Duration::from_nanos(found.observed_ns),
        reads: found.reads,
        clears: found.clears,
        total: estimates(&found.total)?,
        by_party: Vec::new(),
        targets: targets.collect::<Result<_, _>>()?,
    })
}
