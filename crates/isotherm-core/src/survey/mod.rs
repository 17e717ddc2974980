//! The survey: every present page of a target is read once a *survey interval*.
//!
//! Sampling says how often memory is accessed. The survey says whether, where and since when, page by page. Reading
//! is cheap; clearing is not, because the target must set each cleared accessed bit again. Therefore
//!
//! - a page that is not accessed stays clear, and needs no more than reading: *cold is exact*;
//! - a page that was idle and is found accessed is always cleared again;
//! - of a block of pages that has been hot for several surveys, a random eighth is cleared, and stands for the rest:
//!   *hot is sampled*;
//! - the number of clears in a survey has a bound. What the bound leaves out is *unknown*: its accessed bit says only
//!   that it was accessed at some time since it was mapped.
//!
//! The history of pages and the choice of the pages to clear are here. A [`Survey`] reads and clears.

mod bits;
mod borders;
mod history;
mod limits;
mod once;
mod plan;
mod region_pages;
mod states;
mod sums;

pub use bits::{BLOCK_PAGES, PageBits};
pub(crate) use borders::Stretch;
pub use history::PageHistory;
pub use limits::SurveyLimits;
pub(crate) use once::CountedOnce;
pub(crate) use plan::{Learned, SurveyPlan};
pub use region_pages::RegionPages;
pub use states::BlockStates;
pub(crate) use sums::Windows;
pub use sums::{BlockSums, MappingSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey, TotalSums, WINDOWS};

use crate::{BoxError, PAGE_SIZE, TargetId, TargetSpace};

/// The size of a block in bytes: 2 MiB, which is also the size of a huge page.
pub const BLOCK_SIZE: u64 = BLOCK_PAGES as u64 * PAGE_SIZE;

/// The pages of one block of a target, as a survey reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPages {
    /// The first address of the block: a multiple of [`BLOCK_SIZE`].
    pub start: u64,
    /// The pages that are in memory, and mapped with some access permission.
    pub present: PageBits,
    /// The present pages that were accessed since they were cleared, or since they were mapped if they were never
    /// cleared.
    pub accessed: PageBits,
    /// The present pages for which the survey knows that it cannot tell.
    pub unobservable: PageBits,
    /// The accessed pages that other processes are known to map as well, and that the survey clears by itself.
    pub shared: PageBits,
    /// Whether one accessed bit stands for the whole block, so that clearing it costs as much as clearing one page.
    pub huge: bool,
}

/// The page frames of some pages of one block.
#[derive(Clone, Copy, Debug)]
pub struct BlockFrames<'a> {
    /// The first address of the block: a multiple of [`BLOCK_SIZE`].
    pub start: u64,
    /// The pages whose frames are given.
    pub pages: PageBits,
    /// The number of the page frame of each of these pages. The others have any number.
    pub frames: &'a [u64; BLOCK_PAGES],
}

/// The pages of one block that are to be cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearPages {
    /// The first address of the block: a multiple of [`BLOCK_SIZE`].
    pub start: u64,
    /// The pages to clear. The survey replaces it by the pages that were cleared, which can be more: a folio is
    /// cleared as a whole.
    pub pages: PageBits,
    /// The survey adds the pages that cannot be cleared. They are unobservable.
    pub unobservable: PageBits,
}

/// A way to read all pages of a target at once. Like a probe, it knows no region and keeps no statistics.
pub trait Survey {
    /// Begins a survey of all targets.
    ///
    /// # Errors
    /// Fails only if the run cannot go on.
    fn begin(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Reads the pages of `target`. Appends to `blocks`, in the order of addresses, each block that has a present page.
    /// A page that was accessed and that the probe has cleared for a sample since the last survey counts as accessed.
    ///
    /// # Errors
    /// Fails only if the run cannot go on. A target that has just ended has no blocks.
    fn read(&mut self, target: &TargetSpace, blocks: &mut Vec<BlockPages>) -> Result<(), BoxError>;

    /// Calls `found` with the page frames of all pages of `target` that other processes may map too. The survey has
    /// just read the target. Returns false if the frames are not known.
    ///
    /// # Errors
    /// Fails only if the run cannot go on.
    fn frames(&mut self, _target: TargetId, _found: &mut dyn FnMut(BlockFrames<'_>)) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// Says in a sentence, for the user, how much memory the last survey has left unobservable, why, and which option
    /// has it observed. `None` if it is little, or if the user has asked to leave it out.
    fn left_out(&self) -> Option<String> {
        None
    }

    /// Clears the accessed bits of pages. The survey may clear other pages as well: shared ones, and where the system
    /// cannot clear single pages. It then adds their blocks; `blocks` stays sorted by address. It is called in every
    /// survey, even if there is no page to clear. Returns how many accessed bits it has cleared, which is the work that
    /// the target has if it accesses all of them again.
    ///
    /// # Errors
    /// Fails only if the run cannot go on. A page that cannot be cleared is added to the unobservable ones.
    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError>;
}
