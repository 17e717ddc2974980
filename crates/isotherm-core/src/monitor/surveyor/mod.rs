//! The surveyor: surveys all pages of the targets, and reads the panel, a sample of them, in between.
//!
//! In a survey, each target is read part by part, and of each part some pages that were accessed are cleared.

mod by_mapping;
mod left;
mod panel;
mod parties;
mod pass;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::watched::Watched;
use super::{MonitorError, SurveyWork};
use crate::panel::Panel;
use crate::region_set::RegionSet;
use crate::survey::{
    BlockFrames, BlockPages, ClearLimits, ClearPages, HistoryUpdate, Learned, MappingHistories, Memos, PageHistory,
    PartUpdate, SurveyCost, SurveyPart, SurveyPlan, SurveySettings, SurveySnapshot, Windows,
};
use crate::{AddressSpace, AtRest, TargetId, TargetSpace};
use left::Left;
use panel::PanelBuffers;
use parties::{Added, FramesSeen, Parties};
use pass::{Next, Pass, Reading, Stage, Surveyed};

/// Surveys the pages of the targets of a monitor. If the probe does not know pages, it surveys their mappings.
pub(super) struct Surveyor {
    /// When to survey.
    plan: SurveyPlan,
    /// The survey that is under way.
    pass: Option<Pass>,
    /// When the last survey of pages ended.
    surveyed: Option<Duration>,
    /// The targets that were at rest at the start.
    at_start: HashMap<TargetId, AtRest>,
    panel: Panel,
    /// Whether there is a panel.
    has_panel: bool,
    /// What earlier surveys have found, if they are by mapping.
    mapping_histories: MappingHistories,
    // Buffers whose memory is used again.
    blocks: Vec<BlockPages>,
    panel_buffers: PanelBuffers,
    frames_seen: FramesSeen,
}

/// A survey that has ended.
pub(super) struct EndedSurvey {
    pub(super) found: SurveySnapshot,
    /// Whether there is much more memory than before.
    pub(super) grows: bool,
}

impl Surveyor {
    /// Surveys at the start of the run first.
    pub(super) fn new(settings: SurveySettings) -> Self {
        Self {
            plan: SurveyPlan::new(settings),
            pass: None,
            surveyed: None,
            at_start: HashMap::new(),
            panel: Panel::default(),
            has_panel: false,
            mapping_histories: MappingHistories::default(),
            blocks: Vec::new(),
            panel_buffers: PanelBuffers::default(),
            frames_seen: FramesSeen::default(),
        }
    }

    pub(super) fn settings(&self) -> &SurveySettings {
        &self.plan.settings
    }

    pub(super) fn set_settings(&mut self, settings: SurveySettings) {
        self.plan.settings = settings;
    }

    /// The share of one CPU that targets would lose to setting accessed bits again if nothing bounded it.
    pub(super) fn need(&self) -> f64 {
        self.plan.need()
    }

    /// When the next survey, or the next part of the one under way, is due.
    pub(super) fn due(&self) -> Duration {
        self.plan.due()
    }

    /// Whether a survey has begun and not ended.
    pub(super) fn is_under_way(&self) -> bool {
        self.pass.is_some()
    }

    /// Takes in how many pages samples have cleared.
    pub(super) fn sampled(&mut self, clears: u64) {
        self.plan.sampled(clears);
    }

    /// Begins anew: earlier results say nothing about the present. The next step begins with a survey.
    pub(super) fn restart(&mut self) {
        self.plan.restart();
        self.pass = None;
        self.surveyed = None;
        self.panel = Panel::default();
        self.mapping_histories = MappingHistories::default();
    }

    /// Finds out which targets are at rest at the start of the run.
    pub(super) fn find_rests_at_start(&mut self, on: &mut Watched<'_>) -> Result<(), MonitorError> {
        self.find_rests(on)?;
        self.at_start = self.panel.at_rest().collect();
        Ok(())
    }

