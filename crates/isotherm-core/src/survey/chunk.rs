//! Chunks: neighbouring blocks whose states are kept together, and shared as long as they do not change.

use std::sync::Arc;

use super::block::{Block, BlockState};
use super::counts::Counts;
use super::memo::Memo;
use super::number::SurveyNumber;
use super::{BLOCK_SIZE, ClearPages, PageBits};
use crate::PAGE_SIZE;

/// The number of blocks of a chunk. Sums are kept by chunk, so that sums up to an address add up fewer blocks than
/// this.
const CHUNK_BLOCKS: usize = 16;

const CHUNK_SIZE: u64 = CHUNK_BLOCKS as u64 * BLOCK_SIZE;

/// The blocks of 32 MiB.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chunk {
    /// The first address: a multiple of [`CHUNK_SIZE`].
    pub(super) start: u64,
    blocks: Arc<Blocks>,
}

/// What is known of the blocks of a chunk, which has no address, so that chunks and surveys share it.
#[derive(Clone, Debug, PartialEq)]
struct Blocks {
    /// Which of the blocks have present or swapped pages, one bit for each.
    which: u16,
    /// The states of these blocks.
    states: Vec<Arc<BlockState>>,
    counts: Counts,
}

const _: () = assert!(CHUNK_BLOCKS == u16::BITS as usize);

/// The place of the block that begins at `start` in its chunk.
const fn place(start: u64) -> u32 {
    (start % CHUNK_SIZE / BLOCK_SIZE) as u32
}

impl Chunk {
    /// The start of the chunk that contains `addr`.
    pub(super) const fn start_of(addr: u64) -> u64 {
        addr - addr % CHUNK_SIZE
    }

    /// The chunk of `blocks`, all of which lie in the same one. It shares its memory with one of `others` that is the
    /// same.
    pub(super) fn new<'a>(blocks: &[(u64, Arc<BlockState>)], others: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let start = Self::start_of(blocks.first()?.0);
        let which = blocks.iter().fold(0, |which, (start, _)| which | 1 << place(*start));
        for other in others {
            let known = &other.blocks;
            let is_same = |((_, state), known): (&(u64, _), _)| Arc::ptr_eq(state, known);
            if known.which == which && blocks.iter().zip(&known.states).all(is_same) {
                return Some(Self { start, blocks: Arc::clone(known) });
            }
        }
        let states: Vec<_> = blocks.iter().map(|(_, state)| Arc::clone(state)).collect();
        let counts = add_up(&states);
        Some(Self { start, blocks: Arc::new(Blocks { which, states, counts }) })
    }

    /// Where the chunk ends.
    pub(super) const fn end(&self) -> u64 {
        self.start.saturating_add(CHUNK_SIZE)
    }

    /// The sums of its blocks.
    pub(super) fn counts(&self) -> &Counts {
        &self.blocks.counts
    }

    /// The bytes of memory that the chunk shares with no other.
    pub(super) fn own_bytes(&self) -> usize {
        let state = |state: &Arc<BlockState>| if Arc::strong_count(state) == 1 { state.bytes() } else { 0 };
        let blocks = &self.blocks.states;
        size_of::<Self>()
            + match Arc::strong_count(&self.blocks) {
                1 => size_of::<Blocks>() + blocks.iter().map(|of| size_of_val(of) + state(of)).sum::<usize>(),
                _ => 0,
            }
    }

    /// The blocks with present or swapped pages, each with its start.
    pub(super) fn states(&self) -> impl Iterator<Item = (u64, &Arc<BlockState>)> {
        let which = self.blocks.which;
        let places = (0..u16::BITS).filter(move |place| which >> place & 1 == 1);
        places.map(|place| self.start + u64::from(place) * BLOCK_SIZE).zip(&self.blocks.states)
    }

    /// The blocks with present or swapped pages. `number` is that of the last survey of the history.
    pub(super) fn blocks(&self, number: SurveyNumber) -> impl Iterator<Item = Block<'_>> {
        self.states().map(move |(start, state)| Block { start, number, state })
    }

    /// The index of the state of the block that begins at `start`.
    fn index(&self, start: u64) -> Option<usize> {
        let bit = 1_u16 << place(start);
        (self.blocks.which & bit != 0).then(|| (self.blocks.which & (bit - 1)).count_ones() as usize)
    }

    /// The block that begins at `start`, which lies in the chunk, if it has present or swapped pages.
    pub(super) fn state(&self, start: u64) -> Option<&Arc<BlockState>> {
        Some(&self.blocks.states[self.index(start)?])
    }

    /// The sums of the pages below `addr`.
    pub(super) fn counts_below(&self, addr: u64) -> Counts {
        self.below(addr).fold(Counts::ZERO, |sum, (state, within)| match within {
            None => sum.plus(state.counts()),
            Some(within) => sum.plus(&state.counts_in(within)),
        })
    }

    /// How many present pages lie below `addr`.
    pub(super) fn present_below(&self, addr: u64) -> u64 {
        let of = |(state, within): (&BlockState, Option<PageBits>)| match within {
            None => state.counts().present,
            Some(within) => (state.present & within).count() as u64,
        };
        self.below(addr).map(of).sum()
    }

    /// The states of the blocks that have pages below `addr`, and these pages, if they are not all.
    fn below(&self, addr: u64) -> impl Iterator<Item = (&BlockState, Option<PageBits>)> {
        self.states().take_while(move |(start, _)| *start < addr).map(move |(start, state)| {
            let is_whole = start.saturating_add(BLOCK_SIZE) <= addr;
            (&**state, (!is_whole).then(|| PageBits::of(0..((addr - start) / PAGE_SIZE) as usize)))
        })
    }

    /// The address of the `nth` present page, counted from 0.
    pub(super) fn nth_present(&self, nth: u64) -> Option<u64> {
        let mut left = nth;
        for (start, state) in self.states() {
            let present = state.counts().present;
            if left < present {
                return Some(start + state.present.nth(left as usize)? as u64 * PAGE_SIZE);
            }
            left -= present;
        }
        None
    }

    /// Notes which pages the survey has cleared. All blocks of `done` lie in the chunk.
    pub(super) fn note_cleared(&mut self, done: &[ClearPages], memo: &mut Memo<ClearPages>) {
        for pages in done {
            let Some(index) = self.index(pages.start) else { continue };
            note_cleared(&mut Arc::make_mut(&mut self.blocks).states[index], pages, memo);
        }
        let counts = add_up(&self.blocks.states);
        Arc::make_mut(&mut self.blocks).counts = counts;
    }
}

/// Notes which pages of a block the survey has cleared.
pub(super) fn note_cleared(state: &mut Arc<BlockState>, pages: &ClearPages, memo: &mut Memo<ClearPages>) {
    if let Some(state) = Arc::get_mut(state) {
        state.note_cleared(pages);
        return;
    }
    let change = ClearPages { start: 0, ..*pages };
    let new = memo.after(state, &change, pages.pages.mixed(), || {
        let mut new = BlockState::clone(state);
        new.note_cleared(pages);
        new
    });
    *state = new;
}

fn add_up(states: &[Arc<BlockState>]) -> Counts {
    states.iter().fold(Counts::ZERO, |sum, state| sum.plus(state.counts()))
}
