//! Draws the pages of a panel.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Panel;
use super::kin::Kin;
use super::member::{Member, Tick};
use super::places::{Part, Places};
use super::size::{FIRST, TRIAL, most_of};
use crate::survey::{BLOCK_SIZE, PageHistory};
use crate::views::OtherViews;
use crate::{AddrRange, Mapping, PAGE_SIZE, TargetId, TargetSpace, is_memory};

/// The pages of one target that belong to the panel.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) id: TargetId,
    /// Sorted by address.
    pub(super) members: Vec<Member>,
    /// The mappings that have memory, in the order of addresses.
    pub(super) mappings: Vec<DrawnMapping>,
    /// What they were drawn from.
    from: From,
    /// The reading with which it was drawn from these pages first.
    tick: Tick,
    /// How many resident pages there may be that it was not drawn from.
    pub(super) missing: f64,
    /// How many pages were resident when all absent members were read last.
    resident: f64,
    /// Whether there are more now, so that absent members are read again.
    is_added: bool,
}

/// If more than this part of the memory is not among what surveys have seen, absent pages are drawn, too: memory is
/// being added. All that is drawn from is at most so many times what is in memory.
const GROWN: f64 = 0.02;
pub(super) const MOST_ABSENT: f64 = 16.0;

/// Fewer pages do not count as missing: the counters of the kernel are not exact.
const INEXACT: f64 = 64.0;

/// The pages of one mapping.
#[derive(Debug)]
pub(super) struct DrawnMapping {
    pub(super) range: AddrRange,
    /// How many pages it has.
    pub(super) pages: u64,
    /// Which members of the target lie in it.
    pub(super) members: Range<usize>,
}

/// What pages are drawn from.
#[derive(Clone, Debug)]
struct From {
    mappings: Arc<[Mapping]>,
    /// What the target maps several times. A page is drawn at one of its addresses.
    views: Arc<OtherViews>,
    /// `None` if it is not known which pages are present.
    history: Option<Arc<PageHistory>>,
    /// Of mappings with at most so many pages, absent pages are drawn, too, because memory is being added.
    whole: u64,
    rate: f64,
}

impl From {
    /// Whether both have the same pages.
    fn is_same(&self, other: &Self) -> bool {
        let is_same_history = match (&self.history, &other.history) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same_history && self.whole == other.whole && Arc::ptr_eq(&self.mappings, &other.mappings)
    }

    /// What pages of a mapping are drawn from. `None` if that is all of the mapping.
    fn known(&self, mapping: &Mapping) -> Option<&PageHistory> {
        let is_whole = mapping.range.pages() <= self.whole && is_memory(&self.mappings, mapping);
        self.history.as_deref().filter(|_| !is_whole)
    }

    fn with_whole(&self, whole: u64) -> Self {
        Self { whole, ..self.clone() }
    }

    /// How much more is in memory than surveys know of.
    fn grown(&self, resident: f64) -> f64 {
        resident - self.history.as_ref().map_or(resident, |history| history.present() as f64)
    }

    /// The size of the largest mappings of which absent pages can be drawn, too, if so much is in memory.
    fn largest_whole(&self, resident: f64) -> u64 {
        let mut sizes: Vec<_> = self.mappings.iter().filter(|mapping| is_memory(&self.mappings, mapping)).collect();
        sizes.sort_by_key(|mapping| mapping.range.pages());
        let (mut all, mut largest) = (0, 0);
        for same in sizes.chunk_by(|a, b| a.range.pages() == b.range.pages()) {
            let pages = same[0].range.pages();
            all += same.iter().map(|mapping| self.own_pages(mapping)).sum::<u64>();
            if all as f64 > resident * MOST_ABSENT {
                break;
            }
            largest = pages;
        }
        largest
    }

