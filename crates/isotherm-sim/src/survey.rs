//! The survey of simulated memory. Its accessed bits are independent of those that samples clear.

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, Rest, Survey, SurveyPart};
use isotherm_core::{BoxError, PAGE_SIZE, TargetId, TargetSpace};

use crate::SimMemory;

impl Survey for SimMemory {
    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let first = blocks.len();
        let mut rest = Rest::default();
        let presence = self.presence().borrow();
        for mapping in &*target.mappings {
            let Some((area, range)) = self.areas().enumerate().find(|(_, range)| *range == mapping.range) else {
                continue;
            };
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
                    let accessed = self.cleared_pages.get(&addr).is_none_or(|&since| {
                        self.touches(area).any(|touch| self.touched(touch, number, range.pages(), since))
                    });
                    if accessed {
                        block.accessed.insert(page);
                    }
                }
            }
        }
        Ok(rest)
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
                self.cleared_pages.insert(block.start + page as u64 * PAGE_SIZE, now);
                cleared += 1;
            }
        }
        Ok(cleared)
    }
}
