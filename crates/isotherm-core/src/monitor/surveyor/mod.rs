//! A survey of all pages: each target is read part by part, and of each part some pages that were accessed are cleared.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use super::parties::{Added, Parties};
use super::{Monitor, MonitorError, SurveyWork};
use crate::region_set::RegionSet;
use crate::survey::{
    BlockFrames, BlockPages, CLEAR_BLOCK, ClearLimits, ClearPages, Credit, HistoryUpdate, Learned, Memos, PageHistory,
    PartUpdate, SurveyCost, SurveyPart, SurveyPlan, SurveySettings, SurveySnapshot, TargetSurvey, Windows,
};
use crate::{AccessProbe, AddressSpace, Sink, TargetId, TargetSpace};

/// A target that was read to its end.
struct Surveyed {
    space: TargetSpace,
    history: Arc<PageHistory>,
    /// What the survey has found in it.
    found: TargetSurvey,
}

/// A survey that has begun.
pub(super) struct Pass {
    /// The targets that no part has begun to read.
    waiting: VecDeque<TargetSpace>,
    /// The target that is being read.
    reading: Option<Reading>,
    /// The targets that were read to their end.
    surveyed: Vec<Surveyed>,
    /// How many pages of them are present, and how many there were of all targets at the survey before.
    present: u64,
    present_before: u64,
    /// How many targets that join are read, too.
    joins: usize,
    /// Whether nothing was known before.
    is_first: bool,
    learned: Learned,
    memos: Memos,
    /// What is added up.
    parties: Parties,
    cost: SurveyCost,
    /// How many of the pages that are cleared from now on may be accessed again.
    credit: Credit,
    /// How many pages may be cleared from now on.
    clears: f64,
    /// How many pages of the waiting targets may have to be cleared, as the previous survey says.
    wanted_waiting: f64,
}

/// A target that is being read.
struct Reading {
    space: TargetSpace,
    stage: Stage,
    /// The windows of the survey.
    windows: Windows,
    /// How many pages it had at the survey before.
    before: u64,
}

/// How far a target was read.
enum Stage {
    /// The part that begins here is read next.
    Between(HistoryUpdate, u64),
    /// A part was read, and these pages of it are still to be cleared.
    Part(PartUpdate, Vec<ClearPages>, Next),
    /// The target was read to its end.
    Read(HistoryUpdate),
}

/// Where the part after the one under way begins. `None` if that is the last one.
type Next = Option<u64>;

impl Stage {
    /// After a part.
    fn after(update: HistoryUpdate, next: Next) -> Self {
        match next {
            Some(from) => Self::Between(update, from),
            None => Self::Read(update),
        }
    }
}

/// What is left to do in this part of a survey, as a number of blocks to read. Clearing counts in proportion to the
/// time that it takes.
struct Left {
    blocks: f64,
    /// What was read.
    read: f64,
    /// What was cleared.
    cleared: f64,
    /// How many blocks a page to be cleared counts as.
    clear_page: f64,
    /// The CPU time that the part may take, and that it has taken. `None` if it is not measured.
    time: Option<(Duration, Duration)>,
}

impl Left {
    fn new(settings: &SurveySettings, is_measured: bool) -> Self {
        Self {
            blocks: settings.part_blocks.max(1) as f64,
            read: 0.0,
            cleared: 0.0,
            clear_page: settings.clear_page,
            time: is_measured.then_some((settings.part_time, Duration::ZERO)),
        }
    }

    /// Takes in the CPU time that the part has taken so far.
    fn spent(&mut self, cpu: Option<Duration>) {
        if let (Some((_, spent)), Some(cpu)) = (&mut self.time, cpu) {
            *spent = cpu;
        }
    }

    /// How many blocks are read before some of their pages are cleared: half of what is left to do, so that what was
    /// read now is cleared now. Accesses in between would be lost.
    fn piece(&self) -> usize {
        let left = self.blocks.ceil().max(1.0) as usize;
        left.div_ceil(2).min(self.affordable()).max(LEAST_PIECE).min(left)
    }

    /// How many blocks can be read, and cleared in part, in the time of a piece, or in the time that is left if that is
    /// less, at the price of the blocks that this part has read so far. Pieces grow from small ones, because the price
    /// can be another one than in the part before.
    fn affordable(&self) -> usize {
        let Some((time, spent)) = self.time else { return usize::MAX };
        let price = spent.as_secs_f64() / self.read.max(1.0);
        let by_time = time.saturating_sub(spent).min(time / PIECES).as_secs_f64() / price.max(1e-12);
        by_time.min(self.read * PIECE_GROWTH) as usize
    }

