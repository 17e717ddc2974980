//! Counts memory once that a process maps at several addresses.
//!
//! `smaps` counts a page in each of its mappings. Where a process maps the same part of a file several times,
//! `/proc/PID/pagemap` says which pages are present at each of the addresses, also to its owner without privileges. A
//! page counts in the mapping at the lowest address at which it is present. What was accessed through the others
//! is added there; it is not known which of their pages that was, so that it is at most all that is present.

use std::collections::HashMap;

use isotherm_core::survey::{BLOCK_SIZE, MappingRead, PageBits};
use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, SecondView, second_views};
use isotherm_kernel::pages::{PageBuffer, Pagemap, PagemapEntry, TableError};

/// What is known of a block of addresses where memory is mapped first.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The pages that were looked up at these addresses.
    known: PageBits,
    /// The pages that were present here or at a higher address that maps the same.
    present: PageBits,
    /// The place of the mapping that they count in.
    counts_in: usize,
}

/// Takes out of `read`, which are all mappings of a process in the order of addresses, what counts elsewhere. If the
/// pagemap cannot be read, nothing of it is known, and `read` stays as it is.
pub(super) fn count_once(pid: u32, mappings: &[Mapping], read: &mut [MappingRead]) {
    let views = second_views(mappings);
    if views.is_empty() {
        return;
    }
    let pagemap = Pagemap::open(std::path::Path::new("/"), &pid.to_string());
    let found = pagemap.and_then(|pagemap| again(&views, read, |range| present(&pagemap, range)));
    for ((from, to), pages) in found.unwrap_or_default() {
        move_pages(read, from, to, pages * PAGE_SIZE);
    }
}

/// How many pages of one mapping count in another one, by the places of both in `read`. `present` looks up which pages
/// of a part of a block are present.
fn again<E>(
    views: &[SecondView],
    read: &[MappingRead],
    mut present: impl FnMut(AddrRange) -> Result<PageBits, E>,
) -> Result<HashMap<(usize, usize), u64>, E> {
    let place = |addr: u64| {
        let place = read.partition_point(|of| of.range.end() <= addr);
        read.get(place).filter(|of| of.range.contains(addr)).map(|_| place)
    };
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let mut again: HashMap<(usize, usize), u64> = HashMap::new();
    for view in views {
        let Some(first) = view.first_range() else { continue };
        for piece in first.pieces(BLOCK_SIZE) {
            let start = view.range.start() + (piece.start() - first.start());
            let (Some(here), Some(from), Some(to)) =
                (AddrRange::new(start, start + piece.size()), place(start), place(piece.start()))
            else {
                continue;
            };
            let block = piece.start() - piece.start() % BLOCK_SIZE;
            let pages = PageBits::within(block, piece);
            let of_block = seen.entry(block).or_insert(Seen { counts_in: to, ..Seen::default() });
            if !(pages & !of_block.known).is_empty() {
                of_block.known |= pages;
                of_block.present |= shifted(present(piece)?, piece.start() - block);
            }
            let here = shifted(present(here)?, piece.start() - block);
            if of_block.present.is_empty() {
                of_block.counts_in = from;
            }
            let twice = (here & of_block.present).count() as u64;
            of_block.present |= here;
            if twice > 0 {
                let counts_in = if of_block.counts_in == from { to } else { of_block.counts_in };
                *again.entry((from, counts_in)).or_default() += twice;
            }
        }
    }
    Ok(again)
}

/// The pages of a range, of which the first is bit 0, as pages of a block in which the range begins at this offset.
fn shifted(pages: PageBits, offset: u64) -> PageBits {
    let offset = (offset / PAGE_SIZE) as usize;
    if offset == 0 { pages } else { pages.iter().map(|page| page + offset).collect() }
}

