//! The state of every page frame.

use isotherm_core::PAGE_SIZE;

use crate::mark::Mark;
use isotherm_kernel::pages::Ram;

/// A mark for each frame of the system's memory: one byte for 4 KiB.
#[derive(Debug, Default)]
pub(super) struct Frames {
    stretches: Vec<Stretch>,
    marks: Vec<Mark>,
}

/// A run of consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    first: u64,
    end: u64,
    /// The index of the first frame's mark.
    index: usize,
}

impl Frames {
    /// Sets the memory that exists now. The marks of frames that existed before are kept. Returns the number of frames
    /// that were removed.
    pub(super) fn set_memory(&mut self, ram: &[Ram]) -> u64 {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut index = 0;
        for ram in ram {
            let (first, end) = (ram.range.start() / PAGE_SIZE, ram.range.end() / PAGE_SIZE);
            match stretches.last_mut() {
                Some(last) if last.end == first => last.end = end,
                _ => stretches.push(Stretch { first, end, index }),
            }
            index += (end - first) as usize;
        }
        if stretches == self.stretches {
            return 0;
        }
        let mut marks = vec![Mark::NOTHING; index];
        let mut kept = 0;
        for new in &stretches {
            for old in &self.stretches {
                let (first, end) = (new.first.max(old.first), new.end.min(old.end));
                if first < end {
                    let from = old.index + (first - old.first) as usize;
                    let to = new.index + (first - new.first) as usize;
                    let count = (end - first) as usize;
                    marks[to..to + count].copy_from_slice(&self.marks[from..from + count]);
                    kept += count;
                }
            }
        }
        let removed = (self.marks.len() - kept) as u64;
        *self = Self { stretches, marks };
        removed
    }

    /// Splits the frames into pieces of at most `most` frames, cut at multiples of `most`. A piece is its first frame
    /// and one past its last frame.
    pub(super) fn pieces(&self, most: u64) -> Vec<(u64, u64)> {
        let mut pieces = Vec::new();
        for stretch in &self.stretches {
            let mut first = stretch.first;
            while first < stretch.end {
                let end = ((first / most + 1) * most).min(stretch.end);
                pieces.push((first, end));
                first = end;
            }
        }
        pieces
    }

    /// The marks of the frames from `first` up to `end`, which must be in one [piece](Self::pieces).
    pub(super) fn marks_mut(&mut self, first: u64, end: u64) -> &mut [Mark] {
        match self.index(first) {
            Some(index) => &mut self.marks[index..index + (end - first) as usize],
            None => &mut [],
        }
    }

    /// The mark of a frame, or `None` if the frame is not memory.
    pub(super) fn mark(&self, frame: u64) -> Option<Mark> {
        self.index(frame).map(|index| self.marks[index])
    }

    /// The index of a frame among all frames.
    fn index(&self, frame: u64) -> Option<usize> {
        let after = self.stretches.partition_point(|stretch| stretch.first <= frame);
        let stretch = self.stretches[..after].last().filter(|stretch| frame < stretch.end)?;
        Some(stretch.index + (frame - stretch.first) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::AddrRange;

    fn ram(stretches: &[(u64, u64)]) -> Vec<Ram> {
        let range = |&(first, end)| AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE).unwrap();
        stretches.iter().map(|stretch| Ram { range: range(stretch), name: "".into(), node: None }).collect()
    }

    #[test]
    fn marks_of_memory_that_stays_are_kept_and_removed_frames_are_counted() {
        let mut frames = Frames::default();
        assert_eq!(frames.set_memory(&ram(&[(10, 20), (20, 30), (100, 200)])), 0);
        frames.marks_mut(15, 30).fill(Mark::ACCESSED);
        frames.marks_mut(150, 160).fill(Mark::UNMARKED);
        assert_eq!(frames.set_memory(&ram(&[(12, 25), (110, 300)])), 17);
        for (frame, mark) in [
            (12, Some(Mark::NOTHING)),
            (15, Some(Mark::ACCESSED)),
            (24, Some(Mark::ACCESSED)),
            (25, None),
            (11, None),
            (155, Some(Mark::UNMARKED)),
            (160, Some(Mark::NOTHING)),
            (299, Some(Mark::NOTHING)),
            (300, None),
        ] {
            assert_eq!(frames.mark(frame), mark, "{frame}");
        }
    }

    #[test]
    fn pieces_are_cut_at_multiples_and_cover_all_frames() {
        let mut frames = Frames::default();
        frames.set_memory(&ram(&[(10, 40), (64, 70)]));
        assert_eq!(frames.pieces(16), [(10, 16), (16, 32), (32, 40), (64, 70)]);
    }
}
