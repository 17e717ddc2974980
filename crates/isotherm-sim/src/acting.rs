//! Acting on simulated memory: reclaimed pages are not resident until they are touched again, and faults are counted.
//! There are two memory nodes: node 0 is the fast one, which the memory fills first, in the order of addresses; node 1
//! is the slow one, and has no end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Actuator, Destinations, Gauges, HUGE_PAGE_SIZE, Metric, Moves, Outcome, PageInspector, PageKind,
    ProcessFacts, Refusal, RefusalReason, Work,
};
use isotherm_core::{AddrRange, BoxError, NodeId, PAGE_SIZE, Snapshot, TargetId};

use crate::{SimClock, SimMemory};

/// The parameters of a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The time of an action on one page.
    pub page: Duration,
    /// The time of a fault: a task waits that long when it touches a page that was reclaimed.
    pub fault: Duration,
    /// Memory in bytes that the pattern does not use. It is free.
    pub spare: u64,
    /// A page that no survey has cleared is young if it was touched within this time before the inspection. Any other
    /// page is young if it was touched since a survey cleared it.
    pub young: Duration,
    /// The fast node. `None` for one that has no end.
    pub fast: Option<FastNode>,
}

/// The fast node of a simulated machine. Reclaimed pages keep their place on it.
#[derive(Clone, Copy, Debug)]
pub struct FastNode {
    /// Its size in bytes, at least a page.
    pub size: u64,
    /// The bytes that stay free: nothing is placed or moved there.
    pub kept: u64,
}

impl Default for Costs {
    /// Times of the magnitude of those of zram, no spare memory, and pages that are young for 5 ms.
    fn default() -> Self {
        Self {
            page: Duration::from_nanos(500),
            fault: Duration::from_micros(10),
            spare: 0,
            young: Duration::from_millis(5),
            fast: None,
        }
    }
}

/// The number of pages in a huge page.
const PER_HUGE: usize = (HUGE_PAGE_SIZE / PAGE_SIZE) as usize;

/// The fast node.
pub const FAST: NodeId = NodeId(0);
/// The slow node.
pub const SLOW: NodeId = NodeId(1);

/// Pressure is the share of this time in which some task waited.
const PRESSURE_WINDOW: Duration = Duration::from_secs(10);

/// The state of the simulated machine. Each list has an entry for each area of the pattern.
#[derive(Debug, Default)]
struct Machine {
    /// Whether each page is locked.
    locked: Vec<Vec<bool>>,
    /// Whether each huge page is one; of all huge pages that the area has a part of.
    huge: Vec<Vec<bool>>,
    /// Whether each page is on the slow node.
    slow: Vec<Vec<bool>>,
    /// How many pages the fast node can still take.
    room: u64,
    /// The time that tasks have waited for faults.
    stalled: Duration,
    /// The stall time at times within the window of pressure.
    past: VecDeque<(Duration, Duration)>,
    /// The time of all actions.
    spent: Duration,
    calls: u64,
}

/// The actuator, the inspector and the gauges of a simulated machine. All memory of the pattern is resident at first.
///
/// Clones share one machine: one can be the actuator while another is the gauges.
#[derive(Clone, Debug)]
pub struct SimActuator {
    memory: SimMemory,
    clock: SimClock,
    costs: Costs,
    machine: Rc<RefCell<Machine>>,
}

impl SimActuator {
    /// A machine with `memory`, which follows `clock`.
    pub fn new(memory: SimMemory, clock: SimClock, costs: Costs) -> Self {
        let none = |granule: u64| -> Vec<Vec<bool>> {
            let granules = |range: AddrRange| range.end().div_ceil(granule) - range.start() / granule;
            memory.areas().map(|range| vec![false; granules(range) as usize]).collect()
        };
        let mut room = costs.fast.map_or(u64::MAX, |fast| fast.size.saturating_sub(fast.kept) / PAGE_SIZE);
        let mut slow = none(PAGE_SIZE);
        for slow in slow.iter_mut().flatten() {
            *slow = room == 0;
            room = room.saturating_sub(1);
        }
        let machine = Machine { locked: none(PAGE_SIZE), huge: none(HUGE_PAGE_SIZE), slow, room, ..Machine::default() };
        Self { memory, clock, costs, machine: Rc::new(RefCell::new(machine)) }
    }

