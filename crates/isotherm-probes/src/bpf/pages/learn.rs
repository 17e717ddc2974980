//! Finds out which pages of a target other processes map, before anything is cleared.

use isotherm_core::PAGE_SIZE;
use isotherm_core::survey::PageBits;
use isotherm_kernel::pages::PagemapEntry;
use isotherm_kernel::scheduling::UrgentTurns;

use super::read::Suspects;
use super::shared::SharedPages;
use crate::bpf::entries::PAGES;
use crate::bpf::target::BpfTarget;

/// Takes in which of the `suspects` other processes map, where it is not known of an accessed page.
pub(super) fn learn(shared: &mut SharedPages, target: &BpfTarget, suspects: &[Suspects]) {
    let Some(space) = target.space() else { return };
    // Each look at the pagemap is short, and there may be many.
    let mut urgent = None;
    let mut buffer = [0; PAGES * PagemapEntry::BYTES];
    for &Suspects { start, pages, accessed } in suspects {
        let known = shared.known(target.id, start);
        let unknown = pages & !known;
        let (Some(first), Some(last)) = (unknown.first(), unknown.last()) else { continue };
        if (accessed & !known).is_empty() {
            continue;
        }
        urgent.get_or_insert_with(UrgentTurns::begin).give_way();
        let (mut mapped_elsewhere, mut exclusive) = (PageBits::NONE, PageBits::NONE);
        let addr = start + first as u64 * PAGE_SIZE;
        let buffer = &mut buffer[..(last - first + 1) * PagemapEntry::BYTES];
        // If the pagemap cannot be read, or the address space is gone, nothing is known.
        for (page, entry) in (first..).zip(space.pagemap().entries(addr, buffer).into_iter().flatten()) {
            if entry.is_exclusive() {
                exclusive.insert(page);
            } else if entry.frame().is_some() {
                mapped_elsewhere.insert(page);
            }
        }
        shared.learn(target.id, start, mapped_elsewhere & unknown, exclusive & unknown);
    }
}