    /// Does the next part of the survey that is under way, or of a new one. When the survey is at its end, draws the
    /// regions anew and returns what it has found.
    pub(super) fn survey(&mut self, on: &mut Watched<'_>, now: Duration) -> Result<Option<EndedSurvey>, MonitorError> {
        if on.probe.mapping_survey().is_some() {
            let found = self.survey_mappings(on, now)?;
            return Ok(Some(EndedSurvey { found, grows: false }));
        }
        let began = on.cpu_clock.now();
        let mut left = Left::new(&self.plan.settings, began.is_some());
        if let Some(activity) = on.probe.activity() {
            activity.look().map_err(MonitorError::Probe)?;
        }
        let mut pass = match self.pass.take() {
            Some(mut pass) => {
                pass.credit = self.plan.grown(pass.credit, now);
                pass
            }
            None => {
                let pass = self.begin(on, now)?;
                left.spent(on.cpu_clock.since(began));
                if pass.waiting.len() > FEW_TARGETS || left.is_over() {
                    // To list so many targets is a part of its own.
                    self.suspend(on, pass, now);
                    return Ok(None);
                }
                pass
            }
        };
        while !left.is_over() {
            let Some(reading) = pass.reading.take().or_else(|| self.next_target(on, &mut pass, now)) else { break };
            let Reading { space, stage, windows, before } = reading;
            let stage = match stage {
                Stage::Between(update, from) => {
                    self.read_part(on, &mut pass, &mut left, (&space, &windows), update, from)?
                }
                Stage::Part(part, chosen, next) => {
                    self.clear_part(on, &mut pass, &mut left, &space, (part, chosen, next))?
                }
                Stage::Read(update) => Stage::Read(update),
            };
            left.spent(on.cpu_clock.since(began));
            let Stage::Read(mut update) = stage else {
                pass.reading = Some(Reading { space, stage, windows, before });
                continue;
            };
            // Until all targets are read, what is kept of each is bounded by about what its regions can tell.
            let present = update.present();
            pass.present += present;
            let all = pass.present.max(pass.present_before);
            update.keep_stretches(RegionSet::part(present, all, on.attributes).saturating_mul(2));
            let knows_swap = on.probe.survey().is_some_and(|survey| survey.knows_swap());
            let (history, mut found, memos) = update.finish_with_sums(now, (space.id, &space.mappings), knows_swap);
            pass.memos = memos;
            let mut views = Vec::new();
            if let Some(survey) = on.probe.survey() {
                survey.second_views(space.id, &mut |start, pages| views.push((start, pages)));
            }
            found.add_second_views(&views);
            pass.learned.grown(before, history.present());
            pass.learned.unknown += history.never_cleared();
            pass.surveyed.push(Surveyed { space, history, found });
        }
        let (read, cleared) = (left.read as u64, left.cleared.ceil() as u64);
        on.work.survey = Some(SurveyWork { read, cleared, is_last_part: pass.is_over() });
        if pass.is_over() {
            return Ok(Some(self.end(on, pass, now)));
        }
        self.suspend(on, pass, now);
        Ok(None)
    }

    /// Keeps the survey until its next part is due.
    fn suspend(&mut self, on: &mut Watched<'_>, pass: Pass, now: Duration) {
        if pass.is_first {
            // What is known of some targets is better than nothing until the end of the survey. Those that an earlier
            // part has read have their regions.
            let histories = on.regions.targets().iter().filter_map(|target| target.history.as_ref());
            let followed: HashSet<*const PageHistory> = histories.map(Arc::as_ptr).collect();
            let is_new = |known: &&Surveyed| !followed.contains(&Arc::as_ptr(&known.history));
            let known = pass.surveyed.iter().filter(is_new);
            let known = known.map(|known| (known.space.clone(), Arc::clone(&known.history)));
            let unknown = pass.waiting.iter().chain(pass.reading.iter().map(|reading| &reading.space));
            let unknown = unknown.map(|space| (space.clone(), Arc::new(PageHistory::since(on.began(space.id)))));
            let all = known.chain(unknown).collect();
            on.regions.follow(all, on.attributes);
        }
        self.pass = Some(pass);
        self.plan.end_part(now);
    }

