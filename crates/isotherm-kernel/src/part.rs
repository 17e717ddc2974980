//! The part of a process that is watched.

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
}

/// The same memory as sorted ranges of whole pages, none of which touches another, as the kernel wants them.
pub fn page_ranges(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort_unstable();
    let mut whole: Vec<AddrRange> = Vec::new();
    for range in ranges {
        let start = range.start() / PAGE_SIZE * PAGE_SIZE;
        let end = range.end().checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX / PAGE_SIZE * PAGE_SIZE);
        match whole.last_mut() {
            Some(last) if start <= last.end() => {
                *last = AddrRange::new(last.start(), end.max(last.end())).unwrap_or(*last);
            }
            _ => whole.extend(AddrRange::new(start, end)),
        }
    }
    whole
}

/// What the name of a mapping without a name is, for a pattern and in reports.
const ANONYMOUS: &str = "anonymous";

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
            let name = if mapping.name.is_empty() { ANONYMOUS } else { &mapping.name };
            self.mappings.is_empty() || self.mappings.iter().any(|pattern| pattern.matches(name))
        };
        let mut parts = Vec::new();
        for mapping in mappings.iter().filter(is_named) {
            if self.ranges.is_empty() {
                parts.push(mapping.clone());
                continue;
            }
            let cut = self.ranges.iter().filter_map(|range| range.intersection(mapping.range));
            parts.extend(cut.map(|range| Mapping { range, ..mapping.clone() }));
        }
        parts.into()
    }
}
