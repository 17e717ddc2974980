//! Memory that one process maps at several addresses.

use std::collections::{BTreeMap, HashMap};

use crate::{AddrRange, FileId, Mapping};

/// A range of addresses where a process maps a part of a file that it maps at a lower address, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecondView {
    /// These addresses.
    pub range: AddrRange,
    /// The lowest address at which the first byte of them is mapped. The others follow it.
    pub first: u64,
}

impl SecondView {
    /// The lowest addresses at which the same part of the file is mapped.
    pub fn first_range(&self) -> Option<AddrRange> {
        AddrRange::new(self.first, self.first.checked_add(self.range.size())?)
    }
}

/// The second views among `mappings`, which are in the order of addresses: disjoint, in the same order. Files are known
/// by their numbers, so that it does not matter under which name a file is mapped.
///
/// A private mapping can have copies of its own of what it maps. Its pages are then other ones than those of the file.
pub fn second_views<'a>(mappings: impl IntoIterator<Item = &'a Mapping>) -> Vec<SecondView> {
    // For each file, the end of each part of it that is mapped, by where it begins, and the shift of its first mapping.
    let mut files: HashMap<FileId, BTreeMap<u64, (u64, u64)>> = HashMap::new();
    let mut views = Vec::new();
    for mapping in mappings {
        let Some(file) = mapping.file else { continue };
        let begin = mapping.range.start().wrapping_add(file.shift);
        let Some(end) = begin.checked_add(mapping.range.size()) else { continue };
        let parts = files.entry(file.id).or_default();
        let first = parts.range(..=begin).next_back().map_or(begin, |(&start, _)| start);
        let known: Vec<_> = parts.range(first..end).map(|(&start, &part)| (start, part)).collect();
        let mut at = begin;
        for (start, (part_end, shift)) in known {
            let (from, to) = (start.max(at), part_end.min(end));
            if from >= to {
                continue;
            }
            if at < from {
                parts.insert(at, (from, file.shift));
            }
            let address = |offset: u64, shift: u64| offset.wrapping_sub(shift);
            let range = AddrRange::new(address(from, file.shift), address(to, file.shift));
            views.extend(range.map(|range| SecondView { range, first: address(from, shift) }));
            at = to;
        }
        if at < end {
            parts.insert(at, (end, file.shift));
        }
    }
    views
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::{MappedFile, PAGE_SIZE};

    /// A mapping of a file: its first page, how many it has, and which page of the file comes first.
    fn mapping(inode: u64, page: u64, pages: u64, of_file: u64) -> Mapping {
        let range = AddrRange::new(page * PAGE_SIZE, (page + pages) * PAGE_SIZE).unwrap();
        let shift = (of_file * PAGE_SIZE).wrapping_sub(range.start());
        let id = FileId { device: (8, 1), inode };
        Mapping { file: Some(MappedFile { id, shift }), ..Mapping::anonymous(range) }
    }

    /// The views, each as its first page, the number of its pages, and the page that it is a view of.
    fn views(mappings: &[Mapping]) -> Vec<(u64, u64, u64)> {
        let views = second_views(mappings);
        views.iter().map(|of| (of.range.start() / PAGE_SIZE, of.range.pages(), of.first / PAGE_SIZE)).collect()
    }

    #[test]
    fn what_is_mapped_three_times_has_two_second_views_by_file_and_offset() {
        let mappings = [mapping(7, 100, 10, 0), mapping(7, 200, 10, 0), mapping(8, 250, 10, 0), mapping(7, 300, 10, 0)];
        assert_eq!(views(&mappings), [(200, 10, 100), (300, 10, 100)]);
        assert_eq!(views(&[mapping(7, 100, 10, 0), mapping(7, 110, 10, 10)]), [], "one after the other in the file");
        let anonymous = Mapping::anonymous(AddrRange::new(0, PAGE_SIZE).unwrap());
        assert_eq!(views(&[anonymous.clone(), anonymous]), []);
    }

    #[test]
    fn parts_that_overlap_are_views_and_the_rest_is_not() {
        // The file is mapped from page 5 on, then all of it, then from page 2 on.
        let mappings = [mapping(7, 100, 4, 5), mapping(7, 200, 20, 0), mapping(7, 300, 10, 2)];
        assert_eq!(views(&mappings), [(205, 4, 100), (300, 3, 202), (303, 4, 100), (307, 3, 209)]);
        let of: u64 = second_views(&mappings).iter().map(|view| view.range.pages()).sum();
        assert_eq!(of, 14, "20 pages of the file are mapped by 34 pages of addresses");
    }

    #[test]
    fn a_part_of_a_mapping_maps_the_same_as_before() {
        let [first, second] = [mapping(7, 100, 10, 3), mapping(7, 200, 10, 3)];
        let range = AddrRange::new(204 * PAGE_SIZE, 206 * PAGE_SIZE).unwrap();
        assert_eq!(views(&[first, Mapping { range, ..second }]), [(204, 2, 104)]);
    }
}