    /// The resident bytes of the area of this name, or `None` if there is no such area.
    pub fn resident(&self, area: &str) -> Option<u64> {
        self.read_back();
        let area = self.memory.pattern().area(area)?;
        let presence = self.memory.presence().borrow();
        Some(presence.reclaimed[area].iter().filter(|&&reclaimed| !reclaimed).count() as u64 * PAGE_SIZE)
    }

    /// The number of huge pages.
    pub fn huge_pages(&self) -> u64 {
        self.machine.borrow().huge.iter().flatten().filter(|&&huge| huge).count() as u64
    }

    /// The resident bytes of the area of this name that are on `node`, or `None` if there is no such area.
    pub fn on_node(&self, area: &str, node: NodeId) -> Option<u64> {
        self.read_back();
        let area = self.memory.pattern().area(area)?;
        let machine = self.machine.borrow();
        let reclaimed = &self.memory.presence().borrow().reclaimed[area];
        let is_there = |(&slow, &reclaimed): (&bool, &bool)| !reclaimed && (if slow { SLOW } else { FAST }) == node;
        Some(machine.slow[area].iter().zip(reclaimed).filter(|&page| is_there(page)).count() as u64 * PAGE_SIZE)
    }

    /// Whether each page of the area with this index is on the slow node.
    ///
    /// # Panics
    /// If there is no such area.
    pub fn slow_pages(&self, area: usize) -> Vec<bool> {
        self.machine.borrow().slow[area].clone()
    }

    /// The number of faults: touches of pages that had been reclaimed.
    pub fn faults(&self) -> u64 {
        self.memory.presence().borrow().faults
    }

    /// The number of calls of the actuator.
    pub fn calls(&self) -> u64 {
        self.machine.borrow().calls
    }

    /// Makes reclaimed pages resident that have been touched, and counts the time that tasks have waited for them.
    fn read_back(&self) {
        let now = self.clock.now();
        let faults = self.memory.presence().borrow().faults;
        let mut machine = self.machine.borrow_mut();
        machine.stalled = self.costs.fault * u32::try_from(faults).unwrap_or(u32::MAX);
        if machine.past.back().is_some_and(|(then, _)| *then == now) {
            return;
        }
        let stalled = machine.stalled;
        machine.past.push_back((now, stalled));
        while machine.past.front().is_some_and(|(then, _)| now - *then > PRESSURE_WINDOW) {
            machine.past.pop_front();
        }
    }

    /// The share of the fast node that is free, if it can still take `room` pages.
    fn free_of_fast(&self, room: u64) -> Option<f64> {
        let FastNode { size, kept } = self.costs.fast?;
        Some((room * PAGE_SIZE + kept) as f64 / size as f64)
    }

    /// The index of the huge page that a page of an area belongs to. Index 0 is the first huge page that the area has
    /// a part of.
    fn huge(&self, area: usize, page: usize) -> usize {
        let start = self.memory.areas().nth(area).map_or(0, AddrRange::start);
        ((start % HUGE_PAGE_SIZE / PAGE_SIZE) as usize + page) / PER_HUGE
    }

    /// The index of the area that `range` lies in, with the indices of its first page and of the page after its last.
    /// `None` if the area is not mapped now.
    fn locate(&self, range: AddrRange) -> Option<(usize, usize, usize)> {
        let pattern = self.memory.pattern();
        let (area, of) = self.memory.areas().enumerate().find(|(_, of)| of.intersection(range) == Some(range))?;
        let phase = pattern.phase_at(self.clock.now());
        let page = |addr: u64| ((addr - of.start()) / PAGE_SIZE) as usize;
        (!phase.unmapped.contains(&pattern.areas[area].name)).then(|| (area, page(range.start()), page(range.end())))
    }

