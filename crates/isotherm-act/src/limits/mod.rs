//! Sets limits of cgroups, and gives back what there was before: at the end, and for a run that was killed.

mod journal;
#[cfg(test)]
mod kills;
mod least;
mod restore;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use isotherm_core::scheme::{CgroupLimit, Goal, Metric, WantedLimits};
use isotherm_core::units;
use isotherm_kernel::ProcessTable;
use isotherm_kernel::cgroup::{CgroupDirectory, CgroupFiles, CgroupMemory, LimitFile, MemoryLimit, SelectedCgroups};

use super::news::{News, NewsList};
use journal::{Journal, Noted};
pub use least::LeastLimits;
pub use restore::restore_limits;
use step::MemoryOfGroup;

/// What is wanted of the limit of a cgroup.
#[derive(Debug)]
pub(super) struct Wanted<F: CgroupFiles> {
    cgroup: CgroupMemory<F>,
    how: CgroupLimit,
    /// Why it must not be limited now.
    reached: Option<String>,
    /// Bytes that its processes use, and the part of them that surveys know well. `None` if they know no process well.
    in_use: u64,
    known: Option<u64>,
    /// Bytes that are known to be idle.
    idle: u64,
}

/// The limits of cgroups that a run sets by one file: `memory.high`, above which they have to reclaim, or `memory.low`,
/// below which their memory is protected.
#[derive(Debug)]
pub(super) struct CgroupLimits<F: CgroupFiles = CgroupDirectory> {
    file: LimitFile,
    root: PathBuf,
    is_dry: bool,
    /// Below which each cgroup is not let down; one that it does not have is left alone. `None` if there are no such
    /// bounds.
    least: Option<LeastLimits>,
    journal: Option<Journal>,
    /// The cgroups that have been limited, by path.
    limited: BTreeMap<String, Limited<F>>,
    /// The cgroups whose limit is set by somebody else, with their inode numbers.
    left: BTreeMap<String, u64>,
    /// What a dry run would have done: the limit that each cgroup has, and the one that it would have.
    would: BTreeMap<String, (MemoryLimit, MemoryLimit)>,
    news: NewsList,
}

/// A cgroup that has been limited.
#[derive(Debug)]
struct Limited<F: CgroupFiles> {
    cgroup: CgroupMemory<F>,
    inode: u64,
    /// The limit before it was changed.
    before: MemoryLimit,
    /// The limit that it has, as far as is known.
    now: MemoryLimit,
    /// A limit that could not be written, or about which that is not known.
    tried: Option<MemoryLimit>,
    /// The lowest limit, or the highest protection, that it has had.
    tightest: MemoryLimit,
    raised: u32,
    /// How often the kernel had counted that it was above its limit, when it was looked at last and before it was
    /// limited. `None` if that is not known.
    above: Option<(u64, u64)>,
}

impl<F: CgroupFiles> Limited<F> {
    /// What another run needs to give back what there was before. `None` if there is nothing to give back.
    fn noted(&self, file: LimitFile, path: &str) -> Option<Noted> {
        if self.now == self.before && self.tried.is_none() {
            return None;
        }
        let ours = [self.now].into_iter().chain(self.tried.filter(|tried| *tried != self.now)).collect();
        Some(Noted { path: path.into(), inode: self.inode, file, before: self.before, ours })
    }

    /// Takes in the limit that it has. Returns whether that is one of ours.
    fn is_ours(&mut self, found: MemoryLimit) -> bool {
        if self.tried == Some(found) {
            self.now = found;
        }
        self.now == found
    }

    /// How often it was above its limit, in words.
    fn above(&self) -> String {
        match self.above {
            Some((_, count)) if count > 0 => format!(", and was reached {}", times(count)),
            Some(_) => ", and was not reached".into(),
            None => ", and whether it was reached is unknown: memory.events cannot be read".into(),
        }
    }
}

