//! The actuator: carries out the actions of schemes on the processes of a run.

mod huge_pages;
mod on_frames;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::scheme::{
    Action, Actuator, CacheWork, DryRunActuator, Outcome, Refusal, RefusalReason, WantedLimits, Work,
};
use isotherm_core::{AddrRange, BoxError, Mapping, NodeId, TargetId, units};
use rustix::io::Errno;

use super::advice_plan::advise_by_plan;
use super::ahead::Ahead;
use super::call_method::CallMethod;
use super::check::check;
use super::error::ActError;
use super::files::FileCache;
use super::held::Held;
use super::inside::{Inside, InsideCall, InsideError};
use super::limits::LeastLimits;
use super::lock_room::LockRoom;
use super::locked::Locked;
use super::migration::Migration;
use super::news::News;
use super::outside::{advise_ranges, cut_at_mappings};
use super::physical::{self, FrameOwners};
use super::reclaim::{CgroupReclaim, Readers};
use super::refusal::{NOT_MAPPED, refusal};
use super::resident::{Cached, resident};
use super::swap::{Swap, needs_swap};
use isotherm_kernel::cgroup::SelectedCgroups;
use isotherm_kernel::madvise::Advice;
use isotherm_kernel::page_cache::FileTable;
use isotherm_kernel::{ProcessTable, monitor_cpu_time};

/// Advice to the kernel on page frames, whichever processes map them. The ranges of physical addresses are sorted, a
/// thousand at most. Returns the bytes on which the kernel has acted.
pub type ActOnFrames = fn(Advice, &[AddrRange]) -> Result<u64, BoxError>;

/// Acts on the processes of a process table.
#[derive(Debug)]
pub struct ProcessActuator {
    process_table: ProcessTable,
    root: PathBuf,
    inside: Inside,
    migration: Migration,
    cgroups: CgroupReclaim,
    /// The files whose page cache is acted on. `None` if that of none is.
    files: Option<FileCache>,
    /// Who maps page frames. `None` if physical memory is not acted on.
    owners: Option<FrameOwners>,
    /// Acts on page frames that are not of one process. `None` if nothing does.
    frames: Option<ActOnFrames>,
    cached: Cached,
    swap: Swap,
    /// Whether nothing is done, and all of it is reported as done.
    is_dry: bool,
    /// When it was made.
    began: Instant,
    spent: Duration,
    cpu: Duration,
    /// Set when the work must end.
    interrupt: Arc<AtomicBool>,
    /// For each target, the last reason why no call could be made inside it.
    refusals: HashMap<TargetId, InsideError>,
    /// The targets in which huge pages were forbidden.
    forbidden: HashSet<TargetId>,
    /// The mappings that were looked at for huge pages ahead.
    ahead: Ahead,
    /// Whether the kernel makes huge pages of memory when it is told to. `None` until that was tried.
    collapses: Option<bool>,
    lock_room: LockRoom,
    locked: Locked,
}

impl ProcessActuator {
    /// An actuator for the processes of `process_table`. Nothing is opened or started before it is needed.
    pub fn new(process_table: ProcessTable) -> Self {
        Self {
            process_table,
            root: "/".into(),
            inside: Inside::new(),
            migration: Migration::new("/".as_ref()),
            cgroups: CgroupReclaim::new("/".as_ref()),
            files: None,
            owners: None,
            frames: None,
            is_dry: false,
            cached: Cached::new("/".as_ref()),
            swap: Swap::default(),
            began: Instant::now(),
            spent: Duration::ZERO,
            cpu: Duration::ZERO,
            interrupt: Arc::default(),
            refusals: HashMap::new(),
            forbidden: HashSet::new(),
            ahead: Ahead::default(),
            collapses: None,
            lock_room: LockRoom::default(),
            locked: Locked::default(),
        }
    }

    /// An actuator that acts on these cgroups, too. Without them, actions on cgroups are refused.
    #[must_use]
    pub fn with_cgroups(self, cgroups: SelectedCgroups) -> Self {
        Self { cgroups: CgroupReclaim::of(&self.root, cgroups), ..self }
    }

    /// An actuator that acts on the page cache of these files, and on nothing else.
    #[must_use]
    pub fn with_files(self, files: FileTable) -> Self {
        Self { files: Some(FileCache::new(&self.root, files)), ..self }
    }

    /// An actuator that acts on physical memory: on the page frames of a process by advice on that process, and on
    /// those of several processes and of none by `frames`, if there is something that can.
    #[must_use]
    pub fn with_physical(self, owners: FrameOwners, frames: Option<ActOnFrames>) -> Self {
        Self { owners: Some(owners), frames, ..self }
    }

