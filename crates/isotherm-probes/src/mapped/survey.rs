//! The survey of the page frames that processes map, in parts.
//!
//! All accesses to a frame are known only when all processes were read. A frame is known to be clear only when it was
//! cleared in all of them. So a survey has three stages, and each is done in parts:
//!
//! 1. Processes are read, each as a whole. These parts have no blocks: the next one begins at address 0 again.
//! 2. The blocks of frames are listed by address. The frames that are chosen to be cleared are noted.
//! 3. The chosen frames are cleared, process by process. The last of these parts returns the frames that were cleared
//!    in all of them; the others return nothing.
//!
//! A survey that finds little memory is done in one part. Otherwise, its stages would be far apart.
//!
//! The driver counts a part that begins at address 0 as a few blocks, so each part of the first and third stage does
//! about as much work as that. Accesses of a frame between the first and the third stage are lost if the frame was
//! accessed before the first stage and was chosen. Such a frame counts as accessed in this survey.

use isotherm_core::survey::{BlockPages, ClearPages, Rest, Survey, SurveyPart};
use isotherm_core::{BoxError, TargetId, TargetSpace};

use super::MappedProbe;

/// A part of a survey that is done in parts reads, or clears in, processes with about so many blocks of page tables. To
/// read them takes 0.2 to 0.4 ms.
const PIECE: usize = 64;

/// The same for the first survey: nothing is known before its end, and its first two seconds are not counted.
const FIRST_PIECE: usize = 4096;

/// A part of more blocks is all of the memory: 16 TiB.
const WHOLE: usize = 8 << 20;

/// How far a survey has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The processes from this one on are to be read.
    Reading(usize),
    /// All processes were read, and blocks of frames are listed. `is_last` is set when the last ones were listed.
    Listing { is_last: bool },
    /// The chosen frames are to be cleared in the processes from this one on.
    Clearing(usize),
    /// The survey is over. What was cleared is still to be returned.
    Over,
}

impl Default for Progress {
    fn default() -> Self {
        Self::Reading(0)
    }
}

impl Survey for MappedProbe {
    /// Lists the processes.
    fn begin(&mut self) -> Result<(), BoxError> {
        self.list.read(&mut self.spaces)?;
        self.probe.hold(&self.spaces)?;
        self.frames.clear();
        self.accessed.clear();
        self.stuck.begin();
        self.found.clear();
        (self.progress, self.cleared, self.has_cleared) = (Progress::default(), 0, false);
        Survey::begin(&mut self.probe)
    }

    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let is_whole = part.most >= WHOLE;
        let piece = match self.blocks_before {
            _ if is_whole => usize::MAX,
            None => FIRST_PIECE,
            Some(blocks) if blocks <= self.parts_above => usize::MAX,
            Some(_) => PIECE,
        };
        if let Progress::Reading(first) = self.progress {
            let next = self.read_processes(first, piece)?;
            if next < self.spaces.len() {
                self.progress = Progress::Reading(next);
                return Ok(Rest { from: Some(0), blocks: self.frames.len().max(1) });
            }
            self.frames.list(&target.mappings, &mut self.found);
            self.progress = Progress::Listing { is_last: false };
            self.is_whole = is_whole || self.found.len() <= self.parts_above;
            self.blocks_before = Some(self.found.len());
        }
        if self.progress == (Progress::Listing { is_last: true }) {
            self.progress = Progress::Clearing(0);
        }
        match self.progress {
            Progress::Listing { .. } => {
                let left = &self.found[self.found.partition_point(|block| block.start < part.from)..];
                let (now, later) = left.split_at(if self.is_whole { left.len() } else { part.most.min(left.len()) });
                blocks.extend_from_slice(now);
                self.progress = Progress::Listing { is_last: later.is_empty() };
                Ok(match later.first() {
                    Some(next) => Rest { from: Some(next.start), blocks: later.len() },
                    None if self.is_whole => Rest::default(),
                    None => Rest { from: Some(0), blocks: 1 },
                })
            }
            Progress::Clearing(first) => {
                self.clear_in_processes(first, piece)?;
                let is_over = self.progress == Progress::Over;
                Ok(if is_over { Rest::default() } else { Rest { from: Some(0), blocks: 1 } })
            }
            Progress::Reading(_) | Progress::Over => Ok(Rest::default()),
        }
    }

    fn left_out(&self) -> Option<String> {
        Survey::left_out(&self.probe)
    }

    /// Clears the chosen page frames in all processes that have accessed them: at once if the survey is done in one
    /// part, or else in the parts after that which lists the last blocks.
    fn clear(&mut self, _: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        if !matches!(self.progress, Progress::Listing { .. }) {
            return Ok(self.take_cleared(blocks));
        }
        if self.is_whole {
            self.frames.forget_chosen();
        }
        self.frames.choose(blocks);
        blocks.clear();
        if !self.is_whole {
            return Ok(0);
        }
        let listing = self.progress;
        self.clear_in_processes(0, usize::MAX)?;
        let cleared = self.take_cleared(blocks);
        (self.progress, self.has_cleared) = (listing, true);
        Ok(cleared)
    }
}