impl CgroupLimits {
    /// Sets the limits that schemes want for the cgroups of their targets. What is limited and is not wanted any more
    /// becomes what it was.
    pub(super) fn set(&mut self, cgroups: &SelectedCgroups, processes: &ProcessTable, wanted: &[WantedLimits<'_>]) {
        let mut all: BTreeMap<String, Wanted<CgroupDirectory>> = BTreeMap::new();
        let is_wanted = |wanted: &&WantedLimits<'_>| self.file == LimitFile::High || wanted.how.keep;
        for WantedLimits { scheme, how, reached, in_use } in wanted.iter().filter(is_wanted) {
            let members = processes.members();
            let of_pid = in_use.iter().filter(|of| members.contains_key(&of.target));
            let of_pid: BTreeMap<u32, _> = of_pid.filter_map(|of| Some((of.target.pid()?, *of))).collect();
            drop(members);
            let reached = reached.map(|(goal, value)| reason(scheme, goal, value));
            for (cgroup, pids) in cgroups.of_each(of_pid.keys().copied()) {
                let one = all.entry(cgroup.path().to_owned());
                let new = || Wanted { cgroup, how: *how, reached: None, in_use: 0, known: None, idle: 0 };
                let one = one.or_insert_with(new);
                // Of several schemes, the greatest margin and the greatest use count.
                let uses = || pids.iter().filter_map(|pid| of_pid.get(pid));
                let bytes = uses().map(|of| of.bytes).sum::<u64>();
                let known = uses().filter(|of| of.is_known).map(|of| of.bytes).reduce(|sum, bytes| sum + bytes);
                let idle = uses().map(|of| of.idle).sum::<u64>();
                one.how.margin = one.how.margin.max(how.margin);
                one.reached = one.reached.take().or_else(|| reached.clone());
                (one.in_use, one.known) = (one.in_use.max(bytes), one.known.max(known));
                one.idle = one.idle.max(idle);
            }
        }
        self.set_each(all.into_values().collect());
    }
}

impl<F: CgroupFiles> CgroupLimits<F> {
    /// No limits yet. `root` stands for `/`.
    pub(super) fn new(root: &Path, file: LimitFile) -> Self {
        Self {
            file,
            root: root.into(),
            is_dry: false,
            least: None,
            journal: None,
            limited: BTreeMap::new(),
            left: BTreeMap::new(),
            would: BTreeMap::new(),
            news: NewsList::default(),
        }
    }

    /// Lets nothing be written if `is_dry`.
    pub(super) fn dry(&mut self, is_dry: bool) {
        self.is_dry = is_dry;
    }

    /// Lets no limit down below these, and leaves other cgroups alone.
    pub(super) fn not_below(&mut self, least: LeastLimits) {
        self.least = Some(least);
    }

    /// Whether a cgroup has no more memory than its least limit has room for, so that nothing is reclaimed.
    pub(super) fn has_its_least(&self, cgroup: &CgroupMemory<F>, how: CgroupLimit) -> bool {
        let has_room = |current: u64, least: u64| current.saturating_add(how.margin_of(current)) <= least;
        let is_left = |least: u64| cgroup.current().is_ok_and(|current| has_room(current, least));
        self.least.as_ref().is_some_and(|least| least.get(cgroup.path()).is_none_or(is_left))
    }

    /// Whether somebody else sets the limit of this cgroup.
    pub(super) fn is_left(&self, cgroup: &CgroupMemory<F>) -> bool {
        let left = self.left.get(cgroup.path());
        left.is_some_and(|inode| cgroup.files().inode().is_ok_and(|now| now == *inode))
    }

    /// What the user must know since the last call.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        self.news.take()
    }

    /// Gives back what there was before, of all cgroups, and says what was done to them.
    pub(super) fn end(&mut self) {
        for path in self.limited.keys().cloned().collect::<Vec<_>>() {
            self.release(&path);
        }
        if self.limited.is_empty() && self.journal.is_some() {
            self.note();
            self.journal = None;
        }
        for (path, (before, would)) in std::mem::take(&mut self.would) {
            let (before, would) = (words(before), words(would));
            let (done, extreme) = (self.tightened(), self.extreme());
            let text =
                format!("{} of {path} would be {done} to {would} at the {extreme} (it is {before})", self.name());
            self.news.inform(text);
        }
    }

