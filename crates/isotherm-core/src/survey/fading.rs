//! Fading memory: pages that the last surveys have found idle, and how often the surveys before found them accessed.

use std::ops::Range;
use std::time::Duration;

use super::block::Block;
use super::history::append;
use super::in_use::Times;
use super::{PageBits, PageHistory, RECENT_SURVEYS};
use crate::AddrRange;

/// The use of memory that the last looks have found idle. A look is a survey, or a look at a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fading {
    /// How many looks in a row have found it idle, up to the last one: exact below nine, else rounded down to nine
    /// times a power of two.
    pub idle: u32,
    /// How many of the last nine looks have found it accessed.
    pub accessed: u32,
    /// How many of the last nine looks were before it became idle.
    pub before: u32,
}

impl Fading {
    /// Memory that the last `idle` of `looks` looks have found idle, and of the last nine, `accessed` accessed.
    pub fn new(idle: u32, accessed: u32, looks: u32) -> Self {
        const RECENT: u32 = RECENT_SURVEYS as u32;
        let idle = if idle < RECENT { idle } else { RECENT << (idle / RECENT).ilog2() };
        Self { idle, accessed, before: looks.min(RECENT).saturating_sub(idle) }
    }
}

impl PageHistory {
    /// The parts of `range` whose pages are known to have been idle for at least `least` surveys, which is at least 1:
    /// each with a time for which they have been idle at least, and with how they were used.
    pub fn fading(&self, range: AddrRange, least: u32) -> Vec<(AddrRange, Duration, Fading)> {
        // The first survey finds all memory accessed, and does not count.
        let surveys = self.surveys().saturating_sub(1) as u32;
        let least = u16::try_from(least).unwrap_or(u16::MAX);
        let mut parts: Vec<(AddrRange, Fading)> = Vec::new();
        for block in self.blocks_in(range) {
            block.fading_runs(block.within(range), least, surveys, |run, used| append(&mut parts, &block, run, used));
        }
        let idle = |used: Fading| self.idle_time(u16::try_from(used.idle).unwrap_or(u16::MAX));
        parts.into_iter().map(|(part, used)| (part, idle(used), used)).collect()
    }
}

impl Block<'_> {
    /// Calls `found` with the runs of the pages in `within` that have been idle for at least `least` of `surveys`
    /// surveys, and with how they were used.
    fn fading_runs(&self, within: PageBits, least: u16, surveys: u32, mut found: impl FnMut(Range<usize>, Fading)) {
        let (shortest, longest) = self.idle_bounds();
        if longest < least {
            return;
        }
        let runs = (self.idle_for(least) & within).runs();
        let mut times = Times::default();
        self.accessed_before().for_each(|(_, accessed)| times.add(accessed));
        let used = |idle: u16, accessed| Fading::new(u32::from(idle), accessed, surveys);
        let (first, last) = (used(shortest, 0), used(longest, 0));
        if shortest >= least && first == last && self.accessed_before().next().is_none() {
            return runs.for_each(|run| found(run, first));
        }
        let of_page = |page: usize| used(self.idle(page), times.count(page));
        for run in runs {
            let mut start = run.start;
            let mut now = of_page(start);
            for page in run.start + 1..run.end {
                let next = of_page(page);
                if next != now {
                    found(start..page, now);
                    (start, now) = (page, next);
                }
            }
            found(start..run.end, now);
        }
    }
}
