//! Counts each page once, even if several targets map it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hint::black_box;

use super::block::Block;
use super::estimate::Accessed;
use super::windows::{Begun, Windows};
use super::{BLOCK_PAGES, BLOCK_SIZE, BlockFrames, NodePages, NodeSums, PageBits, PageSums, TotalSums, WINDOWS};
use crate::{Figures, FileId, FrameMap, Mapping, NodeId, PAGE_SIZE, TargetSpace};

/// The class of pages that were accessed since the survey before. The classes after it are those of [`Windows`].
const TOUCHED: u8 = 0;

/// The class of pages whose last access is not known.
const UNCERTAIN: u8 = Windows::MAX_CLASSES as u8 + 1;

/// The class of pages that were not accessed in any window.
const OLDER: u8 = UNCERTAIN + 1;

/// The class of pages that could not be observed.
const UNOBSERVABLE: u8 = OLDER + 1;

const CLASSES: usize = UNOBSERVABLE as usize + 1;

/// The class of a frame with a value of [`FIRST`] is 0. The frame has not been seen if the value is 0.
const FIRST: u8 = 1;

/// Set in addition to the class if more than one page has this frame.
const SHARED: u8 = 0x80;

/// The number of places in swap whose bits are allocated together: those of 128 MiB.
const CHUNK: usize = 1 << 15;

/// Pages of files are counted by their place below this: 16 TiB.
const MOST_PLACES: i64 = 1 << 32;

/// The places in swap that were seen, a bit for each of [`CHUNK`] of them.
type Places = [u64; CHUNK / 64];

/// The page frames and the places in swap that were seen, the frames each with the class of the most recent access
/// through any page.
#[derive(Debug)]
pub(crate) struct CountedOnce {
    classes: FrameMap<u8>,
    /// The same for the pages of files that are mapped as shared only, by their place in the file: each of them has one
    /// frame. They lie next to each other, as frames do not, so that it takes less time to find them.
    files: HashMap<FileId, FrameMap<u8>>,
    /// The files of which a target can have copies of its own.
    copied: HashSet<FileId>,
    /// Pages with a frame that was seen before, by the less recent of the two classes.
    again: [u64; CLASSES],
    /// The same for the pages of each memory node.
    again_on: BTreeMap<NodeId, [u64; CLASSES]>,
    /// Frames that were seen more than once.
    shared: u64,
    places: HashMap<u64, Box<Places>>,
    /// Pages in swap with a place that was seen before, as after a fork.
    swapped_again: u64,
    /// For each class of [`Windows`], the part of its pages that each window holds.
    parts: Vec<[f64; WINDOWS.len()]>,
}

impl Default for CountedOnce {
    fn default() -> Self {
        Self {
            classes: FrameMap::default(),
            files: HashMap::new(),
            copied: HashSet::new(),
            again: [0; CLASSES],
            again_on: BTreeMap::new(),
            shared: 0,
            places: HashMap::new(),
            swapped_again: 0,
            parts: Vec::new(),
        }
    }
}

