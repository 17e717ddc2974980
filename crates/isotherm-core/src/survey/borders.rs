//! The borders that a survey finds: where accessed and idle pages meet.

use super::{BLOCK_PAGES, PageBits, PageHistory};
use crate::{AddrRange, PAGE_SIZE};

/// Neighbouring present pages that are accessed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// From the first to the last page. Absent pages may lie between.
    pub range: AddrRange,
    /// The number of present pages.
    pub present: u64,
    /// The number of pages accessed in the last interval, or expected to be.
    pub touched: f64,
}

/// A gap of this many absent pages between two stretches weighs as much against merging them as one page that is
/// accessed and would lie among idle ones.
const GAP_PAGES: f64 = 64.0;

impl Stretch {
    fn share(&self) -> f64 {
        self.touched / self.present.max(1) as f64
    }

    /// What is lost if this stretch and `next` are merged: the sum of squared errors of their shares (as in Ward's
    /// method of clustering), and the gap between them.
    fn loss(&self, next: &Self) -> f64 {
        let (a, b) = (self.present as f64, next.present as f64);
        let gap = next.range.start().saturating_sub(self.range.end()) / PAGE_SIZE;
        a * b / (a + b) * (self.share() - next.share()).powi(2) + gap as f64 / GAP_PAGES
    }

    fn merged(&self, next: &Self) -> Option<Self> {
        let range = AddrRange::new(self.range.start(), next.range.end())?;
        Some(Self { range, present: self.present + next.present, touched: self.touched + next.touched })
    }

    /// Whether most of the stretch was accessed.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched > 0.0
    }
}

impl PageHistory {
    /// The stretches of all present pages, at most `most` of them, which is at least 1. If there are more, those are
    /// merged first that lose least.
    pub(crate) fn stretches(&self, most: usize) -> Vec<Stretch> {
        let mut stretches = self.exact_stretches();
        let mut limit = 0.5;
        while stretches.len() > most.max(1) {
            stretches.dedup_by(|next, kept| {
                if kept.loss(next) > limit {
                    return false;
                }
                kept.merged(next).inspect(|both| *kept = *both).is_some()
            });
            limit *= 2.0;
        }
        stretches
    }

    /// The stretches, page by page.
    fn exact_stretches(&self) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        for block in self.blocks() {
            let share = block.share.map_or(1.0, f64::from);
            let (touched, uncertain) = (block.touched, block.uncertain());
            let active = touched | uncertain;
            let mut next = block.present.first();
            while let Some(start) = next {
                let is_active = active.contains(start);
                let alike = block.present & if is_active { active } else { !active };
                let end = (!alike).next(start).unwrap_or(BLOCK_PAGES);
                next = block.present.next(end);
                let run = start..end;
                let at = |page: usize| block.start + page as u64 * PAGE_SIZE;
                let Some(range) = AddrRange::new(at(run.start), at(run.end)) else { continue };
                let pages = PageBits::of(run);
                let sure = (pages & touched).count() as f64;
                let touched = sure + (pages & uncertain).count() as f64 * share;
                let new = Stretch { range, present: range.pages(), touched };
                match stretches.last_mut() {
                    Some(last) if last.range.touches(range) && last.is_touched() == is_active => {
                        if let Some(both) = last.merged(&new) {
                            *last = both;
                        }
                    }
                    _ => stretches.push(new),
                }
            }
        }
        stretches
    }
}