    /// An actuator that lets no limit of a cgroup down below these, and does nothing to cgroups that have no more than
    /// that. It leaves the limits of other cgroups alone.
    #[must_use]
    pub fn with_least_limits(mut self, least: LeastLimits) -> Self {
        self.cgroups.limits().not_below(least);
        self
    }

    /// An actuator that does nothing to any target if `is_dry`, and reports that it has done all it was asked for. It
    /// still checks that the actions would work.
    #[must_use]
    pub fn dry(self, is_dry: bool) -> Self {
        Self { is_dry, ..self }
    }

    /// What the user must know of actions on cgroups since the previous call.
    pub fn take_news(&mut self) -> Vec<News> {
        self.cgroups.take_news()
    }

    /// Gives back the limits of cgroups that were changed, and says so in the [news](Self::take_news). Dropping the
    /// actuator does it as well.
    pub fn end_limits(&mut self) {
        self.cgroups.end_limits();
    }

    /// Unlocks the memory that was locked, except that of targets that had locked memory before. Returns what the user
    /// must know.
    pub fn end_locks(&mut self) -> Vec<News> {
        let (mut news, mut unlocked, mut targets) = (Vec::new(), 0, 0);
        for (target, ranges) in self.locked.take().collect::<Vec<_>>() {
            let held = Held::new(&self.process_table, target).filter(|held| !held.has_ended());
            let Some(held) = held else { continue };
            let mut outcomes = vec![Outcome::default(); ranges.len()];
            self.timed(|actuator| actuator.apply_inside(&held, InsideCall::MUnlock, &ranges, &mut outcomes));
            unlocked += outcomes.iter().map(|outcome| outcome.applied).sum::<u64>();
            targets += 1;
            let is_lasting =
                |why: &Refusal| !matches!(why.reason, RefusalReason::NotMapped | RefusalReason::TargetGone);
            let left =
                outcomes.iter().filter_map(|outcome| Some((outcome.refused, outcome.refusal.filter(is_lasting)?)));
            let (left, why) = left.fold((0, None), |(sum, _), (bytes, refusal)| (sum + bytes, Some(refusal.reason)));
            if let Some(why) = why {
                let left = units::bytes(left);
                news.push(News::warning(format!("{left} of process {} stay locked until it ends: {why}", held.pid)));
            }
        }
        if unlocked > 0 {
            let (bytes, s) = (units::bytes(unlocked), if targets == 1 { "" } else { "es" });
            news.push(News::info(format!("unlocked {bytes} of {targets} process{s}, which schemes had locked")));
        }
        news
    }

    /// Replaces the process table.
    pub fn act_on(&mut self, process_table: ProcessTable) {
        self.process_table = process_table;
        let is_held = |target: &TargetId| Held::new(&self.process_table, *target).is_some();
        self.forbidden.retain(is_held);
        self.ahead.retain(is_held);
        self.locked.retain(is_held);
    }

    /// A flag that ends the work. Any thread may set it. A call of [`apply`](Actuator::apply) in progress finishes, and
    /// the next one fails.
    pub fn interrupt(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    /// The CPU time of the calling threads that [`apply`](Actuator::apply) took since the start.
    pub fn cpu_time(&self) -> Duration {
        self.cpu
    }

    /// The targets inside which no call could be made since the previous `take_refusals`, each with the last reason.
    pub fn take_refusals(&mut self) -> impl Iterator<Item = (TargetId, InsideError)> {
        std::mem::take(&mut self.refusals).into_iter()
    }

    /// The total time for which targets were stopped for calls inside them.
    pub fn stopped(&self) -> Duration {
        self.inside.stopped()
    }

    /// The longest time for which a target was stopped for calls inside it.
    pub fn longest_stop(&self) -> Duration {
        self.inside.longest_stop()
    }

    /// Does `work`, and counts the time that it takes.
    fn timed<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let (began, cpu) = (Instant::now(), monitor_cpu_time());
        let done = work(self);
        self.spent += began.elapsed();
        self.cpu += monitor_cpu_time().saturating_sub(cpu);
        done
    }

