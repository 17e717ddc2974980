//! The regions of all targets, which share one budget.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt};

use crate::adjust::{self, Splits};
use crate::pieces::uncovered;
use crate::region::MergeLimits;
use crate::survey::{BlockPages, PageHistory, PageSums};
use crate::views::large_views;
use crate::{
    AddrRange, Attributes, Granularity, Layout, Mapping, PAGE_SIZE, Region, SecondView, TargetId, TargetSpace, areas,
};

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
    /// Its pages, as the last survey has found them, if it is surveyed.
    pub history: Option<Arc<PageHistory>>,
    /// Where the target maps again, as a whole, what its regions have: by the address of that. None if it is surveyed.
    pub views: Vec<SecondView>,
    /// What was mapped since the last survey began, or the one that is under way.
    new_space: Vec<AddrRange>,
    /// The history with the pages that have been found in `new_space`, if there are any.
    with_new_pages: Option<Arc<PageHistory>>,
}

impl TargetRegions {
    fn new(space: TargetSpace, regions: Vec<Region>, history: Option<Arc<PageHistory>>) -> Self {
        Self { space, regions, history, views: Vec::new(), new_space: Vec::new(), with_new_pages: None }
    }

    /// All pages that are known.
    pub(crate) fn pages(&self) -> Option<&Arc<PageHistory>> {
        self.with_new_pages.as_ref().or(self.history.as_ref())
    }

    /// What was mapped since the last survey began, or the one that is under way.
    pub(crate) fn new_space(&self) -> &[AddrRange] {
        &self.new_space
    }

    /// Takes in the mappings as they are now.
    fn replace_space(&mut self, space: &TargetSpace) {
        if self.history.is_some() && !Arc::ptr_eq(&self.space.mappings, &space.mappings) {
            let mapped = space.mappings.iter().map(|mapping| mapping.range);
            self.new_space.extend(uncovered(mapped, &self.space.mappings, |mapping| mapping.range));
            self.new_space.sort_unstable();
            self.new_space.dedup_by(|next, kept| {
                let both = AddrRange::new(kept.start(), kept.end().max(next.end()));
                both.filter(|_| next.start() <= kept.end()).inspect(|both| *kept = *both).is_some()
            });
        }
        self.space.clone_from(space);
    }

    /// Takes in the blocks that were found in the [new space](Self::new_space). Where pages lie in no region yet, there
    /// is a new one. Returns how many pages are new.
    pub(crate) fn add_pages(&mut self, found: &[BlockPages]) -> u64 {
        let Some(known) = self.pages().filter(|_| !found.is_empty()) else { return 0 };
        let pages = Arc::new(known.with_more(found, &self.new_space));
        let added = pages.present() - known.present();
        if added > 0 {
            let surveyed = |region: Region| region.with_pages(pages.pages_in(region.range()));
            let gaps = uncovered(self.new_space.iter().copied(), &self.regions, |region| region.range());
            self.regions.iter_mut().for_each(|region| *region = surveyed(*region));
            self.regions.extend(gaps.into_iter().map(Region::new).map(surveyed).filter(|region| region.bytes() > 0));
            self.regions.sort_unstable_by_key(|region| region.range());
            self.with_new_pages = Some(pages);
        }
        added
    }

