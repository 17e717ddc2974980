//! Divides what a survey found in a mapping among the stacks that its memory belongs to.

use std::collections::BTreeMap;

use isotherm_core::survey::{BLOCK_SIZE, BlockSums, PageSums, WINDOWS};
use isotherm_core::{AddrRange, StackId};

use super::OwnerMap;

/// How much each stack has, by what the blocks of 2 MiB tell.
#[derive(Clone, Copy, Default)]
struct Weights {
    present: f64,
    touched: f64,
    swapped: f64,
    within: [f64; WINDOWS.len()],
}

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
    let mut weights: BTreeMap<Option<StackId>, Weights> = BTreeMap::new();
    for (part, stack) in &parts {
        add(weights.entry(*stack).or_default(), *part, blocks);
    }
    let mut all = Weights::default();
    for of in weights.values() {
        all.present += of.present;
        all.touched += of.touched;
        all.swapped += of.swapped;
        all.within.iter_mut().zip(of.within).for_each(|(sum, weight)| *sum += weight);
    }
    let share = |bytes: u64, weight: f64, all: f64, size: f64| {
        // Without blocks, as of a survey by mapping, sizes tell.
        let share = if all > 0.0 { weight / all } else { size };
        (bytes as f64 * share) as u64
    };
    let size_of = |wanted: Option<StackId>| {
        let bytes: u64 = parts.iter().filter(|(_, stack)| *stack == wanted).map(|(part, _)| part.size()).sum();
        bytes as f64 / range.size() as f64
    };
    let divided = weights.iter().map(|(stack, of)| {
        let size = size_of(*stack);
        let by_present = |bytes: u64| share(bytes, of.present, all.present, size);
        let mut within = sums.within;
        for (nth, bytes) in within.iter_mut().enumerate() {
            *bytes = share(*bytes, of.within[nth], all.within[nth], size);
        }
        let present = by_present(sums.present);
        let part = PageSums {
            present,
            touched: share(sums.touched, of.touched, all.touched, size).min(present),
            unobservable: by_present(sums.unobservable),
            unknown: by_present(sums.unknown),
            mapped_again: (sums.mapped_again as f64 * size) as u64,
            swapped: sums.swapped.map(|bytes| share(bytes, of.swapped, all.swapped, size)),
            kinds: sums.kinds.map(by_present),
            within: within.map(|bytes| bytes.min(present)),
        };
        (*stack, part)
    });
    divided.collect()
}

/// Adds what the blocks tell of a part.
fn add(to: &mut Weights, part: AddrRange, blocks: &[BlockSums]) {
    let first = blocks.partition_point(|block| block.start.saturating_add(BLOCK_SIZE) <= part.start());
    for block in blocks[first..].iter().take_while(|block| block.start < part.end()) {
        let whole = AddrRange::new(block.start, block.start.saturating_add(BLOCK_SIZE));
        let Some(inside) = whole.and_then(|whole| whole.intersection(part)) else { continue };
        let share = inside.size() as f64 / BLOCK_SIZE as f64;
        let present = f64::from(block.present) * share;
        to.present += present;
        to.touched += f64::from(block.touched) * share;
        to.swapped += f64::from(block.swapped.unwrap_or(0)) * share;
        for (window, weight) in WINDOWS.iter().zip(&mut to.within) {
            // Of a block that was accessed within the window, it is not known how much of it was.
            *weight += if block.idle < *window { present } else { 0.0 };
        }
    }
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
            start: nth * BLOCK_SIZE,
            present,
            touched,
            idle: Duration::from_secs(idle),
            ..BlockSums::default()
        };
        let blocks = [block(0, 300, 300, 0), block(2, 100, 0, 1000)];
        let sums = PageSums { present: 400, touched: 300, within: [300; WINDOWS.len()], ..PageSums::default() };
        let divided = divide(&sums, range(0, 4), &blocks, maps.at(target, Duration::ZERO));
        let told: Vec<_> = divided.iter().map(|(stack, of)| (*stack, of.present, of.touched, of.within[3])).collect();
        assert_eq!(told, [(Some(0), 300, 300, 300), (Some(1), 100, 0, 0)]);
        let by_size = divide(&sums, range(0, 4), &[], maps.at(target, Duration::ZERO));
        assert_eq!(by_size.iter().map(|(_, of)| of.present).collect::<Vec<_>>(), [200, 200]);
    }
}
