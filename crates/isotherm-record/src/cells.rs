//! The memory of a target in the snapshots that a level merges.

use std::time::Duration;

use isotherm_core::{AddrRange, Figures, Frequency, RegionSnapshot};

/// The most regions of a target in a merged snapshot, unless one of those that it is made of has more.
const FEWEST: usize = 64;
/// How many times as many borders as regions are kept while a snapshot is made.
const BORDERS: usize = 3;

/// Frequencies from a twentieth of a hertz on differ by their ratio: a factor of ten as much as a fifth of all samples.
const OF_HERTZ: f64 = 20.0;
const HERTZ: f64 = 0.09;

/// The memory of a target between two borders, with the sums of the snapshots that have it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    start: u64,
    end: u64,
    /// The samples that found an access, those that were taken, those that could not be observed, the ages in seconds ×
    /// seconds, the frequencies in hertz × seconds, and the seconds in which they are known.
    counts: [f64; 6],
    /// The greatest factor of an error of a frequency. `None` if one of them is only the least that there may be.
    factor: Option<f64>,
    /// What surveys found, in bytes × seconds.
    figures: Figures<f64>,
    /// How many snapshots have the figures.
    surveyed: u32,
}

impl Cell {
    /// A region of a snapshot that covers so many seconds.
    fn of(region: &RegionSnapshot, seconds: f64) -> Self {
        let RegionSnapshot { range, nr_accesses, nr_samples, nr_unobservable, age, frequency, pages } = *region;
        let figures = pages.unwrap_or_default().map(|bytes| bytes as f64 * seconds);
        let age = f64::from(age) * seconds * seconds;
        let [hertz, known] = frequency.map_or([0.0; 2], |frequency| [frequency.hz() * seconds, seconds]);
        Self {
            start: range.start(),
            end: range.end(),
            counts: [nr_accesses.into(), nr_samples.into(), nr_unobservable.into(), age, hertz, known],
            factor: frequency.map_or(Some(1.0), Frequency::factor),
            figures,
            surveyed: u32::from(pages.is_some()),
        }
    }

    fn size(&self) -> f64 {
        (self.end - self.start) as f64
    }

    /// Takes off the part before `end`.
    fn take(&mut self, end: u64) -> Self {
        if end == self.end {
            let all = *self;
            self.start = end;
            return all;
        }
        let share = (end - self.start) as f64 / self.size();
        let figures = self.figures.map(|bytes| bytes * share);
        let first = Self { end, figures, ..*self };
        self.start = end;
        self.figures = self.figures.with(figures, |all, taken| all - taken);
        first
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.figures += other.figures;
        self.surveyed += other.surveyed;
        self.factor = worse(self.factor, other.factor);
    }

    /// Joins the next cell, which touches this one.
    fn join(&mut self, next: &Self) {
        let (one, other) = (self.size(), next.size());
        let mean = |a: &mut f64, b: f64| *a = (*a * one + b * other) / (one + other);
        self.counts.iter_mut().zip(next.counts).for_each(|(a, b)| mean(a, b));
        self.figures += next.figures;
        self.surveyed = self.surveyed.max(next.surveyed);
        self.factor = worse(self.factor, next.factor);
        self.end = next.end;
    }
}

/// The greater of two factors of errors. `None` if one of the frequencies has no upper bound.
fn worse(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

/// The cells of a target, sorted and disjoint.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    /// The samples and the seconds of the snapshots that were added, and the most regions of one.
    samples: f64,
    seconds: f64,
    most_regions: usize,
    /// The cells before the last snapshot, whose memory is used again.
    before: Vec<Cell>,
}

