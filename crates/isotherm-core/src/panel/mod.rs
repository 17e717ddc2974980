//! The panel: how much memory is in use.
//!
//! A panel is a random part of the pages of all targets. All of its pages are read each second; those that were
//! accessed are cleared again. So it is known of each page when it was accessed last, to the second, and the share of
//! the pages that were accessed within a window, times the memory that there is, is an unbiased estimate of the working
//! set. With the share `p` in use, a relative standard error `e` takes `(1 - p) / (p e²)` pages and `(1 - p) / e²`
//! clears a second, whatever the size of the memory.
//!
//! - A page that was just drawn says nothing before its accessed bit was cleared once. If the panel has grown, its
//!   first pages alone tell the windows that have begun before ([`window`]).
//! - A page that has appeared since the panel was begun was not accessed before. If nearly all of them have, as those
//!   of a program that the run has started, windows of any length are known.
//! - Pages are drawn from those that are present, as soon as a survey has read them all, and from all that is mapped
//!   until then. An absent page counts as not accessed.
//! - Memory that is added between surveys is drawn from all of its mapping, absent pages too, if they are not too many.
//!   What a target has in memory beyond all that its pages were drawn from is unknown, and widens the bounds.
//! - Each page belongs to the panel with the same probability, new ones too ([`places`]).
//! - A huge page has one accessed bit. Its pages count as one that was drawn.
//! - A page frame that several targets map counts once in the total, and is accessed if one of them has accessed it
//!   ([`views`]). All of its views belong to the panel, or none does ([`kin`]).
//! - A page that a target maps at several addresses belongs to the panel at one of them, and is read at all of them.
//! - What belongs to a target that has not run is idle. It is not read ([`rests`]).
//! - Pages that cannot be cleared one by one, such as shared ones, are known from when a survey has cleared them until
//!   they are accessed. Afterwards they are unknown, and widen the bounds.

mod draw;
mod estimate;
mod kin;
mod member;
mod places;
mod rests;
mod size;
mod snapshot;
mod views;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use estimate::Estimate;
pub use snapshot::{MappingPanel, PanelSnapshot, TargetPanel};

use crate::survey::{BLOCK_SIZE, ClearPages, LONGEST_WINDOW, PageHistory, WINDOWS};
use crate::{AtRest, PAGE_SIZE, PageLook, Sample, TargetId, TargetSpace};
use draw::Drawn;
use estimate::{COUNT, Watched};
use kin::Kin;
use member::Tick;
use places::Part;
use rests::Rests;
use views::Views;
use window::Window;

/// The first readings come at these times, in milliseconds; later ones each second.
const FIRST_READINGS: [u64; 6] = [0, 250, 750, 1250, 1750, 2250];
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between them while a survey is done in parts, which soon knows more: no longer than the shortest window
/// allows.
const BESIDE_PARTS: Duration = Duration::from_millis(1400);

/// If at most this part of the pages was in memory before the panel was begun, windows that go back to before that are
/// known, too.
const OLDER: f64 = 0.03;

/// The longest time from a reading to the next, if the budget allows no more.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);

/// If huge pages have so many pages of the panel each, none is left out.
const EACH: f64 = 4.0;

/// A mapping is estimated by itself if it has so many pages of the panel.
const ENOUGH: usize = 100;

