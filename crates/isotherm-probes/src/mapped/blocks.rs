//! The state of page frames in a survey, put together from all processes that map them.

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits};
use isotherm_core::{FrameMap, Mapping, PAGE_SIZE};

use crate::bpf::FramesOf;

/// The page frames that processes map, in blocks of 2 MiB of physical addresses.
#[derive(Debug, Default)]
pub(super) struct FrameBlocks {
    /// For each block by number, its place in `list` plus 1.
    places: FrameMap<u32>,
    list: Vec<FrameBlock>,
    /// The block that was asked for last, by number and place.
    last: Option<(u64, usize)>,
}

/// The page frames of one block.
#[derive(Clone, Copy, Debug, Default)]
struct FrameBlock {
    /// The number of its first frame, divided by the number of frames in a block.
    number: u64,
    /// A process maps them.
    present: PageBits,
    /// The accessed bit of a mapping is set.
    accessed: PageBits,
    /// The accessed bit of a mapping is set that can be cleared.
    clearable: PageBits,
    /// A process has freed them lazily. They are so unless another one has accessed them.
    lazily_freed: PageBits,
    /// Accessed pages that are cleared whether they are chosen or not.
    shared: PageBits,
    /// One entry maps all of them.
    huge: bool,
    /// There are entries for single pages.
    small: bool,
    chosen: PageBits,
    /// The accessed bit of a mapping was cleared.
    cleared: PageBits,
    /// The accessed bit of a mapping was not cleared, but could be.
    left: PageBits,
    /// The accessed bit of a mapping cannot be cleared.
    stuck: PageBits,
    /// Of a mapping, no accessed bit tells whether the page is in use, because others access it.
    hidden: PageBits,
}

