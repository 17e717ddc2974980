//! The survey: every present page of a target is read once a *survey interval*.
//!
//! Sampling measures how often memory is accessed. The survey finds, page by page, whether memory was accessed, where,
//! and since when it has been idle. Reading is cheap. Clearing is not, because the target must set each cleared
//! accessed bit again. Therefore
//!
//! - a page that is not accessed stays clear, and needs no more than reading: *cold is exact*;
//! - a page that was idle and is found accessed is always cleared again;
//! - of a block of pages that has been hot for several surveys, a random sixteenth is cleared, and stands for the rest:
//!   *hot is sampled*;
//! - the number of clears in a survey has a bound. Memory that the bound leaves out is *unknown*: a set accessed bit
//!   means only that the page was accessed at some time since it was mapped.
//!
//! The history of pages and the choice of the pages to clear are here. A [`Survey`] reads and clears.

mod bits;
mod block;
mod block_list;
mod borders;
mod by_mapping;
mod change;
mod chosen;
mod chunk;
mod counts;
mod estimate;
mod fading;
mod history;
mod in_use;
mod kinds;
mod lasts;
mod memo;
mod nodes;
mod number;
mod once;
mod panel;
mod plan;
mod reasons;
mod settings;
mod snapshot;
mod states;
mod sums;
mod tally;
mod update;
mod windows;

pub use bits::{BLOCK_PAGES, PageBits};
pub use block_list::{BlockList, BlockSums};
pub(crate) use borders::Stretch;
pub(crate) use by_mapping::MappingHistories;
pub use by_mapping::{MappingRead, MappingSurvey};
pub use chosen::{Chosen, ClearLimits};
pub(crate) use estimate::Accessed;
pub use fading::Fading;
pub use history::PageHistory;
pub use in_use::{InUse, RECENT_SURVEYS};
pub use kinds::{ByReason, Kinds, Unseen};
pub(crate) use memo::Memos;
pub(crate) use nodes::ByNode;
pub use nodes::{NodePages, NodeSums};
pub(crate) use once::CountedOnce;
pub use panel::Panel;
pub(crate) use plan::{Credit, Learned, SurveyPlan};
pub use settings::SurveySettings;
pub(crate) use settings::{CLEAR_BLOCK, CLEAR_PAGE, LONGEST_WAIT};
pub use snapshot::{PartySums, SurveyCost, SurveySnapshot, TargetSurvey};
pub use states::BlockStates;
pub use sums::{MappingIndex, MappingSums, PageSums, TotalSums};
pub use update::{HistoryUpdate, PartUpdate};
pub use windows::WINDOWS;
pub(crate) use windows::{Begun, LONGEST_WINDOW, Windows};

use crate::{AddrRange, BoxError, PAGE_SIZE, TargetId, TargetSpace};

/// The size of a block in bytes: 2 MiB, which is also the size of a huge page.
pub const BLOCK_SIZE: u64 = BLOCK_PAGES as u64 * PAGE_SIZE;

/// The pages of one block of a target, as a survey reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPages {
    /// The first address of the block: a multiple of [`BLOCK_SIZE`].
    pub start: u64,
    /// The pages that are in memory, whether the target may access them or not.
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
    /// The absent pages that are in swap, as far as [`Survey::knows_swap`].
    pub swapped: PageBits,
    /// The pages that the process has freed lazily and not used since: see [`Kinds::lazily_freed`]. They are not among
    /// the present ones.
    pub lazily_freed: PageBits,
}

/// Which part of a target a survey reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyPart {
    /// The part begins with the block that contains this address.
    pub from: u64,
    /// The part ends after this many blocks that may have a present page. A survey that can read a target only as a
    /// whole reads all of it.
    pub most: usize,
}

impl SurveyPart {
    /// All of a target.
    pub const ALL: Self = Self { from: 0, most: usize::MAX };
}