    fn begin(&mut self, on: &mut Watched<'_>, now: Duration) -> Result<Pass, MonitorError> {
        let spaces = on.read_targets(now)?;
        on.regions.replace_spaces(&spaces);
        on.regions.begin_survey();
        if let Some(survey) = on.probe.survey() {
            survey.begin().map_err(MonitorError::Probe)?;
        }
        let known = || on.regions.targets().iter().filter_map(|target| target.history.as_ref());
        let is_first = known().all(|history| history.block_count() == 0);
        let wanted_waiting = known().map(|history| history.clears_wanted()).sum();
        let credit = self.plan.begin(now);
        let of = parties_of(on.space, &spaces);
        Ok(Pass {
            parties: Parties::begin(&spaces, of, std::mem::take(&mut self.frames_seen)),
            is_first,
            joins: FEW_TARGETS.max(spaces.len() / 4),
            waiting: spaces.into(),
            reading: None,
            surveyed: Vec::new(),
            present: 0,
            present_before: on.regions.present(),
            learned: Learned::default(),
            memos: Memos::default(),
            cost: SurveyCost::default(),
            credit,
            clears: self.plan.clears(),
            wanted_waiting,
        })
    }

    /// Begins to read the next target.
    fn next_target(&mut self, on: &mut Watched<'_>, pass: &mut Pass, now: Duration) -> Option<Reading> {
        let space = pass.waiting.pop_front()?;
        pass.parties.join(space.id, || on.space.parties(space.id));
        let known = on.regions.targets().iter().find(|target| target.space.id == space.id);
        // Between two parts, samples and sinks still need the history as it was.
        let known = known.and_then(|target| target.history.clone());
        let history = known.unwrap_or_else(|| Arc::new(PageHistory::since(on.began(space.id))));
        pass.wanted_waiting = (pass.wanted_waiting - history.clears_wanted()).max(0.0);
        let before = history.present();
        let panel = self.plan.panel(space.id);
        let rest = on.probe.activity().and_then(|activity| activity.rest(space.id));
        let of_start = || self.at_start.get(&space.id).copied().filter(|_| history.surveys() == 0);
        let is_at_rest = rest.is_some() && rest == history.rest.or_else(of_start);
        let memos = std::mem::take(&mut pass.memos);
        let update = history.update(now).with_panel(panel).with_rest(rest, is_at_rest).with_memos(memos);
        let windows = Windows::new(update.history());
        Some(Reading { space, stage: Stage::Between(update, 0), windows, before })
    }

    /// Reads the part of a target that begins at `from`, and chooses what to clear of it.
    fn read_part(
        &mut self,
        on: &mut Watched<'_>,
        pass: &mut Pass,
        left: &mut Left,
        (space, windows): (&TargetSpace, &Windows),
        mut update: HistoryUpdate,
        from: u64,
    ) -> Result<Stage, MonitorError> {
        let rest = on.probe.activity().and_then(|activity| activity.rest(space.id));
        let is_at_rest = update.rests(rest);
        let Some(survey) = on.probe.survey() else { return Ok(Stage::Read(update)) };
        if is_at_rest {
            survey.rests(space.id);
        }
        let blocks = &mut self.blocks;
        blocks.clear();
        let part = SurveyPart { from, most: left.piece() };
        let rest_of = survey.read(space, part, blocks).map_err(MonitorError::Probe)?;
        let mut taken = update.take(blocks);
        survey.nodes(space.id, &mut |placed| taken.place(placed)).map_err(MonitorError::Probe)?;
        pass.cost.reads += blocks.iter().map(|block| block.present.count() as u64).sum::<u64>();
        if pass.parties.counts(space.id) {
            let mut add = |frames: BlockFrames<'_>| pass.parties.add_frames(space, &taken, windows, &frames);
            if !survey.frames(space.id, &mut add).map_err(MonitorError::Probe)? {
                pass.parties.forget_frames();
            }
        }
        // What may be cleared is shared out by what there may be to clear. What one part leaves is for the next.
        let (here, later) = taken.clears_wanted(rest_of.blocks);
        let of_survey = here / (here + later + pass.wanted_waiting).max(1.0);
        let count = blocks.len();
        left.read(count + if from == 0 { MORE_BLOCKS } else { 0 });
        if is_at_rest {
            // There is nothing to clear.
            return Ok(Stage::after(taken.end(&space.mappings), rest_of.from));
        }
        // A survey that has to read more at once than it was asked for may clear as much more, in later parts.
        let more = (count as f64 / part.most as f64).max(1.0);
        let clears = (pass.clears * of_survey).min(left.clears(count) * more);
        let (again, unknown) = (pass.credit.again * of_survey, pass.credit.unknown * of_survey);
        let chosen = taken.choose(ClearLimits { again, unknown, clears }, &mut on.rng);
        pass.credit.again -= chosen.again;
        pass.credit.unknown -= chosen.unknown;
        pass.clears -= chosen.clears;
        pass.learned.set_again += chosen.set_again;
        // The survey clears some pages by itself: at once, when it has just read them.
        self.clear_part(on, pass, left, space, (taken, chosen.blocks, rest_of.from))
    }

