//! Values of page frames, in memory that grows with the frames that have one.

/// The number of values in a chunk, and of chunks in a branch. Page cache lies in runs of about as many frames as a
/// chunk has, which are spread over all memory.
const CHUNK: usize = 64;
const BRANCH: usize = 4096;

type Chunk<T> = Box<[T; CHUNK]>;
type Branch<T> = Box<[Option<Chunk<T>>]>;

/// A map from page frames to small values. A frame that was not set has the default value.
///
/// A value takes its own size. Frames next to each other share memory: if one of 64 frames is set, all take up memory.
#[derive(Clone, Debug)]
pub struct FrameMap<T> {
    branches: Vec<Option<Branch<T>>>,
}

impl<T> Default for FrameMap<T> {
    fn default() -> Self {
        Self { branches: Vec::new() }
    }
}

impl<T: Copy + Default + PartialEq> FrameMap<T> {
    /// The value of `frame`.
    pub fn get(&self, frame: u64) -> T {
        let (branch, chunk, index) = place(frame);
        let chunk = self.branches.get(branch).and_then(|branch| branch.as_ref()?[chunk].as_ref());
        chunk.map_or_else(T::default, |chunk| chunk[index])
    }

    /// The value of `frame`, to be changed.
    pub fn get_mut(&mut self, frame: u64) -> &mut T {
        &mut self.chunk_mut(frame)[frame as usize % CHUNK]
    }

    /// The values of the chunk that contains `frame`.
    fn chunk_mut(&mut self, frame: u64) -> &mut [T; CHUNK] {
        let (branch, chunk, _) = place(frame);
        if branch >= self.branches.len() {
            self.branches.resize_with(branch + 1, || None);
        }
        let branch = self.branches[branch].get_or_insert_with(|| (0..BRANCH).map(|_| None).collect());
        branch[chunk].get_or_insert_with(|| Box::new([T::default(); CHUNK]))
    }

    /// Gives all frames the default value again. The memory is kept.
    pub fn clear(&mut self) {
        let chunks = self.branches.iter_mut().flatten().flat_map(|branch| branch.iter_mut().flatten());
        chunks.for_each(|chunk| chunk.fill(T::default()));
    }

    /// The frames whose values are not the default, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, T)> + '_ {
        let branches = self.branches.iter().enumerate();
        let chunks = branches.flat_map(|(index, branch)| {
            let chunks = branch.iter().flat_map(|branch| branch.iter()).enumerate();
            chunks.filter_map(move |(chunk, values)| Some((index * BRANCH + chunk, values.as_ref()?)))
        });
        let values = chunks.flat_map(|(chunk, values)| {
            values.iter().enumerate().map(move |(index, value)| ((chunk * CHUNK + index) as u64, *value))
        });
        values.filter(|(_, value)| *value != T::default())
    }
}

const fn place(frame: u64) -> (usize, usize, usize) {
    let chunk = frame as usize / CHUNK;
    (chunk / BRANCH, chunk % BRANCH, frame as usize % CHUNK)
}

/// The number of frames in a word.
const WORD: u64 = u64::BITS as u64;

/// The number of frames in a chunk of words.
const CHUNK_FRAMES: u64 = CHUNK as u64 * WORD;

/// A set of page frames: one bit for each frame, in chunks of 16 MiB of memory.
#[derive(Clone, Debug, Default)]
pub struct FrameSet(FrameMap<u64>);

impl FrameSet {
    /// Adds a frame. Returns whether the set did not contain it.
    pub fn insert(&mut self, frame: u64) -> bool {
        let (word, bit) = (self.0.get_mut(frame / WORD), 1 << (frame % WORD));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Adds many frames, and calls `known` with each that the set contained before.
    ///
    /// It is fast if many of them in a row are in the same 16 MiB.
    pub fn insert_all(&mut self, frames: impl IntoIterator<Item = u64>, mut known: impl FnMut(u64)) {
        let mut frames = frames.into_iter().peekable();
        while let Some(&first) = frames.peek() {
            let number = first / CHUNK_FRAMES;
            let words = self.0.chunk_mut(first / WORD);
            while let Some(frame) = frames.next_if(|frame| frame / CHUNK_FRAMES == number) {
                let (word, bit) = (&mut words[(frame % CHUNK_FRAMES / WORD) as usize], 1 << (frame % WORD));
                if *word & bit != 0 {
                    known(frame);
                }
                *word |= bit;
            }
        }
    }

    /// Whether the set contains a frame.
    pub fn contains(&self, frame: u64) -> bool {
        self.0.get(frame / WORD) >> (frame % WORD) & 1 == 1
    }

    /// Whether the set contains any of the `count` frames from `first` on.
    pub fn has_any(&self, first: u64, count: u64) -> bool {
        let end = first + count;
        let mut at = first;
        while at < end {
            let within = (WORD - at % WORD).min(end - at);
            let mask = u64::MAX >> (WORD - within) << (at % WORD);
            if self.0.get(at / WORD) & mask != 0 {
                return true;
            }
            at += within;
        }
        false
    }

    /// How many frames the set contains.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, word)| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Frames close to each other, and far away.
    fn frame() -> impl Strategy<Value = u64> {
        prop_oneof![0..300_u64, (1_u64 << 21) - 200..(1 << 21) + 200, (1_u64 << 36) - 100..1 << 36]
    }

    proptest! {
        #[test]
        fn a_set_contains_the_frames_that_were_inserted(
            inserted in prop::collection::vec(frame(), 0..60),
            at in frame(),
            count in 0_u64..140,
        ) {
            let (mut set, mut expected) = (FrameSet::default(), BTreeSet::new());
            for &frame in &inserted {
                prop_assert_eq!(set.insert(frame), expected.insert(frame));
            }
            prop_assert_eq!(set.contains(at), expected.contains(&at));
            prop_assert_eq!(set.has_any(at, count), expected.range(at..at + count).next().is_some());
            prop_assert_eq!(set.count(), expected.len() as u64);
            let (mut together, mut known) = (FrameSet::default(), Vec::new());
            together.insert_all(inserted.iter().copied(), |frame| known.push(frame));
            prop_assert_eq!(together.count(), set.count());
            prop_assert_eq!(known.len(), inserted.len() - expected.len());
            prop_assert!(expected.iter().all(|&frame| together.contains(frame)));
        }

        #[test]
        fn a_map_keeps_the_last_value_of_each_frame(
            put in prop::collection::vec((frame(), 1..9_u32), 0..60),
            at in frame(),
        ) {
            let mut map = FrameMap::default();
            put.iter().for_each(|&(frame, value)| *map.get_mut(frame) = value);
            let expected: BTreeMap<u64, u32> = put.into_iter().collect();
            prop_assert_eq!(map.get(at), expected.get(&at).copied().unwrap_or(0));
            prop_assert_eq!(map.iter().collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
            map.clear();
            prop_assert!(map.iter().next().is_none() && map.get(at) == 0);
        }
    }
}
