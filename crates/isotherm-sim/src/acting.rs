//! Acting on simulated memory: what is reclaimed is away until it is touched again, and that is counted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, Actuator, Gauges, HUGE_PAGE_SIZE, Metric, Outcome, PageInspector, PageKind, ProcessFacts, Refusal,
    RefusalReason, Work,
};
use isotherm_core::{AddrRange, BoxError, PAGE_SIZE, Snapshot, TargetId};

use crate::{SimClock, SimMemory};

/// What the simulated machine takes for its work, and what more memory it has.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// To carry out an action on a page.
    pub page: Duration,
    /// To read a page back that was reclaimed and is touched: so long its task waits.
    pub fault: Duration,
    /// Memory that the pattern does not use, in bytes; it is free.
    pub spare: u64,
    /// A page is young if it was touched within this time.
    pub young: Duration,
}

impl Default for Costs {
    /// Times of the order of zram's; no spare memory.
    fn default() -> Self {
        Self {
            page: Duration::from_nanos(500),
            fault: Duration::from_micros(10),
            spare: 0,
            young: Duration::from_millis(5),
        }
    }
}

/// Pages in a huge page.
const PER_HUGE: usize = (HUGE_PAGE_SIZE / PAGE_SIZE) as usize;

/// Pressure is the share of this time that was spent waiting.
const PRESSURE_WINDOW: Duration = Duration::from_secs(10);

/// The state of the simulated machine; each list has an entry for each area of the pattern.
#[derive(Debug, Default)]
struct Machine {
    /// For each page: whether it was reclaimed, and whether it is locked.
    away: Vec<Vec<bool>>,
    locked: Vec<Vec<bool>>,
    /// For each huge page that the area has a part of.
    huge: Vec<Vec<bool>>,
    /// Up to this time, touches of pages that are away were looked for.
    looked_at: Duration,
    faults: u64,
    stalled: Duration,
    /// The stall time at moments of the past window.
    past: VecDeque<(Duration, Duration)>,
    spent: Duration,
    calls: u64,
}

/// An actuator on simulated memory, and the gauges of the machine that it is in. All memory of the pattern is
/// resident at the beginning.
///
/// Clones share one machine, so that one can act while another is asked for figures.
#[derive(Clone, Debug)]
pub struct SimActuator {
    memory: SimMemory,
    clock: SimClock,
    costs: Costs,
    machine: Rc<RefCell<Machine>>,
}

impl SimActuator {
    /// Acts on `memory`, which follows `clock`.
    pub fn new(memory: SimMemory, clock: SimClock, costs: Costs) -> Self {
        let no = |granule: u64| -> Vec<Vec<bool>> {
            let granules = |range: AddrRange| range.end().div_ceil(granule) - range.start() / granule;
            memory.areas().map(|range| vec![false; granules(range) as usize]).collect()
        };
        let machine = Machine {
            away: no(PAGE_SIZE),
            locked: no(PAGE_SIZE),
            huge: no(HUGE_PAGE_SIZE),
            looked_at: clock.now(),
            ..Machine::default()
        };
        Self { memory, clock, costs, machine: Rc::new(RefCell::new(machine)) }
    }

    /// Resident bytes of the area of this name; none if there is no such area.
    pub fn resident(&self, area: &str) -> Option<u64> {
        self.catch_up();
        let area = self.memory.pattern().area(area)?;
        let machine = self.machine.borrow();
        Some(machine.away[area].iter().filter(|&&away| !away).count() as u64 * PAGE_SIZE)
    }

    /// How many huge pages there are.
    pub fn huge_pages(&self) -> u64 {
        self.machine.borrow().huge.iter().flatten().filter(|&&huge| huge).count() as u64
    }

    /// How often a page was touched that had been reclaimed.
    pub fn faults(&self) -> u64 {
        self.catch_up();
        self.machine.borrow().faults
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.machine.borrow().calls
    }

    /// Reads back what was reclaimed and has been touched since this was looked at last.
    fn catch_up(&self) {
        let now = self.clock.now();
        let mut machine = self.machine.borrow_mut();
        let since = std::mem::replace(&mut machine.looked_at, now);
        if since == now {
            return;
        }
        let mut faults = 0;
        for (area, away) in machine.away.iter_mut().enumerate() {
            let pages = away.len() as u64;
            for touch in self.memory.touches(area) {
                for (page, away) in (0..).zip(away.iter_mut()).filter(|(_, away)| **away) {
                    if self.memory.touched(touch, page, pages, since) {
                        *away = false;
                        faults += 1;
                    }
                }
            }
        }
        machine.faults += u64::from(faults);
        machine.stalled += self.costs.fault * faults;
        let stalled = machine.stalled;
        machine.past.push_back((now, stalled));
        while machine.past.front().is_some_and(|(then, _)| now - *then > PRESSURE_WINDOW) {
            machine.past.pop_front();
        }
    }

