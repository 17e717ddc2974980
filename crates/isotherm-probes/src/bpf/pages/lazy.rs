//! Finds the pages that a process has freed lazily (`MADV_FREE`) and not used since.
//!
//! The kernel frees such a page when it needs memory, without writing it to swap. The page is private and anonymous,
//! its page-table entry is clean, and its frame is not marked as backed by swap. A write makes the entry dirty. The
//! entry is clean as well if the page was read from swap, so that the flags of the frame decide. They are read once for
//! each clean page, and again in each eighth survey for those that were not freed then.

use std::collections::{BTreeMap, HashMap};

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, PageBits};
use isotherm_core::{PAGE_SIZE, TargetId};
use isotherm_kernel::pages::{FlagTable, PageBuffer, PagemapEntry};

use crate::bpf::entries::PAGES;
use crate::bpf::space::SpaceHandle;
use crate::bpf::target::BpfTarget;

/// What is known of the clean pages of a block.
#[derive(Clone, Copy, Debug, Default)]
struct CleanPages {
    freed: PageBits,
    /// Pages that were not freed when their flags were read.
    kept: PageBits,
}

/// The pages that targets have freed lazily.
#[derive(Debug, Default)]
pub(super) struct LazilyFreed {
    targets: HashMap<TargetId, BTreeMap<u64, CleanPages>>,
    /// The frames of the pages of a block whose flags are to be read, and these pages.
    frames: Vec<(u64, usize)>,
    room: PageBuffer,
}

impl LazilyFreed {
    /// Forgets all other targets.
    pub(super) fn keep(&mut self, is_target: impl Fn(&TargetId) -> bool) {
        self.targets.retain(|id, _| is_target(id));
    }

    /// Forgets which pages were not freed. They may have been freed since.
    pub(super) fn check(&mut self) {
        self.targets.values_mut().flat_map(BTreeMap::values_mut).for_each(|known| known.kept = PageBits::NONE);
    }

    /// Takes the pages that `target` has freed lazily, and that were not accessed since their accessed bits were
    /// cleared, out of the present pages of `blocks`. The blocks are all that were read between two addresses, and
    /// `clean` are their clean pages of private anonymous memory. Both are in the order of addresses.
    pub(super) fn mark(
        &mut self,
        flags: &FlagTable,
        target: &BpfTarget,
        (from, to): (u64, u64),
        clean: &[(u64, PageBits)],
        blocks: &mut [BlockPages],
    ) {
        let Some(space) = target.space() else { return };
        if clean.is_empty() && !self.targets.contains_key(&target.id) {
            return;
        }
        let known = self.targets.entry(target.id).or_default();
        let is_clean = |start: &u64| clean.binary_search_by_key(start, |(start, _)| *start).is_ok();
        known.retain(|start, _| !(from..to).contains(start) || is_clean(start));
        for &(start, pages) in clean {
            let of_block = known.entry(start).or_default();
            of_block.freed &= pages;
            of_block.kept &= pages;
            let unknown = pages & !of_block.freed & !of_block.kept;
            let freed = freed(flags, space, start, unknown, (&mut self.frames, &mut self.room));
            of_block.freed |= freed;
            of_block.kept |= unknown & !freed;
            if let Ok(index) = blocks.binary_search_by_key(&start, |block| block.start) {
                let block = &mut blocks[index];
                block.lazily_freed = of_block.freed & !block.accessed;
                block.present &= !block.lazily_freed;
                block.unobservable &= block.present;
            }
        }
    }
}

/// Which of `pages` of a block their frames say to be freed lazily.
fn freed(
    flags: &FlagTable,
    space: &SpaceHandle,
    start: u64,
    pages: PageBits,
    (frames, room): (&mut Vec<(u64, usize)>, &mut PageBuffer),
) -> PageBits {
    let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return PageBits::NONE };
    let mut buffer = [0; PAGES * PagemapEntry::BYTES];
    let buffer = &mut buffer[..(last - first + 1) * PagemapEntry::BYTES];
    frames.clear();
    let addr = start + first as u64 * PAGE_SIZE;
    // If the pagemap cannot be read, or the address space is gone, nothing is known.
    for (page, entry) in (first..).zip(space.pagemap().entries(addr, buffer).into_iter().flatten()) {
        frames.extend(entry.frame().filter(|_| pages.contains(page)).map(|frame| (frame, page)));
    }
    frames.sort_unstable();
    let mut freed = PageBits::NONE;
    let mut tails = Vec::new();
    let mut of = frames.iter();
    let read = flags.each(frames.iter().map(|(frame, _)| *frame), room, |flags| {
        let Some(&(frame, page)) = of.next() else { return };
        if flags.is_tail() {
            tails.push((frame, page));
        } else if flags.is_freed_lazily() {
            freed.insert(page);
        }
    });
    if read.is_err() {
        return PageBits::NONE;
    }
    // Only the head of a folio has the flag. Pages of one folio follow each other.
    let mut last = None;
    for (frame, page) in tails {
        let head = match last {
            Some((before, head)) if frame == before + 1 && frame % (BLOCK_SIZE / PAGE_SIZE) != 0 => head,
            _ => flags.head(frame).ok().flatten().is_some_and(|(_, head)| head.is_freed_lazily()),
        };
        last = Some((frame, head));
        if head {
            freed.insert(page);
        }
    }
    freed
}