    /// Acts on a target, and says what became of each range.
    fn act(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), ActError> {
        if let Some(files) = self.files.as_mut().filter(|_| work.target == TargetId::PageCache) {
            files.run(work, outcomes, &mut self.migration, &self.interrupt);
            return Ok(());
        }
        let method = CallMethod::of(work.action, work.inside)?;
        if let (Some(owners), CallMethod::Outside(advice)) = (self.physical(work.target), method) {
            self.advise_frames(&owners, advice, work.ranges, outcomes);
            return Ok(());
        }
        match (Held::new(&self.process_table, work.target).filter(|held| !held.has_ended()), method) {
            (None, _) => refuse_all(work.ranges, outcomes, refusal(Errno::SRCH)),
            (Some(_), CallMethod::Nothing) => {
                work.ranges.iter().zip(outcomes).for_each(|(range, outcome)| *outcome = Outcome::all(*range));
            }
            (Some(mut held), CallMethod::Outside(Advice::Collapse)) if work.action == Action::HugePage => {
                self.back_with_huge_pages(&mut held, work.ranges, outcomes);
            }
            (Some(mut held), CallMethod::Outside(advice)) => self.advise(&mut held, advice, work.ranges, outcomes),
            (Some(held), CallMethod::Migration) => {
                self.migration.run(&held, work, outcomes, &self.interrupt);
            }
            (Some(mut held), CallMethod::Cgroup(how) | CallMethod::Limit(how)) => {
                let Self { root, cached, swap, cgroups, .. } = self;
                let mut readers = Readers { root, cached, swap };
                let is_over = work.action.limit().map_or(Ok(false), |how| cgroups.has_its_least(held.pid, how));
                let done = is_over.and_then(|is_over| match is_over {
                    true => Ok(()),
                    false => cgroups.run(&mut held, how, work.ranges, outcomes, &mut readers),
                });
                if let Err(refusal) = done {
                    refuse_all(work.ranges, outcomes, refusal);
                }
            }
            (Some(mut held), CallMethod::Inside(_)) if work.action == Action::HugePageAhead => {
                self.allow_huge_pages_ahead(&mut held, work.ranges, outcomes);
            }
            (Some(held), CallMethod::Inside(InsideCall::MLock)) => {
                if !self.lock_room.knows(work.target) {
                    self.lockable();
                }
                self.locked.begin(&self.root, work.target);
                let (fit, rest) = work.ranges.split_at(self.lock_room.take(work.target, work.ranges));
                let (of_fit, of_rest) = outcomes.split_at_mut(fit.len());
                self.apply_inside(&held, InsideCall::MLock, fit, of_fit);
                refuse_all(rest, of_rest, RefusalReason::NoMemory.into());
            }
            (Some(held), CallMethod::Inside(call)) => self.apply_inside(&held, call, work.ranges, outcomes),
        }
        Ok(())
    }

    /// Gives advice on ranges of a process.
    fn advise(&mut self, held: &mut Held, advice: Advice, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        match advice {
            Advice::PageOut | Advice::PageOutWhole => self.page_out(held, ranges, outcomes),
            Advice::Cold => {
                let resident = resident(&self.root, held.pid, ranges).unwrap_or_default();
                advise_by_plan(held, advice, ranges, &self.cached.plan(&resident, true), outcomes);
            }
            Advice::WillNeed | Advice::Collapse => advise_ranges(held, advice, ranges, outcomes),
        }
    }

    /// Reclaims ranges. Only what was freed counts as applied: it was resident before, and neither resident nor in a
    /// cache afterwards. The kernel leaves out pages that are shared or in use, and unmaps changed pages of files
    /// without freeing them. What needs swap that there is not gets no advice: the kernel would split huge pages,
    /// unmap shared memory, and free none.
    fn page_out(&mut self, held: &mut Held, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        let before = resident(&self.root, held.pid, ranges);
        let has_swap = self.swap.is_free_for(&self.root, held.pid);
        let plan = self.cached.plan(before.as_deref().unwrap_or_default(), has_swap);
        advise_by_plan(held, Advice::PageOut, ranges, &plan, outcomes);
        // Without the figures, the outcome is that of the call.
        let (Ok(before), Ok(after)) = (before, resident(&self.root, held.pid, ranges)) else { return };
        for (outcome, (before, after)) in outcomes.iter_mut().zip(before.into_iter().zip(after)) {
            let became = before.became(&after);
            let gone = outcome.applied.min(became.gone);
            outcome.unmapped = self.cached.bytes(&before, &after).min(gone);
            outcome.applied = gone - outcome.unmapped;
            outcome.returned = became.returned.min(outcome.applied);
            outcome.resident = Some(after.bytes());
        }
    }