    /// Clears what was chosen of the part under way, as much as this step may. If nothing is left, ends the part.
    fn clear_part(
        &mut self,
        on: &mut Watched<'_>,
        pass: &mut Pass,
        left: &mut Left,
        space: &TargetSpace,
        (mut part, mut chosen, next): (PartUpdate, Vec<ClearPages>, Next),
    ) -> Result<Stage, MonitorError> {
        let rest = chosen.split_off(left.clear(&chosen));
        self.look_among(on.probe, space.id, &chosen)?;
        let seen: Vec<u64> = chosen.iter().map(|block| block.start).collect();
        if let Some(survey) = on.probe.survey() {
            pass.cost.clears += survey.clear(space.id, &mut chosen).map_err(MonitorError::Probe)?;
            self.panel.surveyed(space.id, &chosen, &seen);
            part.note_cleared(&chosen);
        }
        Ok(match rest.is_empty() {
            true => Stage::after(part.end(&space.mappings), next),
            false => Stage::Part(part, rest, next),
        })
    }

    /// Ends the survey: adds up what it has found in each target, plans the next one, and draws the regions anew.
    fn end(&mut self, on: &mut Watched<'_>, pass: Pass, now: Duration) -> EndedSurvey {
        let Pass { surveyed, learned, parties, cost, credit, .. } = pass;
        self.plan.end(now, learned, credit);
        let longest = surveyed.iter().map(|target| target.history.interval()).max().unwrap_or_default();
        // Each target is read at its own time within a survey, so that its own interval may be longer or shorter.
        let interval = match self.surveyed.replace(now) {
            Some(before) if !longest.is_zero() => now.saturating_sub(before),
            _ => longest,
        };
        let survey = on.probe.survey();
        let with_reasons = |target: Surveyed| {
            let mut found = target.found;
            let ranges = survey.as_ref().map(|survey| survey.unseen(found.id)).unwrap_or_default();
            target.history.tell_reasons(&mut found, &ranges);
            ((target.space, target.history), found)
        };
        let (surveyed, targets): (Vec<_>, Vec<_>) = surveyed.into_iter().map(with_reasons).unzip();
        let (Added { total, by_node, by_party, counted_again }, frames_seen) = parties.end(&targets);
        self.frames_seen = frames_seen;
        self.panel.shares(counted_again);
        let before = on.regions.present();
        on.regions.follow(surveyed, on.attributes);
        let grows = before > 0 && grows(before, on.regions.present());
        let left_out = on.probe.survey().and_then(|survey| survey.left_out());
        let left_out = left_out.or_else(|| on.probe.mapping_survey().and_then(|survey| survey.left_out()));
        let left_out = left_out.map(Arc::from);
        let found = SurveySnapshot { time: now, interval, cost, targets, total, by_node, by_party, left_out };
        let sums = found.sums();
        self.panel.stand_by(!interval.is_zero() && sums.figures.unknown.saturating_mul(KNOWN) <= sums.figures.present);
        EndedSurvey { found, grows }
    }

