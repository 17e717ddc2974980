//! Draws the pages of a panel.

use std::ops::Range;
use std::sync::Arc;

use super::member::{Member, Tick};
use super::places::Places;
use super::{FIRST, Panel};
use crate::survey::{BLOCK_SIZE, PageHistory};
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
}

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
    /// `None` if it is not known which pages are present.
    history: Option<Arc<PageHistory>>,
    rate: f64,
}

impl From {
    /// Whether both have the same pages.
    fn is_same(&self, other: &Self) -> bool {
        let is_same_history = match (&self.history, &other.history) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same_history && Arc::ptr_eq(&self.mappings, &other.mappings)
    }

    /// How many pages of a mapping there are to draw from.
    fn pages(&self, mapping: &Mapping) -> u64 {
        match &self.history {
            Some(history) => history.pages_in(mapping.range).present / PAGE_SIZE,
            None if is_memory(&self.mappings, mapping) => mapping.range.pages(),
            None => 0,
        }
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
    fn draw(id: TargetId, from: From, before: Option<Self>, tick: Tick) -> Self {
        let places = Places::new(id, from.rate);
        let is_same = before.as_ref().is_some_and(|before| before.from.is_same(&from));
        // A page that would have been drawn before, if it had been there, has appeared since.
        let appeared = before.as_ref().map(|before| (Places::new(id, before.from.rate), before.tick + 1));
        let tick = before.as_ref().filter(|_| is_same).map_or(tick, |before| before.tick);
        let mut known = before.map(|before| before.members).unwrap_or_default().into_iter().peekable();
        let (mut members, mut mappings) = (Vec::new(), Vec::new());
        for mapping in from.mappings.iter() {
            let pages = from.pages(mapping);
            if pages == 0 {
                continue;
            }
            let first = members.len();
            let mut add = |page: u64| {
                let addr = page * PAGE_SIZE;
                while known.next_if(|known| known.addr < addr).is_some() {}
                let known = known.next_if(|known| known.addr == addr);
                let since = appeared.filter(|(before, _)| before.contains(page)).map_or(0, |(_, since)| since);
                members.push(known.unwrap_or_else(|| Member::drawn(addr, since)));
            };
            let numbers = |range: AddrRange| range.start() / PAGE_SIZE..range.end() / PAGE_SIZE;
            match &from.history {
                None => places.pages_in(numbers(mapping.range)).for_each(add),
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
        Self { id, members, mappings, from, tick }
    }
}

impl Panel {
    /// Draws the panel from the targets as they are now, each with what surveys know of its pages. A page that belongs
    /// to it stays in it as long as it is present.
    pub(crate) fn draw<'a>(
        &mut self,
        targets: impl Iterator<Item = (&'a TargetSpace, Option<&'a Arc<PageHistory>>)> + Clone,
    ) {
        let from = |space: &TargetSpace, history: Option<&Arc<PageHistory>>, rate: f64| From {
            mappings: Arc::clone(&space.mappings),
            history: history.filter(|history| history.present() > 0).cloned(),
            rate,
        };
        if self.rate == 0.0 {
            let pages = targets.clone().flat_map(|(space, history)| {
                let from = from(space, history, 0.0);
                space.mappings.iter().map(|mapping| from.pages(mapping)).collect::<Vec<_>>()
            });
            self.rate = (FIRST / (pages.sum::<u64>() as f64).max(1.0)).min(1.0);
        }
        let mut before: Vec<Option<Drawn>> = std::mem::take(&mut self.targets).into_iter().map(Some).collect();
        let ids: Vec<TargetId> = before.iter().flatten().map(|drawn| drawn.id).collect();
        for (space, history) in targets {
            let from = from(space, history, self.rate);
            let known = ids.binary_search(&space.id).ok().and_then(|index| before[index].take());
            self.targets.push(match known {
                Some(known) if known.from.is_same(&from) && known.from.rate == from.rate => known,
                known => Drawn::draw(space.id, from, known, self.tick),
            });
        }
        self.targets.sort_by_key(|drawn| drawn.id);
    }
}
