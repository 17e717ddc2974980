//! The regions of all targets, which share one budget.

use std::sync::Arc;

use rand::{Rng, RngExt};

use crate::adjust;
use crate::region::MergeLimits;
use crate::survey::PageHistory;
use crate::{AddrRange, Attributes, Granularity, Layout, PAGE_SIZE, Region, TargetId, TargetSpace, areas};

/// All targets with their regions. After [`update`](Self::update), [`merge`](Self::merge) and
/// [`split`](Self::split) there are no more regions than the attributes allow.
#[derive(Debug, Default)]
pub(crate) struct RegionSet {
    targets: Vec<TargetRegions>,
    /// The number of regions before the last split.
    before_split: usize,
    /// A buffer for splits, whose memory is used again.
    spare: Vec<Region>,
}

/// One target and its regions, which are sorted and disjoint.
#[derive(Debug)]
pub(crate) struct TargetRegions {
    pub space: TargetSpace,
    pub regions: Vec<Region>,
    /// Its pages, if it is surveyed.
    pub history: Option<Arc<PageHistory>>,
}

impl TargetRegions {
    /// The address of a page of `region`, chosen uniformly at random from those that are present.
    pub(crate) fn random_page(&self, region: &Region, rng: &mut impl Rng) -> u64 {
        let range = region.range();
        let pages = (region.bytes() / PAGE_SIZE).max(1);
        let nth = rng.random_range(0..pages);
        let scattered = self.history.as_ref().filter(|_| pages < range.pages());
        let found = scattered.and_then(|history| history.nth_present(range.start(), nth));
        found.unwrap_or(range.start() + nth * PAGE_SIZE)
    }
}

impl RegionSet {
    pub(crate) fn targets(&self) -> &[TargetRegions] {
        &self.targets
    }

    pub(crate) fn targets_mut(&mut self) -> &mut [TargetRegions] {
        &mut self.targets
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.targets.iter().flat_map(|target| &target.regions)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.targets.iter_mut().flat_map(|target| &mut target.regions)
    }

    /// How many regions there are.
    pub(crate) fn len(&self) -> usize {
        self.targets.iter().map(|target| target.regions.len()).sum()
    }

    /// Forgets all regions. The targets stay.
    pub(crate) fn clear(&mut self) {
        for target in &mut self.targets {
            target.regions.clear();
        }
        self.before_split = 0;
    }

    /// Takes in the mappings of the same targets as they are now; the regions stay. Returns whether the targets are the
    /// same ones.
    pub(crate) fn replace_spaces(&mut self, spaces: Vec<TargetSpace>) -> bool {
        let same = spaces.len() == self.targets.len()
            && spaces.iter().zip(&self.targets).all(|(space, target)| space.id == target.space.id);
        if same {
            self.targets.iter_mut().zip(spaces).for_each(|(target, space)| target.space = space);
        }
        same
    }

    /// Drops the targets for which `lives` is false.
    pub(crate) fn retain(&mut self, lives: impl Fn(TargetId) -> bool) {
        self.targets.retain(|target| lives(target.space.id));
    }

    /// Merges neighbours of equal frequency. Where a region is a mapping, regions are merged only to keep the maximum.
    pub(crate) fn merge(&mut self, attributes: &Attributes, granularity: Granularity) {
        if granularity == Granularity::Page {
            self.merge_within(self.limits(attributes));
        }
        self.keep_maximum(attributes);
    }

    /// Splits each region at random: in two if the regions are at most half the maximum, in three if they are at
    /// most a third and the last split changed nothing (as in Linux `Documentation/mm/damon/design.rst`, "Adaptive
    /// Regions Adjustment"). Where a region is a mapping, none is split.
    pub(crate) fn split(&mut self, attributes: &Attributes, granularity: Granularity, rng: &mut impl Rng) {
        let now = self.len();
        let max = attributes.max_regions();
        let before = std::mem::replace(&mut self.before_split, now);
        if granularity == Granularity::Mapping || now > max / 2 {
            return;
        }
        let pieces = if now == before && now <= max / 3 { 3 } else { 2 };
        for target in &mut self.targets {
            match &target.history {
                None => adjust::split(&mut target.regions, pieces, rng, &mut self.spare),
                Some(history) => adjust::split_surveyed(&mut target.regions, history, pieces, rng, &mut self.spare),
            }
        }
    }

