//! Reclaims memory of cgroups: page cache, the pages that are known to be idle, then what the kernel finds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use isotherm_core::scheme::{CacheWork, CgroupLimit, Outcome, Reclaim, Refusal, RefusalReason, WantedLimits};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_kernel::ProcessTable;
use isotherm_kernel::cgroup::{CgroupFiles, CgroupMemory, LimitFile, NoMemoryCgroup, SelectedCgroups};
use isotherm_kernel::madvise::Advice;
use isotherm_kernel::pages::{PageBuffer, Pagemap};
use rustix::io::Errno;

use super::advice_plan::advise_by_plan;
use super::cache_age::CacheAges;
use super::check::advice;
use super::held::Held;
use super::limits::CgroupLimits;
use super::map_counts::MapCounts;
use super::news::{News, NewsList};
use super::refusal::refusal;
use super::resident::{Cached, Resident, resident};
use super::swap::Swap;

/// At most so much page cache of a cgroup is taken at once.
const CACHE_AT_ONCE: u64 = 32 << 20;

/// Reclaims memory of the cgroups of a selection, and limits them.
#[derive(Debug)]
pub(super) struct CgroupReclaim {
    /// `None` if no processes are selected.
    cgroups: Option<SelectedCgroups>,
    /// `None` if the user may not read it.
    mapped: Option<MapCounts>,
    buffer: PageBuffer,
    limits: CgroupLimits,
    /// The protection of the memory in use.
    kept: CgroupLimits,
    /// What is known of the page cache of the cgroups, by the age that is asked for.
    caches: BTreeMap<Duration, Caches>,
    news: NewsList,
}

/// What is known of the page cache of cgroups.
#[derive(Debug, Default)]
struct Caches {
    /// When the cgroups were found.
    found: Option<Duration>,
    of_each: Vec<(CgroupMemory, CacheAges)>,
}

impl Caches {
    /// Takes in which cgroups there are. What is known of those that were there before stays.
    fn find(&mut self, cgroups: Vec<(CgroupMemory, Vec<u32>)>, now: Duration) {
        // One that was made again at the same path is another one.
        let key = |cgroup: &CgroupMemory| Some((cgroup.path().to_owned(), cgroup.files().inode().ok()?));
        let known = std::mem::take(&mut self.of_each).into_iter();
        let mut known: BTreeMap<_, _> = known.filter_map(|(cgroup, ages)| Some((key(&cgroup)?, ages))).collect();
        let with_ages = |(cgroup, _)| {
            let ages = key(&cgroup).and_then(|key| known.remove(&key)).unwrap_or_default();
            (cgroup, ages)
        };
        self.of_each = cgroups.into_iter().map(with_ages).collect();
        self.found = Some(now);
    }
}

/// The readers that a reclaim shares with other actions.
pub(super) struct Readers<'a> {
    pub root: &'a Path,
    pub cached: &'a mut Cached,
    pub swap: &'a mut Swap,
}

impl CgroupReclaim {
    /// Of no cgroup. `root` stands for `/`.
    pub(super) fn new(root: &Path) -> Self {
        let [limits, kept] = [LimitFile::High, LimitFile::Low].map(|file| CgroupLimits::new(root, file));
        let (caches, news) = (BTreeMap::new(), NewsList::default());
        Self { cgroups: None, mapped: None, buffer: PageBuffer::default(), limits, kept, caches, news }
    }

    /// Of the cgroups of a selection. `root` stands for `/`.
    pub(super) fn of(root: &Path, cgroups: SelectedCgroups) -> Self {
        let mapped = MapCounts::open(root).ok();
        Self { cgroups: Some(cgroups), mapped, ..Self::new(root) }
    }

    /// The limits of the cgroups.
    pub(super) fn limits(&mut self) -> &mut CgroupLimits {
        &mut self.limits
    }

