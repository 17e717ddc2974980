//! What of a block is to be cleared, so that no large folio is split.

use std::ops::Range;

use isotherm_core::AddrRange;

use super::BpfError;
use super::entries::{Entries, PAGES};
use super::folio::Folios;
use isotherm_kernel::pages::{FlagTable, Flags, Room};

/// Adds the ranges of a block to `spans` that have to be cleared, because there are accessed pages in them; a range that begins where the
/// last one ends makes that one longer. Pages that cannot be cleared, or not without splitting a folio, are left.
pub(super) fn plan(
    block: &mut Entries,
    folios: &Folios,
    room: &mut Room,
    spans: &mut Vec<AddrRange>,
) -> Result<(), BpfError> {
    if block.is_huge() {
        if block.is_whole() {
            push(block, 0..PAGES, spans);
        } else {
            block.pages().for_each(|page| block.leave(page));
        }
        return Ok(());
    }
    let mut frames: Vec<(u64, usize)> = block.pages().filter_map(|page| Some((block.frame(page)?, page))).collect();
    frames.sort_unstable();
    let mut flags = [Flags::default(); PAGES];
    let mut pages = frames.iter().map(|&(_, page)| page);
    let told = folios.table().each(frames.iter().map(|&(frame, _)| frame), room, |told| {
        pages.next().into_iter().for_each(|page| flags[page] = told);
    });
    told.map_err(|e| BpfError::File {
        path: e.path.display().to_string(),
        source: e.source,
        mend: "has a security module closed it to isotherm?",
    })?;

    let mut page = block.pages().start;
    while page < block.pages().end {
        let next = if flags[page].is_head() { page + parts(block, &flags, page) } else { page + 1 };
        let clearable = if !block.is_present(page) {
            true
        } else if flags[page].is_tail() || !flags[page].is_listed() || flags[page].is_unevictable() {
            // A tail whose head is not mapped right before it.
            false
        } else if flags[page].is_head() {
            folios.stay_whole() && is_whole(block, folios.table(), page, next - page)
        } else {
            true
        };
        if !clearable {
            (page..next).for_each(|page| block.leave(page));
        }
        page = next;
    }
    let mut page = block.pages().start;
    while page < block.pages().end {
        let end = (page..block.pages().end).find(|&page| block.is_left(page)).unwrap_or(block.pages().end);
        // From the first accessed page to the last, so that as little as possible besides is touched.
        let mut young = (page..end).filter(|&page| block.is_young(page));
        if let Some(first) = young.next() {
            let last = young.next_back().unwrap_or(first);
            // A folio is cleared whole, whichever of its pages was accessed.
            let first = (page..=first).rev().find(|&page| !flags[page].is_tail()).unwrap_or(first);
            let last = (last + 1..end).take_while(|&page| flags[page].is_tail()).last().unwrap_or(last);
            push(block, first..last + 1, spans);
        }
        page = end + 1;
    }
    Ok(())
}

fn push(block: &Entries, pages: Range<usize>, spans: &mut Vec<AddrRange>) {
    let Some(range) = block.addresses(pages) else { return };
    let longer =
        spans.last().filter(|last| last.touches(range)).and_then(|last| AddrRange::new(last.start(), range.end()));
    match (longer, spans.last_mut()) {
        (Some(longer), Some(last)) => *last = longer,
        _ => spans.push(range),
    }
}

/// How many pages from the head of a folio on are mapped one after the other.
fn parts(block: &Entries, flags: &[Flags; PAGES], head: usize) -> usize {
    let frame = block.frame(head);
    let follows =
        |page: &usize| flags[*page].is_tail() && block.frame(*page) == frame.map(|frame| frame + (*page - head) as u64);
    1 + (head + 1..block.pages().end).take_while(follows).count()
}

/// Whether the folio has no more pages than these.
fn is_whole(block: &Entries, table: &FlagTable, head: usize, count: usize) -> bool {
    let Some(frame) = block.frame(head) else { return false };
    let after = table.flags(frame + count as u64);
    count.is_power_of_two() && after.is_ok_and(|flags| !flags.is_some_and(Flags::is_tail))
}