    /// The name of the file.
    fn name(&self) -> &'static str {
        self.file.name()
    }

    /// What is done to the limit so that it binds more, in words.
    fn tightened(&self) -> &'static str {
        match self.file {
            LimitFile::High => "let down",
            LimitFile::Low => "raised",
        }
    }

    /// The opposite.
    fn loosened(&self) -> &'static str {
        match self.file {
            LimitFile::High => "raised",
            LimitFile::Low => "let down",
        }
    }

    /// Where it binds most, in words.
    fn extreme(&self) -> &'static str {
        match self.file {
            LimitFile::High => "least",
            LimitFile::Low => "most",
        }
    }

    fn set_each(&mut self, wanted: Vec<Wanted<F>>) {
        let paths: BTreeSet<&str> = wanted.iter().map(|one| one.cgroup.path()).collect();
        let gone: Vec<String> = self.limited.keys().filter(|path| !paths.contains(&***path)).cloned().collect();
        gone.iter().for_each(|path| self.release(path));
        wanted.into_iter().for_each(|one| self.set_one(one));
    }

    /// Sets the limit of a cgroup to what is wanted.
    fn set_one(&mut self, wanted: Wanted<F>) {
        let Wanted { cgroup, how, reached, in_use, known, idle } = wanted;
        let path = cgroup.path().to_owned();
        let Ok(inode) = cgroup.files().inode() else { return };
        // One that was made again at the same path is another one.
        self.limited.retain(|other, limited| *other != path || limited.inode == inode);
        if self.left.get(&path) == Some(&inode) || cgroup.is_frozen() {
            return;
        }
        let (found, current) = match cgroup.limit(self.file).and_then(|limit| Ok((limit, cgroup.current()?))) {
            Ok(found) => found,
            Err(_) if cgroup.is_gone() => return drop(self.limited.remove(&path)),
            Err(error) => return self.news.warn(format!("{} of {path} cannot be read: {error}", self.name())),
        };
        // Nothing is done before it is known how much is to be left.
        let least = match &self.least {
            Some(least) => match least.get(&path) {
                Some(bytes) => bytes,
                None => return,
            },
            None => 0,
        };
        let count = (self.file == LimitFile::High).then(|| cgroup.times_above_high()).flatten();
        let mut was_above = Some(false);
        if let Some(limited) = self.limited.get_mut(&path) {
            if !limited.is_ours(found) {
                return self.leave(&path, found);
            }
            let news = limited.above.zip(count).map(|((before, all), now)| (now, all + now.saturating_sub(before)));
            was_above = limited.above.zip(news).map(|((_, before), (_, all))| all > before);
            limited.above = news;
        }
        let before = self.limited.get(&path).map_or(found, |limited| limited.before);
        let known = MemoryOfGroup {
            current,
            in_use,
            is_surveyed: known.is_some_and(|known| known >= in_use / 2),
            was_above,
            margin: how.margin_of(if self.is_dry { current.saturating_sub(idle) } else { current }),
            least,
            is_bound: reached.is_some(),
        };
        if self.is_dry {
            let limit = match self.file {
                LimitFile::High => step::without(idle, before, &known),
                LimitFile::Low => step::kept(before, before, &known),
            };
            if let Some(limit) = limit {
                let would = self.would.entry(path).or_insert((before, limit));
                would.1 = tighter(self.file, would.1, limit);
            }
            return;
        }
        let next = match self.file {
            LimitFile::High => step::next(found, before, &known),
            LimitFile::Low => step::kept(found, before, &known),
        };
        let Some(to) = next else { return };
        if !self.limited.contains_key(&path) && !self.begin(cgroup, inode, found, count) {
            return;
        }
        match reached.filter(|_| self.file == LimitFile::High) {
            Some(reason) => self.give_back(&path, &reason),
            None if tighter(self.file, to, found) == to => self.tighten(&path, to),
            None => self.loosen(&path, to),
        }
    }

    /// Begins to limit a cgroup. Returns whether it may be limited.
    fn begin(&mut self, cgroup: CgroupMemory<F>, inode: u64, before: MemoryLimit, count: Option<u64>) -> bool {
        let path = cgroup.path().to_owned();
        if let Some(owner) = Journal::other_owner(&self.root, self.journal.as_ref(), self.file, &path, inode) {
            let name = self.name();
            let text = format!("{name} of {path} is left alone: another isotherm, process {owner}, has set it");
            self.news.warn(text);
            return false;
        }
        let (now, tightest) = (before, before);
        let above = count.map(|count| (count, 0));
        self.limited.insert(path, Limited { cgroup, inode, before, now, tried: None, tightest, raised: 0, above });
        true
    }

    fn tighten(&mut self, path: &str, to: MemoryLimit) {
        let Some(limited) = self.limited.get(path) else { return };
        let (is_first, before) = (limited.now == limited.before, limited.before);
        match self.change(path, to) {
            Ok(()) if is_first => {
                let text = format!("{} of {path} is {} now (before: {})", self.name(), words(to), words(before));
                self.news.inform(text);
            }
            Ok(()) => {}
            Err(error) => {
                let text = format!("{} of {path} cannot be {}: {error}", self.name(), self.tightened());
                self.news.warn(text);
                self.forget_untouched(path);
            }
        }
    }

    fn loosen(&mut self, path: &str, to: MemoryLimit) {
        // What was there before is known to the journal, also if that cannot be written.
        if let Err(error) = self.change(path, to) {
            let done = self.loosened();
            self.news.warn(format!("{} of {path} cannot be {done} to {}: {error}", self.name(), words(to)));
            self.give_back(path, &format!("it cannot be {done} in part"));
        }
    }

    /// Gives back to a cgroup what there was before.
    fn give_back(&mut self, path: &str, reason: &str) {
        let Some(limited) = self.limited.get_mut(path) else { return };
        let before = limited.before;
        let raised = match self.change(path, before) {
            // What was there before is known to the journal already.
            Err(ChangeError::Journal(error)) => {
                self.news.warn(ChangeError::Journal(error).to_string());
                self.write(path, before)
            }
            other => other,
        };
        match raised {
            Ok(()) => {
                self.news.inform(format!("{} of {path} is {} again: {reason}", self.name(), words(before)));
                // There is nothing to give back any more.
                self.note();
            }
            Err(_) if self.limited.get(path).is_some_and(|limited| limited.cgroup.is_gone()) => {
                drop(self.limited.remove(path));
            }
            Err(error) => {
                let (name, done) = (self.name(), self.loosened());
                self.news.warn(format!("{name} of {path} cannot be {done} to {}: {error}", words(before)));
            }
        }
    }

    /// Gives back what there was before to a cgroup, and limits it no longer. If that fails, it stays in the journal.
    fn release(&mut self, path: &str) {
        let Some(limited) = self.limited.get_mut(path) else { return };
        let found = match limited.cgroup.limit(self.file) {
            Ok(found) => found,
            Err(error) => {
                if !limited.cgroup.is_gone() {
                    let text = format!("{} of {path} cannot be read, and stays as it is: {error}", self.name());
                    return self.news.warn(text);
                }
                self.limited.remove(path);
                return self.note();
            }
        };
        if !limited.is_ours(found) {
            return self.leave(path, found);
        }
        let reason = match self.file {
            LimitFile::High if limited.raised > 0 => {
                format!(", was raised {}{}", times(limited.raised.into()), limited.above())
            }
            LimitFile::High => limited.above(),
            LimitFile::Low => String::new(),
        };
        let (before, tightest) = (limited.before, words(limited.tightest));
        let reason = format!("it was {tightest} at the {}{reason}", self.extreme());
        if found == before {
            let text = format!("{} of {path} is {}; {reason}", self.name(), words(found));
            self.news.inform(text);
        } else {
            self.give_back(path, &reason);
        }
        if self.limited.get(path).is_some_and(|limited| limited.now == limited.before) {
            self.limited.remove(path);
            self.note();
        }
    }

    /// Leaves a cgroup to its owner, who has set another limit.
    fn leave(&mut self, path: &str, found: MemoryLimit) {
        let Some(limited) = self.limited.remove(path) else { return };
        self.left.insert(path.into(), limited.inode);
        self.news.warn(format!(
            "{} of {path} is left at {}: somebody else has set it, after isotherm had set {}",
            self.file.name(),
            words(found),
            words(limited.now)
        ));
        self.note();
    }

    /// Notes the change, and makes it.
    fn change(&mut self, path: &str, to: MemoryLimit) -> Result<(), ChangeError> {
        if let Some(limited) = self.limited.get_mut(path) {
            limited.tried = Some(to);
        }
        if let Err(error) = self.write_journal() {
            // Nothing was written to the cgroup.
            self.limited.get_mut(path).into_iter().for_each(|limited| limited.tried = None);
            return Err(ChangeError::Journal(error));
        }
        self.write(path, to)
    }

    /// Writes a limit that the journal knows.
    fn write(&mut self, path: &str, to: MemoryLimit) -> Result<(), ChangeError> {
        let Some(limited) = self.limited.get_mut(path) else { return Ok(()) };
        limited.tried = Some(to);
        limited.cgroup.set_limit(self.file, to).map_err(ChangeError::Cgroup)?;
        limited.raised += u32::from(to > limited.now);
        (limited.now, limited.tried) = (to, None);
        limited.tightest = tighter(self.file, limited.tightest, to);
        Ok(())
    }

    /// Forgets a cgroup to which nothing was done.
    fn forget_untouched(&mut self, path: &str) {
        self.limited.retain(|other, limited| other != path || limited.noted(self.file, path).is_some());
    }

    /// Writes what is limited to the journal.
    fn note(&mut self) {
        if let Err(error) = self.write_journal() {
            self.news.warn(ChangeError::Journal(error).to_string());
        }
    }

    fn write_journal(&mut self) -> io::Result<()> {
        let noted = self.limited.iter().filter_map(|(path, limited)| limited.noted(self.file, path));
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(Journal::begin(&self.root)?),
        };
        journal.write(noted)
    }
}