    fn apply_inside(&mut self, held: &Held, call: InsideCall, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        let mapped = match held.mapped_within(ranges) {
            Ok(mapped) => mapped,
            Err(errno) => return refuse_all(ranges, outcomes, refusal(errno)),
        };
        let mut pieces = Vec::new();
        for ((index, range), outcome) in ranges.iter().enumerate().zip(outcomes.iter_mut()) {
            let parts = cut_at_mappings(*range, &mapped, |hole| outcome.refuse(hole.size(), NOT_MAPPED));
            for part in parts {
                pieces.extend(part.pieces(call.max_bytes()).map(|piece| (index, piece)));
            }
        }
        let calls: Vec<AddrRange> = pieces.iter().map(|(_, piece)| *piece).collect();
        let mut results = Vec::with_capacity(calls.len());
        let made = self.inside.make(held.pid, call, &calls, &mut results);
        let rest = made.as_ref().map_or_else(InsideError::refusal, |()| refusal(Errno::IO));
        for (i, (index, piece)) in pieces.into_iter().enumerate() {
            let outcome = &mut outcomes[index];
            let result = results.get(i);
            // A call that fails may have locked a part.
            if call == InsideCall::MLock && result.is_some() {
                self.locked.add(held.target(), piece);
            } else if call == InsideCall::MUnlock && matches!(result, Some(Ok(()))) {
                self.locked.remove(held.target(), piece);
            }
            match result {
                Some(Ok(())) => outcome.applied += piece.size(),
                Some(Err(errno)) => outcome.refuse(piece.size(), refusal(*errno)),
                None => outcome.refuse(piece.size(), rest),
            }
        }
        if let Err(error) = made {
            self.refusals.insert(held.target(), error);
        }
        if call == InsideCall::NoHugePage && outcomes.iter().any(|outcome| outcome.applied > 0) {
            self.forbidden.insert(held.target());
        }
    }
}

/// Counts all of `ranges` as refused.
fn refuse_all(ranges: &[AddrRange], outcomes: &mut [Outcome], refusal: Refusal) {
    for (range, outcome) in ranges.iter().zip(outcomes) {
        *outcome = Outcome::refused(*range, refusal);
    }
}

/// What was read of the pages of a process. `None` if it cannot be read, or if the process has ended, as another one
/// may have had its ID while the pages were read. All of `ranges` is refused then.
fn read_or_refused<T>(
    held: &Held,
    read: Result<T, Errno>,
    ranges: &[AddrRange],
    outcomes: &mut [Outcome],
) -> Option<T> {
    let errno = match read {
        Ok(_) | Err(Errno::NOENT) if held.has_ended() => Errno::SRCH,
        Ok(read) => return Some(read),
        Err(errno) => errno,
    };
    refuse_all(ranges, outcomes, refusal(errno));
    None
}

impl Actuator for ProcessActuator {
    fn supports(&mut self, action: Action, inside: bool) -> Result<(), BoxError> {
        if let Some(files) = &self.files {
            return Ok(files.check(action, &mut self.migration)?);
        }
        if self.owners.is_some() {
            physical::check(&self.root, action)?;
        }
        let method = CallMethod::of(action, inside)?;
        check(action, method, &mut self.inside, &mut self.migration)?;
        if action.reclaim().is_some() {
            self.cgroups.check().map_err(|source| ActError::Cgroup { action, source })?;
        }
        Ok(())
    }

    fn left_nodes(&mut self, action: Action) -> Vec<NodeId> {
        self.migration.left_nodes(action)
    }

    fn can_free(&mut self, mapping: &Mapping) -> bool {
        !needs_swap(mapping) || self.swap.is_free(&self.root)
    }

    fn lockable(&mut self) -> u64 {
        let targets: Vec<TargetId> = self.process_table.members().keys().copied().collect();
        self.lock_room = LockRoom::read(&self.root, targets.into_iter());
        self.lock_room.bytes()
    }

    fn is_dry(&self) -> bool {
        self.is_dry
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err("the run has ended".into());
        }
        if self.is_dry {
            return DryRunActuator.apply(work, outcomes);
        }
        Ok(self.timed(|actuator| actuator.act(work, outcomes))?)
    }

    fn reclaim_cache(&mut self, work: &CacheWork<'_>) -> u64 {
        // What a dry run leaves would count again each time.
        if self.is_dry || self.interrupt.load(Ordering::Relaxed) {
            return 0;
        }
        let now = self.began.elapsed();
        self.timed(|actuator| actuator.cgroups.take_cache(work, now))
    }

    fn set_limits(&mut self, wanted: &[WantedLimits<'_>]) {
        if self.interrupt.load(Ordering::Relaxed) {
            return;
        }
        let cpu = monitor_cpu_time();
        self.cgroups.limit(&self.process_table, wanted, self.is_dry);
        self.cpu += monitor_cpu_time().saturating_sub(cpu);
    }

    fn time_spent(&self) -> Duration {
        self.spent
    }
}