    /// How many pages of a mapping there are to draw from.
    fn pages(&self, mapping: &Mapping) -> u64 {
        match self.known(mapping) {
            Some(history) => history.present_in(mapping.range),
            None if is_memory(&self.mappings, mapping) => self.own_pages(mapping),
            None => 0,
        }
    }

    /// The pages of a mapping that are not mapped at a lower address, too.
    fn own_pages(&self, mapping: &Mapping) -> u64 {
        mapping.range.pages() - self.views.pages_in(mapping.range)
    }
}

impl Drawn {
    /// Its members in a range of addresses.
    pub(super) fn within(&self, range: Range<u64>) -> &[Member] {
        let from = self.members.partition_point(|member| member.addr < range.start);
        let count = self.members[from..].partition_point(|member| member.addr < range.end);
        &self.members[from..from + count]
    }

    pub(super) fn within_mut(&mut self, range: Range<u64>) -> &mut [Member] {
        let from = self.members.partition_point(|member| member.addr < range.start);
        let count = self.members[from..].partition_point(|member| member.addr < range.end);
        &mut self.members[from..from + count]
    }

    /// Draws the pages of a target with the reading `tick`. Those that belonged to the panel `before` stay as they are.
    /// A target that has `begun` during the run had no memory before the reading with this number.
    fn draw(
        id: TargetId,
        from: From,
        before: Option<Self>,
        begun: Option<Tick>,
        tick: Tick,
        (places, kin): (&mut PlacesByRate, &Kin),
    ) -> Self {
        let is_same = before.as_ref().is_some_and(|before| before.from.is_same(&from));
        let (resident, is_added) = before.as_ref().map_or((0.0, true), |before| (before.resident, before.is_added));
        // A page that would have been drawn before, if it had been there, has appeared since.
        let all = begun.map(|since| (Part::new(1.0), since));
        let appeared = before.as_ref().map(|before| (Part::new(before.from.rate), before.tick + 1)).or(all);
        let places = places.at(from.rate);
        let tick = before.as_ref().filter(|_| is_same).map_or(tick, |before| before.tick);
        let mut known = before.map(|before| before.members).unwrap_or_default().into_iter().peekable();
        let (mut members, mut mappings) = (Vec::new(), Vec::new());
        for mapping in from.mappings.iter() {
            let pages = from.pages(mapping);
            if pages == 0 {
                continue;
            }
            let first = members.len();
            let places = places.from(kin.first_place(id, mapping));
            let mut add = |page: u64| {
                let (addr, place) = (page * PAGE_SIZE, places.place(page));
                while known.next_if(|known| known.addr < addr).is_some() {}
                let known = known.next_if(|known| known.addr == addr);
                let since = appeared.filter(|(before, _)| before.contains(place)).map(|(_, since)| since);
                members.push(known.unwrap_or_else(|| Member::drawn(addr, place, since)));
            };
            let numbers = |range: AddrRange| range.start() / PAGE_SIZE..range.end() / PAGE_SIZE;
            match from.known(mapping) {
                None => {
                    let own = |page: &u64| !from.views.contains(page * PAGE_SIZE);
                    places.pages_in(numbers(mapping.range)).filter(own).for_each(add);
                }
                Some(history) => {
                    let mut blocks = history.present_pages(mapping.range).peekable();
                    for range in history.present_blocks(mapping.range) {
                        for page in places.pages_in(numbers(range)) {
                            let start = page * PAGE_SIZE / BLOCK_SIZE * BLOCK_SIZE;
                            while blocks.next_if(|(block, _)| *block < start).is_some() {}
                            let present = blocks.peek().filter(|(block, _)| *block == start);
                            let nth = (page * PAGE_SIZE - start) / PAGE_SIZE;
                            if present.is_some_and(|(_, present)| present.contains(nth as usize)) {
                                add(page);
                            }
                        }
                    }
                }
            }
            mappings.push(DrawnMapping { range: mapping.range, pages, members: first..members.len() });
        }
        Self { id, members, mappings, from, tick, missing: 0.0, resident, is_added }
    }