    /// The number of the huge page that a page of an area belongs to; 0 is the first that the area has a part of.
    fn huge(&self, area: usize, page: usize) -> usize {
        let start = self.memory.areas().nth(area).map_or(0, AddrRange::start);
        ((start % HUGE_PAGE_SIZE / PAGE_SIZE) as usize + page) / PER_HUGE
    }

    /// The area that `range` lies in, if that is mapped now, with the numbers of the first page and of that after
    /// the last.
    fn place(&self, range: AddrRange) -> Option<(usize, usize, usize)> {
        let pattern = self.memory.pattern();
        let (area, of) = self.memory.areas().enumerate().find(|(_, of)| of.intersection(range) == Some(range))?;
        let phase = pattern.phase_at(self.clock.now());
        let page = |addr: u64| ((addr - of.start()) / PAGE_SIZE) as usize;
        (!phase.unmapped.contains(&pattern.areas[area].name)).then(|| (area, page(range.start()), page(range.end())))
    }

    /// Does one action to one range.
    fn act(&self, action: Action, range: AddrRange) -> Outcome {
        let Some((area, first, end)) = self.place(range) else {
            return Outcome::refused(range, RefusalReason::NotMapped.into());
        };
        let machine = &mut *self.machine.borrow_mut();
        machine.spent += self.costs.page * (end - first) as u32;
        match action {
            Action::PageOut => {
                let mut outcome = Outcome::default();
                for page in first..end {
                    if machine.locked[area][page] {
                        outcome.refuse(PAGE_SIZE, RefusalReason::Unsuitable.into());
                    } else {
                        outcome.applied += PAGE_SIZE;
                        machine.away[area][page] = true;
                        machine.huge[area][self.huge(area, page)] = false;
                    }
                }
                return outcome;
            }
            Action::WillNeed => machine.away[area][first..end].fill(false),
            Action::MLock => {
                machine.away[area][first..end].fill(false);
                machine.locked[area][first..end].fill(true);
            }
            Action::MUnlock => machine.locked[area][first..end].fill(false),
            Action::HugePage | Action::Collapse => {
                machine.away[area][first..end].fill(false);
                // The engine asks for whole ones only.
                let made = self.huge(area, first)..=self.huge(area, end - 1);
                machine.huge[area][made].fill(true);
            }
            Action::NoHugePage => {
                let split = self.huge(area, first)..=self.huge(area, end - 1);
                machine.huge[area][split].fill(false);
            }
            Action::Stat | Action::Cold => {}
        }
        Outcome::all(range)
    }
}

impl Actuator for SimActuator {
    fn supports(&mut self, _action: Action, _inside: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        self.catch_up();
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
        range: AddrRange,
        kind: PageKind,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        let (area, first, end) = self.place(range).ok_or(RefusalReason::NotMapped)?;
        let since = self.clock.now().saturating_sub(self.costs.young);
        let machine = self.machine.borrow();
        let pages = machine.away[area].len() as u64;
        let is = |page: usize| match kind {
            PageKind::Young => self.memory.touches(area).any(|t| self.memory.touched(t, page as u64, pages, since)),
            PageKind::Huge => machine.huge[area][self.huge(area, page)],
        };
        let at = |page: usize| range.start() + (page - first) as u64 * PAGE_SIZE;
        found.extend((first..end).filter(|&page| is(page)).filter_map(|page| AddrRange::new(at(page), at(page + 1))));
        Ok(())
    }

    fn time_inspecting(&self) -> Duration {
        Duration::ZERO
    }
}

impl Gauges for SimActuator {
    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        self.catch_up();
        let machine = self.machine.borrow();
        match metric {
            Metric::FreeMemory => {
                let away = machine.away.iter().flatten().filter(|&&away| away).count() as u64 * PAGE_SIZE;
                let all: u64 = self.memory.areas().map(AddrRange::size).sum();
                Some((self.costs.spare + away) as f64 / (self.costs.spare + all) as f64)
            }
            Metric::StallTime => Some(machine.stalled.as_secs_f64()),
            Metric::Pressure => {
                let (_, before) = machine.past.front()?;
                Some(((machine.stalled - *before).as_secs_f64() / PRESSURE_WINDOW.as_secs_f64()).min(1.0))
            }
            Metric::WorkingSetResident => {
                let accessed = snapshot.targets.iter().flat_map(|target| &target.regions).filter(|r| r.nr_accesses > 0);
                let (mut all, mut here) = (0_u64, 0_u64);
                for (area, first, end) in accessed.filter_map(|region| self.place(region.range)) {
                    all += (end - first) as u64;
                    here += machine.away[area][first..end].iter().filter(|&&away| !away).count() as u64;
                }
                (all > 0).then(|| here as f64 / all as f64)
            }
            Metric::Fed(_) => None,
        }
    }
}
