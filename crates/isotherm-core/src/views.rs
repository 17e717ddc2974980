//! Memory that one process maps at several addresses.

use std::collections::{BTreeMap, HashMap};

use crate::survey::BLOCK_SIZE;
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

/// The addresses of each page of a process that it maps several times.
#[derive(Debug, Default)]
pub(crate) struct OtherViews {
    /// The second views of one block or more, by their addresses.
    by_addr: Vec<SecondView>,
    /// The same, by the addresses that were mapped first.
    by_first: Vec<SecondView>,
    /// The size of the longest one, in bytes.
    longest: u64,
}

impl OtherViews {
    /// Of `mappings`, which are in the order of addresses.
    pub(crate) fn of(mappings: &[Mapping]) -> Self {
        let by_addr = large_views(mappings);
        let mut by_first = by_addr.clone();
        by_first.sort_by_key(|view| view.first);
        let longest = longest(&by_addr);
        Self { by_addr, by_first, longest }
    }

    /// Whether what is at this address is mapped at a lower one, too.
    pub(crate) fn contains(&self, addr: u64) -> bool {
        self.at(addr).is_some()
    }

    /// How many pages of a range are mapped at a lower address, too.
    pub(crate) fn pages_in(&self, range: AddrRange) -> u64 {
        let from = self.by_addr.partition_point(|view| view.range.end() <= range.start());
        let within = self.by_addr[from..].iter().take_while(|view| view.range.start() < range.end());
        within.filter_map(|view| view.range.intersection(range)).map(|part| part.pages()).sum()
    }

    /// The other addresses of the page at this one.
    pub(crate) fn others(&self, addr: u64) -> impl Iterator<Item = u64> {
        let first = self.at(addr).map_or(addr, |view| view.first + (addr - view.range.start()));
        let second = views_from(&self.by_first, self.longest, first);
        let all = std::iter::once(first).filter(|_| !self.by_addr.is_empty()).chain(second);
        all.filter(move |other| *other != addr)
    }

    fn at(&self, addr: u64) -> Option<&SecondView> {
        let index = self.by_addr.partition_point(|view| view.range.end() <= addr);
        self.by_addr.get(index).filter(|view| view.range.contains(addr))
    }
}

/// The second views of one block or more among `mappings`, which are in the order of addresses. Small ones count as
/// memory of their own, because programs and libraries have many of a page, and so does a private mapping that can be
/// written, because it has copies of its own.
pub(crate) fn large_views(mappings: &[Mapping]) -> Vec<SecondView> {
    let is_shared = |mapping: &&Mapping| mapping.permissions.shared || !mapping.permissions.write;
    let mut views = second_views(mappings.iter().filter(is_shared));
    views.retain(|view| view.range.size() >= BLOCK_SIZE);
    views
}

/// The size of the longest view, in bytes.
pub(crate) fn longest(views: &[SecondView]) -> u64 {
    views.iter().map(|view| view.range.size()).max().unwrap_or_default()
}

/// The addresses in `views` of what is mapped at `first`, too. They are in the order of [`SecondView::first`], and at
/// most as long as `longest`.
pub(crate) fn views_from(views: &[SecondView], longest: u64, first: u64) -> impl Iterator<Item = u64> {
    let from = views.partition_point(|view| view.first.saturating_add(longest) <= first);
    let near = views[from..].iter().take_while(move |view| view.first <= first);
    let offsets = near.map(move |view| (view, first - view.first));
    offsets.filter(|(view, offset)| *offset < view.range.size()).map(|(view, offset)| view.range.start() + offset)
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