    /// The address of a page of `region`, chosen uniformly at random from those that are present.
    pub(crate) fn random_page(&self, region: &Region, rng: &mut impl Rng) -> u64 {
        let range = region.range();
        let pages = (region.bytes() / PAGE_SIZE).max(1);
        let nth = rng.random_range(0..pages);
        let scattered = self.pages().filter(|_| pages < range.pages());
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

    /// How many pages of all targets are known to be in memory.
    pub(crate) fn present(&self) -> u64 {
        self.targets.iter().filter_map(TargetRegions::pages).map(|pages| pages.present()).sum()
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

    /// Takes in the mappings of the targets as they are now; the regions stay. Targets that are not among them are
    /// dropped, and those that are new stay out.
    pub(crate) fn replace_spaces(&mut self, spaces: &[TargetSpace]) {
        let living: HashMap<TargetId, &TargetSpace> = spaces.iter().map(|space| (space.id, space)).collect();
        self.targets.retain_mut(|target| living.get(&target.space.id).map(|now| target.replace_space(now)).is_some());
    }

    /// Merges neighbours of equal frequency. Where a region is a mapping, regions are merged only to keep the maximum.
    pub(crate) fn merge(&mut self, attributes: &Attributes, granularity: Granularity) {
        if granularity == Granularity::Page {
            self.merge_within(self.limits(attributes));
        }
        self.keep_maximum(attributes);
    }

    /// Splits regions at random. Where a region is a mapping, none is split.
    ///
    /// Without a survey, each region is split: in two if the regions are at most half the maximum, in three if they are
    /// at most a third and the last split changed nothing (as in Linux `Documentation/mm/damon/design.rst`, "Adaptive
    /// Regions Adjustment"). With a survey, idle regions stay whole, and the rule is about the others. If there is no
    /// room for so many, a random part of them is split.
    pub(crate) fn split(&mut self, attributes: &Attributes, granularity: Granularity, rng: &mut impl Rng) {
        let now = self.len();
        let max = attributes.max_regions();
        let before = std::mem::replace(&mut self.before_split, now);
        let stays = |target: &TargetRegions, region: &Region| target.history.is_some() && region.is_idle();
        let of = |target: &TargetRegions| target.regions.iter().filter(|region| !stays(target, region)).count();
        let splittable = self.targets.iter().map(of).sum::<usize>();
        if granularity == Granularity::Mapping || splittable > max / 2 {
            return;
        }
        let pieces = if now == before && now <= max / 3 { 3 } else { 2 };
        let mut splits = Splits::new(pieces, splittable, max.saturating_sub(now));
        for target in &mut self.targets {
            let mut regions = std::mem::take(&mut target.regions);
            match target.pages() {
                None => adjust::split(&mut regions, pieces, rng, &mut self.spare),
                Some(pages) => adjust::split_surveyed(&mut regions, pages, &mut splits, rng, &mut self.spare),
            }
            target.regions = regions;
        }
    }

    /// Takes in the targets with their pages, as a survey has found them. Regions take their borders from where
    /// memory in use and idle memory meet, and keep their statistics. Absent memory is in no region, or does not
    /// count.
    ///
    /// Borders of the survey are half the maximum number of regions at most, so that there is room for splits. Targets
    /// beyond that number have a history, but no regions. Targets that the survey has not read stay as they are.
    pub(crate) fn follow(&mut self, surveyed: Vec<(TargetSpace, Arc<PageHistory>)>, attributes: &Attributes) {
        let read: u64 = surveyed.iter().map(|(_, history)| history.present()).sum();
        let surveyed_ids: HashSet<TargetId> = surveyed.iter().map(|(space, _)| space.id).collect();
        let known = self.targets.extract_if(.., |target| surveyed_ids.contains(&target.space.id));
        let mut known: HashMap<TargetId, _> =
            known.map(|target| (target.space.id, (target.regions, target.new_space))).collect();
        let others = self.targets.iter().filter_map(|target| target.history.as_ref());
        let present = read + others.map(|history| history.present()).sum::<u64>();
        for (space, history) in surveyed {
            let (regions, new_space) = known.remove(&space.id).unwrap_or_default();
            self.add_surveyed(space, history, &regions, present, attributes);
            if let Some(target) = self.targets.last_mut() {
                // The survey may have passed it before it was mapped.
                target.new_space = new_space;
            }
        }
        self.keep_maximum(attributes);
    }

    /// Forgets what was new to the survey before, as another one begins.
    pub(crate) fn begin_survey(&mut self) {
        self.targets.iter_mut().for_each(|target| target.new_space.clear());
    }

    /// Adds targets, as they were read when they joined. The other targets stay as they are.
    pub(crate) fn join(&mut self, joined: Vec<(TargetSpace, Arc<PageHistory>)>, attributes: &Attributes) {
        let known = self.targets.iter().filter_map(|target| target.history.as_ref());
        let present = known.chain(joined.iter().map(|(_, history)| history)).map(|history| history.present()).sum();
        for (space, history) in joined {
            self.add_surveyed(space, history, &[], present, attributes);
        }
        self.keep_maximum(attributes);
    }

    /// How many regions a target with so many of `all` present pages has after a survey, by its borders.
    pub(crate) fn part(present: u64, all: u64, attributes: &Attributes) -> usize {
        let most = attributes.max_regions() / 2;
        // It is no more than `most`.
        ((most as u128 * u128::from(present) / u128::from(all.max(1))) as usize).max(1)
    }

    /// Adds a target with its pages. Its regions take their statistics from those that are `known`, and are a part of
    /// the borders by its size; all targets have `present` bytes.
    fn add_surveyed(
        &mut self,
        space: TargetSpace,
        history: Arc<PageHistory>,
        known: &[Region],
        present: u64,
        attributes: &Attributes,
    ) {
        let mut regions = Vec::new();
        if self.targets.len() < attributes.max_regions() / 2 {
            let part = Self::part(history.present(), present, attributes);
            regions = adjust::follow(known, &history.stretches(part), &history, ages(attributes));
        }
        self.targets.push(TargetRegions::new(space, regions, Some(history)));
    }

    /// Takes in the targets with their mappings, as a survey by mapping has found them, `interval` after the one
    /// before. Each mapping that has memory becomes a region.
    pub(crate) fn follow_mappings(
        &mut self,
        surveyed: Vec<(TargetSpace, Vec<(AddrRange, PageSums)>)>,
        interval: Duration,
        attributes: &Attributes,
    ) {
        let mut known = self.take_regions();
        let most_areas = attributes.max_regions() / surveyed.len().max(1);
        for (space, found) in surveyed {
            let mut ranges: Vec<AddrRange> = found.iter().map(|(range, _)| *range).collect();
            bridge(&mut ranges, most_areas.max(1));
            let mut regions = adjust::one_for_each(&known.remove(&space.id).unwrap_or_default(), &ranges);
            for (region, (_, sums)) in regions.iter_mut().zip(&found) {
                region.survey(sums.figures, None, interval);
            }
            self.targets.push(TargetRegions::new(space, regions, None));
        }
        self.keep_maximum(attributes);
    }

    /// Takes in the targets as they are now. Regions that still lie in an area keep their statistics, new space
    /// gets new regions, and regions outside all areas are dropped. What a target maps several times is in one area, at
    /// the lowest address.
    ///
    /// Each target needs a region, so that targets beyond the maximum number of regions are left out.
    pub(crate) fn update(&mut self, mut spaces: Vec<TargetSpace>, attributes: &Attributes, granularity: Granularity) {
        let max_regions = attributes.max_regions();
        spaces.truncate(max_regions);
        let most_areas = max_regions / spaces.len().max(1);
        let mut ranges: Vec<Vec<AddrRange>> = match granularity {
            Granularity::Page => all_areas(&spaces, None, most_areas),
            Granularity::Mapping if spaces.iter().map(|s| s.mappings.len()).sum::<usize>() <= max_regions => {
                spaces.iter().map(|s| s.mappings.iter().map(|m| m.range).collect()).collect()
            }
            Granularity::Mapping => all_areas(&spaces, Some(Layout::Ranges), most_areas),
        };
        let leave_out = |(space, ranges): (&TargetSpace, &mut _)| leave_out_views(&space.mappings, ranges, most_areas);
        let views: Vec<_> = spaces.iter().zip(&mut ranges).map(leave_out).collect();
        let total: u64 = ranges.iter().flatten().map(|range| range.size()).sum();
        let piece = (total / attributes.min_regions() as u64).max(PAGE_SIZE);

        let mut known = self.take_regions();
        for ((space, ranges), views) in spaces.into_iter().zip(&ranges).zip(views) {
            let known = known.remove(&space.id).unwrap_or_default();
            let regions = match granularity {
                Granularity::Page => adjust::carry_over(&known, ranges, |new| adjust::split_evenly(new, piece)),
                Granularity::Mapping => adjust::one_for_each(&known, ranges),
            };
            self.targets.push(TargetRegions { views, ..TargetRegions::new(space, regions, None) });
        }
        self.keep_maximum(attributes);
    }

    /// Takes out all targets. Returns their regions.
    fn take_regions(&mut self) -> HashMap<TargetId, Vec<Region>> {
        self.targets.drain(..).map(|target| (target.space.id, target.regions)).collect()
    }

    fn merge_within(&mut self, limits: MergeLimits) {
        for target in &mut self.targets {
            adjust::merge(&mut target.regions, limits);
        }
    }

    /// Merges with a rising threshold, and then, whatever the counts and the frequencies are, with a rising size, until
    /// the regions are no more than the maximum. At the end each area would be one region, and there are no more areas
    /// than the maximum.
    pub(crate) fn keep_maximum(&mut self, attributes: &Attributes) {
        let mut limits = self.limits(attributes);
        while self.len() > attributes.max_regions() {
            limits.ages = None;
            if limits.threshold < attributes.samples() {
                limits.threshold = limits.threshold.saturating_mul(2);
                limits.alike = limits.alike.map(|alike| alike * 2.0);
            } else {
                limits = MergeLimits { threshold: u32::MAX, alike: None, keeps_use: false, ..limits };
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
            alike: Some(ALIKE),
            size: (total / attributes.min_regions() as u64).max(PAGE_SIZE),
            resolution: total / attributes.max_regions() as u64,
            keeps_use: true,
            ages: Some(ages(attributes)),
        }
    }
}

/// The factor by which the frequencies of regions that are merged may differ, beside errors.
const ALIKE: f64 = 1.5;

/// By how much the ages of idle regions may differ that are merged: two aggregations. With few samples, regions that
/// turned idle together are found at different times.
fn ages(attributes: &Attributes) -> Duration {
    attributes.aggregation() * 2
}

/// Leaves out of `ranges` where `mappings` map again what they map at a lower address, the largest first, so that there
/// are at most `most` ranges. Returns these views, in the order of [`SecondView::first`].
fn leave_out_views(mappings: &[Mapping], ranges: &mut Vec<AddrRange>, most: usize) -> Vec<SecondView> {
    let mut views = large_views(mappings);
    views.sort_by_key(|view| Reverse(view.range.size()));
    views.truncate(most.saturating_sub(ranges.len()));
    views.sort_unstable();
    *ranges = uncovered(ranges.iter().copied(), &views, |view| view.range);
    views.sort_by_key(|view| view.first);
    views
}

/// Extends ranges over the gaps after them, the smallest first, until there are at most `most` runs of ranges that
/// touch. Only what touches can be merged.
fn bridge(ranges: &mut [AddrRange], most: usize) {
    let gap = |pair: &[AddrRange]| pair[1].start() - pair[0].end();
    let mut gaps: Vec<(u64, usize)> = ranges.windows(2).map(gap).zip(0..).filter(|(size, _)| *size > 0).collect();
    let Some(excess) = (gaps.len() + 1).checked_sub(most).filter(|excess| *excess > 0) else { return };
    gaps.sort_unstable();
    for &(_, before) in &gaps[..excess.min(gaps.len())] {
        let (start, end) = (ranges[before].start(), ranges[before + 1].start());
        ranges[before] = AddrRange::new(start, end).unwrap_or(ranges[before]);
    }
}

/// The areas of each target, at most `most` each, by `layout` or else by the layout of the target.
fn all_areas(spaces: &[TargetSpace], layout: Option<Layout>, most: usize) -> Vec<Vec<AddrRange>> {
    spaces.iter().map(|space| areas(&space.mappings, layout.unwrap_or(space.layout), most)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::survey::BLOCK_SIZE;
    use crate::survey::PageBits;
    use crate::{Figures, FileId, MappedFile, Observation, Permissions};

    #[test]
    fn more_mappings_than_regions_that_do_not_touch_become_the_maximum_of_regions() {
        // A gap after each mapping, which is larger after every tenth.
        let range = |i: u64| AddrRange::new(i * 100 * PAGE_SIZE, (i * 100 + 50 + i % 10) * PAGE_SIZE).unwrap();
        let found: Vec<(AddrRange, PageSums)> = (0..5_000)
            .map(|i| {
                (
                    range(i),
                    PageSums::of(Figures { present: PAGE_SIZE, touched: i % 2 * PAGE_SIZE, ..Figures::default() }),
                )
            })
            .collect();
        let mappings = found.iter().map(|(range, _)| Mapping::anonymous(*range)).collect();
        let id = TargetId::process(1, Duration::ZERO);
        let space = TargetSpace { id, layout: Layout::Process, mappings };
        let attributes = Attributes::default();
        let mut set = RegionSet::default();
        set.follow_mappings(vec![(space, found)], Duration::from_secs(1), &attributes);
        assert!(set.len() <= attributes.max_regions() && set.len() > attributes.min_regions(), "{}", set.len());
        let present: u64 = set.iter().filter_map(Region::pages).map(|pages| pages.present).sum();
        assert_eq!(present, 5_000 * PAGE_SIZE);
        for i in 0..5_000 {
            assert!(set.iter().any(|region| region.range().contains(range(i).start())), "{i}");
        }
    }

    fn space(pid: u32, pages: u64) -> TargetSpace {
        let mapping = Mapping::anonymous(AddrRange::new(0, pages * PAGE_SIZE).unwrap());
        TargetSpace { id: TargetId::process(pid, Duration::ZERO), layout: Layout::Process, mappings: [mapping].into() }
    }

    #[test]
    fn neighbours_become_the_maximum_of_regions_whatever_their_frequencies_are() {
        let [sampling, aggregation, update] = [5, 100, 1000].map(Duration::from_millis);
        let attributes = Attributes::new(sampling, aggregation, update, 3, 5).unwrap();
        // Each other page is accessed all the time, and the others never.
        let region = |page: u64| {
            let mut region = Region::new(AddrRange::new(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).unwrap());
            let observation = if page.is_multiple_of(2) { Observation::Accessed } else { Observation::Idle };
            for _ in 0..attributes.samples() {
                region.look(observation, sampling, false);
                region.count(observation, 1);
            }
            region.settle(&attributes, 1);
            region
        };
        let mut set = RegionSet::default();
        set.targets.push(TargetRegions::new(space(1, 40), (0..40).map(region).collect(), None));
        set.keep_maximum(&attributes);
        assert!((1..=5).contains(&set.len()), "{} regions", set.len());
    }

    #[test]
    fn surveyed_targets_beyond_the_maximum_of_regions_keep_their_histories() {
        let mut history = PageHistory::since(None);
        history.take(&[BlockPages { present: PageBits::ALL, ..BlockPages::default() }], Duration::ZERO);
        let history = Arc::new(history);
        let [sampling, aggregation, update] = [5, 100, 1000].map(Duration::from_millis);
        let attributes = Attributes::new(sampling, aggregation, update, 10, 20).unwrap();
        let mut set = RegionSet::default();
        for _ in 0..2 {
            set.follow((1..=30).map(|pid| (space(pid, 512), Arc::clone(&history))).collect(), &attributes);
            assert_eq!(set.targets().iter().filter(|target| target.history.is_some()).count(), 30);
            assert_eq!(set.targets().iter().filter(|target| !target.regions.is_empty()).count(), 10);
            assert!(set.len() <= 20, "{} regions", set.len());
        }
    }

    #[test]
    fn idle_memory_is_as_old_as_its_pages_are_idle_when_a_part_beside_it_comes_into_use() {
        let attributes = Attributes::default();
        let (mut set, mut history) = (RegionSet::default(), PageHistory::since(None));
        let all = |block: u64, accessed| BlockPages {
            start: block * BLOCK_SIZE,
            present: PageBits::ALL,
            accessed,
            ..BlockPages::default()
        };
        for second in 0..=7 {
            let used = if second == 7 { PageBits::ALL } else { PageBits::NONE };
            let blocks = [all(0, PageBits::NONE), all(1, used), all(2, PageBits::NONE)];
            history.take(&blocks, Duration::from_secs(second));
            set.follow(vec![(space(1, 3 * 512), Arc::new(history.clone()))], &attributes);
            // Before the last survey, a sample finds the second block in use.
            set.iter_mut().filter(|_| second == 6).for_each(|region| region.count(Observation::Accessed, 1));
        }
        let idle_for = |region: &Region| region.is_idle().then(|| region.age().as_secs());
        assert_eq!(set.iter().map(idle_for).collect::<Vec<_>>(), [Some(7), None, Some(7)]);
    }

    #[test]
    fn what_was_mapped_during_a_survey_is_still_new_after_it() {
        let history = Arc::new(PageHistory::since(None));
        let follow = |set: &mut RegionSet, pages| {
            set.follow(vec![(space(1, pages), Arc::clone(&history))], &Attributes::default());
        };
        let mut set = RegionSet::default();
        follow(&mut set, 10);
        set.begin_survey();
        set.replace_spaces(&[space(1, 30)]);
        follow(&mut set, 30);
        assert_eq!(set.targets()[0].new_space(), [AddrRange::new(10 * PAGE_SIZE, 30 * PAGE_SIZE).unwrap()]);
        set.begin_survey();
        follow(&mut set, 30);
        assert_eq!(set.targets()[0].new_space(), []);
    }

    #[test]
    fn known_targets_take_new_mappings_and_targets_that_have_ended_are_dropped() {
        let mut set = RegionSet::default();
        set.update(vec![space(1, 10), space(2, 10)], &Attributes::default(), Granularity::Page);
        set.replace_spaces(&[space(2, 20), space(3, 10)]);
        let [target] = set.targets() else { panic!("{:?}", set.targets()) };
        assert_eq!((target.space.id, &target.space.mappings), (space(2, 20).id, &space(2, 20).mappings));
        assert!(!target.regions.is_empty());
    }

    #[test]
    fn without_a_survey_what_is_mapped_again_is_in_no_region_and_small_views_stay() {
        let of_file = |inode: u64, start: u64, blocks: u64, of: u64, permissions| {
            let range = AddrRange::new(start * BLOCK_SIZE, (start + blocks) * BLOCK_SIZE).unwrap();
            let id = FileId { device: (8, 1), inode };
            let file = Some(MappedFile { id, shift: (of * BLOCK_SIZE).wrapping_sub(range.start()) });
            Mapping { file, permissions, ..Mapping::anonymous(range) }
        };
        let shared = Permissions { shared: true, ..Permissions::READ_WRITE };
        let mappings = [
            of_file(7, 10, 8, 0, shared),
            of_file(7, 20, 8, 4, shared),
            // Pages that were written are copies.
            of_file(7, 30, 8, 0, Permissions::READ_WRITE),
            of_file(7, 40, 8, 0, Permissions { read: true, ..Permissions::NONE }),
        ];
        let space = TargetSpace { mappings: mappings.into(), ..space(1, 1) };
        let mut set = RegionSet::default();
        set.update(vec![space], &Attributes::default(), Granularity::Page);
        let [target] = set.targets() else { panic!("{:?}", set.targets()) };
        let ranges = |from: u64, to: u64| AddrRange::new(from * BLOCK_SIZE, to * BLOCK_SIZE).unwrap();
        let views = [(40, 48, 10), (20, 24, 14)].map(|(from, to, first): (u64, u64, u64)| (ranges(from, to), first));
        let found: Vec<_> = target.views.iter().map(|view| (view.range, view.first / BLOCK_SIZE)).collect();
        assert_eq!(found, views);
        let is_in = |block: u64| target.regions.iter().any(|region| region.range().contains(block * BLOCK_SIZE));
        let of = (10..48).filter(|&block| is_in(block)).collect::<Vec<_>>();
        // The gap between two areas is cut, and the one after the last is not.
        assert!([10, 17, 24, 27, 30, 37].iter().all(|block| of.contains(block)), "{of:?}");
        assert!((20..24).chain(40..48).all(|block| !of.contains(&block)), "{of:?}");
    }
}