/// The panel, and what is known of its pages.
#[derive(Debug)]
pub(crate) struct Panel {
    /// The share of all pages that belongs to it. 0 before the first reading.
    rate: f64,
    /// The shares that were in force, the last one first, and the readings since when, as far as windows reach.
    rates: VecDeque<(Tick, f64)>,
    /// How many readings in a row have found it too large.
    too_large: u32,
    /// Whether surveys know nearly all memory, so that they tell most windows.
    is_spare: bool,
    /// How many surveys in a row have not known it.
    not_known: u32,
    /// Which targets have pages in common.
    kin: Kin,
    /// Sorted by ID.
    targets: Vec<Drawn>,
    /// The times of the readings, the last one first, as far as windows reach.
    ticks: VecDeque<Duration>,
    /// The number of the last reading.
    tick: Tick,
    /// Which targets have run.
    rests: Rests,
    /// How many pages the last reading has read.
    reads: usize,
    /// How many pages of each target are in memory, as far as it is known.
    resident: BTreeMap<TargetId, f64>,
    /// How many pages several targets map, as a survey has found, beyond the first target of each: of the targets of
    /// each party, or of all.
    excess: BTreeMap<Option<u32>, f64>,
    /// The parties of the targets. Empty if there are none.
    parties: BTreeMap<TargetId, Arc<[u32]>>,
    /// The CPU time of a page in a reading, on the mean; and of drawing one. `None` if they are not known.
    price: (Option<f64>, Option<f64>),
    /// The CPU time of a reading, whatever the number of pages.
    prepared: Option<f64>,
    /// What the last reading has found of the shortest window: of all pages, and if each page counts once. What has not
    /// run in it need not be read.
    last: (Watched, Watched),
    /// How many pages can be read within the budget. 0 before it is known.
    affordable: f64,
    /// How many pages are drawn for each one in memory.
    spread: f64,
    /// When it is read next.
    due: Duration,
}

impl Default for Panel {
    fn default() -> Self {
        Self {
            rate: 0.0,
            rates: VecDeque::new(),
            too_large: 0,
            is_spare: false,
            not_known: 0,
            kin: Kin::default(),
            targets: Vec::new(),
            ticks: VecDeque::new(),
            tick: 0,
            rests: Rests::default(),
            reads: 0,
            resident: BTreeMap::new(),
            excess: BTreeMap::new(),
            parties: BTreeMap::new(),
            price: (None, None),
            prepared: None,
            last: Default::default(),
            affordable: 0.0,
            spread: 1.0,
            due: Duration::ZERO,
        }
    }
}

impl Panel {
    /// When it is read next.
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Whether the last reading was the first, which can only clear.
    pub(crate) fn is_first(&self) -> bool {
        self.tick <= 1
    }

    /// Begins the reading at `now`, maybe between two parts of a survey.
    pub(crate) fn begin(&mut self, now: Duration, is_in_parts: bool) {
        self.tick += 1;
        self.ticks.push_front(now);
        while self.ticks.back().is_some_and(|&time| time + LONGEST_WINDOW + 2 * LONGEST < now) {
            self.ticks.pop_back();
        }
        let next = FIRST_READINGS.into_iter().map(Duration::from_millis).find(|&next| next > now);
        self.due = next.unwrap_or(now + if is_in_parts { BESIDE_PARTS } else { INTERVAL });
    }

    /// Whether to look at which targets have run before this reading.
    pub(crate) fn looks_for_rests(&self) -> bool {
        self.rests.is_due(self.tick)
    }

    /// Takes in what a look has found of all targets: before the first reading, and with each reading.
    pub(crate) fn rest(&mut self, targets: impl ExactSizeIterator<Item = (TargetId, Option<AtRest>)>) {
        self.rests.look(self.tick, targets);
    }

    /// The targets that were at rest at the last look, and what it has found of each.
    pub(crate) fn at_rest(&self) -> impl Iterator<Item = (TargetId, AtRest)> {
        self.rests.found()
    }

    /// Whether a target may have run since the reading before the last.
    pub(crate) fn has_run(&self, target: TargetId) -> bool {
        self.rests.has_run(target, self.tick)
    }