    /// How many pages of `blocks` blocks can be cleared with what is left to do.
    fn clears(&self, blocks: usize) -> f64 {
        let left = self.blocks - CLEAR_BLOCK * self.clear_page * blocks as f64;
        left.max(self.blocks / 2.0).max(LEAST_PIECE as f64 / 2.0) / self.clear_page
    }

    fn is_over(&self) -> bool {
        self.blocks <= 0.0 || self.time.is_some_and(|(time, spent)| spent >= time)
    }

    /// Takes in that blocks were read.
    fn read(&mut self, blocks: usize) {
        self.blocks -= blocks as f64;
        self.read += blocks as f64;
    }

    /// Takes in that pages of some of these blocks are cleared. Returns of how many: at least of one.
    fn clear(&mut self, chosen: &[ClearPages]) -> usize {
        let mut count = 0;
        let most = if self.time.is_some() { LEAST_PIECE } else { usize::MAX };
        for block in chosen.iter().take(most) {
            if count > 0 && self.is_over() {
                break;
            }
            let blocks = (CLEAR_BLOCK + block.pages.count() as f64) * self.clear_page;
            self.blocks -= blocks;
            self.cleared += blocks;
            count += 1;
        }
        count
    }
}

/// The least number of blocks of a piece. If the CPU time is measured, it is also the largest number of blocks that are
/// cleared before the time is read again.
const LEAST_PIECE: usize = 64;

/// If the CPU time is measured, a part has at least so many pieces, and each of them has at most so many times as many
/// blocks as those before it. So the price of a block can rise within a part.
const PIECES: u32 = 16;
const PIECE_GROWTH: f64 = 2.0;

