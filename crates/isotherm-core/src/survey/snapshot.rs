//! What a survey found: in one target, and in all.

use std::sync::Arc;
use std::time::Duration;

use super::estimate::Pages;
use super::tally::Tallies;
use super::windows::{Begun, Windows};
use super::{
    BLOCK_SIZE, BlockList, ByNode, MappingIndex, MappingSums, NodeSums, PageBits, PageHistory, PageSums, TotalSums,
};
use crate::{Mapping, PAGE_SIZE, Quantity, TargetId};

/// What a survey found in one target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSurvey {
    /// Which target.
    pub id: TargetId,
    /// Its mappings as they were read last.
    pub mappings: Arc<[Mapping]>,
    /// The sums of all mappings that have a present, a swapped or a lazily freed page, in their order.
    pub by_mapping: Vec<MappingSums>,
    /// The sums of all blocks that have a present or a swapped page, in the order of
    /// addresses.
    pub by_block: BlockList,
    /// The sums of each memory node, in their order. Empty if all memory is on one node, or if the survey does not know
    /// the nodes.
    pub by_node: Vec<NodeSums>,
}

/// What a survey cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurveyCost {
    /// Present pages that were read.
    pub reads: u64,
    /// Accessed bits that were cleared.
    pub clears: u64,
}

/// What a survey found in the targets of one party together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartySums {
    /// The number of the party.
    pub party: u32,
    /// The sums. `None` if it is not known which memory its targets share.
    pub total: Option<TotalSums>,
    /// The memory on each node, where each page counts once. Empty if it is not known.
    pub by_node: Vec<NodeSums>,
}

/// What a survey found in all targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveySnapshot {
    /// When the survey was, since the start of the run.
    pub time: Duration,
    /// The time since the survey before; zero for the first.
    pub interval: Duration,
    /// What it cost.
    pub cost: SurveyCost,
    /// The targets.
    pub targets: Vec<TargetSurvey>,
    /// All targets together. `None` if it is not known which memory they share.
    pub total: Option<TotalSums>,
    /// The memory of all targets together on each node, where each page counts once. Empty if it is not known.
    pub by_node: Vec<NodeSums>,
    /// The sums of each party, in their order. Empty unless targets have parties
    /// ([`AddressSpace::parties`](crate::AddressSpace::parties)).
    pub by_party: Vec<PartySums>,
    /// Why much memory was left unobservable, and which option makes it observable, in a sentence: see
    /// [`Survey::left_out`](super::Survey::left_out).
    pub left_out: Option<Arc<str>>,
}

impl SurveySnapshot {
    /// The sums over all targets, in which each page counts once if it is known which memory they share.
    pub fn sums(&self) -> PageSums {
        self.total.map_or_else(|| self.targets.iter().map(TargetSurvey::total).sum(), |total| total.sums)
    }

    /// Removes what is known of all targets together.
    pub fn forget_total(&mut self) {
        self.total = None;
        self.by_node.clear();
    }
}

impl TargetSurvey {
    /// The sums over all mappings.
    pub fn total(&self) -> PageSums {
        self.by_mapping.iter().map(|found| found.sums).sum()
    }

    /// The mappings that have sums, each with these.
    pub fn surveyed(&self) -> impl Iterator<Item = (&Mapping, &PageSums)> + Clone {
        self.by_mapping.iter().map(|found| (found.mapping.of(&self.mappings), &found.sums))
    }

    /// The same without what is in each block, which takes much memory.
    #[must_use]
    pub fn without_blocks(&self) -> Self {
        Self { by_block: BlockList::default(), ..self.clone() }
    }

    /// Whether it has found something in swap. A merged survey tells it of blocks only.
    pub fn has_swap(&self) -> bool {
        self.by_mapping.iter().any(|found| found.sums.figures.swapped.least() > 0)
            || self.by_block.iter().any(|block| block.pages.swapped.least() > 0)
    }

    /// Whether it tells what is in swap. A merged survey tells it of blocks only.
    pub fn knows_swap(&self) -> bool {
        let mut amounts = self.by_mapping.iter().map(|found| found.sums.figures.swapped);
        amounts.any(|amount| !amount.is_unknown())
            || self.by_block.iter().any(|block| !block.pages.swapped.is_unknown())
    }

