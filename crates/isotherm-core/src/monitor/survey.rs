//! A survey of all pages: each target is read, then a part of what was accessed is cleared.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use super::{Monitor, MonitorError};
use crate::survey::{BlockFrames, CountedOnce, Learned, PageHistory, PageSums, SurveySnapshot, TotalSums, Windows};
use crate::{AccessProbe, AddressSpace, Sink, TargetId, TargetSpace};

/// A target that was read, with the history of its pages.
type Surveyed = (TargetSpace, Arc<PageHistory>);

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// Reads all pages of all targets, clears some of them, and draws the regions anew.
    pub(super) fn survey(&mut self, now: Duration) -> Result<SurveySnapshot, MonitorError> {
        let spaces = self.read_targets()?;
        let mut found = SurveySnapshot { time: now, ..SurveySnapshot::default() };
        let mut learned = Learned::default();
        let mut once = (spaces.len() > 1).then(CountedOnce::default);
        if let Some(survey) = self.probe.survey() {
            survey.begin().map_err(MonitorError::Probe)?;
        }
        let mut surveyed = self.read_pages(spaces, now, &mut learned, &mut once)?;
        found.interval = surveyed.iter().map(|(_, history)| history.interval()).max().unwrap_or_default();
        found.cost.reads = learned.present;
        found.cost.clears = self.clear_pages(&mut surveyed, now, learned)?;

        found.targets = surveyed.iter().map(|(space, history)| history.sums(space.id, &space.mappings)).collect();
        let mut sums = PageSums::default();
        found.targets.iter().for_each(|target| sums.add(&target.total()));
        found.total = match once {
            Some(once) => Some(once.total(sums)),
            None if surveyed.len() > 1 => None,
            None => Some(TotalSums { sums, shared: 0 }),
        };
        self.regions.follow(surveyed, &self.attributes);
        Ok(found)
    }

    /// Reads the pages of all targets into their histories. `once` takes in the page frames, and becomes `None` if they
    /// are not known.
    fn read_pages(
        &mut self,
        spaces: Vec<TargetSpace>,
        now: Duration,
        learned: &mut Learned,
        once: &mut Option<CountedOnce>,
    ) -> Result<Vec<Surveyed>, MonitorError> {
        let Some(survey) = self.probe.survey() else { return Ok(Vec::new()) };
        let mut blocks = Vec::new();
        let mut surveyed = Vec::with_capacity(spaces.len());
        for space in spaces {
            let known = self.regions.targets_mut().iter_mut().find(|target| target.space.id == space.id);
            let known = known.and_then(|target| target.history.take());
            let mut history = known.unwrap_or_else(|| Arc::new(PageHistory::since(began(self.started, space.id))));
            blocks.clear();
            survey.read(&space, &mut blocks).map_err(MonitorError::Probe)?;
            // The snapshot before may still hold the history as it was. Then this one is a copy.
            let pages = Arc::make_mut(&mut history);
            let before = pages.present();
            pages.take(&blocks, now);
            learned.grown(before, pages.present());
            if let Some(counted) = once {
                let windows = Windows::new(pages);
                let mut add = |frames: BlockFrames<'_>| counted.add(pages, &windows, &frames);
                if !survey.frames(space.id, &mut add).map_err(MonitorError::Probe)? {
                    *once = None;
                }
            }
            surveyed.push((space, history));
        }
        Ok(surveyed)
    }

    /// Clears a part of the accessed pages, within the limits, and plans the next survey. Returns how many accessed
    /// bits were cleared.
    fn clear_pages(
        &mut self,
        surveyed: &mut [Surveyed],
        now: Duration,
        mut learned: Learned,
    ) -> Result<u64, MonitorError> {
        let Some((plan, survey)) = self.survey.as_mut().zip(self.probe.survey()) else { return Ok(0) };
        let mut clears = 0;
        // Each target gets a part of the clears by its size. What one leaves is for the next.
        let (mut credit, mut left) = (plan.begin(now), learned.present as f64);
        for (space, history) in surveyed {
            let pages = Arc::make_mut(history);
            let present = pages.present() as f64;
            let (mut chosen, expected) = pages.choose(credit * present / left.max(1.0), &mut self.rng);
            (credit, left) = (credit - expected, left - present);
            clears += survey.clear(space.id, &mut chosen).map_err(MonitorError::Probe)?;
            pages.cleared(&chosen);
            learned.unknown += pages.never_cleared();
        }
        plan.end(now, learned, credit);
        Ok(clears)
    }

    /// Reads the mappings again between two surveys. If a target has joined or left, the next survey is due.
    pub(super) fn refresh(&mut self, now: Duration) -> Result<(), MonitorError> {
        let spaces = self.read_targets()?;
        if !self.regions.replace_spaces(spaces)
            && let Some(plan) = &mut self.survey
        {
            plan.due = now;
        }
        Ok(())
    }
}

/// When a process has started since the start of the run, if it has.
fn began(run: Option<Duration>, target: TargetId) -> Option<Duration> {
    let TargetId::Process(process) = target else { return None };
    process.start.checked_sub(run?)
}