impl Pass {
    /// Whether all targets were read.
    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_none()
    }

    /// Takes in the targets as they are now: drops those that have ended, and reads next those that have joined.
    ///
    /// If they join as fast as they are read, the survey would never end. So a part of them waits for the next one.
    fn follow(&mut self, spaces: Vec<TargetSpace>) {
        let mut living: BTreeMap<TargetId, TargetSpace> = spaces.into_iter().map(|space| (space.id, space)).collect();
        let mut renew = |space: &mut TargetSpace| living.remove(&space.id).map(|now| *space = now).is_some();
        self.waiting.retain_mut(&mut renew);
        let ended = self.surveyed.extract_if(.., |surveyed| !renew(&mut surveyed.space));
        ended.for_each(|surveyed| self.parties.ended(&surveyed.found));
        self.reading.take_if(|reading| !renew(&mut reading.space));
        self.join(living.into_values());
    }

    /// Reads next these targets, which have joined, as far as they may be read in this survey.
    fn join(&mut self, joined: impl IntoIterator<Item = TargetSpace>) {
        for joined in joined.into_iter().take(self.joins) {
            self.waiting.push_front(joined);
            self.joins -= 1;
        }
    }
}

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// Does the next part of the survey that is under way, or of a new one. When the survey is at its end, draws the
    /// regions anew and returns what it has found.
    pub(super) fn survey(&mut self, now: Duration) -> Result<Option<SurveySnapshot>, MonitorError> {
        if self.probe.mapping_survey().is_some() {
            return self.survey_mappings(now).map(Some);
        }
        let began = self.cpu_time();
        let settings = self.survey.as_ref().map(|plan| plan.settings).unwrap_or_default();
        let mut left = Left::new(&settings, began.is_some());
        if let Some(activity) = self.probe.activity() {
            activity.look().map_err(MonitorError::Probe)?;
        }
        let mut pass = match self.pass.take() {
            Some(mut pass) => {
                if let Some(plan) = &mut self.survey {
                    pass.credit = plan.grown(pass.credit, now);
                }
                pass
            }
            None => {
                let pass = self.begin_survey(now)?;
                left.spent(self.cpu_since(began));
                if pass.waiting.len() > FEW_TARGETS || left.is_over() {
                    // To list so many targets is a part of its own.
                    self.suspend(pass, now);
                    return Ok(None);
                }
                pass
            }
        };
        while !left.is_over() {
            let Some(reading) = pass.reading.take().or_else(|| self.next_target(&mut pass, now)) else { break };
            let Reading { space, stage, windows, before } = reading;
            let stage = match stage {
                Stage::Between(update, from) => {
                    self.read_part(&mut pass, &mut left, (&space, &windows), update, from)?
                }
                Stage::Part(part, chosen, next) => self.clear_part(&mut pass, &mut left, &space, part, chosen, next)?,
                Stage::Read(update) => Stage::Read(update),
            };
            left.spent(self.cpu_since(began));
            let Stage::Read(mut update) = stage else {
                pass.reading = Some(Reading { space, stage, windows, before });
                continue;
            };
            // Until all targets are read, what is kept of each is bounded by about what its regions can tell.
            let present = update.present();
            pass.present += present;
            let all = pass.present.max(pass.present_before);
            update.keep_stretches(RegionSet::part(present, all, &self.attributes).saturating_mul(2));
            let knows_swap = self.probe.survey().is_some_and(|survey| survey.knows_swap());
            let (history, mut found, memos) = update.finish_with_sums(now, (space.id, &space.mappings), knows_swap);
            pass.memos = memos;
            let mut views = Vec::new();
            if let Some(survey) = self.probe.survey() {
                survey.second_views(space.id, &mut |start, pages| views.push((start, pages)));
            }
            found.add_second_views(&views);
            pass.learned.grown(before, history.present());
            pass.learned.unknown += history.never_cleared();
            pass.surveyed.push(Surveyed { space, history, found });
        }
        let (read, cleared) = (left.read as u64, left.cleared.ceil() as u64);
        self.work.survey = Some(SurveyWork { read, cleared, is_last_part: pass.is_over() });
        if pass.is_over() {
            return self.end_survey(pass, now).map(Some);
        }
        self.suspend(pass, now);
        Ok(None)
    }

    /// The CPU time that the monitor has taken so far. `None` if it is not measured.
    pub(super) fn cpu_time(&mut self) -> Option<Duration> {
        self.cpu_clock.as_mut().map(|clock| clock())
    }

    /// The CPU time since `began`.
    pub(super) fn cpu_since(&mut self, began: Option<Duration>) -> Option<Duration> {
        Some(self.cpu_time()?.saturating_sub(began?))
    }

    /// Keeps the survey until its next part is due.
    fn suspend(&mut self, pass: Pass, now: Duration) {
        if pass.is_first {
            // What is known of some targets is better than nothing until the end of the survey. Those that an earlier
            // part has read have their regions.
            let histories = self.regions.targets().iter().filter_map(|target| target.history.as_ref());
            let followed: HashSet<*const PageHistory> = histories.map(Arc::as_ptr).collect();
            let is_new = |known: &&Surveyed| !followed.contains(&Arc::as_ptr(&known.history));
            let known = pass.surveyed.iter().filter(is_new);
            let known = known.map(|known| (known.space.clone(), Arc::clone(&known.history)));
            let unknown = pass.waiting.iter().chain(pass.reading.iter().map(|reading| &reading.space));
            let unknown =
                unknown.map(|space| (space.clone(), Arc::new(PageHistory::since(began(self.started, space.id)))));
            self.regions.follow(known.chain(unknown).collect(), &self.attributes);
        }
        self.pass = Some(pass);
        if let Some(plan) = &mut self.survey {
            plan.end_part(now);
        }
    }

    fn begin_survey(&mut self, now: Duration) -> Result<Pass, MonitorError> {
        let spaces = self.read_targets(now)?;
        self.regions.replace_spaces(&spaces);
        self.regions.begin_survey();
        if let Some(survey) = self.probe.survey() {
            survey.begin().map_err(MonitorError::Probe)?;
        }
        let known = || self.regions.targets().iter().filter_map(|target| target.history.as_ref());
        let is_first = known().all(|history| history.block_count() == 0);
        let wanted_waiting = known().map(|history| history.clears_wanted()).sum();
        let credit = self.survey.as_mut().map_or_else(Credit::default, |plan| plan.begin(now));
        let of = self.parties_of(&spaces);
        Ok(Pass {
            parties: Parties::begin(&spaces, of, std::mem::take(&mut self.frames_seen)),
            is_first,
            joins: FEW_TARGETS.max(spaces.len() / 4),
            waiting: spaces.into(),
            reading: None,
            surveyed: Vec::new(),
            present: 0,
            present_before: self.regions.present(),
            learned: Learned::default(),
            memos: Memos::default(),
            cost: SurveyCost::default(),
            credit,
            clears: self.survey.as_ref().map_or(0.0, SurveyPlan::clears),
            wanted_waiting,
        })
    }

    /// The parties of these targets, if there are parties.
    pub(super) fn parties_of(&mut self, spaces: &[TargetSpace]) -> Option<BTreeMap<TargetId, Arc<[u32]>>> {
        let space = &mut self.space;
        space.has_parties().then(|| spaces.iter().map(|of| (of.id, space.parties(of.id))).collect())
    }

    /// Begins to read the next target.
    fn next_target(&mut self, pass: &mut Pass, now: Duration) -> Option<Reading> {
        let space = pass.waiting.pop_front()?;
        pass.parties.join(space.id, || self.space.parties(space.id));
        let known = self.regions.targets().iter().find(|target| target.space.id == space.id);
        // Between two parts, samples and sinks still need the history as it was.
        let known = known.and_then(|target| target.history.clone());
        let history = known.unwrap_or_else(|| Arc::new(PageHistory::since(began(self.started, space.id))));
        pass.wanted_waiting = (pass.wanted_waiting - history.clears_wanted()).max(0.0);
        let before = history.present();
        let panel = self.survey.as_ref().map(|plan| plan.panel(space.id)).unwrap_or_default();
        let rest = self.probe.activity().and_then(|activity| activity.rest(space.id));
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
        pass: &mut Pass,
        left: &mut Left,
        (space, windows): (&TargetSpace, &Windows),
        mut update: HistoryUpdate,
        from: u64,
    ) -> Result<Stage, MonitorError> {
        let rest = self.probe.activity().and_then(|activity| activity.rest(space.id));
        let is_at_rest = update.rests(rest);
        let Some(survey) = self.probe.survey() else { return Ok(Stage::Read(update)) };
        if is_at_rest {
            survey.rests(space.id);
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        let part = SurveyPart { from, most: left.piece() };
        let rest_of = survey.read(space, part, &mut blocks).map_err(MonitorError::Probe)?;
        let mut taken = update.take(&blocks);
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
        self.blocks = blocks;
        left.read(count + if from == 0 { MORE_BLOCKS } else { 0 });
        if is_at_rest {
            // There is nothing to clear.
            return Ok(Stage::after(taken.end(&space.mappings), rest_of.from));
        }
        // A survey that has to read more at once than it was asked for may clear as much more, in later parts.
        let more = (count as f64 / part.most as f64).max(1.0);
        let clears = (pass.clears * of_survey).min(left.clears(count) * more);
        let (again, unknown) = (pass.credit.again * of_survey, pass.credit.unknown * of_survey);
        let chosen = taken.choose(ClearLimits { again, unknown, clears }, &mut self.rng);
        pass.credit.again -= chosen.again;
        pass.credit.unknown -= chosen.unknown;
        pass.clears -= chosen.clears;
        pass.learned.set_again += chosen.set_again;
        // The survey clears some pages by itself: at once, when it has just read them.
        self.clear_part(pass, left, space, taken, chosen.blocks, rest_of.from)
    }

    /// Clears what was chosen of the part under way, as much as this step may. If nothing is left, ends the part.
    fn clear_part(
        &mut self,
        pass: &mut Pass,
        left: &mut Left,
        space: &TargetSpace,
        mut part: PartUpdate,
        mut chosen: Vec<ClearPages>,
        next: Next,
    ) -> Result<Stage, MonitorError> {
        let rest = chosen.split_off(left.clear(&chosen));
        self.look_among(space.id, &chosen)?;
        let seen: Vec<u64> = chosen.iter().map(|block| block.start).collect();
        if let Some(survey) = self.probe.survey() {
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
    fn end_survey(&mut self, pass: Pass, now: Duration) -> Result<SurveySnapshot, MonitorError> {
        let Pass { surveyed, learned, parties, cost, credit, .. } = pass;
        if let Some(plan) = &mut self.survey {
            plan.end(now, learned, credit);
        }
        let longest = surveyed.iter().map(|target| target.history.interval()).max().unwrap_or_default();
        // Each target is read at its own time within a survey, so that its own interval may be longer or shorter.
        let interval = match self.surveyed.replace(now) {
            Some(before) if !longest.is_zero() => now.saturating_sub(before),
            _ => longest,
        };
        let survey = self.probe.survey();
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
        let before = self.regions.present();
        self.regions.follow(surveyed, &self.attributes);
        if before > 0 {
            self.tell_growth_soon(before, now);
        }
        let left_out = self.probe.survey().and_then(|survey| survey.left_out());
        let left_out = left_out.or_else(|| self.probe.mapping_survey().and_then(|survey| survey.left_out()));
        let left_out = left_out.map(Arc::from);
        let found = SurveySnapshot { time: now, interval, cost, targets, total, by_node, by_party, left_out };
        let sums = found.sums();
        self.panel.stand_by(!interval.is_zero() && sums.figures.unknown.saturating_mul(KNOWN) <= sums.figures.present);
        Ok(found)
    }

    /// Reads the mappings again between two parts or surveys. If a target has joined, or has grown by much, the next
    /// survey comes soon. Until then, what a first look has found is known.
    pub(super) fn refresh(&mut self, now: Duration) -> Result<(), MonitorError> {
        let spaces = self.read_targets(now)?;
        self.regions.replace_spaces(&spaces);
        let has_joined = self.work.joined > 0;
        let before = self.regions.present();
        if has_joined {
            self.look_at_joined(self.unknown(&spaces).cloned().collect(), now)?;
        }
        if (self.look_at_new_space()? || has_joined)
            && let Some(plan) = &mut self.survey
        {
            plan.hurry();
        }
        self.tell_growth_soon(before, now);
        if let Some(pass) = &mut self.pass {
            pass.follow(spaces);
        }
        Ok(())
    }

    /// Takes in targets that have joined since the mappings were read, as a [refresh](Self::refresh) does.
    pub(super) fn join_surveyed(&mut self, joined: Vec<TargetSpace>, now: Duration) -> Result<(), MonitorError> {
        let before = self.regions.present();
        self.look_at_joined(joined.clone(), now)?;
        if let Some(plan) = &mut self.survey {
            plan.hurry();
        }
        self.tell_growth_soon(before, now);
        if let Some(pass) = &mut self.pass {
            pass.join(joined);
        }
        Ok(())
    }

    /// Ends the aggregation soon if there is much more memory than the pages `before`, so that a snapshot has it.
    fn tell_growth_soon(&mut self, before: u64, now: Duration) {
        let mut all = Learned::default();
        all.grown(before, self.regions.present());
        if all.grows {
            self.end_aggregation_soon(now);
        }
    }

    /// Reads the pages of targets that have joined, without clearing any: as many as a part of a survey reads.
    fn look_at_joined(&mut self, joined: Vec<TargetSpace>, now: Duration) -> Result<(), MonitorError> {
        let (Some(survey), Some(plan)) = (self.probe.survey(), &self.survey) else { return Ok(()) };
        let mut left = plan.settings.part_blocks;
        let mut read = Vec::with_capacity(joined.len());
        for space in joined {
            let mut history = PageHistory::since(began(self.started, space.id));
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
        self.regions.join(read, &self.attributes);
        Ok(())
    }

    /// Reads the pages of what was mapped since the last survey began, or the one that is under way, without clearing
    /// any: as many as a part of a survey reads. Returns whether a target has grown by much.
    fn look_at_new_space(&mut self) -> Result<bool, MonitorError> {
        let (Some(survey), Some(plan)) = (self.probe.survey(), &self.survey) else { return Ok(false) };
        let mut left = plan.settings.part_blocks;
        let mut learned = Learned::default();
        for target in self.regions.targets_mut().iter_mut().filter(|target| !target.new_space().is_empty()) {
            if left == 0 {
                break;
            }
            self.blocks.clear();
            survey.look(&target.space, target.new_space(), left, &mut self.blocks).map_err(MonitorError::Probe)?;
            left = left.saturating_sub(self.blocks.len() + MORE_BLOCKS);
            let before = target.history.as_ref().map_or(0, |history| history.present());
            learned.grown(before, before + target.add_pages(&self.blocks));
        }
        self.regions.keep_maximum(&self.attributes);
        Ok(learned.grows)
    }
}

/// A survey knows nearly all memory if it does not know of at most one part of so many whether it was accessed.
const KNOWN: u64 = 200;

/// Up to this many targets are listed in the same step in which the first of them is read.
const FEW_TARGETS: usize = 64;

/// A target counts as this many blocks more than it has: finding its page tables takes about as long.
const MORE_BLOCKS: usize = 8;

/// The blocks of one part.
pub(super) type Blocks = Vec<BlockPages>;

/// When a process that belongs to the run has started, since the start of the run. Zero if that was before.
pub(super) fn began(run: Option<(Duration, Duration)>, target: TargetId) -> Option<Duration> {
    let (TargetId::Process(process), (since, start)) = (target, run?) else { return None };
    (process.start >= since).then(|| process.start.saturating_sub(start))
}
