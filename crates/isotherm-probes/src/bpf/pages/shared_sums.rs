//! Sums up the shared pages of a target: what clearing them in one way or the other would cost.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use isotherm_core::PAGE_SIZE;
use isotherm_core::survey::{BlockPages, PageBits};

use super::masks::Masks;
use super::sharing::Sharing;
use crate::bpf::target::BpfTarget;

/// The present, accessed and shared bytes of a target. What it maps several times counts at each address, since each
/// has an accessed bit to clear, but once among the shared bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) present: u64,
    /// The page-table entries of the present pages: one for each page, or one for a huge page.
    pub(super) entries: u64,
    /// The page-table entries of files and shared memory.
    pub(super) file_entries: u64,
    pub(super) file_shared: u64,
    /// Of private anonymous memory: shared since a fork, or locked.
    pub(super) private_shared: u64,
    /// Of the shared bytes, those that are locked.
    pub(super) locked: u64,
    /// The number of accessed bits that are set.
    pub(super) accessed: u64,
    /// The number of accessed bits that are set, of files and shared memory.
    pub(super) file_accessed: u64,
    /// The number of mappings of the target.
    pub(super) mappings: usize,
    /// The name of the mapping with the most shared pages.
    pub(super) name: Arc<str>,
}

impl Sums {
    /// Adds what was read of the same target above it. The name stays, if there is one.
    pub(super) fn add(&mut self, above: Self) {
        self.present += above.present;
        self.entries += above.entries;
        self.file_entries += above.file_entries;
        self.file_shared += above.file_shared;
        self.private_shared += above.private_shared;
        self.locked += above.locked;
        self.accessed += above.accessed;
        self.file_accessed += above.file_accessed;
        self.mappings = above.mappings;
        if self.name.is_empty() {
            self.name = above.name;
        }
    }

    /// Sums up `blocks`, of which `shared` gives the shared pages that are to be cleared.
    pub(super) fn of(
        target: &BpfTarget,
        known: &BTreeMap<u64, Sharing>,
        shared: impl Fn(&Sharing) -> PageBits,
        blocks: &[BlockPages],
    ) -> Self {
        let mut sums = Self { mappings: target.mappings().len(), ..Self::default() };
        let mut masks = Masks::new(target.mappings(), target.clearing());
        let mut names: HashMap<Arc<str>, usize> = HashMap::new();
        let bytes = |pages: PageBits| pages.count() as u64 * PAGE_SIZE;
        for block in blocks {
            let mask = masks.at(block.start);
            let bits = |pages: PageBits| if block.huge { pages.count().min(1) } else { pages.count() } as u64;
            sums.present += bytes(block.present);
            sums.entries += bits(block.present);
            sums.file_entries += bits(block.present & mask.file);
            sums.accessed += bits(block.accessed);
            sums.file_accessed += bits(block.accessed & mask.file);
            let Some(known) = known.get(&block.start) else { continue };
            let shared = shared(known) & block.present & !known.second();
            sums.file_shared += bytes(shared & mask.file);
            sums.private_shared += bytes(shared & !mask.file);
            sums.locked += bytes(shared & mask.locked);
            for index in masks.mappings_at(block.start) {
                *names.entry(Arc::clone(&target.mappings()[index].name)).or_default() += shared.count();
            }
        }
        sums.name = names.into_iter().max_by_key(|(_, pages)| *pages).map(|(name, _)| name).unwrap_or_default();
        sums
    }
}