impl MappedProbe {
    /// Reads processes from the one in this place on, about `most` blocks. Returns the place of the next one.
    fn read_processes(&mut self, first: usize, most: usize) -> Result<usize, BoxError> {
        let Self { probe, frames, accessed, stuck, .. } = self;
        let (mut place, mut done) = (first, 0);
        while done < most
            && let Some(space) = self.spaces.get(place)
        {
            place += 1;
            done += 1;
            // The process has ended, or refuses access.
            let Some(identity) = probe.address_space(space.id) else { continue };
            let of_process = stuck.of(space.id, identity);
            self.blocks.clear();
            probe.read_with_frames(space, SurveyPart::ALL, &mut self.blocks, &mut |block, frames_of| {
                let stuck = of_process.still(block.start, block.accessed) | block.accessed & block.unobservable;
                frames.add(block, frames_of, stuck);
                accessed.add(block, frames_of, stuck);
            })?;
            probe.lazily_freed_frames(space.id, &self.blocks, &mut |block| {
                block.pages.iter().for_each(|page| frames.set_lazily_freed(block.frames[page]));
            })?;
            accessed.end(space.id);
            for block in &self.blocks {
                accessed.each_of_last(block.start, block.shared, |frame| frames.set_shared(frame));
            }
            done += self.blocks.len();
        }
        Ok(place)
    }

    /// Clears the chosen page frames in processes from the one in this place on, of about `most` blocks.
    fn clear_in_processes(&mut self, first: usize, most: usize) -> Result<(), BoxError> {
        let Self { probe, frames, accessed, stuck, chosen, .. } = self;
        let (mut place, mut done) = (first, 0);
        self.progress = loop {
            let Some((process, index)) = accessed.process(place) else { break Progress::Over };
            if done >= most {
                break Progress::Clearing(place);
            }
            place += 1;
            done += 1 + index.len();
            chosen.clear();
            accessed.choose(index.clone(), frames, chosen);
            // At first also if nothing was chosen: shared pages are cleared whether they were chosen or not.
            if chosen.is_empty() && self.has_cleared {
                continue;
            }
            self.cleared += Survey::clear(probe, process, chosen)?;
            let mut of_process = probe.address_space(process).map(|identity| stuck.of(process, identity));
            accessed.take_cleared(index, chosen, frames, |start, pages| {
                if let Some(of_process) = &mut of_process {
                    of_process.set(start, pages);
                }
            });
        };
        Ok(())
    }

    /// Lists the frames that the survey has cleared, at its end. Returns how many accessed bits that were.
    fn take_cleared(&mut self, blocks: &mut Vec<ClearPages>) -> u64 {
        if self.progress != Progress::Over {
            return 0;
        }
        self.frames.list_cleared(blocks);
        std::mem::take(&mut self.cleared)
    }
}