    /// Takes in which pages of blocks, in the order of addresses, are second views of memory that counts elsewhere.
    pub(crate) fn add_second_views(&mut self, views: &[(u64, PageBits)]) {
        let Some((first, _)) = views.first() else { return };
        let mapped = self.mappings.partition_point(|mapping| mapping.range.end() <= *first);
        for (index, mapping) in self.mappings.iter().enumerate().skip(mapped) {
            let from = views.partition_point(|(start, _)| start + BLOCK_SIZE <= mapping.range.start());
            let inside = views[from..].iter().take_while(|(start, _)| *start < mapping.range.end());
            let pages: usize =
                inside.map(|(start, pages)| (*pages & PageBits::within(*start, mapping.range)).count()).sum();
            let Some(mapping) = MappingIndex::new(index, &self.mappings).filter(|_| pages > 0) else { continue };
            let place = self.by_mapping.binary_search_by_key(&mapping, |found| found.mapping);
            let place = place.unwrap_or_else(|place| {
                self.by_mapping.insert(place, MappingSums { mapping, sums: PageSums::default() });
                place
            });
            self.by_mapping[place].sums.mapped_again = pages as u64 * PAGE_SIZE;
        }
    }

    /// The sums by node of mappings that lie on one node each. Empty if no two of these nodes differ.
    fn by_node_of_mappings(&self) -> Vec<NodeSums> {
        let mut by_node = ByNode::default();
        for (mapping, sums) in self.surveyed() {
            mapping.node.into_iter().for_each(|node| by_node.add(node, sums));
        }
        let sums = by_node.into_sums();
        if sums.len() > 1 { sums } else { Vec::new() }
    }
}

impl PageHistory {
    /// What the last survey says about a target with these `mappings`.
    pub fn sums(self: &Arc<Self>, id: TargetId, mappings: &Arc<[Mapping]>) -> TargetSurvey {
        self.sums_with(id, mappings, Tallies::new(self))
    }

    /// What the last survey says about a target with these `mappings`, some of which are counted already.
    pub(super) fn sums_with(
        self: &Arc<Self>,
        id: TargetId,
        mappings: &Arc<[Mapping]>,
        mut tallies: Tallies,
    ) -> TargetSurvey {
        let windows = Windows::new(self);
        let mut begun = Begun::default();
        let mut by_mapping: Vec<(MappingIndex, Pages)> = Vec::new();
        for (index, mapping) in mappings.iter().enumerate() {
            let pages = tallies.pages_in(self, mapping.range, &windows);
            if pages.present > 0.0 || pages.swapped > 0.0 || pages.lazily_freed > 0 {
                begun.add(&pages.begun);
                by_mapping.extend(MappingIndex::new(index, mappings).map(|index| (index, pages)));
            }
        }
        let of_begun = windows.of_begun(&begun);
        let mut total = Pages::default();
        for (_, pages) in &mut by_mapping {
            pages.spread(&windows, of_begun);
            total.add(pages);
        }
        total.begun.parts = of_begun;
        let sums = |pages: &Pages, knows_swap: bool| {
            let mut sums = pages.sums(&total);
            if !knows_swap {
                sums.figures.swapped = Quantity::unknown();
            }
            sums
        };
        let by_mapping = by_mapping.iter();
        let by_mapping = by_mapping.map(|&(mapping, ref of)| MappingSums { mapping, sums: sums(of, self.knows_swap) });
        let by_mapping = by_mapping.collect();
        let by_node = tallies.by_node(&windows).into_iter().map(|(node, mut pages)| {
            pages.spread(&windows, of_begun);
            NodeSums { node, sums: sums(&pages, false) }
        });
        let by_node = by_node.collect();
        let by_block = BlockList::of(Arc::clone(self), total);
        let mut found = TargetSurvey { id, mappings: Arc::clone(mappings), by_mapping, by_block, by_node };
        if found.by_node.is_empty() {
            found.by_node = found.by_node_of_mappings();
        }
        found
    }
}