    /// The members that the reading `tick` reads.
    pub(super) fn due(&self, tick: Tick) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.is_due(tick, self.is_added))
    }

    /// The same, to be changed.
    pub(super) fn due_mut(&mut self, tick: Tick) -> impl Iterator<Item = &mut Member> {
        let Self { members, is_added, .. } = self;
        members.iter_mut().filter(move |member| member.is_due(tick, *is_added))
    }

    /// How many pages it was drawn from.
    fn pages(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.pages).sum()
    }

    /// What the target maps several times.
    pub(super) fn views(&self) -> Arc<OtherViews> {
        Arc::clone(&self.from.views)
    }

    /// The other addresses of the page at this one.
    pub(super) fn other_views(&self, addr: u64) -> impl Iterator<Item = u64> {
        self.from.views.others(addr)
    }

    /// How many pages are in memory if `resident` counts each at all of its addresses.
    fn once(&self, resident: f64) -> f64 {
        let again = |mapping: &DrawnMapping| {
            let members = &self.members[mapping.members.clone()];
            let again: u64 = members.iter().map(|member| u64::from(member.again)).sum();
            mapping.pages as f64 * again as f64 / members.len().max(1) as f64
        };
        (resident - self.mappings.iter().map(again).sum::<f64>()).max(0.0)
    }

    /// Finds how much of the `resident` pages there may be that the panel was not drawn from.
    fn find_missing(&mut self, resident: Option<f64>) {
        let resident = resident.map(|resident| self.once(resident));
        let (mut present, mut variance) = (0.0, 0.0);
        for mapping in &self.mappings {
            let members = &self.members[mapping.members.clone()];
            let pages = mapping.pages as f64;
            let count = members.len().max(1) as f64;
            let absent = members.iter().filter(|member| member.is_absent).count() as f64 / count;
            present += pages * (1.0 - absent);
            variance += pages * pages * absent * (1.0 - absent) / count;
        }
        if self.is_added {
            self.resident = resident.unwrap_or_default();
        }
        let missing = resident.map_or(0.0, |resident| resident - present - 2.0 * variance.sqrt());
        self.missing = if missing > INEXACT { missing } else { 0.0 };
    }
}

/// The places of pages at the rates of a panel. To find them takes long at a small rate.
#[derive(Default)]
struct PlacesByRate(Vec<(f64, Places)>);

impl PlacesByRate {
    fn at(&mut self, rate: f64) -> Places {
        let known = self.0.iter().find(|(of, _)| *of == rate).map(|(_, places)| *places);
        known.unwrap_or_else(|| {
            let places = Places::new(rate);
            self.0.push((rate, places));
            places
        })
    }
}