    /// Reads the mappings again between two parts or surveys. If a target has joined, or has grown by much, the next
    /// survey comes soon. Until then, what a first look has found is known. Returns whether there is much more memory.
    pub(super) fn refresh(&mut self, on: &mut Watched<'_>, now: Duration) -> Result<bool, MonitorError> {
        let spaces = on.read_targets(now)?;
        on.regions.replace_spaces(&spaces);
        let has_joined = on.work.joined > 0;
        let before = on.regions.present();
        if has_joined {
            self.look_at_joined(on, on.unknown(&spaces).cloned().collect(), now)?;
        }
        if self.look_at_new_space(on)? || has_joined {
            self.plan.hurry();
        }
        if let Some(pass) = &mut self.pass {
            pass.follow(spaces);
        }
        Ok(grows(before, on.regions.present()))
    }

    /// Takes in targets that have joined since the mappings were read, as a [refresh](Self::refresh) does.
    pub(super) fn join(
        &mut self,
        on: &mut Watched<'_>,
        joined: Vec<TargetSpace>,
        now: Duration,
    ) -> Result<bool, MonitorError> {
        if joined.is_empty() {
            return Ok(false);
        }
        let before = on.regions.present();
        self.look_at_joined(on, joined.clone(), now)?;
        self.plan.hurry();
        if let Some(pass) = &mut self.pass {
            pass.join(joined);
        }
        Ok(grows(before, on.regions.present()))
    }

    /// Reads the pages of targets that have joined, without clearing any: as many as a part of a survey reads.
    fn look_at_joined(
        &mut self,
        on: &mut Watched<'_>,
        joined: Vec<TargetSpace>,
        now: Duration,
    ) -> Result<(), MonitorError> {
        let mut left = self.plan.settings.part_blocks;
        let mut read = Vec::with_capacity(joined.len());
        for space in joined {
            let mut history = PageHistory::since(on.began(space.id));
            let Some(survey) = on.probe.survey() else { return Ok(()) };
            if left > 0 {
                self.blocks.clear();
                let part = SurveyPart { most: left, ..SurveyPart::ALL };
                let rest = survey.read(&space, part, &mut self.blocks).map_err(MonitorError::Probe)?;
                left = left.saturating_sub(self.blocks.len() + MORE_BLOCKS);
                // Before its first block was read, nothing is known of it.
                if rest.from != Some(0) {
                    history.take(&self.blocks, now);
                }
            }
            read.push((space, Arc::new(history)));
        }
        on.regions.join(read, on.attributes);
        Ok(())
    }

    /// Reads the pages of what was mapped since the last survey began, or the one that is under way, without clearing
    /// any: as many as a part of a survey reads. Returns whether a target has grown by much.
    fn look_at_new_space(&mut self, on: &mut Watched<'_>) -> Result<bool, MonitorError> {
        let Some(survey) = on.probe.survey() else { return Ok(false) };
        let mut left = self.plan.settings.part_blocks;
        let mut learned = Learned::default();
        for target in on.regions.targets_mut().iter_mut().filter(|target| !target.new_space().is_empty()) {
            if left == 0 {
                break;
            }
            self.blocks.clear();
            survey.look(&target.space, target.new_space(), left, &mut self.blocks).map_err(MonitorError::Probe)?;
            left = left.saturating_sub(self.blocks.len() + MORE_BLOCKS);
            let before = target.history.as_ref().map_or(0, |history| history.present());
            learned.grown(before, before + target.add_pages(&self.blocks));
        }
        on.regions.keep_maximum(on.attributes);
        Ok(learned.grows)
    }
}

/// The parties of these targets, if there are parties.
fn parties_of(space: &mut dyn AddressSpace, spaces: &[TargetSpace]) -> Option<BTreeMap<TargetId, Arc<[u32]>>> {
    space.has_parties().then(|| spaces.iter().map(|of| (of.id, space.parties(of.id))).collect())
}

/// Whether `now` is much more memory than `before`, so that a snapshot has to have it soon. Both are numbers of pages.
fn grows(before: u64, now: u64) -> bool {
    let mut all = Learned::default();
    all.grown(before, now);
    all.grows
}

/// A survey knows nearly all memory if it does not know of at most one part of so many whether it was accessed.
const KNOWN: u64 = 200;

/// Up to this many targets are listed in the same step in which the first of them is read.
const FEW_TARGETS: usize = 64;

/// A target counts as this many blocks more than it has: finding its page tables takes about as long.
const MORE_BLOCKS: usize = 8;
