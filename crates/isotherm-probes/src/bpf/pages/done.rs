//! The pages that were cleared in addition to those that the survey was asked to clear.

use isotherm_core::survey::{ClearPages, PageBits};

/// The accessed pages of a block: those that were cleared, and those that cannot be cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) start: u64,
    pub(super) cleared: PageBits,
    pub(super) left: PageBits,
}

/// Adds what was done to `blocks`, and forgets it. Both are sorted by address.
pub(super) fn merge(done: &mut Vec<Done>, blocks: &mut Vec<ClearPages>) {
    let asked = blocks.len();
    for done in done.drain(..).filter(|done| !(done.cleared | done.left).is_empty()) {
        match blocks[..asked].binary_search_by_key(&done.start, |block| block.start) {
            Ok(index) => {
                let block = &mut blocks[index];
                block.pages = (block.pages | done.cleared) & !done.left;
                block.unobservable = (block.unobservable | done.left) & !done.cleared;
            }
            Err(_) => blocks.push(ClearPages { start: done.start, pages: done.cleared, unobservable: done.left }),
        }
    }
    blocks.sort_unstable_by_key(|block| block.start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cleared_besides_is_added_in_the_order_of_addresses() {
        let bits = |pages: &[usize]| pages.iter().copied().collect::<PageBits>();
        let block =
            |start, pages, unobservable| ClearPages { start, pages: bits(pages), unobservable: bits(unobservable) };
        let done = |start, cleared, left| Done { start, cleared: bits(cleared), left: bits(left) };
        let mut blocks = vec![block(0x20_0000, &[1], &[2]), block(0x60_0000, &[3], &[])];
        let mut all = vec![done(0, &[], &[]), done(0x20_0000, &[2, 4], &[1]), done(0x40_0000, &[5], &[6])];
        merge(&mut all, &mut blocks);
        let merged = block(0x20_0000, &[2, 4], &[1]);
        assert_eq!(blocks, [merged, block(0x40_0000, &[5], &[6]), block(0x60_0000, &[3], &[])]);
        assert!(all.is_empty());
    }
}