impl CountedOnce {
    /// Begins a survey of these targets: forgets all frames and places. The memory of the frames is kept.
    pub(crate) fn begin<'a>(&mut self, targets: impl IntoIterator<Item = &'a TargetSpace>) {
        let targets: Vec<&TargetSpace> = targets.into_iter().collect();
        let mappings = || targets.iter().flat_map(|target| target.mappings.iter());
        let files = |shared: bool| {
            let of = mappings().filter(move |mapping| mapping.permissions.shared == shared);
            of.filter_map(|mapping| Some(mapping.file?.id)).collect::<HashSet<_>>()
        };
        self.copied = files(false);
        let shared = files(true);
        self.files.retain(|file, _| shared.contains(file));
        self.files.values_mut().for_each(FrameMap::clear);
        self.classes.clear();
        self.places.clear();
        self.parts.clear();
        self.again_on.clear();
        (self.again, self.shared, self.swapped_again) = ([0; CLASSES], 0, 0);
    }

    /// Adds the pages of a block of a target with these mappings. `placed` tells their nodes, as far as these are
    /// known.
    pub(super) fn add(
        &mut self,
        block: Block<'_>,
        windows: &Windows,
        found: &BlockFrames<'_>,
        (mappings, placed): (&[Mapping], &[NodePages]),
    ) {
        // A target that began later has the same classes as the others, without the oldest.
        if windows.parts().len() > self.parts.len() {
            self.parts = windows.parts().to_vec();
        }
        let mut pages = found.pages & block.present;
        let first = mappings.partition_point(|mapping| mapping.range.end() <= block.start);
        let here = mappings[first..].iter().take_while(|mapping| mapping.range.start() < block.start + BLOCK_SIZE);
        for mapping in here {
            let Some((file, offset)) = self.shared_file(mapping, block.start) else { continue };
            let of_file = pages & PageBits::within(block.start, mapping.range);
            pages &= !of_file;
            let places = std::array::from_fn(|page| offset.wrapping_add(page as u64));
            let mut classes = self.files.remove(&file).unwrap_or_default();
            self.add_pages(&mut classes, block, windows, (of_file, &places), placed);
            self.files.insert(file, classes);
        }
        let mut classes = std::mem::take(&mut self.classes);
        self.add_pages(&mut classes, block, windows, (pages, found.frames), placed);
        self.classes = classes;
        for page in (found.swapped & block.swapped()).iter() {
            let place = found.frames[page];
            let places = self.places.entry(place / CHUNK as u64).or_insert_with(|| Box::new([0; CHUNK / 64]));
            let (word, bit) = (&mut places[(place % CHUNK as u64) as usize / 64], 1 << (place % 64));
            self.swapped_again += u64::from(*word & bit != 0);
            *word |= bit;
        }
    }

    /// The file of a mapping whose pages are counted by their place in it, and the place that belongs to the first page
    /// of the block that begins at `start`.
    fn shared_file(&self, mapping: &Mapping, start: u64) -> Option<(FileId, u64)> {
        let file = mapping.file.filter(|file| mapping.permissions.shared && !self.copied.contains(&file.id))?;
        let place = |addr: u64| addr.wrapping_add(file.shift).cast_signed() / PAGE_SIZE as i64;
        (0..MOST_PLACES).contains(&place(mapping.range.end())).then(|| (file.id, place(start).cast_unsigned()))
    }

    /// Adds pages whose `frames` have these classes.
    fn add_pages(
        &mut self,
        classes: &mut FrameMap<u8>,
        block: Block<'_>,
        windows: &Windows,
        (pages, frames): (PageBits, &[u64; BLOCK_PAGES]),
        placed: &[NodePages],
    ) {
        // Nearly all pages of a hot block were accessed in the last interval.
        let (hot, uncertain) =
            if block.is_hot() { (block.uncertain(), PageBits::NONE) } else { (PageBits::NONE, block.uncertain()) };
        let touched = block.touched() | hot;
        let unplaced = block.unplaced();
        // The frames of neighbouring pages may be far apart. Most of the time is waiting for memory, and the processor
        // waits for several values at the same time if nothing depends on them.
        black_box(pages.iter().fold(0, |all, page| all | classes.get(frames[page])));
        for page in pages.iter() {
            let class = if block.unobservable().contains(page) {
                UNOBSERVABLE
            } else if touched.contains(page) {
                TOUCHED
            } else if uncertain.contains(page) {
                UNCERTAIN
            } else if unplaced.contains(page) {
                OLDER
            } else {
                match windows.class(block.idle(page)) {
                    Windows::MAX_CLASSES => OLDER,
                    class => class as u8 + 1,
                }
            };
            let seen = classes.get_mut(frames[page]);
            if *seen == 0 {
                *seen = class + FIRST;
            } else {
                self.shared += u64::from(*seen & SHARED == 0);
                let before = (*seen & !SHARED) - FIRST;
                let class_again = usize::from(before.max(class));
                self.again[class_again] += 1;
                if let Some(on) = placed.iter().find(|on| on.pages.contains(page)) {
                    self.again_on.entry(on.node).or_insert([0; CLASSES])[class_again] += 1;
                }
                *seen = (before.min(class) + FIRST) | SHARED;
            }
        }
    }

    /// Subtracts from `sums`, which count each page of each target, what several targets share, so that each page frame
    /// and each place in swap counts once. `sums` contain what is estimated of `uncertain` pages.
    ///
    /// `begun` says what each window holds of the pages that were accessed in the interval in which it begins.
    pub(crate) fn total(&self, sums: PageSums, uncertain: &Accessed, begun: &Begun) -> TotalSums {
        let mut once = self.once(&self.again, sums, uncertain, begun);
        once.figures.swapped =
            sums.figures.swapped.map(|swapped| swapped.saturating_sub(self.swapped_again * PAGE_SIZE));
        TotalSums { sums: once, shared: (self.shared * PAGE_SIZE).min(once.figures.present) }
    }

    /// The sums of a node with each page frame counted once. Of uncertain pages, the same part was
    /// accessed as on all nodes together.
    pub(crate) fn on_node(&self, found: NodeSums, uncertain: &Accessed, begun: &Begun) -> NodeSums {
        match self.again_on.get(&found.node) {
            Some(again) => NodeSums { sums: self.once(again, found.sums, uncertain, begun), ..found },
            None => found,
        }
    }

    /// The memory in `sums` without pages that were seen before.
    fn once(&self, seen_again: &[u64; CLASSES], sums: PageSums, uncertain: &Accessed, begun: &Begun) -> PageSums {
        // A page was counted twice as accessed within a window if the window holds both accesses.
        let again = |classes: usize| seen_again[..classes].iter().sum::<u64>() * PAGE_SIZE;
        let again_uncertain = (seen_again[usize::from(UNCERTAIN)] * PAGE_SIZE) as f64;
        let of_uncertain = |pages: f64| again_uncertain * (pages / uncertain.pages.max(1.0)).min(1.0);
        let within = |window: usize| {
            let part = |part: f64| if 0.0 < part && part < 1.0 { begun.part(window).unwrap_or(part) } else { part };
            let parts = self.parts.iter().map(|parts| part(parts[window]));
            let parts = parts.zip(&seen_again[1..]).map(|(part, &again)| again as f64 * part);
            let of_uncertain = of_uncertain(uncertain.within[window]);
            // Of what was accessed in the last interval, a shorter window holds the same part as of all targets.
            let of_last = (sums.within[window] as f64 / sums.figures.touched.max(1) as f64).min(1.0);
            (again(1) as f64 * of_last + parts.sum::<f64>() * PAGE_SIZE as f64 + of_uncertain).round() as u64
        };
        let found = sums.figures;
        let present = found.present.saturating_sub(again(CLASSES));
        // What is estimated of unknown pages counts for each target, so that the rest may be more than there is.
        let rest = |bytes: u64, again: u64| bytes.saturating_sub(again).min(present);
        let unobservable = rest(found.unobservable, seen_again[usize::from(UNOBSERVABLE)] * PAGE_SIZE);
        PageSums {
            figures: Figures {
                present,
                touched: rest(found.touched, again(1) + of_uncertain(uncertain.touched) as u64),
                unobservable,
                unknown: rest(found.unknown, 0),
                ..Figures::unknown()
            },
            mapped_again: sums.mapped_again,
            kinds: sums.kinds.limited_to(unobservable),
            within: std::array::from_fn(|window| rest(sums.within[window], within(window))),
        }
    }
}