impl<F: CgroupFiles> Drop for CgroupLimits<F> {
    fn drop(&mut self) {
        // Nobody can be told any more. What cannot be given back stays in the journal.
        self.end();
    }
}

/// Why a limit could not be changed.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    /// The journal cannot be written.
    #[error("the journal of limits in /run/isotherm cannot be written: {0}")]
    Journal(io::Error),
    /// The file of the cgroup cannot be written to.
    #[error("{0}")]
    Cgroup(io::Error),
}

/// Which of two values binds more: the lower limit, or the higher protection.
fn tighter(file: LimitFile, one: MemoryLimit, other: MemoryLimit) -> MemoryLimit {
    match file {
        LimitFile::High => one.min(other),
        LimitFile::Low => one.max(other),
    }
}

/// A limit in words.
fn words(limit: MemoryLimit) -> String {
    match limit {
        MemoryLimit::Bytes(bytes) => units::bytes(bytes),
        MemoryLimit::Max => "max".into(),
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        count => format!("{} times", units::count(count)),
    }
}

/// Why a goal raises the limits.
fn reason(scheme: &str, goal: &Goal, value: f64) -> String {
    let name = match goal.metric() {
        Metric::CgroupPressure(_) => "pressure",
        Metric::Refaults => "refaults",
        Metric::Returns => "returns",
        Metric::FreeMemory
        | Metric::Pressure
        | Metric::StallTime
        | Metric::WorkingSetResident
        | Metric::Fed(_)
        | Metric::NodeUsed(_)
        | Metric::NodeFree(_) => "a goal",
    };
    let [value, target] = [value, goal.target()].map(units::percent);
    format!("because of {name}: {value} (the goal of the scheme {scheme} is {target})")
}
