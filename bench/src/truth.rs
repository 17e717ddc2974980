//! The true access rates of a pattern, by phase and area.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_sim::{Order, Pattern, Touch};

/// Memory with at least this access rate is hot.
pub const HOT: f64 = 0.5;

/// The true access rates in one phase. Between two phases, while a process maps and fills memory, there is no truth.
///
/// A rate is the share of the sampling intervals in which a page is accessed, so it depends on the interval.
#[derive(Debug)]
pub struct PhaseTruth {
    /// Start of the phase, since the start of the run.
    pub start: Duration,
    /// End of the phase.
    pub end: Duration,
    pattern: Rc<Pattern>,
    phase: usize,
    /// The addresses of each area of the pattern that is mapped.
    ranges: Vec<Option<AddrRange>>,
    /// What was worked out already, by sampling interval.
    known: RefCell<HashMap<Duration, Rc<[AreaTruth]>>>,
}

/// The access rates of one area.
#[derive(Clone, Debug)]
pub struct AreaTruth {
    /// Its addresses.
    pub range: AddrRange,
    rates: Rates,
}

#[derive(Clone, Debug)]
enum Rates {
    Same(f64),
    /// One rate for each page.
    Different(Vec<f32>),
}

impl PhaseTruth {
    /// The truth in a phase of `pattern`. `ranges` returns the addresses of an area, or nothing if it is not mapped.
    pub fn new(
        pattern: &Rc<Pattern>,
        phase: usize,
        start: Duration,
        ranges: impl Fn(usize) -> Option<AddrRange>,
    ) -> Self {
        Self {
            start,
            end: start + pattern.phases[phase].time,
            pattern: Rc::clone(pattern),
            phase,
            ranges: (0..pattern.areas.len()).map(ranges).collect(),
            known: RefCell::default(),
        }
    }

    /// The mapped areas, sorted by address, and their rates if the sampling interval is `sampling`.
    pub fn areas(&self, sampling: Duration) -> Rc<[AreaTruth]> {
        Rc::clone(self.known.borrow_mut().entry(sampling).or_insert_with(|| self.work_out(sampling)))
    }

    fn work_out(&self, sampling: Duration) -> Rc<[AreaTruth]> {
        let pattern = &self.pattern;
        let phase = &pattern.phases[self.phase];
        let truth = |area: usize| {
            let range = self.ranges[area]?;
            let rate = |page| pattern.access_rate(phase, area, page, sampling);
            let touches = phase.touch.iter().filter(|touch| touch.area == pattern.areas[area].name);
            let same = touches.into_iter().all(|touch| matches!(touch.order, Order::Sequential | Order::Random));
            let rates = if same {
                Rates::Same(rate(0))
            } else {
                Rates::Different((0..range.pages()).map(|page| rate(page) as f32).collect())
            };
            Some(AreaTruth { range, rates })
        };
        let mut areas: Vec<_> = (0..pattern.areas.len()).filter_map(truth).collect();
        areas.sort_by_key(|area| area.range);
        areas.into()
    }

    /// The mapped areas with what touches them in this phase.
    pub(crate) fn touches(&self) -> impl Iterator<Item = (AddrRange, Vec<Touch>)> {
        let phase = &self.pattern.phases[self.phase];
        let areas = self.pattern.areas.iter().zip(&self.ranges);
        areas.filter_map(|(area, range)| {
            let touches = phase.touch.iter().filter(|touch| touch.area == area.name).cloned();
            Some(((*range)?, touches.collect()))
        })
    }

    /// Whether memory is hot in this phase that was not hot in the phase `before`, if samples are taken every
    /// `sampling`.
    pub fn warms_up(&self, before: Option<&Self>, sampling: Duration) -> bool {
        let before = before.map(|before| before.areas(sampling));
        self.areas(sampling).iter().any(|area| {
            let hot = area.hot_bytes(area.range);
            let known = before.as_ref().and_then(|before| before.iter().find(|known| known.range == area.range));
            hot > known.map_or(0, |known| known.hot_bytes(known.range))
        })
    }
}

impl AreaTruth {
    /// The hot bytes of `range`, which lies in the area.
    pub fn hot_bytes(&self, range: AddrRange) -> u64 {
        match &self.rates {
            Rates::Same(rate) if *rate >= HOT => range.size(),
            Rates::Same(_) => 0,
            Rates::Different(_) => self.pages(range).filter(|&rate| rate >= HOT).count() as u64 * PAGE_SIZE,
        }
    }

    /// The absolute error of `rate` in `range`, which lies in the area, times its bytes.
    pub fn error_bytes(&self, range: AddrRange, rate: f64) -> f64 {
        match &self.rates {
            Rates::Same(truth) => (rate - truth).abs() * range.size() as f64,
            Rates::Different(_) => self.pages(range).map(|truth| (rate - truth).abs()).sum::<f64>() * PAGE_SIZE as f64,
        }
    }

    fn pages(&self, range: AddrRange) -> impl Iterator<Item = f64> {
        let rates: &[f32] = match &self.rates {
            Rates::Same(_) => &[],
            Rates::Different(rates) => rates,
        };
        let first = ((range.start() - self.range.start()) / PAGE_SIZE) as usize;
        rates.iter().skip(first).take(range.pages() as usize).map(|&rate| rate.into())
    }
}