const _: () = assert!(CLASSES + (FIRST as usize) < SHARED as usize);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::survey::{BLOCK_PAGES, BlockPages, ClearPages, PageBits, PageHistory};
    use crate::{AddrRange, Layout, MappedFile, Permissions, Quantity, TargetId};

    use super::*;

    /// All pages of the block at address 0, in these frames.
    fn in_memory(frames: &[u64; BLOCK_PAGES]) -> BlockFrames<'_> {
        BlockFrames { start: 0, pages: PageBits::ALL, swapped: PageBits::NONE, frames }
    }

    /// The sums of a target, and what it adds to `once`. In each survey, a second apart, it has accessed `accessed`.
    fn survey(once: &mut CountedOnce, first_frame: u64, surveys: &[PageBits]) -> PageSums {
        let mut history = PageHistory::default();
        let clear = BlockPages { present: PageBits::ALL, ..BlockPages::default() };
        history.take(&[clear], Duration::ZERO);
        for (second, &accessed) in (1..).zip(surveys) {
            history.cleared(&[]);
            // All is cleared in between, so that what is read is what was accessed.
            history.take(&[BlockPages { accessed, ..clear }], Duration::from_secs(second));
            let cleared = ClearPages { pages: accessed, ..Default::default() };
            history.cleared(&[cleared]);
        }
        let frames = std::array::from_fn(|page| first_frame + page as u64);
        let windows = Windows::new(&history);
        once.add(history.block(0).unwrap(), &windows, &in_memory(&frames), (&[], &[]));
        let mappings = Arc::new([Mapping::anonymous(AddrRange::new(0, 2 << 20).unwrap())]);
        Arc::new(history).sums(TargetId::PhysicalMemory, &(mappings as Arc<[Mapping]>)).total()
    }

    #[test]
    fn a_page_of_two_targets_counts_once_with_its_last_access() {
        let mut once = CountedOnce::default();
        // Each page of the first target is accessed in the first survey only, half of those of the second in the last.
        let all = [PageBits::ALL, PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE];
        let half = PageBits::of(0..256);
        let last = [PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE, half];
        let mut sums = survey(&mut once, 0x1000, &all);
        sums += survey(&mut once, 0x1000, &last);
        let TotalSums { sums: total, shared } = once.total(sums, &Accessed::default(), &Begun::default());
        let mib = 1 << 20;
        assert_eq!((sums.figures.present, total.figures.present, shared), (4 * mib, 2 * mib, 2 * mib));
        assert_eq!((sums.figures.touched, total.figures.touched), (mib, mib));
        // Within 10 s, both have accessed the first half.
        assert_eq!((sums.within[3], total.within[3]), (3 * mib, 2 * mib));
        assert_eq!(total.within[0], mib);
    }

    #[test]
    fn a_page_of_a_file_counts_once_by_its_place_unless_a_target_can_have_a_copy_of_it() {
        let page = |number: u64| number * PAGE_SIZE;
        // Both map 512 pages of a file, the second one 100 pages later in it. No frame says that they are the same.
        let space = |pid, offset: u64, shared| {
            let shift = page(offset);
            let range = AddrRange::new(0, BLOCK_SIZE).unwrap();
            let permissions = Permissions { shared, ..Permissions::READ_WRITE };
            let file = Some(MappedFile { id: FileId { device: (8, 1), inode: 7 }, shift });
            let mappings = [Mapping { permissions, file, ..Mapping::anonymous(range) }].into();
            TargetSpace { id: TargetId::process(pid, Duration::ZERO), layout: Layout::Process, mappings }
        };
        for (shared, again) in [(true, 412), (false, 0)] {
            let targets = [space(1, 0, true), space(2, 100, shared)];
            let mut once = CountedOnce::default();
            once.begin(&targets);
            let mut history = PageHistory::default();
            history.take(&[BlockPages { present: PageBits::ALL, ..BlockPages::default() }], Duration::ZERO);
            for (target, first) in targets.iter().zip([0, 1 << 20]) {
                let frames = std::array::from_fn(|page| first + page as u64);
                let (block, windows) = (history.block(0).unwrap(), Windows::new(&history));
                once.add(block, &windows, &in_memory(&frames), (&target.mappings, &[]));
            }
            assert_eq!((once.shared, once.again.iter().sum::<u64>()), (again, again));
        }
    }

    /// Two targets have accessed the pages of the same block, at an unknown time.
    fn both_have_accessed_a_block() -> CountedOnce {
        let mut once = CountedOnce::default();
        let mut history = PageHistory::default();
        let found = BlockPages { present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() };
        history.take(&[found], Duration::ZERO);
        history.take(&[found], Duration::from_secs(1));
        let frames = std::array::from_fn(|page| page as u64);
        for _ in 0..2 {
            once.add(history.block(0).unwrap(), &Windows::new(&history), &in_memory(&frames), (&[], &[]));
        }
        once
    }

    #[test]
    fn no_part_is_more_than_the_whole() {
        let once = both_have_accessed_a_block();
        let bytes = 2 << 20;
        let all = Accessed { pages: 1024.0, touched: 1024.0, within: [1024.0; WINDOWS.len()] };
        let sums =
            PageSums::of(Figures { present: bytes * 2, touched: bytes * 2, unknown: bytes * 2, ..Figures::default() });
        let TotalSums { sums: total, shared } =
            once.total(PageSums { within: [bytes * 2; WINDOWS.len()], ..sums }, &all, &Begun::default());
        assert_eq!((total.figures.present, shared), (bytes, bytes));
        assert!(
            [total.figures.touched, total.figures.unknown].iter().chain(&total.within).all(|&part| part <= bytes),
            "{total:?}"
        );
    }

    #[test]
    fn of_uncertain_pages_each_counts_once_in_the_share_that_is_estimated() {
        let once = both_have_accessed_a_block();
        let bytes = 2 << 20;
        let quarter = Accessed { pages: 1024.0, touched: 256.0, within: [256.0; WINDOWS.len()] };
        let sums =
            PageSums::of(Figures { present: bytes * 2, touched: bytes / 2, unknown: bytes * 2, ..Figures::default() });
        let TotalSums { sums: total, .. } =
            once.total(PageSums { within: [bytes / 2; WINDOWS.len()], ..sums }, &quarter, &Begun::default());
        assert_eq!((total.figures.touched, total.within[2]), (bytes / 4, bytes / 4));
    }

    #[test]
    fn pages_of_two_targets_that_a_survey_could_not_clear_count_once() {
        let mut once = CountedOnce::default();
        let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(AddrRange::new(0, 2 << 20).unwrap())]);
        let found = BlockPages { present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() };
        let refused = ClearPages { unobservable: PageBits::ALL, ..ClearPages::default() };
        let frames = std::array::from_fn(|page| page as u64);
        let mut histories = [1, 2].map(|pid| (TargetId::process(pid, Duration::ZERO), Arc::default()));
        let totals = [0, 1, 2].map(|second| {
            let now = Duration::from_secs(second);
            once.begin(&[]);
            let mut sums = PageSums::default();
            for (id, history) in &mut histories {
                let mut part = PageHistory::update(Arc::clone(history), now).take(&[found]);
                // The survey tries to clear what it has counted.
                part.count_once(&mut once, &Windows::new(part.history()), &in_memory(&frames), &mappings);
                part.note_cleared(&[refused]);
                let (after, survey, _) = part.end(&mappings).finish_with_sums(now, (*id, &mappings), true);
                sums += survey.total();
                *history = after;
            }
            let TotalSums { sums, .. } = once.total(sums, &Accessed::default(), &Begun::default());
            [sums.figures.unknown, sums.figures.unobservable].map(|bytes| bytes >> 20)
        });
        // The first survey does not know it yet.
        assert_eq!(totals, [[2, 0], [0, 2], [0, 2]]);
    }

    #[test]
    fn a_page_of_two_targets_counts_once_on_its_node() {
        let mut once = CountedOnce::default();
        let mut history = PageHistory::default();
        history.take(&[BlockPages { present: PageBits::ALL, ..BlockPages::default() }], Duration::ZERO);
        let frames = std::array::from_fn(|page| page as u64);
        let placed = [(NodeId(0), PageBits::of(0..112)), (NodeId(2), PageBits::of(112..512))];
        let placed = placed.map(|(node, pages)| NodePages { start: 0, node, pages });
        for _ in 0..2 {
            once.add(history.block(0).unwrap(), &Windows::new(&history), &in_memory(&frames), (&[], &placed));
        }
        let on = |node, pages: u64| {
            let sums = PageSums::of(Figures { present: pages * PAGE_SIZE, ..Figures::default() });
            once.on_node(NodeSums { node: NodeId(node), sums }, &Accessed::default(), &Begun::default())
                .sums
                .figures
                .present
                / PAGE_SIZE
        };
        assert_eq!([on(0, 224), on(2, 800), on(5, 7)], [112, 400, 7]);
    }

    #[test]
    fn a_page_that_two_targets_have_in_swap_counts_once() {
        let mut once = CountedOnce::default();
        let mut sums = PageSums::default();
        // A child has what its parent had in swap when it was forked, and each has swapped more since then. The numbers
        // of places are those of frames, too.
        for (places, pages) in [(0..300, 0..300), (50..350, 0..300)] {
            let mut history = PageHistory::default();
            let swapped = PageBits::of(pages);
            history.take(&[BlockPages { swapped, ..BlockPages::default() }], Duration::ZERO);
            history.knows_swap = true;
            let mut frames = [0; BLOCK_PAGES];
            swapped.iter().zip(places).for_each(|(page, place)| frames[page] = place);
            let frames = BlockFrames { start: 0, pages: PageBits::NONE, swapped: PageBits::ALL, frames: &frames };
            once.add(history.block(0).unwrap(), &Windows::new(&history), &frames, (&[], &[]));
            let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(AddrRange::new(0, 2 << 20).unwrap())]);
            sums += Arc::new(history).sums(TargetId::PhysicalMemory, &mappings).total();
        }
        let TotalSums { sums: total, shared } = once.total(sums, &Accessed::default(), &Begun::default());
        let swapped = [sums, total].map(|sums| sums.figures.swapped.known());
        assert_eq!(swapped, [Some(600 * PAGE_SIZE), Some(350 * PAGE_SIZE)]);
        assert_eq!((total.figures.present, shared), (0, 0));
        sums.figures.swapped = Quantity::unknown();
        assert!(once.total(sums, &Accessed::default(), &Begun::default()).sums.figures.swapped.is_unknown());
    }

    #[test]
    fn frames_of_one_target_only_count_as_they_are() {
        let mut once = CountedOnce::default();
        let mut sums = survey(&mut once, 0, &[PageBits::ALL]);
        // The frames of the second target begin where half of those of the first end.
        sums += survey(&mut once, 256, &[PageBits::ALL]);
        let TotalSums { sums: total, shared } = once.total(sums, &Accessed::default(), &Begun::default());
        assert_eq!((total.figures.present, shared), (3 << 20, 1 << 20));
        assert_eq!(total.figures.touched, 3 << 20);
    }
}
