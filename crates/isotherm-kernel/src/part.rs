//! The part of a process that is watched.

use std::fmt;
use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, PAGE_SIZE};

use crate::pattern::NamePattern;

/// The part of a process that is watched: the memory in some ranges, of mappings with some names. By default, all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Only these addresses; all if empty.
    pub ranges: Vec<AddrRange>,
    /// Only mappings with a name that one of these matches; all if empty. The name is the path of the file, a name in
    /// brackets such as `[heap]`, or `anonymous` for memory without a name.
    pub mappings: Vec<NamePattern>,
    /// Whether a mapping that `ranges` touch is watched as a whole.
    pub whole_mappings: bool,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mappings = self.mappings.iter().map(|pattern| format!("mapping {pattern}"));
        let ranges = self.ranges.iter().map(|range| format!("range {range}"));
        f.write_str(&mappings.chain(ranges).collect::<Vec<_>>().join(", "))
    }
}

/// The same memory as sorted ranges of whole pages, none of which touches another, as the kernel wants them.
pub fn page_ranges(ranges: impl IntoIterator<Item = AddrRange>) -> Vec<AddrRange> {
    let mut whole: Vec<AddrRange> = ranges.into_iter().filter_map(whole_pages).collect();
    whole.sort_unstable();
    whole.dedup_by(|later, earlier| {
        let touch = later.start() <= earlier.end();
        if touch && let Some(both) = AddrRange::new(earlier.start(), earlier.end().max(later.end())) {
            *earlier = both;
        }
        touch
    });
    whole
}

/// The pages that a range lies in. `None` for a range in the last page of the 64-bit address space, whose end is not an
/// address.
pub(crate) fn whole_pages(range: AddrRange) -> Option<AddrRange> {
    let start = range.start() / PAGE_SIZE * PAGE_SIZE;
    let end = range.end().checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX / PAGE_SIZE * PAGE_SIZE);
    AddrRange::new(start, end)
}

impl Part {
    /// Whether it is the whole.
    pub fn is_whole(&self) -> bool {
        self.ranges.is_empty() && self.mappings.is_empty()
    }

    /// The part of these mappings, which are sorted and disjoint.
    pub fn of(&self, mappings: &Arc<[Mapping]>) -> Arc<[Mapping]> {
        if self.is_whole() {
            return Arc::clone(mappings);
        }
        let is_named = |mapping: &&Mapping| {
            self.mappings.is_empty() || self.mappings.iter().any(|pattern| pattern.matches(mapping.shown_name()))
        };
        let mut parts = Vec::new();
        for mapping in mappings.iter().filter(is_named) {
            if self.ranges.is_empty() {
                parts.push(mapping.clone());
                continue;
            }
            if self.whole_mappings {
                let touched = self.ranges.iter().any(|range| range.intersection(mapping.range).is_some());
                parts.extend(touched.then(|| mapping.clone()));
                continue;
            }
            let cut = self.ranges.iter().filter_map(|range| range.intersection(mapping.range));
            parts.extend(cut.map(|range| Mapping { range, ..mapping.clone() }));
        }
        parts.into()
    }
}
