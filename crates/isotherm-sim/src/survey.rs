//! The survey of simulated memory. Its accessed bits are independent of those that samples clear.

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, Rest, Survey, SurveyPart};
use isotherm_core::{AddrRange, BoxError, PAGE_SIZE, TargetId, TargetSpace};

use crate::SimMemory;

impl Survey for SimMemory {
    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        Ok(self.read_areas(part, blocks, |area| target.mappings.iter().any(|mapping| mapping.range == area)))
    }

    fn look(
        &mut self,
        _: &TargetSpace,
        ranges: &[AddrRange],
        most: usize,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BoxError> {
        let is_asked = |area: AddrRange| ranges.iter().any(|range| range.intersection(area).is_some());
        self.read_areas(SurveyPart { most, ..SurveyPart::ALL }, blocks, is_asked);
        Ok(())
    }

    /// Pages are reclaimed to swap.
    fn knows_swap(&self) -> bool {
        true
    }

    fn clear(&mut self, _target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let now = self.clock().now();
        let mut cleared = 0;
        for block in blocks {
            for page in block.pages.iter() {
                self.cleared_pages.borrow_mut().insert(block.start + page as u64 * PAGE_SIZE, now);
                cleared += 1;
            }
        }
        Ok(cleared)
    }
}

impl SimMemory {
    /// Appends the blocks of a part of the areas that `is_asked` holds for.
    fn read_areas(&self, part: SurveyPart, blocks: &mut Vec<BlockPages>, is_asked: impl Fn(AddrRange) -> bool) -> Rest {
        let first = blocks.len();
        let mut rest = Rest::default();
        let (presence, cleared) = (self.presence().borrow(), self.cleared_pages.borrow());
        for (area, range) in self.areas().enumerate().filter(|(_, range)| is_asked(*range)) {
            for piece in range.pieces(BLOCK_SIZE) {
                let start = piece.start() / BLOCK_SIZE * BLOCK_SIZE;
                if start < part.from {
                    continue;
                }
                let is_new = blocks.last().is_none_or(|last| last.start != start);
                if is_new && blocks.len() - first >= part.most {
                    rest.from.get_or_insert(start);
                    rest.blocks += 1;
                    continue;
                }
                if blocks.last().is_none_or(|last| last.start != start) {
                    blocks.push(BlockPages { start, ..BlockPages::default() });
                }
                let Some(block) = blocks.last_mut() else { continue };
                for addr in piece.page_addresses() {
                    let page = ((addr - start) / PAGE_SIZE) as usize;
                    let number = (addr - range.start()) / PAGE_SIZE;
                    if presence.reclaimed[area][number as usize] {
                        block.swapped.insert(page);
                        continue;
                    }
                    block.present.insert(page);
                    // A page that was never cleared was accessed when it was made.
                    let accessed = cleared.get(&addr).is_none_or(|&since| {
                        self.touches(area).any(|touch| self.touched(touch, number, range.pages(), since))
                    });
                    if accessed {
                        block.accessed.insert(page);
                    }
                }
            }
        }
        rest
    }
}
