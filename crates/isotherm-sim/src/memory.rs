//! Simulated memory: an address space and a probe that follow a pattern on a clock of their own.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AccessProbe, AddrRange, AddressSpace, BoxError, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId,
    TargetSpace,
};

use crate::{Order, Pattern, Touch};

/// Where the first area begins: any place in user space will do.
const BASE: u64 = 0x10_0000_0000;

/// The time of a simulation, since its start; whoever runs it moves it on.
#[derive(Clone, Debug, Default)]
pub struct SimClock(Rc<Cell<Duration>>);

impl SimClock {
    /// The time now.
    pub fn now(&self) -> Duration {
        self.0.get()
    }

    /// Lets this much time pass and says the time then.
    pub fn pass(&self, time: Duration) -> Duration {
        self.0.set(self.now() + time);
        self.now()
    }
}

/// Memory that is accessed as a pattern says: one target, whose areas lie side by side with a page between them.
///
/// Clones share the clock, so that one can be the address space and another the probe.
#[derive(Clone, Debug)]
pub struct SimMemory {
    pattern: Arc<Pattern>,
    clock: SimClock,
    seed: u64,
    cleared_at: Duration,
    clears: u64,
}

impl SimMemory {
    /// The identity of the simulated process.
    pub const ID: TargetId = TargetId::process(1, Duration::ZERO);

    /// Simulated memory; what is random in the pattern follows from `seed`.
    pub fn new(pattern: Pattern, clock: SimClock, seed: u64) -> Self {
        Self { pattern: Arc::new(pattern), clock, seed, cleared_at: Duration::ZERO, clears: 0 }
    }

    /// Where each area lies, in the order of the pattern.
    pub fn areas(&self) -> impl Iterator<Item = AddrRange> {
        let mut at = BASE;
        self.pattern.areas.iter().filter_map(move |area| {
            let start = at;
            at += area.size + PAGE_SIZE;
            AddrRange::new(start, start + area.size)
        })
    }

    /// The pattern that is followed.
    pub(crate) fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    fn accessed(&self, addr: u64) -> bool {
        let Some((area, range)) = self.areas().enumerate().find(|(_, range)| range.contains(addr)) else {
            return false;
        };
        let page = (addr - range.start()) / PAGE_SIZE;
        self.touches(area).any(|touch| self.touched(touch, page, range.pages(), self.cleared_at))
    }

    /// How the area of this index is touched now.
    pub(crate) fn touches(&self, area: usize) -> impl Iterator<Item = &Touch> {
        let phase = self.pattern.phase_at(self.clock.now());
        let name = &self.pattern.areas[area].name;
        phase.touch.iter().filter(move |touch| touch.area == *name)
    }

    /// Whether a page of an area of so many was touched since `since`.
    pub(crate) fn touched(&self, touch: &Touch, page: u64, pages: u64, since: Duration) -> bool {
        let (from, to) = (since.as_secs_f64(), self.clock.now().as_secs_f64());
        let every = touch.every.as_secs_f64();
        // The sweep passes the page at each time that is this share of a sweep after a whole number of them.
        let passes = |every: f64, share: f64| (to / every - share).floor() > (from / every - share).floor();
        match touch.order {
            Order::Sequential => passes(every, page as f64 / pages as f64),
            Order::Strided(stride) => {
                page.is_multiple_of(stride) && passes(every / stride as f64, page as f64 / pages as f64)
            }
            Order::Random | Order::Zipfian(_) => {
                self.chance(page) < touch.access_rate(page, pages, self.clock.now() - since)
            }
        }
    }

    /// A number from 0 to 1 for this page at this time, always the same one (SplitMix64, Steele et al. 2014).
    fn chance(&self, page: u64) -> f64 {
        let mut x = self.seed ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.clock.now().as_nanos() as u64);
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
}