/// Moves bytes that are present in the mapping `from` to the mapping `to`, in which they are present already.
fn move_pages(read: &mut [MappingRead], from: usize, to: usize, bytes: u64) {
    let of = &mut read[from].figures;
    let bytes = bytes.min(of.present);
    let touched = (u128::from(of.touched) * u128::from(bytes) / u128::from(of.present.max(1))) as u64;
    of.present -= bytes;
    of.touched -= touched;
    of.unobservable = of.unobservable.min(of.present);
    read[from].mapped_again += bytes;
    let first = &mut read[to].figures;
    first.touched = (first.touched + touched).min(first.present - first.unobservable);
}

/// The pages of a range of at most 2 MiB that are present and not copies of this process: the first one is bit 0.
fn present(pagemap: &Pagemap, range: AddrRange) -> Result<PageBits, TableError> {
    let (mut found, mut page) = (PageBits::NONE, 0);
    pagemap.each(range.page_addresses(), &mut PageBuffer::default(), |entry| {
        let is_here = |entry: &PagemapEntry| entry.frame().is_some() && entry.is_of_a_file();
        if entry.as_ref().is_some_and(is_here) {
            found.insert(page);
        }
        page += 1;
    })?;
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::convert::Infallible;

    use isotherm_core::Figures;
    use isotherm_core::survey::Kinds;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * MIB, end * MIB).unwrap()
    }

    fn mapping(start: u64, end: u64, present: u64, accessed: u64) -> MappingRead {
        let [present, accessed] = [present, accessed].map(|mib| mib * MIB);
        let (range, kinds) = (range(start, end), Kinds::default());
        MappingRead {
            range,
            figures: Figures { present, touched: accessed, ..Figures::default() },
            mapped_again: 0,
            kinds,
        }
    }

    fn view(start: u64, end: u64, first: u64) -> SecondView {
        SecondView { range: range(start, end), first: first * MIB }
    }

    /// What counts where: present, accessed and mapped again, in MiB.
    fn counted(
        mut read: Vec<MappingRead>,
        views: &[SecondView],
        is_present: impl Fn(u64) -> bool,
    ) -> Vec<(u64, u64, u64)> {
        let present = |range: AddrRange| -> Result<PageBits, Infallible> {
            let pages = range.page_addresses().zip(0..);
            Ok(pages.filter(|(addr, _)| is_present(*addr / MIB)).map(|(_, page)| page).collect())
        };
        for ((from, to), pages) in again(views, &read, present).unwrap() {
            move_pages(&mut read, from, to, pages * PAGE_SIZE);
        }
        read.iter().map(|of| (of.figures.present / MIB, of.figures.touched / MIB, of.mapped_again / MIB)).collect()
    }

    #[test]
    fn what_is_mapped_three_times_counts_once_and_was_accessed_if_one_view_was() {
        let read = vec![mapping(0, 9, 9, 0), mapping(20, 29, 9, 2), mapping(40, 49, 9, 0), mapping(50, 51, 1, 1)];
        let views = [view(20, 29, 0), view(40, 49, 0)];
        assert_eq!(counted(read, &views, |_| true), [(9, 2, 0), (0, 0, 9), (0, 0, 9), (1, 1, 0)]);
    }

    #[test]
    fn memory_counts_in_the_first_mapping_in_which_it_is_present() {
        // Nothing was accessed at the lowest address, and the first half at the next one.
        let read = vec![mapping(0, 8, 0, 0), mapping(20, 28, 4, 1), mapping(40, 48, 8, 4)];
        let views = [view(20, 28, 0), view(40, 48, 0)];
        let is_present = |mib: u64| (20..24).contains(&mib) || (40..48).contains(&mib);
        assert_eq!(counted(read, &views, is_present), [(0, 0, 0), (4, 3, 0), (4, 2, 4)]);
    }

    #[test]
    fn a_view_of_a_part_of_a_mapping_leaves_the_rest_where_it_is() {
        let read = vec![mapping(1, 4, 3, 0), mapping(20, 30, 10, 10)];
        assert_eq!(counted(read, &[view(25, 27, 2)], |_| true), [(3, 2, 0), (8, 8, 2)]);
    }
}
