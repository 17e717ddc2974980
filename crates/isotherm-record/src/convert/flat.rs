//! One line for each region, for tools that know no lists.

use std::collections::HashMap;
use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, RegionSnapshot, TargetId, is_memory};

use crate::Row;
use crate::columns;
use crate::id::{StoredId, pid_column};
use crate::time::nanoseconds;

/// One region of one target in one snapshot.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Line {
    pub(crate) time_ns: u64,
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) nr_accesses: u32,
    pub(crate) samples: u32,
    pub(crate) access_rate: f64,
    pub(crate) age_ns: u64,
    pub(crate) nr_unobservable: u32,
    pub(crate) mapping: Arc<str>,
    pub(crate) nr_samples: u32,
    pub(crate) target_type: Arc<str>,
    pub(crate) start_ns: Option<u64>,
    pub(crate) cgroup: Option<u64>,
    pub(crate) present_bytes: Option<u64>,
    pub(crate) touched_bytes: Option<u64>,
    pub(crate) unobservable_bytes: Option<u64>,
    pub(crate) unknown_bytes: Option<u64>,
    pub(crate) swapped_bytes: Option<u64>,
    pub(crate) absent_bytes: Option<u64>,
    pub(crate) aggregation_ns: u64,
    pub(crate) access_hz: f64,
}

/// The lines of a target of a snapshot. `from_boot`: starts of processes are counted from the boot.
pub(crate) fn lines(row: &Row<'_>, from_boot: bool) -> impl Iterator<Item = Line> {
    let aggregation_ns = nanoseconds(row.aggregation);
    let columns::Id { kind, start_ns, cgroup, .. } = StoredId::new(row.target.id, from_boot).column();
    row.target.regions_with_mappings().map(move |(region, mappings)| Line {
        time_ns: nanoseconds(row.time),
        pid: pid_column(row.target.id),
        start: region.range.start(),
        end: region.range.end(),
        nr_accesses: region.nr_accesses,
        samples: row.samples,
        access_rate: region.access_rate(row.samples),
        age_ns: aggregation_ns.saturating_mul(u64::from(region.age)),
        nr_unobservable: region.nr_unobservable,
        mapping: main_name(mappings, region.range),
        nr_samples: region.nr_samples,
        target_type: Arc::clone(&kind),
        start_ns,
        cgroup,
        present_bytes: region.pages.map(|pages| pages.present),
        touched_bytes: region.pages.map(|pages| pages.touched),
        unobservable_bytes: region.pages.map(|pages| pages.unobservable),
        unknown_bytes: region.pages.map(|pages| pages.unknown),
        swapped_bytes: region.pages.and_then(|pages| pages.swapped.known()),
        absent_bytes: absent_bytes(row, region, mappings),
        aggregation_ns,
        access_hz: region.access_hz(row.aggregation),
    })
}

/// The bytes of a region that are mapped, and neither in memory nor known to be in swap. `None` without a survey, and
/// for physical memory, whose free frames are not absent. `mappings` are those that have a part of the region.
pub(super) fn absent_bytes(row: &Row<'_>, region: &RegionSnapshot, mappings: &[Mapping]) -> Option<u64> {
    if row.target.id == TargetId::PhysicalMemory {
        return None;
    }
    let memory = mappings.iter().filter(|mapping| is_memory(&row.target.mappings, mapping));
    let parts = memory.filter_map(|mapping| mapping.range.intersection(region.range));
    region.absent(parts.map(AddrRange::size).sum())
}

/// The name that covers most of `range`, all mappings of that name together; of equals the one that comes first.
/// Empty when most of what is mapped there is anonymous, or nothing is.
fn main_name(mappings: &[Mapping], range: AddrRange) -> Arc<str> {
    let mut names: Vec<(&Mapping, u64)> = Vec::new();
    let mut places = HashMap::new();
    for mapping in mappings {
        let Some(part) = mapping.range.intersection(range) else {
            break;
        };
        let place = *places.entry((&*mapping.name, mapping.node)).or_insert(names.len());
        match names.get_mut(place) {
            Some((_, bytes)) => *bytes += part.size(),
            None => names.push((mapping, part.size())),
        }
    }
    // Of equals `max_by_key` would take the last.
    names.into_iter().rev().max_by_key(|&(_, bytes)| bytes).map_or("".into(), |(mapping, _)| mapping.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(pages: std::ops::Range<u64>, name: &str) -> Mapping {
        Mapping { name: name.into(), ..Mapping::anonymous(range(pages)) }
    }

    fn range(pages: std::ops::Range<u64>) -> AddrRange {
        AddrRange::new(pages.start * 4096, pages.end * 4096).unwrap()
    }

    #[test]
    fn a_region_is_named_after_what_covers_most_of_it() {
        let mappings = [mapping(1..3, "a"), mapping(3..6, "b"), mapping(8..10, "a")];
        assert_eq!(&*main_name(&mappings, range(0..10)), "a");
        assert_eq!(&*main_name(&mappings, range(2..6)), "b");
        assert_eq!(&*main_name(&mappings[1..], range(5..9)), "b");
    }

    #[test]
    fn anonymous_memory_and_a_gap_have_no_name() {
        let mappings = [mapping(1..2, "a"), mapping(2..9, "")];
        assert_eq!(&*main_name(&mappings, range(1..9)), "");
        assert_eq!(&*main_name(&mappings, range(20..30)), "");
    }
}