    /// Takes in the targets with their pages, as a survey has found them. Regions take their borders from where
    /// memory in use and idle memory meet, and keep their statistics. Absent memory is in no region, or does not
    /// count.
    ///
    /// Borders of the survey are half the maximum number of regions at most, so that there is room for splits.
    pub(crate) fn follow(&mut self, surveyed: Vec<(TargetSpace, Arc<PageHistory>)>, attributes: &Attributes) {
        let most = attributes.max_regions() / 2;
        let present: u64 = surveyed.iter().map(|(_, history)| history.present()).sum();
        let mut old = std::mem::take(&mut self.targets);
        for (space, history) in surveyed.into_iter().take(most) {
            let known = old.iter().position(|target| target.space.id == space.id);
            let known = known.map(|i| old.swap_remove(i).regions).unwrap_or_default();
            // Each target has a part of the regions by its size.
            let part = most as u128 * u128::from(history.present()) / u128::from(present.max(1));
            let stretches = history.stretches((part as usize).max(1));
            let regions = adjust::follow(&known, &stretches, &history);
            self.targets.push(TargetRegions { space, regions, history: Some(history) });
        }
        self.keep_maximum(attributes);
    }

    /// Takes in the targets as they are now. Regions that still lie in an area keep their statistics, new space
    /// gets new regions, and regions outside all areas are dropped.
    ///
    /// Each target needs a region, so that targets beyond the maximum number of regions are left out.
    pub(crate) fn update(&mut self, mut spaces: Vec<TargetSpace>, attributes: &Attributes, granularity: Granularity) {
        let max_regions = attributes.max_regions();
        spaces.truncate(max_regions);
        let most_areas = max_regions / spaces.len().max(1);
        let ranges = match granularity {
            Granularity::Page => all_areas(&spaces, None, most_areas),
            Granularity::Mapping if spaces.iter().map(|s| s.mappings.len()).sum::<usize>() <= max_regions => {
                spaces.iter().map(|s| s.mappings.iter().map(|m| m.range).collect()).collect()
            }
            Granularity::Mapping => all_areas(&spaces, Some(Layout::Ranges), most_areas),
        };
        let total: u64 = ranges.iter().flatten().map(|range| range.size()).sum();
        let piece = (total / attributes.min_regions() as u64).max(PAGE_SIZE);

        let mut old = std::mem::take(&mut self.targets);
        for (space, ranges) in spaces.into_iter().zip(&ranges) {
            let known = old.iter().position(|target| target.space.id == space.id);
            let known = known.map(|i| old.swap_remove(i).regions).unwrap_or_default();
            let regions = match granularity {
                Granularity::Page => adjust::carry_over(&known, ranges, |new| adjust::split_evenly(new, piece)),
                Granularity::Mapping => adjust::one_for_each(&known, ranges),
            };
            self.targets.push(TargetRegions { space, regions, history: None });
        }
        self.keep_maximum(attributes);
    }

    fn merge_within(&mut self, limits: MergeLimits) {
        for target in &mut self.targets {
            adjust::merge(&mut target.regions, limits);
        }
    }

    /// Merges with a rising threshold, and then with a rising size, until the regions are no more than the maximum.
    /// At the end of both each area would be one region, and there are no more areas than the maximum.
    fn keep_maximum(&mut self, attributes: &Attributes) {
        let mut limits = self.limits(attributes);
        while self.len() > attributes.max_regions() {
            if limits.threshold < attributes.samples() {
                limits.threshold = limits.threshold.saturating_mul(2);
            } else {
                limits.keeps_use = false;
                limits.size = limits.size.saturating_mul(2);
            }
            self.merge_within(limits);
        }
    }

    /// No region becomes larger than the total size divided by the minimum number of regions. Whether memory can be
    /// observed makes a border only between regions that are larger than the total size divided by the maximum.
    fn limits(&self, attributes: &Attributes) -> MergeLimits {
        let total: u64 = self.iter().map(Region::bytes).sum();
        MergeLimits {
            threshold: attributes.merge_threshold(),
            size: (total / attributes.min_regions() as u64).max(PAGE_SIZE),
            resolution: total / attributes.max_regions() as u64,
            keeps_use: true,
        }
    }
}

/// The areas of each target, at most `most` each, by `layout` or else by the layout of the target.
fn all_areas(spaces: &[TargetSpace], layout: Option<Layout>, most: usize) -> Vec<Vec<AddrRange>> {
    spaces.iter().map(|space| areas(&space.mappings, layout.unwrap_or(space.layout), most)).collect()
}
