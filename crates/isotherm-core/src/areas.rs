//! Areas: the few ranges of an address space that regions cover.
//!
//! A process uses a tiny part of its address space: in practice the heap, the mmap area and the stack, with two
//! very large gaps between them. If these two gaps are left out, few regions fall on unmapped space and there are
//! only three areas (Linux `Documentation/mm/damon/design.rst`, "VMA-based Target Address Range Construction").

use crate::{AddrRange, Layout, Mapping};

/// The areas of a target with these `mappings`, which are sorted and disjoint.
///
/// [`Layout::Process`] is cut at the two largest gaps, [`Layout::Ranges`] at every gap. If that makes more than
/// `most` areas, only the largest gaps are cut. Without mappings, or with `most` 0, there is no area.
pub fn areas(mappings: &[Mapping], layout: Layout, most: usize) -> Vec<AddrRange> {
    let (Some(first), Some(last)) = (mappings.first(), mappings.last()) else {
        return Vec::new();
    };
    if most == 0 {
        return Vec::new();
    }
    let cuts = match layout {
        Layout::Process => most.min(3) - 1,
        Layout::Ranges => most - 1,
    };

    let mut gaps: Vec<AddrRange> =
        mappings.windows(2).filter_map(|pair| AddrRange::new(pair[0].range.end(), pair[1].range.start())).collect();
    // The sort is stable: of equal gaps the lower ones are cut.
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.size()));
    gaps.truncate(cuts);
    gaps.sort();

    let starts = std::iter::once(first.range.start()).chain(gaps.iter().map(|gap| gap.end()));
    let ends = (gaps.iter().map(|gap| gap.start())).chain(std::iter::once(last.range.end()));
    starts.zip(ends).filter_map(|(start, end)| AddrRange::new(start, end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The areas of a process with these mappings; all ranges are in pages.
    fn process(pages: &[(u64, u64)]) -> Vec<(u64, u64)> {
        in_pages(pages, Layout::Process, usize::MAX)
    }

    fn in_pages(pages: &[(u64, u64)], layout: Layout, most: usize) -> Vec<(u64, u64)> {
        let mappings: Vec<Mapping> = pages
            .iter()
            .map(|&(start, end)| {
                Mapping::anonymous(AddrRange::new(start * crate::PAGE_SIZE, end * crate::PAGE_SIZE).unwrap())
            })
            .collect();
        areas(&mappings, layout, most)
            .into_iter()
            .map(|a| (a.start() / crate::PAGE_SIZE, a.end() / crate::PAGE_SIZE))
            .collect()
    }

    #[test]
    fn an_empty_space_has_no_area() {
        assert_eq!(process(&[]), []);
    }

    #[test]
    fn one_page_is_one_area() {
        assert_eq!(process(&[(7, 8)]), [(7, 8)]);
    }

    #[test]
    fn touching_mappings_have_no_gap_to_cut_at() {
        assert_eq!(process(&[(1, 3), (3, 9), (9, 10)]), [(1, 10)]);
    }

    #[test]
    fn one_gap_makes_two_areas() {
        assert_eq!(process(&[(1, 3), (5, 9)]), [(1, 3), (5, 9)]);
    }

    #[test]
    fn heap_mmap_and_stack_are_cut_apart_and_small_gaps_stay_inside() {
        let layout = [
            (0x400, 0x420),                 // program
            (0x500, 0x900),                 // heap
            (0x7_0000_0000, 0x7_0000_1000), // mmap area
            (0x7_0000_1010, 0x7_0000_2000), // more of it
            (0x7_f000_0000, 0x7_f000_0021), // stack at the end
        ];
        assert_eq!(process(&layout), [(0x400, 0x900), (0x7_0000_0000, 0x7_0000_2000), (0x7_f000_0000, 0x7_f000_0021)]);
    }

    #[test]
    fn of_many_small_gaps_the_two_largest_are_cut() {
        let layout = [(0, 1), (2, 3), (5, 6), (7, 8), (11, 12), (13, 14)];
        assert_eq!(process(&layout), [(0, 3), (5, 8), (11, 14)]);
    }

    #[test]
    fn of_equal_gaps_the_lower_are_cut() {
        assert_eq!(process(&[(0, 1), (2, 3), (4, 5), (6, 7)]), [(0, 1), (2, 3), (4, 7)]);
    }

    #[test]
    fn a_small_budget_cuts_the_largest_gaps_only() {
        let layout = [(0, 1), (2, 3), (10, 12)];
        assert_eq!(in_pages(&layout, Layout::Process, 2), [(0, 3), (10, 12)]);
        assert_eq!(in_pages(&layout, Layout::Process, 1), [(0, 12)]);
        assert_eq!(in_pages(&layout, Layout::Process, 0), []);
    }

    #[test]
    fn ranges_are_cut_at_every_gap() {
        let ram = [(0, 1), (1, 3), (4, 5), (6, 7), (9, 12)];
        assert_eq!(in_pages(&ram, Layout::Ranges, usize::MAX), [(0, 3), (4, 5), (6, 7), (9, 12)]);
        assert_eq!(in_pages(&ram, Layout::Ranges, 2), [(0, 7), (9, 12)]);
    }
}