    /// Carries out an action on a range.
    fn act(&self, action: Action, range: AddrRange) -> Outcome {
        let Some((area, first, end)) = self.locate(range) else {
            return Outcome::refused(range, RefusalReason::NotMapped.into());
        };
        let machine = &mut *self.machine.borrow_mut();
        let reclaimed = &mut self.memory.presence().borrow_mut().reclaimed[area];
        machine.spent += self.costs.page * (end - first) as u32;
        match action {
            Action::PageOut | Action::Reclaim(_) | Action::Limit(_) => {
                let mut outcome = Outcome { resident: Some(0), ..Outcome::default() };
                for (page, reclaimed) in (first..end).zip(&mut reclaimed[first..end]) {
                    if machine.locked[area][page] {
                        outcome.refuse(PAGE_SIZE, RefusalReason::Unsuitable.into());
                        outcome.resident = outcome.resident.map(|bytes| bytes + PAGE_SIZE);
                    } else {
                        outcome.applied += PAGE_SIZE;
                        *reclaimed = true;
                        machine.huge[area][self.huge(area, page)] = false;
                    }
                }
                return outcome;
            }
            Action::WillNeed => reclaimed[first..end].fill(false),
            Action::MLock => {
                reclaimed[first..end].fill(false);
                machine.locked[area][first..end].fill(true);
            }
            Action::MUnlock => machine.locked[area][first..end].fill(false),
            Action::HugePage | Action::Collapse => {
                reclaimed[first..end].fill(false);
                // The engine passes whole huge pages only.
                let made = self.huge(area, first)..=self.huge(area, end - 1);
                machine.huge[area][made].fill(true);
            }
            Action::NoHugePage => {
                let split = self.huge(area, first)..=self.huge(area, end - 1);
                machine.huge[area][split].fill(false);
            }
            Action::Promote | Action::Demote | Action::MigrateHot(_) | Action::MigrateCold(_) => {
                let pages = reclaimed[first..end].iter().zip(&mut machine.slow[area][first..end]);
                return move_pages(action, pages.zip(range.page_addresses()), &mut machine.room);
            }
            // Faults cost nothing here.
            Action::Stat | Action::Cold | Action::HugePageAhead => {}
        }
        Outcome::all(range)
    }
}

/// Moves pages: each with whether it is reclaimed, whether it is on the slow node, and its address. `room` is how many
/// pages the fast node can take.
fn move_pages<'a>(
    action: Action,
    pages: impl Iterator<Item = ((&'a bool, &'a mut bool), u64)>,
    room: &mut u64,
) -> Outcome {
    let tier = if action.moves() == Some(Moves::Hot) { [(FAST, 1)] } else { [(SLOW, 1)] };
    let mut outcome = Outcome::default();
    for ((&reclaimed, slow), addr) in pages {
        let named = action.destinations().zip(AddrRange::new(addr, addr + PAGE_SIZE));
        let targets = named.map_or(&tier[..], |(to, page)| to.of_page(page));
        let here = if *slow { SLOW } else { FAST };
        if targets.iter().any(|(node, _)| ![FAST, SLOW].contains(node)) {
            outcome.refuse(PAGE_SIZE, RefusalReason::Unsupported.into());
        } else if reclaimed || targets.iter().any(|(node, _)| *node == here) {
        } else if here == FAST {
            (*slow, *room) = (true, room.saturating_add(1));
            outcome.applied += PAGE_SIZE;
        } else if *room > 0 {
            (*slow, *room) = (false, *room - 1);
            outcome.applied += PAGE_SIZE;
        } else {
            outcome.refuse(PAGE_SIZE, RefusalReason::NoMemory.into());
        }
    }
    outcome
}

impl Actuator for SimActuator {
    fn supports(&mut self, _action: Action, _inside: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn left_nodes(&mut self, action: Action) -> Vec<NodeId> {
        match action {
            Action::Promote => vec![FAST],
            Action::Demote => vec![SLOW],
            _ => action.destinations().into_iter().flat_map(Destinations::all_keep).collect(),
        }
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        self.read_back();
        self.machine.borrow_mut().calls += 1;
        for (&range, outcome) in work.ranges.iter().zip(outcomes) {
            *outcome = self.act(work.action, range);
        }
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        self.machine.borrow().spent
    }
}

impl PageInspector for SimActuator {
    fn tells(&mut self, _kind: PageKind) -> Result<(), BoxError> {
        Ok(())
    }

