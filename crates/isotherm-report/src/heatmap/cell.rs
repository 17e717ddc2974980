//! What is in a cell of a heatmap.

use std::time::Duration;

use super::grid::Sum;
use crate::placement::{Placement, Places};

/// The memory of a row in the time of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The place of what is measured on the scale from 0 (cold) to 1 (hot); with the measure touched, the touched
    /// share.
    pub rate: f32,
    /// How often a page is accessed, in hertz: the mean, weighted by bytes and time.
    pub hz: f32,
    /// The share of unobservable samples, 0 to 1; with surveys, of memory that they could not observe.
    pub unobservable: f32,
    /// The share of the memory whose accesses were not known, 0 to 1. In `rate` it counts as
    /// accessed in the same share as the rest. With samples, it is memory that was not sampled, unless a survey found
    /// it idle.
    pub unknown: f32,
    /// The mean age: the time for which the access rate has been about the same. With surveys, the mean idle time of
    /// what is known.
    pub age: Duration,
}

impl Cell {
    /// Whether the rate means little, mostly because memory or samples could not be observed.
    pub fn is_unobservable(&self) -> bool {
        self.is_in_the_dark() && self.unobservable >= self.unknown
    }

    /// Whether the rate means little, mostly because it is not known yet whether the memory was accessed.
    pub fn is_unknown(&self) -> bool {
        self.is_in_the_dark() && self.unobservable < self.unknown
    }

    /// Whether something is known of a part of it.
    pub(super) fn has_evidence(&self) -> bool {
        self.unobservable + self.unknown < 1.0
    }

    fn is_in_the_dark(&self) -> bool {
        self.unobservable + self.unknown > 0.5
    }
}

/// The sums behind a cell, of a report or of the live view.
#[derive(Clone, Copy, Default)]
pub struct Sums {
    pub(super) weight: f64,
    /// What could be observed.
    pub(super) observed: f64,
    /// The unknown part of `observed`.
    pub(super) unknown: f64,
    /// What `accessed` is a part of, and what has `hertz`.
    pub(super) rated: f64,
    pub(super) accessed: f64,
    /// Accesses in a second.
    pub(super) hertz: f64,
    pub(super) age: f64,
    /// What has an age.
    pub(super) aged: f64,
}

/// What samples found in some memory, as shares of its samples.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    /// Samples that could be observed.
    pub observed: f64,
    /// Memory without samples, whose accesses are not known.
    pub unknown: f64,
    /// How often a page of what was observed is accessed, in hertz.
    pub hz: f64,
}

impl Sums {
    /// Adds memory with this weight: its bytes, and maybe the time.
    pub fn add_sampled(&mut self, weight: f64, sampled: Sampled) {
        self.weight += weight;
        self.observed += weight * (sampled.observed + sampled.unknown);
        self.rated += weight * sampled.observed;
        self.unknown += weight * sampled.unknown;
        self.hertz += weight * sampled.observed * sampled.hz;
    }

    /// The cell. `None` if there is no memory.
    pub fn cell(&self) -> Option<Cell> {
        self.figures().cell()
    }
}

impl Sum for Sums {
    type Figures = Figures;

    fn figures(&self) -> Figures {
        let share = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
        let rate = share(self.accessed, self.rated).clamp(0.0, 1.0) as f32;
        Figures {
            rate: if self.weight > 0.0 { rate } else { f32::NAN },
            hz: share(self.hertz, self.rated) as f32,
            unobservable: (1.0 - share(self.observed, self.weight)).clamp(0.0, 1.0) as f32,
            unknown: share(self.unknown, self.weight).clamp(0.0, 1.0) as f32,
            age_ms: (share(self.age, self.aged) * 1e3).round() as u32,
        }
    }

    fn add(&mut self, more: &Self, times: f64) {
        self.weight += more.weight * times;
        self.observed += more.observed * times;
        self.unknown += more.unknown * times;
        self.rated += more.rated * times;
        self.accessed += more.accessed * times;
        self.hertz += more.hertz * times;
        self.age += more.age * times;
        self.aged += more.aged * times;
    }
}

/// What a cell is made of when its time is over.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    /// Not a number if there is no memory.
    rate: f32,
    hz: f32,
    unobservable: f32,
    unknown: f32,
    age_ms: u32,
}

impl Figures {
    pub(super) fn cell(self) -> Option<Cell> {
        let Self { rate, hz, unobservable, unknown, age_ms } = self;
        let age = Duration::from_millis(age_ms.into());
        (!rate.is_nan()).then_some(Cell { rate, hz, unobservable, unknown, age })
    }
}

impl Sum for Places {
    type Figures = PlaceFigures;

    fn figures(&self) -> PlaceFigures {
        let placement = self.placement();
        let share = |share: Option<f64>| share.map_or(f32::NAN, |share| share as f32);
        PlaceFigures {
            present: share(placement.map(|of| of.present)),
            swapped: share(placement.and_then(|of| of.swapped)),
        }
    }

    fn add(&mut self, more: &Self, times: f64) {
        self.mapped += more.mapped * times;
        self.known += more.known * times;
        self.present += more.present * times;
        self.swapped += more.swapped * times;
    }
}

/// The placement of a cell. A share that is not known is not a number.
#[derive(Clone, Copy)]
pub(super) struct PlaceFigures {
    present: f32,
    swapped: f32,
}

impl PlaceFigures {
    pub(super) fn placement(self) -> Option<Placement> {
        let known = |share: f32| (!share.is_nan()).then_some(f64::from(share));
        Some(Placement { present: known(self.present)?, swapped: known(self.swapped) })
    }
}

/// What a picture shows of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    /// The rate of its memory, or another measure from 0 (cold) to 1 (hot).
    Rate(f32),
    /// Most of it could not be observed, or is not known for this and the next reason together.
    Unobservable,
    /// Of most of it, it was not known yet whether it was accessed.
    Unknown,
    /// More of it was in swap than in memory.
    Swapped,
    /// It was mapped, but nothing of it was in memory or in swap.
    Absent,
}

/// Bytes that stand for rates, for unknown memory, for absent memory, for memory in swap, for unobservable memory and
/// for nothing.
pub(crate) const HIGHEST_RATE: u8 = 250;
pub(crate) const IS_UNKNOWN: u8 = 251;
pub(crate) const IS_ABSENT: u8 = 252;
pub(crate) const IN_SWAP: u8 = 253;
const IN_THE_DARK: u8 = 254;
pub(crate) const NOTHING: u8 = 255;

impl Shown {
    /// What is shown of a cell as a byte.
    pub(crate) fn code(cell: Option<Self>) -> u8 {
        match cell {
            None => NOTHING,
            Some(Self::Unobservable) => IN_THE_DARK,
            Some(Self::Unknown) => IS_UNKNOWN,
            Some(Self::Swapped) => IN_SWAP,
            Some(Self::Absent) => IS_ABSENT,
            // Only memory without accesses is 0.
            Some(Self::Rate(rate)) => (rate * f32::from(HIGHEST_RATE)).round().max(f32::from(rate > 0.0)) as u8,
        }
    }
}
