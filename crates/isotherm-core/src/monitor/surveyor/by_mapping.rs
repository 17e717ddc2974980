//! A survey by mapping, for a probe that does not know pages.

use std::sync::Arc;
use std::time::Duration;

use super::parties::{FramesSeen, Parties};
use super::{MonitorError, SurveyWork, Surveyor, Watched, parties_of};
use crate::PAGE_SIZE;
use crate::survey::{BLOCK_PAGES, BlockList, Learned, MappingIndex, MappingSums, SurveySnapshot, TargetSurvey};

impl Surveyor {
    /// Reads and clears all mappings of all targets. Each mapping becomes a region.
    pub(super) fn survey_mappings(
        &mut self,
        on: &mut Watched<'_>,
        now: Duration,
    ) -> Result<SurveySnapshot, MonitorError> {
        let spaces = on.read_targets(now)?;
        let of = parties_of(on.space, &spaces);
        let credit = self.plan.begin(now);
        self.mapping_histories.retain(|id| spaces.iter().any(|space| space.id == id));
        let mut found = SurveySnapshot { time: now, ..SurveySnapshot::default() };
        let (mut learned, mut blocks) = (Learned::default(), 0);
        let mut surveyed = Vec::with_capacity(spaces.len());
        for space in spaces {
            let Some(survey) = on.probe.mapping_survey() else { break };
            let mut read = survey.read_and_clear(&space).map_err(MonitorError::Probe)?;
            let mut indices = Vec::with_capacity(read.len());
            read.retain_mut(|read| {
                let Ok(index) = space.mappings.binary_search_by_key(&read.range.start(), |known| known.range.start())
                else {
                    return false;
                };
                // A mapping that has grown since the mappings were read counts as far as it is known.
                read.limit_to(space.mappings[index].range);
                indices.extend(MappingIndex::new(index, &space.mappings));
                true
            });
            found.interval = found.interval.max(self.mapping_histories.interval(space.id, now));
            let sums = self.mapping_histories.take(space.id, &read, now);
            let by_mapping = indices.iter().zip(&sums).map(|(&mapping, &sums)| MappingSums { mapping, sums });
            let target = TargetSurvey {
                id: space.id,
                mappings: Arc::clone(&space.mappings),
                by_mapping: by_mapping.collect(),
                by_block: BlockList::default(),
                by_node: Vec::new(),
            };
            let pages = |bytes: u64| bytes / PAGE_SIZE;
            let present: u64 = read.iter().map(|read| pages(read.figures.present)).sum();
            let cleared: u64 = read.iter().map(|read| pages(read.figures.touched)).sum();
            found.cost.reads += present;
            found.cost.clears += cleared;
            learned.present += present;
            blocks += 1 + present / BLOCK_PAGES as u64;
            found.targets.push(target);
            let in_memory = read.iter().zip(sums).filter(|(read, _)| read.figures.present > 0);
            let regions = in_memory.map(|(read, sums)| (read.range, sums)).collect();
            surveyed.push((space, regions));
        }
        // Which memory several targets share is not known.
        let (added, _) = Parties::begin(&[], of, FramesSeen::default()).end(&found.targets);
        (found.total, found.by_party) = (added.total, added.by_party);
        on.regions.follow_mappings(surveyed, found.interval, on.attributes);
        self.plan.end(now, learned, credit);
        self.plan.wait_for_targets(now, found.cost.clears);
        on.work.survey = Some(SurveyWork { read: blocks, cleared: 0, is_last_part: true });
        Ok(found)
    }
}