/// What is left of a target after a part was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Where the next part begins. `None` if the target was read to its end. It is 0 as long as a survey has to do
    /// other work than to read blocks, before the first or after the last of them: such a part has no blocks.
    pub from: Option<u64>,
    /// How many blocks that may have a present page are left, about.
    pub blocks: usize,
}

/// Where some pages of one block are: in which page frames, or where in swap.
#[derive(Clone, Copy, Debug)]
pub struct BlockFrames<'a> {
    /// The first address of the block: a multiple of [`BLOCK_SIZE`].
    pub start: u64,
    /// The pages in memory whose frames are given.
    pub pages: PageBits,
    /// The pages in swap whose places are given.
    pub swapped: PageBits,
    /// For each of `pages` the number of its page frame, and for each of `swapped` a number that identifies its place
    /// in swap. The entries of other pages have any value.
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
    /// Fails only if the run cannot continue.
    fn begin(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Reads a part of the pages of `target`. Appends to `blocks`, in the order of addresses, each block in the part
    /// that has a present, a swapped or a lazily freed page. A page that was accessed and that the probe has cleared
    /// for a sample since the last survey counts as accessed.
    ///
    /// # Errors
    /// Fails only if the run cannot continue. A target that has just ended has no blocks.
    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError>;

    /// Tells that the survey is going to read the next part of `target`, which has not run since the survey before. Its
    /// accessed bits say nothing, and are not cleared: there is less to find out about it.
    fn rests(&mut self, _target: TargetId) {}

    /// Reads pages of `target` between two parts of a survey, for which it changes nothing. Appends to `blocks`, in the
    /// order of addresses, at most `most` blocks that have a present page in `ranges`, which lie in mappings of
    /// `target`. They may hold other pages too. A survey that cannot look appends none.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn look(
        &mut self,
        _target: &TargetSpace,
        _ranges: &[AddrRange],
        _most: usize,
        _blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BoxError> {
        Ok(())
    }

    /// Calls `found` with the page frames of the pages of `target` that other processes may map too, and with the
    /// places of its pages in swap, in the part that the survey has just read. Returns false if the frames are not
    /// known.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn frames(&mut self, _target: TargetId, _found: &mut dyn FnMut(BlockFrames<'_>)) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// Calls `found` with the pages of `target`, by block and in the order of addresses, whose frames the target maps
    /// at a lower address too. The survey counts them there and not here, and they are accessed there if they are here.
    fn second_views(&self, _target: TargetId, _found: &mut dyn FnMut(u64, PageBits)) {}

    /// Calls `found` with the memory nodes of pages of `target` in the part that the survey has just read, in the order
    /// of addresses. `found` is not called for pages whose node is not known, and not at all if all memory is on one
    /// node.
    ///
    /// # Errors
    /// Fails only if the run cannot continue.
    fn nodes(&mut self, _target: TargetId, _found: &mut dyn FnMut(NodePages)) -> Result<(), BoxError> {
        Ok(())
    }

    /// Whether the survey finds which pages are in swap.
    fn knows_swap(&self) -> bool {
        false
    }

    /// The ranges of `target` in which the unobservable pages are so for one reason, sorted and disjoint. Elsewhere it
    /// is that several processes map a page, or another one.
    fn unseen(&self, _target: TargetId) -> Vec<(AddrRange, Unseen)> {
        Vec::new()
    }

    /// Says in a sentence, for the user, how much memory the last survey has left unobservable, why, and which option
    /// has it observed. `None` if it is little, or if the user has asked to leave it out.
    fn left_out(&self) -> Option<String> {
        None
    }

    /// Clears the accessed bits of pages in the part that was just read. The survey may clear other pages as well:
    /// shared ones after the last part of a target, and where the system cannot clear single pages. It then adds their
    /// blocks; `blocks` stays sorted by address. It is called after each part, even if there is no page to clear, and
    /// may be called again with other pages of the same part. Returns how many accessed bits it has cleared, which is
    /// the work that the target has if it accesses all of them again.
    ///
    /// # Errors
    /// Fails only if the run cannot continue. A page that cannot be cleared is added to the unobservable ones.
    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError>;
}