    /// The pages to look at to find out which targets share pages. None if none of those that have run is new.
    pub(crate) fn kin_probes<'a>(
        &mut self,
        targets: impl Iterator<Item = (&'a TargetSpace, Option<&'a PageHistory>)>,
        probes: &mut Vec<Sample>,
    ) {
        let Self { kin, rests, tick, .. } = self;
        kin.probes(targets, |id| rests.has_run(id, *tick), probes);
    }

    /// Takes in what a look at these pages has found.
    pub(crate) fn relate(&mut self, probes: &[Sample], looks: &[PageLook]) {
        self.kin.relate(probes, looks);
    }

    /// Its pages, or those that were drawn and not read yet, without those of targets that have not run.
    pub(crate) fn samples(&self, only_drawn: bool, samples: &mut Vec<Sample>) {
        samples.clear();
        for drawn in self.targets.iter().filter(|drawn| self.has_run(drawn.id)) {
            let members = drawn.due(self.tick).filter(|member| !only_drawn || member.is_drawn());
            for member in members {
                samples.push(Sample { target: drawn.id, addr: member.addr });
                samples.extend(drawn.other_views(member.addr).map(|addr| Sample { target: drawn.id, addr }));
            }
        }
    }

    /// Takes in what a reading has found of [its pages](Self::samples). Leaves in `samples` those to clear.
    pub(crate) fn read(&mut self, only_drawn: bool, looks: &[PageLook], samples: &mut Vec<Sample>) {
        samples.clear();
        if !only_drawn {
            self.reads = looks.len();
        }
        let mut looks = looks.iter();
        let Self { targets, rests, tick, .. } = self;
        for drawn in targets.iter_mut().filter(|drawn| rests.has_run(drawn.id, *tick)) {
            let (id, mut bit, views) = (drawn.id, None, drawn.views());
            for member in drawn.due_mut(*tick).filter(|member| !only_drawn || member.is_drawn()) {
                let Some(look) = looks.next() else { return };
                let others = looks.by_ref().take(views.others(member.addr).count());
                let clears = member.read_all(*look, others.copied(), *tick);
                // The pages of a huge page are cleared together.
                if clears && bit.replace(member.bit()) != Some(member.bit()) {
                    samples.push(Sample { target: id, addr: member.addr });
                }
            }
        }
    }

    /// Takes in which of `samples` were cleared.
    pub(crate) fn cleared(&mut self, samples: &[Sample], cleared: &[bool]) {
        let tick = self.tick;
        for (sample, &is_cleared) in samples.iter().zip(cleared) {
            let Some(Drawn { members, .. }) = self.drawn_mut(sample.target) else { continue };
            let Ok(index) = members.binary_search_by_key(&sample.addr, |member| member.addr) else { continue };
            let bit = members[index].bit();
            let others = members[index..].iter_mut().take_while(|member| member.bit() == bit);
            others.for_each(|member| member.clear(is_cleared, tick));
        }
    }

    fn drawn(&self, target: TargetId) -> Option<&Drawn> {
        let index = self.targets.binary_search_by_key(&target, |drawn| drawn.id).ok()?;
        Some(&self.targets[index])
    }

    fn drawn_mut(&mut self, target: TargetId) -> Option<&mut Drawn> {
        let index = self.targets.binary_search_by_key(&target, |drawn| drawn.id).ok()?;
        Some(&mut self.targets[index])
    }

    /// Appends the pages whose accessed bit is lost if these samples are cleared: they are to be looked at first.
    pub(crate) fn beside(&self, samples: &[Sample], found: &mut Vec<Sample>) {
        for &Sample { target, addr } in samples {
            let Some(drawn) = self.drawn(target) else { continue };
            let start = addr - addr % BLOCK_SIZE;
            let here = drawn.within(start..start + BLOCK_SIZE).iter();
            // A folio is cleared as a whole.
            let lost = here.filter(|member| member.is_huge || member.addr / FOLIO == addr / FOLIO);
            found.extend(lost.map(|member| Sample { target, addr: member.addr }));
        }
        found.dedup();
    }

    /// Appends the pages whose accessed bit is lost if a survey clears these.
    pub(crate) fn among(&self, target: TargetId, blocks: &[ClearPages], found: &mut Vec<Sample>) {
        let Some(drawn) = self.drawn(target) else { return };
        for block in blocks {
            for member in drawn.within(block.start..block.start.saturating_add(BLOCK_SIZE)) {
                let addresses = std::iter::once(member.addr).chain(drawn.other_views(member.addr));
                found.extend(addresses.map(|addr| Sample { target, addr }));
            }
        }
    }

    /// Takes in what was seen of pages before somebody else clears them.
    pub(crate) fn seen(&mut self, samples: &[Sample], looks: &[PageLook]) {
        for (sample, _) in samples.iter().zip(looks).filter(|(_, look)| look.accessed) {
            let Some(drawn) = self.drawn_mut(sample.target) else { continue };
            let place = |addr: u64| drawn.members.binary_search_by_key(&addr, |member| member.addr).ok();
            let place = place(sample.addr).or_else(|| drawn.other_views(sample.addr).find_map(place));
            if let Some(place) = place {
                drawn.members[place].seen = true;
            }
        }
    }

    /// Takes in which pages a survey has cleared. Those in other blocks than the `seen` ones, which begin at these
    /// sorted addresses, were cleared without a look at them: the survey has found them accessed.
    pub(crate) fn surveyed(&mut self, target: TargetId, cleared: &[ClearPages], seen: &[u64]) {
        let tick = self.tick;
        let Some(drawn) = self.drawn_mut(target) else { return };
        for block in cleared {
            let end = block.start.saturating_add(BLOCK_SIZE);
            let is_unseen = seen.binary_search(&block.start).is_err();
            for member in drawn.within_mut(block.start..end) {
                if block.pages.contains(((member.addr - block.start) / PAGE_SIZE) as usize) {
                    member.cleared_by_survey(is_unseen, tick);
                }
            }
        }
    }

    /// Takes in how many bytes the targets of each party map, or all targets, beyond the first target of each page.
    pub(crate) fn shares(&mut self, excess: BTreeMap<Option<u32>, u64>) {
        self.excess = excess.into_iter().map(|(party, bytes)| (party, (bytes / PAGE_SIZE) as f64)).collect();
    }

    /// Takes in the parties of the targets.
    pub(crate) fn set_parties(&mut self, parties: BTreeMap<TargetId, Arc<[u32]>>) {
        self.parties = parties;
    }

    /// What the last reading says.
    pub(crate) fn snapshot(&mut self, reads: u64, clears: u64) -> PanelSnapshot {
        let Sums { mut targets, all, total, by_party } = self.sums();
        self.last = (all[0], total[0]);
        let is_drawn = |id: TargetId| self.drawn(id).is_some();
        let idle = |id| TargetPanel { id, within: Default::default(), by_mapping: Vec::new() };
        targets.extend(self.rests.some_at_rest(self.tick, is_drawn).into_iter().map(idle));
        targets.sort_unstable_by_key(|target| target.id);
        let time = self.ticks.front().copied().unwrap_or_default();
        let observed = if self.has_appeared() { LONGEST_WINDOW } else { self.watched() };
        PanelSnapshot {
            time,
            interval: self.ticks.get(1).map_or(Duration::ZERO, |&before| time - before),
            observed,
            reads,
            clears,
            total: total.map(Watched::estimate),
            by_party: by_party.into_iter().map(|(party, known)| (party, known.map(Watched::estimate))).collect(),
            targets,
        }
    }

    /// The time from the first reading to the last, as far as windows reach.
    fn watched(&self) -> Duration {
        let time = |reading: Option<&Duration>| reading.copied().unwrap_or_default();
        time(self.ticks.front()) - time(self.ticks.back())
    }

    /// Whether nearly all pages have appeared since the panel was begun, so that they were not accessed before.
    fn has_appeared(&self) -> bool {
        let members = self.targets.iter().flat_map(|drawn| &drawn.members);
        let (mut present, mut older) = (0, 0);
        let window = self.window(LONGEST_WINDOW);
        for member in members.filter(|member| !member.is_absent && window.has(member)) {
            present += 1;
            older += usize::from(!member.has_appeared());
        }
        older as f64 <= f64::from(present) * OLDER
    }

    /// The first reading from this time on.
    fn first_after(&self, time: Duration) -> Tick {
        let after = self.ticks.partition_point(|&reading| reading >= time);
        (self.tick + 1).saturating_sub(after as Tick).min(self.tick)
    }

    /// The reading after which a window begins: the one that is nearest to its beginning, but one before the last. 0 if
    /// it goes back to before the first one.
    fn begin_of(&self, window: Duration) -> Tick {
        // Readings are not exact to the millisecond.
        if self.watched() + window / 10 < window {
            return 0;
        }
        let now = self.ticks.front().copied().unwrap_or_default();
        let begin = now.saturating_sub(window);
        let from = self.ticks.partition_point(|&time| time > begin);
        let distance = |index: usize| self.ticks.get(index).map_or(Duration::MAX, |time| time.abs_diff(begin));
        let ago = if from > 0 && distance(from - 1) < distance(from) { from - 1 } else { from };
        self.tick.saturating_sub(ago.max(1) as Tick)
    }

    fn window(&self, length: Duration) -> Window {
        let begin = self.begin_of(length);
        let rate = self.rate_since(begin);
        let part = (rate < self.rate).then(|| Part::new(rate));
        Window { begin, now: self.tick, rate, part }
    }

    /// What is known of each target and its mappings, and of several together.
    fn sums(&self) -> Sums {
        let windows = WINDOWS.map(|window| self.window(window));
        let begin = windows.map(|window| window.begin);
        let repeats = window::repeats(&windows);
        let mut all = [Watched::default(); COUNT];
        let several = self.targets.len() > 1;
        let pages = self.targets.iter().map(|drawn| drawn.members.len()).sum();
        let mut views = if several { Views::of(pages) } else { Views::default() };
        let mut parties: BTreeMap<u32, ([Watched; COUNT], Views<'_>)> = BTreeMap::new();
        let targets = self.targets.iter().map(|drawn| {
            let at_rest = self.rests.windows(drawn.id, &begin);
            let mut total = at_rest.map(|at_rest| {
                let missing = if at_rest { 0.0 } else { drawn.missing };
                Watched { missing, ..Watched::default() }
            });
            let mut by_mapping = Vec::new();
            let of_parties = self.parties.get(&drawn.id).map(|parties| &parties[..]).unwrap_or_default();
            for mapping in &drawn.mappings {
                let members = &drawn.members[mapping.members.clone()];
                let mut found = [Watched::of(mapping.pages); COUNT];
                for same in members.chunk_by(|a, b| a.bit() == b.bit()) {
                    let each = windows.iter().zip(&mut found).zip(repeats);
                    each.filter(|(_, repeats)| !repeats).for_each(|((window, known), _)| window.count(same, known));
                    if several {
                        views.add(same, at_rest);
                        for party in of_parties {
                            parties.entry(*party).or_default().1.add(same, at_rest);
                        }
                    }
                }
                (1..COUNT).filter(|&nth| repeats[nth]).for_each(|nth| found[nth] = found[nth - 1]);
                for (known, _) in found.iter_mut().zip(at_rest).filter(|(_, at_rest)| *at_rest) {
                    *known = known.resting();
                }
                if members.len() >= ENOUGH {
                    by_mapping.push(MappingPanel { range: mapping.range, within: found.map(Watched::estimate) });
                }
                total.iter_mut().zip(found).for_each(|(sum, known)| *sum += known);
            }
            all.iter_mut().zip(total).for_each(|(sum, known)| *sum += known);
            for party in of_parties {
                let sums = &mut parties.entry(*party).or_default().0;
                sums.iter_mut().zip(total).for_each(|(sum, known)| *sum += known);
            }
            TargetPanel { id: drawn.id, within: total.map(Watched::estimate), by_mapping }
        });
        let targets = targets.collect();
        // Without sums of all, those of the parties say how much counts more than once.
        let excess = |party: Option<u32>| self.excess.get(&party).copied().unwrap_or(0.0);
        let of_all = if self.parties.is_empty() { excess(None) } else { self.excess.values().sum() };
        let total = views.count_once(all, of_all, &windows);
        let by_party = parties.into_iter();
        let by_party = by_party.map(|(party, (sums, views))| {
            let excess = excess(Some(party));
            (party, views.count_once(sums, excess, &windows))
        });
        let by_party = by_party.collect();
        Sums { targets, all, total, by_party }
    }
}

/// What a reading says of each target and its mappings, and of several targets.
struct Sums {
    targets: Vec<TargetPanel>,
    /// All targets together.
    all: [Watched; COUNT],
    /// The same, where memory that several targets map counts once.
    total: [Watched; COUNT],
    /// The targets of each party, where memory that several of them map counts once.
    by_party: Vec<(u32, [Watched; COUNT])>,
}

/// The size of a large folio that samples may clear as a whole, other than a huge page.
const FOLIO: u64 = 64 << 10;
