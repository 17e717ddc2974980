//! Simulated memory: an address space and a probe that follow a pattern on a simulated clock.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::Survey;
use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, BoxError, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId,
    TargetSpace,
};

use crate::presence::Presence;
use crate::{Order, Pattern, Touch};

/// The address of the first area. Any address in user space would do.
const BASE: u64 = 0x10_0000_0000;

/// The clock of a simulation. Its time begins at zero, and the driver of the simulation advances it. Clones share one
/// time.
#[derive(Clone, Debug, Default)]
pub struct SimClock(Rc<Cell<Duration>>);

impl SimClock {
    /// The time since the start of the simulation.
    pub fn now(&self) -> Duration {
        self.0.get()
    }

    /// Advances the clock by `time` and returns the new time.
    pub fn pass(&self, time: Duration) -> Duration {
        self.0.set(self.now() + time);
        self.now()
    }
}

/// One target whose memory is accessed as a pattern says. There is an unmapped page between two areas.
///
/// Clones share the clock: one can be the address space of a monitor and another its probe.
#[derive(Clone, Debug)]
pub struct SimMemory {
    pattern: Arc<Pattern>,
    clock: SimClock,
    seed: u64,
    cleared_at: Duration,
    clears: u64,
    /// When a survey has cleared each page, by the address of the page. Clones share it.
    pub(crate) cleared_pages: Rc<RefCell<HashMap<u64, Duration>>>,
    presence: Rc<RefCell<Presence>>,
}

impl SimMemory {
    /// The identity of the simulated process.
    pub const ID: TargetId = TargetId::process(1, Duration::ZERO);

    /// Memory that follows `pattern` on `clock`. What is random in the pattern follows from `seed`.
    pub fn new(pattern: Pattern, clock: SimClock, seed: u64) -> Self {
        let memory = Self {
            pattern: Arc::new(pattern),
            clock,
            seed,
            cleared_at: Duration::ZERO,
            clears: 0,
            cleared_pages: Rc::default(),
            presence: Rc::default(),
        };
        *memory.presence.borrow_mut() = Presence::new(memory.areas(), memory.clock.now());
        memory
    }

    /// Which pages are resident now. Clones share it.
    pub(crate) fn presence(&self) -> &RefCell<Presence> {
        self.read_back();
        &self.presence
    }

    /// Makes reclaimed pages resident that have been touched since this function was called last.
    fn read_back(&self) {
        let now = self.clock.now();
        let Presence { reclaimed, faulted_until, faults } = &mut *self.presence.borrow_mut();
        let since = std::mem::replace(faulted_until, now);
        if since == now {
            return;
        }
        for (area, reclaimed) in reclaimed.iter_mut().enumerate() {
            let pages = reclaimed.len() as u64;
            for touch in self.touches(area) {
                for (page, reclaimed) in (0..).zip(reclaimed.iter_mut()).filter(|(_, reclaimed)| **reclaimed) {
                    if self.touched(touch, page, pages, since) {
                        *reclaimed = false;
                        *faults += 1;
                    }
                }
            }
        }
    }

    /// The addresses of each area, in the order of the pattern.
    pub fn areas(&self) -> impl Iterator<Item = AddrRange> {
        let mut at = BASE;
        self.pattern.areas.iter().filter_map(move |area| {
            let start = at;
            at += area.size + PAGE_SIZE;
            AddrRange::new(start, start + area.size)
        })
    }

    /// The pattern.
    pub(crate) fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    pub(crate) fn clock(&self) -> &SimClock {
        &self.clock
    }

    fn accessed(&self, addr: u64) -> bool {
        let Some((area, range)) = self.areas().enumerate().find(|(_, range)| range.contains(addr)) else {
            return false;
        };
        let page = (addr - range.start()) / PAGE_SIZE;
        self.touches(area).any(|touch| self.touched(touch, page, range.pages(), self.cleared_at))
    }

    /// The touches of the area with this index in the present phase.
    pub(crate) fn touches(&self, area: usize) -> impl Iterator<Item = &Touch> {
        let phase = self.pattern.phase_at(self.clock.now());
        let name = &self.pattern.areas[area].name;
        phase.touch.iter().filter(move |touch| touch.area == *name)
    }

    /// Whether a page of an area with `pages` pages was touched after `since`.
    pub(crate) fn touched(&self, touch: &Touch, page: u64, pages: u64, since: Duration) -> bool {
        let (from, to) = (since.as_secs_f64(), self.clock.now().as_secs_f64());
        let every = touch.every.as_secs_f64();
        // A sweep passes the page when this share of it is over.
        let passes = |every: f64, share: f64| (to / every - share).floor() > (from / every - share).floor();
        match touch.order {
            Order::Sequential => passes(every, page as f64 / pages as f64),
            Order::Strided(stride) => {
                page.is_multiple_of(stride) && passes(every / stride as f64, page as f64 / pages as f64)
            }
            Order::Random | Order::Zipfian(_) => {
                self.chance(page, since) < touch.access_rate(page, pages, self.clock.now() - since)
            }
        }
    }

    /// A number from 0 to 1 that looks random and depends on the seed, the page and the time only (SplitMix64,
    /// Steele et al. 2014). What was touched since a time stays touched, however often it is read.
    fn chance(&self, page: u64, since: Duration) -> f64 {
        let mut x = self.seed ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (since.as_nanos() as u64);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        (x >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl AddressSpace for SimMemory {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let phase = self.pattern.phase_at(self.clock.now());
        let mapped =
            self.pattern.areas.iter().zip(self.areas()).filter(|(area, _)| !phase.unmapped.contains(&area.name));
        let mappings =
            mapped.map(|(area, range)| Mapping { name: area.name.as_str().into(), ..Mapping::anonymous(range) });
        Ok(vec![TargetSpace { id: Self::ID, layout: Layout::Process, mappings: mappings.collect() }])
    }
}

impl AccessProbe for SimMemory {
    fn update(&mut self, _targets: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        self.cleared_at = self.clock.now();
        self.clears += samples.len() as u64;
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        for (sample, answer) in samples.iter().zip(answers) {
            *answer = if self.accessed(sample.addr) { Observation::Accessed } else { Observation::Idle };
        }
        Ok(())
    }

    fn clears(&self) -> u64 {
        self.clears
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }
}