impl FrameBlocks {
    /// Forgets all frames.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.list.clear();
        self.last = None;
    }

    /// How many blocks have a frame that a process maps.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a block of a process. `stuck` are the accessed pages that cannot be cleared.
    pub(super) fn add(&mut self, block: &BlockPages, frames: FramesOf<'_>, stuck: PageBits) {
        let accessed = block.accessed & block.present;
        let clearable = accessed & !stuck;
        let hidden = block.unobservable & block.present & !accessed;
        if let Some(first) = frames.first().filter(|first| first.is_multiple_of(BLOCK_PAGES as u64)) {
            let of = self.of_block(first);
            of.present |= block.present;
            of.accessed |= accessed;
            of.clearable |= clearable;
            of.hidden |= hidden;
            of.huge = true;
            return;
        }
        // Neighbouring pages often have neighbouring frames. In fragmented memory each has another block.
        let mut last = None;
        for page in block.present.iter() {
            let Some(frame) = frames.frame(page) else { continue };
            let place = match last {
                Some((number_of_last, place)) if number_of_last == number(frame) => place,
                _ => self.place_or_new(frame),
            };
            last = Some((number(frame), place));
            let (of, index) = (&mut self.list[place], index(frame));
            of.small = true;
            of.present.insert(index);
            if accessed.contains(page) {
                of.accessed.insert(index);
            }
            if clearable.contains(page) {
                of.clearable.insert(index);
            }
            if hidden.contains(page) {
                of.hidden.insert(index);
            }
        }
    }

    /// Notes that a process has freed the frame lazily.
    pub(super) fn set_lazily_freed(&mut self, frame: u64) {
        self.of_block(frame).lazily_freed.insert(index(frame));
    }

    /// Notes that the frame is cleared whether it is chosen or not.
    pub(super) fn set_shared(&mut self, frame: u64) {
        self.of_block(frame).shared.insert(index(frame));
    }

    /// Appends the frames that lie in `memory`, which is sorted, by address.
    pub(super) fn list(&mut self, memory: &[Mapping], blocks: &mut Vec<BlockPages>) {
        self.sort();
        let mut first = 0;
        for block in &self.list {
            let start = block.number * BLOCK_SIZE;
            first += memory[first..].iter().take_while(|mapping| mapping.range.end() <= start).count();
            let here = memory[first..].iter().take_while(|mapping| mapping.range.start() < start + BLOCK_SIZE);
            let mut within = PageBits::NONE;
            here.for_each(|mapping| within |= PageBits::within(start, mapping.range));
            let present = block.present & within;
            if present.is_empty() {
                continue;
            }
            let accessed = block.accessed & within;
            let lazily_freed = block.lazily_freed & present & !accessed;
            blocks.push(BlockPages {
                start,
                present: present & !lazily_freed,
                lazily_freed,
                accessed,
                unobservable: (block.accessed | block.hidden) & present & !block.clearable,
                shared: accessed & block.shared & block.clearable,
                huge: block.huge && !block.small,
                ..BlockPages::default()
            });
        }
    }

    /// Forgets which pages are to be cleared.
    pub(super) fn forget_chosen(&mut self) {
        self.list.iter_mut().for_each(|block| block.chosen = PageBits::NONE);
    }

    /// Notes the pages that are to be cleared.
    pub(super) fn choose(&mut self, chosen: &[ClearPages]) {
        for pages in chosen {
            self.of_block(pages.start / PAGE_SIZE).chosen |= pages.pages;
        }
    }

    /// Whether the frame is to be cleared.
    pub(super) fn is_chosen(&self, frame: u64) -> bool {
        self.place(frame).is_some_and(|place| self.list[place].chosen.contains(index(frame)))
    }

    /// Notes of one accessed mapping of the frame whether it was cleared, and whether it cannot be.
    pub(super) fn take_cleared(&mut self, frame: u64, cleared: bool, stuck: bool) {
        let (of, index) = (self.of_block(frame), index(frame));
        let pages = match (cleared, stuck) {
            (true, _) => &mut of.cleared,
            (false, true) => &mut of.stuck,
            (false, false) => &mut of.left,
        };
        pages.insert(index);
    }

    /// Lists the frames that are clear now in all mappings that can be cleared, and those of which no mapping can be
    /// cleared, by address.
    pub(super) fn list_cleared(&mut self, blocks: &mut Vec<ClearPages>) {
        self.sort();
        blocks.clear();
        let done = self.list.iter().map(|block| ClearPages {
            start: block.number * BLOCK_SIZE,
            pages: block.cleared & !block.left,
            unobservable: block.stuck & !block.cleared & !block.left,
        });
        blocks.extend(done.filter(|done| !(done.pages | done.unobservable).is_empty()));
    }

    fn sort(&mut self) {
        if self.list.is_sorted_by_key(|block| block.number) {
            return;
        }
        self.list.sort_unstable_by_key(|block| block.number);
        for (place, block) in (1..).zip(&self.list) {
            *self.places.get_mut(block.number) = place;
        }
        self.last = None;
    }

    /// The place of the block of a frame, if a process maps a frame of the block.
    fn place(&self, frame: u64) -> Option<usize> {
        let number = number(frame);
        match self.last {
            Some((last, place)) if last == number => Some(place),
            _ => (self.places.get(number) as usize).checked_sub(1),
        }
    }

    /// The place of the block of a frame, which is added if no process maps a frame of it.
    fn place_or_new(&mut self, frame: u64) -> usize {
        let number = number(frame);
        let place = self.place(frame).unwrap_or_else(|| {
            self.list.push(FrameBlock { number, ..FrameBlock::default() });
            *self.places.get_mut(number) = self.list.len() as u32;
            self.list.len() - 1
        });
        self.last = Some((number, place));
        place
    }

    /// The block of a frame.
    fn of_block(&mut self, frame: u64) -> &mut FrameBlock {
        let place = self.place_or_new(frame);
        &mut self.list[place]
    }
}

/// The number of the block of a frame.
fn number(frame: u64) -> u64 {
    frame / BLOCK_PAGES as u64
}