    /// Sets limits to what schemes want, or says what it would set if `is_dry`.
    pub(super) fn limit(&mut self, processes: &ProcessTable, wanted: &[WantedLimits<'_>], is_dry: bool) {
        let Some(cgroups) = &self.cgroups else { return };
        for limits in [&mut self.limits, &mut self.kept] {
            limits.dry(is_dry);
            limits.set(cgroups, processes, wanted);
        }
    }

    /// Gives back the limits that were changed.
    pub(super) fn end_limits(&mut self) {
        self.limits.end();
        self.kept.end();
    }

    /// Whether the cgroup of a process has no more memory than its least limit has room for.
    pub(super) fn has_its_least(&mut self, pid: u32, how: CgroupLimit) -> Result<bool, Refusal> {
        let cgroup = self.cgroup(pid)?;
        Ok(self.limits.has_its_least(&cgroup, how))
    }

    /// Checks that the selection can be acted on.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self) -> Result<(), NoMemoryCgroup> {
        self.cgroups.as_ref().map_or(Err(NoMemoryCgroup::NotSelected), SelectedCgroups::check)
    }

    /// What the user must know of since the last call: why a cgroup was left alone, and what became of limits.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        let mut news = self.news.take();
        news.extend(self.limits.take_news());
        news.extend(self.kept.take_news());
        news
    }

    /// Takes as much from the cgroup of a process as `ranges` have in memory, each page once.
    ///
    /// What left the ranges counts in its range. What the kernel has freed elsewhere in their place counts in any.
    pub(super) fn run(
        &mut self,
        held: &mut Held,
        how: Reclaim,
        ranges: &[AddrRange],
        outcomes: &mut [Outcome],
        readers: &mut Readers<'_>,
    ) -> Result<(), Refusal> {
        let cgroup = self.cgroup(held.pid)?;
        if self.limits.is_left(&cgroup) {
            return Err(RefusalReason::NotPermitted.into());
        }
        if cgroup.is_frozen() {
            self.news.warn(format!("the cgroup {} is frozen: nothing is reclaimed until it is thawed", cgroup.path()));
            return Err(RefusalReason::Busy.into());
        }
        let read = |held: &Held| match resident(readers.root, held.pid, ranges) {
            // Another process may have its ID by now.
            Ok(_) if held.has_ended() => Err(refusal(Errno::SRCH)),
            read => read.map_err(refusal),
        };
        let before = read(held)?;
        let has_swap = readers.swap.is_free_for(readers.root, held.pid);
        if let Some(advice) = advice(how) {
            // What the advice did shows in the pages. What it left is the kernel's to choose.
            let plan = readers.cached.plan(&before, has_swap || advice == Advice::Cold);
            advise_by_plan(held, advice, ranges, &plan, &mut vec![Outcome::default(); ranges.len()]);
        }
        let left = self.in_memory_once(readers.root, held.pid, ranges).map_err(refusal)?;
        let between = read(held)?;
        let (bytes, ended) = self.reclaim(&cgroup, left, how.swappiness);
        let after = read(held)?;
        let of_ranges = |one: &[Resident], other: &[Resident]| -> u64 {
            one.iter().zip(other).map(|(one, other)| one.became(other).gone).sum()
        };
        // The kernel counts what it freed of the ranges, too.
        let mut elsewhere = bytes.saturating_sub(of_ranges(&between, &after));
        let mut short = ended.map_or(0, |_| left.saturating_sub(bytes));
        for ((outcome, range), (before, after)) in outcomes.iter_mut().zip(ranges).zip(before.iter().zip(&after)) {
            let became = before.became(after);
            let gone = became.gone.min(range.size());
            outcome.unmapped = readers.cached.bytes(before, after).min(gone);
            outcome.resident = Some(after.bytes());
            let in_place = elsewhere.min(range.size() - gone);
            elsewhere -= in_place;
            outcome.applied = gone - outcome.unmapped + in_place;
            outcome.returned = became.returned.min(gone - outcome.unmapped);
            let refused = short.min(range.size() - gone - in_place).min(became.stayed);
            short -= refused;
            if refused > 0 {
                let no_swap = !has_swap && after.has_private();
                let why = ended.filter(|_| !no_swap).map_or(RefusalReason::NoSwap.into(), refusal);
                outcome.refuse(refused, why);
            }
        }
        Ok(())
    }

    /// Takes page cache that no process maps from the cgroups of processes. Returns how many bytes were freed. `now` is
    /// the time since any moment.
    pub(super) fn take_cache(&mut self, work: &CacheWork<'_>, now: Duration) -> u64 {
        let Some(cgroups) = &self.cgroups else { return 0 };
        let CacheWork { age, bytes, .. } = *work;
        let caches = self.caches.entry(age).or_default();
        // To find the cgroups takes a call for each process.
        if caches.found.is_none_or(|at| now >= at + CacheAges::step(age)) {
            caches.find(cgroups.of_each(work.targets.iter().filter_map(|target| target.id.pid())), now);
        }
        let mut freed = 0;
        for (cgroup, ages) in &mut caches.of_each {
            let Ok(counters) = cgroup.counters() else { continue };
            let idle = ages.idle(now, &counters, age);
            let unknown = if work.unobserved { ages.unknown(now, &counters, age, idle) } else { 0 };
            let wanted = (idle + unknown).min(bytes - freed).min(CACHE_AT_ONCE);
            let wanted = wanted - wanted % PAGE_SIZE;
            let is_spared = || work.action.limit().is_some_and(|how| self.limits.has_its_least(cgroup, how));
            if wanted > 0 && !self.limits.is_left(cgroup) && !cgroup.is_frozen() && !is_spared() {
                freed += cgroup.reclaim_cache(wanted).bytes;
            }
        }
        freed
    }

    /// The cgroup of a process.
    fn cgroup(&mut self, pid: u32) -> Result<CgroupMemory, Refusal> {
        let found = self.cgroups.as_ref().map_or(Err(NoMemoryCgroup::NotSelected), |cgroups| cgroups.of(pid));
        found.map_err(|why| {
            let reason = match &why {
                NoMemoryCgroup::Gone { .. } => RefusalReason::TargetGone,
                NoMemoryCgroup::NotWritable { .. }
                | NoMemoryCgroup::NotSelected
                | NoMemoryCgroup::LeavesOut(_)
                | NoMemoryCgroup::OtherCgroup { .. } => RefusalReason::NotPermitted,
                NoMemoryCgroup::NoHierarchy(_)
                | NoMemoryCgroup::Version1
                | NoMemoryCgroup::NotMounted { .. }
                | NoMemoryCgroup::NoReclaim { .. }
                | NoMemoryCgroup::NoController { .. } => RefusalReason::Unsupported,
            };
            // That a cgroup is removed is no news.
            if reason != RefusalReason::TargetGone {
                self.news.warn(format!("nothing is reclaimed of the cgroup of process {pid}: {why}"));
            }
            reason.into()
        })
    }

    /// Asks for `bytes`. Returns how many were reclaimed, and why it is not all.
    fn reclaim<F: CgroupFiles>(
        &mut self,
        cgroup: &CgroupMemory<F>,
        bytes: u64,
        swappiness: Option<u8>,
    ) -> (u64, Option<Errno>) {
        if bytes == 0 {
            return (0, None);
        }
        let reclaimed = cgroup.reclaim(bytes, swappiness);
        if reclaimed.without_swappiness {
            self.news.warn("this kernel takes no swappiness in memory.reclaim: its own is in force (Linux 6.11 does)");
        }
        (reclaimed.bytes, reclaimed.ended)
    }

    /// The bytes of `ranges` in memory. A page that is mapped several times counts in part, so that it counts once if
    /// it is idle in all ranges that have it.
    fn in_memory_once(&mut self, root: &Path, pid: u32, ranges: &[AddrRange]) -> Result<u64, Errno> {
        let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| error.errno())?;
        let (mut own, mut shared) = (0, Vec::new());
        for range in ranges {
            let found = pagemap.each(range.page_addresses(), &mut self.buffer, |entry| {
                let Some(entry) = entry else { return };
                match entry.frame() {
                    Some(_) if entry.is_exclusive() => own += PAGE_SIZE,
                    Some(frame) => shared.push(frame),
                    None => {}
                }
            });
            found.map_err(|error| error.errno())?;
        }
        shared.sort_unstable();
        let mut of_shared = 0.0;
        if let Some(mapped) = &self.mapped {
            mapped.each(shared.iter().copied(), &mut self.buffer, |times| {
                of_shared += times.filter(|&times| times > 0).map_or(0.0, |times| PAGE_SIZE as f64 / times as f64);
            })?;
        }
        // A cast from f64 saturates.
        Ok(own + of_shared as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_testing::or_skip;

    use super::*;
    use isotherm_core::scheme::{Action, First};
    use isotherm_core::{TargetId, TargetSnapshot};
    use isotherm_kernel::Scratch;
    use isotherm_kernel::{Glob, Selection, Selector};
    use std::fs;
    use std::sync::Arc;

    #[test]
    fn each_page_in_memory_counts_once_and_absent_pages_do_not_count() {
        let scratch = Scratch::new(16 * PAGE_SIZE).unwrap();
        (0..4).for_each(|page| scratch.touch(page * PAGE_SIZE));
        let all = AddrRange::new(scratch.start(), scratch.start() + 16 * PAGE_SIZE).unwrap();
        let root = Path::new("/");
        let mapped = or_skip!(MapCounts::open(root).map_err(|error| error.to_string()));
        let mut reclaim = CgroupReclaim { mapped: Some(mapped), ..CgroupReclaim::new(root) };
        assert_eq!(reclaim.in_memory_once(root, std::process::id(), &[all]), Ok(4 * PAGE_SIZE));
        assert_eq!(reclaim.in_memory_once(root, u32::MAX, &[all]), Err(Errno::NOENT));
    }

    #[test]
    fn what_the_user_must_know_is_told_once() {
        let mut reclaim = CgroupReclaim::new(Path::new("/"));
        let own = std::process::id();
        for _ in 0..2 {
            assert_eq!(reclaim.cgroup(own).unwrap_err(), RefusalReason::NotPermitted.into());
        }
        let news = reclaim.take_news();
        assert!(news.len() == 1 && news[0].is_warning && news[0].text.contains("--cgroup"), "{news:?}");
        assert!(reclaim.take_news().is_empty());
        assert!(reclaim.check().is_err());
    }

    #[test]
    fn page_cache_that_was_not_read_again_for_the_age_is_asked_for_until_the_cgroup_is_frozen() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        for (pid, path) in [(7, "/a"), (8, "/other")] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{path}\n"));
            for (name, text) in [("memory.current", "1"), ("memory.reclaim", ""), ("cgroup.events", "frozen 0\n")] {
                write(&format!("cg{path}/{name}"), text);
            }
        }
        let counts = |inactive: u64, activated: u64| {
            let text = format!("inactive_file {inactive}\npgactivate {activated}\n");
            ["a", "other"].iter().for_each(|path| write(&format!("cg/{path}/memory.stat"), &text));
        };
        let asked = |path: &str| fs::read_to_string(root.path().join(format!("cg/{path}/memory.reclaim"))).unwrap();
        let any = vec![Selector::Cgroup(Glob::new("/a").unwrap())];
        let cgroups = SelectedCgroups::new(root.path(), Selection { any, ..Selection::default() });
        let mut reclaim = CgroupReclaim::of(root.path(), cgroups);
        let process = |pid| {
            let id = TargetId::process(pid, Duration::ZERO);
            TargetSnapshot { id, regions: Vec::new(), mappings: Arc::new([]) }
        };
        let (targets, action) =
            ([7, 8].map(process), Action::Reclaim(Reclaim { first: First::PageOut, swappiness: None }));
        let mut take = |at, bytes| {
            let age = Duration::from_secs(60);
            let work = CacheWork { action, age, unobserved: false, targets: &targets, bytes };
            reclaim.take_cache(&work, Duration::from_secs(at))
        };
        counts(100 * PAGE_SIZE, 0);
        assert_eq!((take(0, u64::MAX), take(59, u64::MAX)), (0, 0), "that is not known yet");
        counts(100 * PAGE_SIZE, 30);
        assert_eq!((take(60, u64::MAX), asked("a")), (70 * PAGE_SIZE, format!("{} swappiness=0", 70 * PAGE_SIZE)));
        assert_eq!(take(61, 20 * PAGE_SIZE + 1), 20 * PAGE_SIZE, "no more than the quota leaves");
        assert_eq!(asked("other"), "", "it is not selected");
        write("cg/a/memory.reclaim", "");
        write("cg/a/cgroup.events", "frozen 1\n");
        assert_eq!((take(62, u64::MAX), asked("a")), (0, String::new()));
    }
}
