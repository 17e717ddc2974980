//! What surveys find in blocks of 2 MiB: as columns and back.

use std::time::Duration;

use isotherm_core::Figures;
use isotherm_core::survey::{BLOCK_SIZE, BlockList, BlockSums};

use crate::columns::Block;

/// Hundredths of a second.
fn centiseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis() / 10).unwrap_or(i64::MAX)
}

/// The columns of the blocks of a survey of this time.
pub(crate) fn to_columns(blocks: &BlockList, time: Duration) -> Vec<Block> {
    let now = centiseconds(time);
    // Those before or after that are as far away as can be told: 248 days.
    let within = |time: i64| time.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let used = |idle| within(now.saturating_sub(centiseconds(idle)));
    let mut end = 0;
    let of_block = |block: BlockSums| {
        let used_cs = used(block.idle);
        let mean_before_cs = block.mean_idle.map(|idle| within(i64::from(used_cs) - i64::from(used(idle))));
        column(gap(block.start, &mut end), block.pages, used_cs, mean_before_cs)
    };
    blocks.iter().map(of_block).collect()
}

/// The distance of the block at `start` from the end of the one before it, in blocks. `end` becomes that of this one.
pub(crate) fn gap(start: u64, end: &mut u64) -> u64 {
    let nth = start / BLOCK_SIZE;
    nth.saturating_sub(std::mem::replace(end, nth + 1))
}

/// The blocks of a survey of this time that these columns hold. They are not checked.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn read(found: &[Block], time: Duration) -> Result<BlockList, &'static str> {
    let now = centiseconds(time);
    let idle = |used: i64| Duration::from_millis(10 * u64::try_from(now - used).unwrap_or(0));
    let starts = starts(found).zip(found);
    let block = |(start, block): (Option<u64>, &Block)| {
        let used = i64::from(block.used_cs);
        Ok(BlockSums {
            pages: pages(block),
            start: start.ok_or("a block of a survey is beyond all addresses")?,
            idle: idle(used),
            mean_idle: block.mean_before_cs.map(|before| idle(used - i64::from(before))),
        })
    };
    Ok(starts.map(block).collect::<Result<Vec<_>, &'static str>>()?.into())
}

/// The columns of a block with these pages.
pub(crate) fn column(gap_blocks: u64, pages: Figures<u16>, used_cs: i32, mean_before_cs: Option<i32>) -> Block {
    Block {
        gap_blocks,
        present_pages: pages.present,
        touched_pages: pages.touched,
        used_cs,
        mean_before_cs,
        swapped_pages: pages.swapped.known(),
        unobservable_pages: pages.unobservable,
        unknown_pages: pages.unknown,
    }
}

/// What these columns hold of the pages of a block.
pub(crate) fn pages(found: &Block) -> Figures<u16> {
    Figures {
        present: found.present_pages,
        touched: found.touched_pages,
        unobservable: found.unobservable_pages,
        unknown: found.unknown_pages,
        ..Figures::unknown()
    }
    .with_swapped(found.swapped_pages)
}

/// The first address of each block. `None` from the first one on that is beyond all addresses.
pub(crate) fn starts(found: &[Block]) -> impl Iterator<Item = Option<u64>> {
    found.iter().scan(Some(0), |end: &mut Option<u64>, block| {
        let nth = end.and_then(|end| end.checked_add(block.gap_blocks)).filter(|nth| *nth <= u64::MAX / BLOCK_SIZE);
        *end = nth.map(|nth| nth + 1);
        Some(nth.map(|nth| nth * BLOCK_SIZE))
    })
}