impl Panel {
    /// Draws the panel from the targets as they are now, each with what surveys know of its pages. A page that belongs
    /// to it stays in it as long as it is present. Targets that have not run since it was drawn last stay as they were;
    /// there are no pages of those that have not run since the start, if there are many targets. Each comes with the
    /// time when it began, if that was during the run.
    pub(crate) fn draw<'a>(
        &mut self,
        targets: impl Iterator<Item = (&'a TargetSpace, Option<&'a Arc<PageHistory>>, Option<Duration>)> + Clone,
    ) {
        let before = |id: TargetId| self.targets.binary_search_by_key(&id, |drawn| drawn.id).ok();
        let mut wanted: Vec<(TargetId, From, u64, Option<Tick>)> = Vec::with_capacity(self.targets.len());
        for (space, history, began) in targets {
            let before = before(space.id).map(|index| &self.targets[index]);
            if !self.has_run(space.id) {
                wanted.extend(before.map(|before| (space.id, before.from.clone(), before.pages(), None)));
                continue;
            }
            let history = history.filter(|history| history.present() > 0).cloned();
            let mappings = Arc::clone(&space.mappings);
            let same = before.filter(|before| Arc::ptr_eq(&before.from.mappings, &mappings));
            let views = same.map_or_else(|| Arc::new(OtherViews::of(&mappings)), |same| Arc::clone(&same.from.views));
            let mut from = From { mappings, views, history, whole: 0, rate: 0.0 };
            let resident = self.resident.get(&space.id).copied().unwrap_or_default();
            let resident = before.map_or(resident, |before| before.once(resident));
            if from.grown(resident) > resident * GROWN + INEXACT {
                from.whole = from.largest_whole(resident);
            }
            // Where surveys have seen no more since, it stays as it was.
            if let Some(of) = before.map(|before| &before.from).filter(|of| of.with_whole(from.whole).is_same(&from)) {
                from.whole = from.whole.max(of.whole);
            }
            let same = before.filter(|before| before.from.is_same(&from));
            let pages = same.map_or_else(|| from.mappings.iter().map(|of| from.pages(of)).sum(), Drawn::pages);
            wanted.push((space.id, from, pages, began.map(|began| self.first_after(began))));
        }
        let all = wanted.iter().map(|(_, _, pages, _)| pages).sum::<u64>() as f64;
        let is_whole = wanted.iter().any(|(_, from, ..)| from.whole > 0);
        // Memory that is being added is not drawn from in more detail than before.
        let members: usize = self.targets.iter().map(|drawn| drawn.members.len()).sum();
        let most = if is_whole { FIRST.max(members as f64) / self.spread } else { most_of(all) };
        if self.rate == 0.0 && all > 0.0 {
            self.rate = (TRIAL / all).min(1.0);
        } else if self.rate * all > most * self.spread {
            self.rate = most.min(self.most()) * self.spread / all;
        }
        self.note_rate();
        let mut before: Vec<Option<Drawn>> = std::mem::take(&mut self.targets).into_iter().map(Some).collect();
        let ids: Vec<TargetId> = before.iter().flatten().map(|drawn| drawn.id).collect();
        let mut places = PlacesByRate::default();
        for (id, from, _, begun) in wanted {
            let from = From { rate: self.rate, ..from };
            let known = ids.binary_search(&id).ok().and_then(|index| before[index].take());
            self.targets.push(match known {
                Some(known) if known.from.is_same(&from) && known.from.rate == from.rate => known,
                known => Drawn::draw(id, from, known, begun, self.tick, (&mut places, &self.kin)),
            });
        }
        self.targets.sort_by_key(|drawn| drawn.id);
    }

    /// Takes in how many pages of a target are in memory now.
    pub(crate) fn is_resident(&mut self, target: TargetId, pages: u64) {
        self.resident.insert(target, pages as f64);
    }

    /// Takes in that no more pages of a target are in memory now.
    pub(crate) fn has_at_most(&mut self, target: TargetId, pages: u64) {
        if let Some(resident) = self.resident.get_mut(&target) {
            *resident = resident.min(pages as f64);
        }
    }

    /// The targets that have more in memory than was drawn from.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = TargetId> {
        self.targets.iter().filter(|drawn| drawn.missing > 0.0).map(|drawn| drawn.id)
    }

    /// Finds the targets whose absent members are read again, because memory was added.
    pub(crate) fn find_added(&mut self) {
        for drawn in &mut self.targets {
            let resident = self.resident.get(&drawn.id).map(|resident| drawn.once(*resident));
            drawn.is_added = resident.is_none_or(|resident| resident > drawn.resident * (1.0 + GROWN) + INEXACT);
        }
    }

    /// Finds what is in memory that it was not drawn from.
    pub(crate) fn find_missing(&mut self) {
        let Self { targets, resident, rests, tick, .. } = self;
        let ran = targets.iter_mut().filter(|drawn| rests.has_run(drawn.id, *tick));
        ran.for_each(|drawn| drawn.find_missing(resident.get(&drawn.id).copied()));
    }
}
