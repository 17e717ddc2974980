//! Chooses the ranges of a block to clear, so that no large folio is split.

use std::ops::Range;

use isotherm_core::AddrRange;

use super::BpfError;
use super::entries::{Entries, PAGES};
use super::folio::Folios;
use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer};

/// Adds the ranges of a block that must be cleared to `spans`: ranges that contain accessed pages. A range that begins
/// at the end of the last span extends that span. Pages that cannot be cleared, or only by splitting a folio, are
/// marked as left in `block`.
pub(super) fn plan(
    block: &mut Entries,
    folios: &Folios,
    buffer: &mut PageBuffer,
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
    let read = folios.table().each(frames.iter().map(|&(frame, _)| frame), buffer, |found| {
        pages.next().into_iter().for_each(|page| flags[page] = found);
    });
    read.map_err(|e| BpfError::File {
        path: e.path.display().to_string(),
        source: e.source,
        fix: "does a security module forbid access to it?",
    })?;

    let mut page = block.pages().start;
    while page < block.pages().end {
        let next = if flags[page].is_head() { page + parts(block, &flags, page) } else { page + 1 };
        let clearable = if !block.is_present(page) {
            true
        } else if flags[page].is_tail() || !flags[page].is_listed() || flags[page].is_unevictable() {
            // Not on a list, locked, or a tail whose head is not mapped directly before it.
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
        // The span reaches from the first accessed page to the last, so that few other pages are affected.
        let mut young = (page..end).filter(|&page| block.is_young(page));
        if let Some(first) = young.next() {
            let last = young.next_back().unwrap_or(first);
            // A folio is cleared as a whole, whichever of its pages was accessed.
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

/// The number of pages of a folio that are mapped consecutively, from its head on.
fn parts(block: &Entries, flags: &[Flags; PAGES], head: usize) -> usize {
    let frame = block.frame(head);
    let follows =
        |page: &usize| flags[*page].is_tail() && block.frame(*page) == frame.map(|frame| frame + (*page - head) as u64);
    1 + (head + 1..block.pages().end).take_while(follows).count()
}

/// Whether the `count` pages from `head` on are the whole folio.
fn is_whole(block: &Entries, table: &FlagTable, head: usize, count: usize) -> bool {
    let Some(frame) = block.frame(head) else { return false };
    let after = table.flags(frame + count as u64);
    count.is_power_of_two() && after.is_ok_and(|flags| !flags.is_some_and(Flags::is_tail))
}
