//! What holds for every row of a recording: checked before it is written and after it is read.

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, NodeSums, PageSums, TargetSurvey, TotalSums};
use isotherm_core::{AddrRange, Count, Figures, Mapping, RegionSnapshot};

/// Checks the regions of a row: sorted and disjoint, no count above `samples`.
pub(crate) fn regions(regions: &[RegionSnapshot], samples: u32) -> Result<(), &'static str> {
    let mut end = 0;
    for region in regions {
        if region.range.start() < end {
            return Err("regions are out of order or overlap");
        }
        end = region.range.end();
        if region.nr_accesses > samples {
            return Err("a region has more accesses than there are samples");
        }
        if region.nr_samples > samples {
            return Err("a region has more samples taken than there are samples");
        }
        if region.nr_unobservable > samples {
            return Err("a region has more unobservable samples than there are samples");
        }
        let Some(pages) = region.pages else { continue };
        if pages.present > region.range.size() {
            return Err("a region has more present bytes than its size");
        }
        if is_more_than_present(&pages) {
            return Err("a part of a region's present bytes is more than all of them");
        }
        if pages.swapped.least() > region.range.size() - pages.present {
            return Err("a region has more bytes in memory and in swap than its size");
        }
    }
    Ok(())
}

/// Checks the sums over all targets of a survey: no part larger than the whole.
pub(crate) fn total(TotalSums { sums, shared }: &TotalSums) -> Result<(), &'static str> {
    if *shared > sums.figures.present {
        return Err(MORE_THAN_ALL);
    }
    parts(sums)
}

/// Checks what a survey found on each node: nodes sorted, no part larger than its whole.
pub(crate) fn nodes(by_node: &[NodeSums]) -> Result<(), &'static str> {
    if !by_node.is_sorted_by(|a, b| a.node < b.node) {
        return Err("the nodes of a survey are out of order");
    }
    by_node.iter().try_for_each(|found| parts(&found.sums))
}

const MORE_THAN_ALL: &str = "a part of a survey's present bytes is more than all of them";

/// Whether a part of the present memory is more than all of it.
fn is_more_than_present<N: Count>(figures: &Figures<N>) -> bool {
    figures.of_present().iter().any(|part| *part > figures.present)
}

/// Checks that no part of the present bytes is larger than all of them.
fn parts(PageSums { figures, within, kinds, .. }: &PageSums) -> Result<(), &'static str> {
    if kinds.unseen.sum() > figures.unobservable {
        return Err("a survey has more unobservable bytes by reason than in all");
    }
    let is_more = is_more_than_present(figures) || within.iter().any(|bytes| *bytes > figures.present);
    if is_more { Err(MORE_THAN_ALL) } else { Ok(()) }
}

/// Checks what a survey found in a target: mappings and blocks sorted, no part larger than its whole.
pub(crate) fn survey(target: &TargetSurvey) -> Result<(), &'static str> {
    if !target.by_mapping.is_sorted_by(|a, b| a.mapping < b.mapping) {
        return Err("the mappings of a survey are out of order");
    }
    for (mapping, sums) in target.surveyed() {
        let (Figures { present, swapped, .. }, size) = (sums.figures, mapping.range.size());
        if present > size {
            return Err("a survey has more present bytes in a mapping than its size");
        }
        if swapped.least().saturating_add(sums.kinds.lazily_freed) > size - present {
            return Err("a survey has more bytes of a mapping in memory and in swap than its size");
        }
        parts(sums)?;
    }
    nodes(&target.by_node)?;
    let mut before = None;
    // A list of a survey that was just taken makes its blocks anew each time, which takes long.
    for block in target.by_block.iter() {
        if before.replace(block.start).is_some_and(|before| before >= block.start) {
            return Err("the blocks of a survey are out of order");
        }
        if !block.start.is_multiple_of(BLOCK_SIZE) {
            return Err("a block of a survey begins within a block");
        }
        if usize::from(block.pages.kept()) > BLOCK_PAGES || is_more_than_present(&block.pages) {
            return Err("a block of a survey has more pages than there are");
        }
    }
    Ok(())
}

/// Checks the mappings of a row: sorted and disjoint.
pub(crate) fn mappings(mappings: &[Mapping]) -> Result<(), &'static str> {
    if !sorted_and_disjoint(mappings.iter().map(|mapping| mapping.range)) {
        return Err("mappings are out of order or overlap");
    }
    Ok(())
}

fn sorted_and_disjoint(ranges: impl Iterator<Item = AddrRange>) -> bool {
    ranges.is_sorted_by(|a, b| a.end() <= b.start())
}