/// The index of a frame in its block.
fn index(frame: u64) -> usize {
    (frame % BLOCK_PAGES as u64) as usize
}

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::{AddrRange, Permissions};

    use super::*;

    /// The bits of an entry that is present, and of one that maps no page of memory.
    const PRESENT: u64 = 1;
    const SPECIAL: u64 = 1 << 9;

    /// A block whose pages from the first on have these frames.
    fn table(frames: &[u64]) -> [u64; BLOCK_PAGES] {
        let mut table = [0; BLOCK_PAGES];
        frames.iter().enumerate().for_each(|(page, frame)| table[page] = (frame * PAGE_SIZE) | PRESENT);
        table
    }

    fn bits(pages: &[usize]) -> PageBits {
        pages.iter().copied().collect()
    }

    /// Adds a block with these pages.
    fn add(blocks: &mut FrameBlocks, table: &[u64; BLOCK_PAGES], accessed: &[usize], stuck: &[usize]) {
        let present = PageBits::from_fn(|page| table[page] != 0);
        let block = BlockPages { present, accessed: bits(accessed), ..BlockPages::default() };
        blocks.add(&block, FramesOf::table(table, !(PAGE_SIZE - 1)), bits(stuck));
    }

    fn memory(end: u64) -> [Mapping; 1] {
        let range = AddrRange::new(0, end * PAGE_SIZE).unwrap();
        [Mapping { permissions: Permissions::NONE, ..Mapping::anonymous(range) }]
    }

    fn list(blocks: &mut FrameBlocks, end: u64) -> Vec<BlockPages> {
        let mut list = Vec::new();
        blocks.list(&memory(end), &mut list);
        list
    }

    #[test]
    fn frames_of_several_processes_are_put_together() {
        let mut blocks = FrameBlocks::default();
        // Frames of two blocks, out of order, and a page of a device.
        let mut first = table(&[1000, 5, 6]);
        first[3] = (7 * PAGE_SIZE) | PRESENT | SPECIAL;
        add(&mut blocks, &first, &[0, 1], &[1]);
        add(&mut blocks, &table(&[6, 5, 8]), &[0], &[]);
        blocks.set_shared(6);
        blocks.set_shared(5);
        let found = list(&mut blocks, 2000);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].start, found[1].start), (0, BLOCK_SIZE));
        assert_eq!(found[0].present, bits(&[5, 6, 8]));
        assert_eq!(found[0].accessed, bits(&[5, 6]));
        assert_eq!(found[0].unobservable, bits(&[5]), "its only accessed bit cannot be cleared");
        assert_eq!(found[0].shared, bits(&[6]));
        assert_eq!((found[1].present, found[1].accessed), (bits(&[1000 - 512]), bits(&[1000 - 512])));
        assert!(!found[0].huge);
        blocks.set_lazily_freed(8);
        blocks.set_lazily_freed(6);
        let freed = list(&mut blocks, 2000)[0];
        assert_eq!((freed.present, freed.lazily_freed), (bits(&[5, 6]), bits(&[8])), "6 was accessed by another one");
        // Memory that ends at frame 6.
        assert_eq!(list(&mut blocks, 6).iter().map(|block| block.present).collect::<Vec<_>>(), [bits(&[5])]);
    }

    #[test]
    fn a_block_is_huge_if_all_map_it_by_one_entry() {
        let mut blocks = FrameBlocks::default();
        let block = BlockPages { present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() };
        blocks.add(&block, FramesOf::from_first(Some(1024)), PageBits::NONE);
        blocks.add(&block, FramesOf::from_first(Some(512)), PageBits::NONE);
        blocks.add(&block, FramesOf::from_first(None), PageBits::NONE);
        add(&mut blocks, &table(&[600]), &[], &[]);
        let found = list(&mut blocks, 5000);
        assert_eq!(
            found.iter().map(|block| (block.start / BLOCK_SIZE, block.huge)).collect::<Vec<_>>(),
            [(1, false), (2, true)]
        );
        assert!(found.iter().all(|block| block.accessed == PageBits::ALL));
    }

    #[test]
    fn a_frame_is_clear_once_no_mapping_is_left_that_could_be_cleared() {
        let mut blocks = FrameBlocks::default();
        add(&mut blocks, &table(&[1, 2, 3, 4, 5]), &[0, 1, 2, 3, 4], &[]);
        blocks.choose(&[ClearPages { start: 0, pages: bits(&[1, 2, 3]), unobservable: PageBits::NONE }]);
        assert_eq!((0..6).filter(|&frame| blocks.is_chosen(frame)).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!blocks.is_chosen(1 << 40), "of a block that no process maps");
        let (cleared, left, stuck) = ((true, false), (false, false), (false, true));
        for (frame, mappings) in [
            (1, &[cleared, cleared][..]),
            (2, &[cleared, left]),
            (3, &[cleared, stuck]),
            (4, &[stuck, stuck]),
            (5, &[left, stuck]),
        ] {
            mappings.iter().for_each(|&(cleared, stuck)| blocks.take_cleared(frame, cleared, stuck));
        }
        let mut done = Vec::new();
        blocks.list_cleared(&mut done);
        assert_eq!(done, [ClearPages { start: 0, pages: bits(&[1, 3]), unobservable: bits(&[4]) }]);
    }
}