    fn process(&mut self, _target: TargetId) -> Option<ProcessFacts> {
        Some(ProcessFacts { name: "simulated".into(), cgroup: "/simulated".into() })
    }

    fn pages(
        &mut self,
        _target: TargetId,
        ranges: &[AddrRange],
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        let recently = self.clock.now().saturating_sub(self.costs.young);
        let machine = self.machine.borrow();
        let cleared = self.memory.cleared_pages.borrow();
        for range in ranges {
            let (area, first, end) = self.locate(*range).ok_or(RefusalReason::NotMapped)?;
            let presence = self.memory.presence().borrow();
            let pages = presence.reclaimed[area].len() as u64;
            let at = |page: usize| range.start() + (page - first) as u64 * PAGE_SIZE;
            let is_young = |page: usize| {
                let since = cleared.get(&at(page)).copied().unwrap_or(recently);
                self.memory.touches(area).any(|touch| self.memory.touched(touch, page as u64, pages, since))
            };
            let is = |page: usize| match kind {
                PageKind::Present => !presence.reclaimed[area][page],
                PageKind::Young => is_young(page),
                // The contents of a simulated page are not known, and there are neither lists nor folios. All of them
                // are mapped.
                PageKind::Compressible | PageKind::Active | PageKind::Unmapped | PageKind::Folio(..) => false,
                PageKind::Huge => machine.huge[area][self.huge(area, page)],
                PageKind::Node(node) => node == if machine.slow[area][page] { SLOW } else { FAST },
            };
            let of_kind = (first..end).filter(|&page| is(page));
            found.extend(of_kind.filter_map(|page| AddrRange::new(at(page), at(page + 1))));
        }
        Ok(())
    }

    fn present(&mut self, _target: TargetId, range: AddrRange) -> Option<u64> {
        let (area, first, end) = self.locate(range)?;
        let presence = self.memory.presence().borrow();
        Some(presence.reclaimed[area][first..end].iter().filter(|&&reclaimed| !reclaimed).count() as u64 * PAGE_SIZE)
    }

    fn time_inspecting(&self) -> Duration {
        Duration::ZERO
    }
}

impl Gauges for SimActuator {
    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        self.read_back();
        let machine = self.machine.borrow();
        let reclaimed = &self.memory.presence().borrow().reclaimed;
        match metric {
            Metric::FreeMemory => {
                let reclaimed = reclaimed.iter().flatten().filter(|&&reclaimed| reclaimed).count() as u64 * PAGE_SIZE;
                let all: u64 = self.memory.areas().map(AddrRange::size).sum();
                Some((self.costs.spare + reclaimed) as f64 / (self.costs.spare + all) as f64)
            }
            Metric::StallTime => Some(machine.stalled.as_secs_f64()),
            // The machine is one cgroup.
            Metric::Pressure | Metric::CgroupPressure(_) => {
                let (_, before) = machine.past.front()?;
                Some(((machine.stalled - *before).as_secs_f64() / PRESSURE_WINDOW.as_secs_f64()).min(1.0))
            }
            Metric::WorkingSetResident => {
                let accessed = snapshot.targets.iter().flat_map(|target| &target.regions).filter(|r| r.nr_accesses > 0);
                let (mut all, mut resident) = (0_u64, 0_u64);
                for (area, first, end) in accessed.filter_map(|region| self.locate(region.range)) {
                    all += (end - first) as u64;
                    resident += reclaimed[area][first..end].iter().filter(|&&reclaimed| !reclaimed).count() as u64;
                }
                (all > 0).then(|| resident as f64 / all as f64)
            }
            Metric::NodeUsed(part) if part.node == FAST => Some(1.0 - self.free_of_fast(machine.room)?),
            Metric::NodeFree(part) if part.node == FAST => self.free_of_fast(machine.room),
            // The slow node has no end.
            Metric::Fed(_) | Metric::NodeUsed(_) | Metric::NodeFree(_) => None,
            Metric::Refaults | Metric::Returns => None,
        }
    }

    fn size(&mut self, metric: &Metric) -> Option<u64> {
        match metric {
            Metric::NodeUsed(part) | Metric::NodeFree(part) if part.node == FAST => Some(self.costs.fast?.size),
            _ => None,
        }
    }
}