impl Cells {
    /// Adds the regions of a snapshot.
    pub(crate) fn add(&mut self, regions: &[RegionSnapshot], samples: u32, aggregation: Duration) {
        let seconds = aggregation.as_secs_f64();
        self.samples += f64::from(samples);
        self.seconds += seconds;
        self.most_regions = self.most_regions.max(regions.len());
        let same = |(cell, region): (&Cell, &RegionSnapshot)| {
            (cell.start, cell.end) == (region.range.start(), region.range.end())
        };
        if self.cells.len() == regions.len() && self.cells.iter().zip(regions).all(same) {
            self.cells.iter_mut().zip(regions).for_each(|(cell, region)| cell.add(&Cell::of(region, seconds)));
            return;
        }
        std::mem::swap(&mut self.cells, &mut self.before);
        self.cells.clear();
        let cells = &mut self.cells;
        let (mut old, mut new) = (self.before.iter().copied(), regions.iter().map(|region| Cell::of(region, seconds)));
        let (mut one, mut other) = (old.next(), new.next());
        loop {
            match (&mut one, &mut other) {
                (None, None) => break,
                (Some(a), Some(b)) if a.start == b.start => {
                    let end = a.end.min(b.end);
                    let mut cell = a.take(end);
                    cell.add(&b.take(end));
                    cells.push(cell);
                    if a.start == a.end {
                        one = old.next();
                    }
                    if other.as_ref().is_some_and(|b| b.start == b.end) {
                        other = new.next();
                    }
                }
                (Some(a), Some(b)) => {
                    // The part of the first one before the second.
                    let (first, second) = if a.start < b.start { (a, b.start) } else { (b, a.start) };
                    cells.push(first.take(first.end.min(second)));
                    if one.as_ref().is_some_and(|a| a.start == a.end) {
                        one = old.next();
                    }
                    if other.as_ref().is_some_and(|b| b.start == b.end) {
                        other = new.next();
                    }
                }
                (Some(a), None) => {
                    cells.push(*a);
                    one = old.next();
                }
                (None, Some(b)) => {
                    cells.push(*b);
                    other = new.next();
                }
            }
        }
        if self.cells.len() > self.limit() * BORDERS {
            self.join_to(self.limit());
        }
    }

    fn limit(&self) -> usize {
        self.most_regions.max(FEWEST)
    }

    /// Joins neighbours that are alike until there are at most `most`, or none touch.
    fn join_to(&mut self, most: usize) {
        let (samples, seconds) = (self.samples.max(1.0), self.seconds);
        let mut threshold = 1.0 / 128.0;
        while self.cells.len() > most {
            let before = self.cells.len();
            let differs = |a: &Cell, b: &Cell| {
                let [a, b] = [a, b].map(|Cell { counts: [accesses, _, unobservable, ages, hertz, known], .. }| {
                    let octaves = (hertz / known.max(1e-9) * OF_HERTZ).ln_1p() * HERTZ;
                    (accesses / samples, unobservable / samples, ages / seconds.max(1e-9), octaves)
                });
                let age = (a.2 - b.2).abs() / (seconds + a.2.max(b.2)).max(1e-9) / 4.0;
                (a.0 - b.0).abs().max((a.1 - b.1).abs()).max(age).max((a.3 - b.3).abs())
            };
            self.cells.dedup_by(|next, cell| {
                let joins = cell.end == next.start && differs(cell, next) <= threshold;
                if joins {
                    cell.join(next);
                }
                joins
            });
            // Everything differs by less.
            if self.cells.len() == before && threshold > 1.0 {
                break;
            }
            threshold *= 2.0;
        }
    }

    /// The regions of a snapshot with so many samples.
    pub(crate) fn finish(mut self, samples: u32) -> Vec<RegionSnapshot> {
        self.join_to(self.limit());
        let seconds = self.seconds.max(1e-9);
        let regions = self.cells.iter().filter_map(|cell| {
            let [accesses, taken, unobservable, ages, hertz, known] = cell.counts;
            let count = |count: f64| (count.round() as u32).min(samples);
            let mean = || cell.figures.map(|bytes| (bytes / seconds).round() as u64).limited_to(cell.end - cell.start);
            let pages = (cell.surveyed > 0).then(mean);
            Some(RegionSnapshot {
                range: AddrRange::new(cell.start, cell.end)?,
                nr_accesses: count(accesses),
                nr_samples: count(taken),
                nr_unobservable: count(unobservable),
                age: (ages / seconds / seconds).round() as u32,
                frequency: (known > 0.0).then(|| Frequency::new(hertz / known, cell.factor)),
                pages,
            })
        });
        regions.collect()
    }
}
