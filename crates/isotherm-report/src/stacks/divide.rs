//! Divides what a survey found in a mapping among the stacks that its memory belongs to.

use std::collections::BTreeMap;

use isotherm_core::survey::{BLOCK_SIZE, BlockSums, PageSums, WINDOWS};
use isotherm_core::{AddrRange, Figures, StackId};

use super::OwnerMap;

/// The sums of each stack in `range`, which is all of a mapping or a part of it, and which `sums` are about. `blocks`
/// are those of the target, in the order of addresses.
///
/// A survey tells the sums of mappings, and what is in each block of 2 MiB. A block that several stacks share is
/// divided by addresses.
pub(crate) fn divide(
    sums: &PageSums,
    range: AddrRange,
    blocks: &[BlockSums],
    owners: &OwnerMap,
) -> Vec<(Option<StackId>, PageSums)> {
    let parts = owners.parts(range);
    if let [(_, stack)] = parts[..] {
        return vec![(stack, *sums)];
    }
    let mut weights: BTreeMap<Option<StackId>, PageSums<f64>> = BTreeMap::new();
    for (part, stack) in &parts {
        *weights.entry(*stack).or_default() += weight(*part, blocks);
    }
    let all: PageSums<f64> = weights.values().copied().sum();
    let size_of = |wanted: Option<StackId>| {
        let bytes: u64 = parts.iter().filter(|(_, stack)| *stack == wanted).map(|(part, _)| part.size()).sum();
        bytes as f64 / range.size() as f64
    };
    let divided = weights.iter().map(|(stack, of)| {
        let size = size_of(*stack);
        // Without blocks, as of a survey by mapping, sizes tell.
        let share = |weight: f64, all: f64| if all > 0.0 { weight / all } else { size };
        let part = |bytes: u64, share: f64| (bytes as f64 * share) as u64;
        let figures = sums.figures.with(of.figures.with(all.figures, share), part);
        let of_present = share(of.figures.present, all.figures.present);
        let within = |nth: usize| part(sums.within[nth], share(of.within[nth], all.within[nth])).min(figures.present);
        let part = PageSums {
            figures: Figures { touched: figures.touched.min(figures.present), ..figures },
            mapped_again: part(sums.mapped_again, size),
            kinds: sums.kinds.map(|bytes| part(bytes, of_present)),
            within: std::array::from_fn(within),
        };
        (*stack, part)
    });
    divided.collect()
}

/// How much the blocks tell of a part, in pages.
fn weight(part: AddrRange, blocks: &[BlockSums]) -> PageSums<f64> {
    let first = blocks.partition_point(|block| block.start.saturating_add(BLOCK_SIZE) <= part.start());
    let inside = blocks[first..].iter().take_while(|block| block.start < part.end()).filter_map(|block| {
        let whole = AddrRange::new(block.start, block.start.saturating_add(BLOCK_SIZE));
        let share = whole?.intersection(part)?.size() as f64 / BLOCK_SIZE as f64;
        let figures = block.pages.map(|pages| f64::from(pages) * share);
        // Of a block that was accessed within the window, it is not known how much of it was.
        let within = WINDOWS.map(|window| if block.idle < window { figures.present } else { 0.0 });
        Some(PageSums { within, ..PageSums::of(figures) })
    });
    inside.sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use isotherm_core::{Allocation, MappingCall, TargetId};

    use super::super::{OwnerMaps, Owners};
    use super::*;

    #[test]
    fn blocks_tell_which_stack_has_the_present_and_which_the_touched_pages() {
        let target = TargetId::process(1, Duration::ZERO);
        let range = |from: u64, to: u64| AddrRange::new(from * BLOCK_SIZE, to * BLOCK_SIZE).unwrap();
        let mut owners = Owners::default();
        for (part, stack) in [(range(0, 4), 0), (range(2, 4), 1)] {
            let (time, call) = (Duration::ZERO, MappingCall::Mmap);
            owners.add(&Allocation { time, target, call, range: part, stack: Some(stack) });
        }
        let mut maps = OwnerMaps::new(&Arc::new(owners));
        let block = |nth: u64, present, touched, idle| BlockSums {
            pages: Figures { present, touched, ..Figures::default() },
            start: nth * BLOCK_SIZE,
            idle: Duration::from_secs(idle),
            ..BlockSums::default()
        };
        let blocks = [block(0, 300, 300, 0), block(2, 100, 0, 1000)];
        let sums = PageSums {
            figures: Figures { present: 400, touched: 300, ..Figures::default() },
            within: [300; WINDOWS.len()],
            ..PageSums::default()
        };
        let divided = divide(&sums, range(0, 4), &blocks, maps.at(target, Duration::ZERO));
        let told: Vec<_> =
            divided.iter().map(|(stack, of)| (*stack, of.figures.present, of.figures.touched, of.within[3])).collect();
        assert_eq!(told, [(Some(0), 300, 300, 300), (Some(1), 100, 0, 0)]);
        let by_size = divide(&sums, range(0, 4), &[], maps.at(target, Duration::ZERO));
        assert_eq!(by_size.iter().map(|(_, of)| of.figures.present).collect::<Vec<_>>(), [200, 200]);
    }
}
