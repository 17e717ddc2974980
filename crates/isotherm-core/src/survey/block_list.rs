//! What a survey says of each block.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::PageHistory;
use super::block::Block;
use super::estimate::{Accessed, Pages};
use super::tally::BlockCounter;
use super::windows::Begun;
use crate::Figures;

/// The sums of one block of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    /// The first address of the block.
    pub start: u64,
    /// What is known of its pages.
    pub pages: Figures<u16>,
    /// For how long the page that was accessed last has been idle.
    pub idle: Duration,
    /// For how long its pages have been idle on the mean, those for which that is known. `None` if it is known for
    /// none, or if only [`idle`](Self::idle) is known of the block.
    pub mean_idle: Option<Duration>,
}

/// The sums of the blocks of a target, in the order of addresses.
///
/// Those of a survey are made from the history of its pages when they are asked for, since a target can have millions
/// of blocks.
#[derive(Clone, Default)]
pub struct BlockList(Source);

#[derive(Clone)]
enum Source {
    Sums(Arc<[BlockSums]>),
    Survey {
        history: Arc<PageHistory>,
        /// The pages of all mappings.
        total: Box<Pages>,
    },
}

impl Default for Source {
    fn default() -> Self {
        Self::Sums(Arc::default())
    }
}

impl BlockList {
    pub(super) fn of(history: Arc<PageHistory>, total: Pages) -> Self {
        Self(Source::Survey { history, total: Box::new(total) })
    }

    /// About how many bytes of memory the list takes that nothing else needs ([`PageHistory::own_bytes`]).
    pub fn own_bytes(&self) -> usize {
        match &self.0 {
            Source::Sums(sums) => size_of_val(&**sums),
            Source::Survey { history, total } => history.own_bytes() + size_of_val(&**total),
        }
    }

    /// What is estimated of the target. `None` if that is not known.
    pub(crate) fn uncertain(&self) -> Option<Accessed> {
        match &self.0 {
            Source::Sums(_) => None,
            Source::Survey { total, .. } => Some(total.uncertain(total)),
        }
    }

    /// What was accessed last in the intervals in which windows begin. `None` if that is not known.
    pub(crate) fn begun(&self) -> Option<&Begun> {
        match &self.0 {
            Source::Sums(_) => None,
            Source::Survey { total, .. } => Some(&total.begun),
        }
    }

    /// The sums of all blocks that have a present or a swapped page.
    pub fn iter(&self) -> impl Iterator<Item = BlockSums> {
        let (sums, survey) = match &self.0 {
            Source::Sums(sums) => (&**sums, None),
            Source::Survey { history, total } => (&[][..], Some((history, total))),
        };
        let made = survey.into_iter().flat_map(|(history, total)| {
            let mut counter = BlockCounter::new(history);
            listed(history).map(move |block| {
                let counts = block.counts();
                BlockSums {
                    start: block.start,
                    pages: Figures {
                        present: counts.present as u16,
                        touched: counter.touched(block, total),
                        unobservable: counts.unobservable as u16,
                        unknown: counts.unknown as u16,
                        ..Figures::unknown()
                    }
                    .with_swapped(history.knows_swap.then_some(counts.swapped as u16)),
                    idle: counter.idle(block),
                    mean_idle: counter.mean_idle(block),
                }
            })
        });
        sums.iter().copied().chain(made)
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Sums(sums) => sums.len(),
            Source::Survey { history, .. } => listed(history).count(),
        }
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Source::Sums(sums) => sums.is_empty(),
            Source::Survey { history, .. } => listed(history).next().is_none(),
        }
    }
}

/// The blocks that have a present page, or one that is known to be in swap.
fn listed(history: &PageHistory) -> impl Iterator<Item = Block<'_>> {
    let some = |block: &Block<'_>| !block.present.is_empty() || history.knows_swap && !block.swapped().is_empty();
    history.blocks().filter(some)
}

impl From<Vec<BlockSums>> for BlockList {
    fn from(sums: Vec<BlockSums>) -> Self {
        Self(Source::Sums(sums.into()))
    }
}

impl FromIterator<BlockSums> for BlockList {
    fn from_iter<T: IntoIterator<Item = BlockSums>>(sums: T) -> Self {
        Self::from(sums.into_iter().collect::<Vec<_>>())
    }
}

impl PartialEq for BlockList {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for BlockList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
