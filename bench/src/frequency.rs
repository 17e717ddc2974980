//! The frequencies that a run finds, beside the true ones.

use std::fmt::Write as _;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_sim::Order;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::pairs::median;
use crate::{Monitored, PhaseTruth, TakenSnapshot};

/// Memory that is accessed at least so often is hot, in hertz.
pub const HOT_HZ: f64 = 10.0;

/// What is found is taken from so long after a change, over so long.
const AFTER: Duration = Duration::from_secs(5);
const OVER: Duration = Duration::from_secs(10);

/// Frequencies are compared in pieces of this many bytes.
const CELL: u64 = 256 << 10;

/// A frequency is right within this factor.
pub const RIGHT: f64 = 1.5;

/// How well a run found the frequencies of a pattern.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FrequencyScore {
    /// The share of the bytes found hot that are hot.
    pub precision: Option<f64>,
    /// The share of the hot bytes that are found hot.
    pub recall: Option<f64>,
    /// For each area that is accessed evenly: its true frequency and the one that was found, in hertz.
    pub areas: Vec<(f64, f64)>,
    /// The rank correlation (Spearman) of the true and the found frequency of pieces of 256 KiB that are accessed.
    pub ranks: Option<f64>,
}

impl FrequencyScore {
    /// Compares what a run found after the beginning of each phase with the truth.
    pub fn new(monitored: &Monitored) -> Self {
        let (mut hot, mut found_hot, mut right) = (0.0, 0.0, 0.0);
        let (mut areas, mut truth, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for phase in &monitored.phases {
            let (from, to) = (phase.start + AFTER, (phase.start + AFTER + OVER).min(phase.end));
            // A snapshot is of its whole aggregation, which may be longer than what is left of the phase.
            let within = |taken: &TakenSnapshot| {
                let begun = taken.time.saturating_sub(taken.aggregation);
                taken.time.min(to).saturating_sub(begun.max(from)).as_secs_f64()
            };
            let snapshots: Vec<(&TakenSnapshot, f64)> = monitored
                .snapshots
                .iter()
                .map(|taken| (taken, within(taken)))
                .filter(|(_, time)| *time > 0.0)
                .collect();
            for (range, of) in phase.frequencies() {
                let cells: Vec<f64> = cells(range).map(|cell| mean(&snapshots, cell)).collect();
                for (cell, &hz) in cells_of(&of, cells.len()).zip(&cells) {
                    hot += f64::from(u8::from(cell >= HOT_HZ));
                    found_hot += f64::from(u8::from(hz >= HOT_HZ));
                    right += f64::from(u8::from(hz >= HOT_HZ && cell >= HOT_HZ));
                    if cell > 0.0 {
                        truth.push(cell);
                        found.push(hz);
                    }
                }
                if let [hz] = of[..] {
                    areas.push((hz, cells.iter().sum::<f64>() / cells.len().max(1) as f64));
                }
            }
        }
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let ranks = (truth.len() > 1).then(|| correlation(&ranks(&truth), &ranks(&found)));
        Self { precision: share(right, found_hot), recall: share(right, hot), areas, ranks }
    }

    /// The share of the areas in use whose frequency is right within [`RIGHT`], and the median of found over true.
    pub fn in_use(&self) -> Option<(f64, f64)> {
        let mut ratios: Vec<f64> =
            self.areas.iter().filter(|(hz, _)| *hz > 0.0).map(|(hz, found)| found / hz).collect();
        let right = ratios.iter().filter(|ratio| (1.0 / RIGHT..=RIGHT).contains(*ratio)).count();
        (!ratios.is_empty()).then(|| (right as f64 / ratios.len() as f64, median(&mut ratios)))
    }
}

fn cells(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    (range.start()..range.end())
        .step_by(CELL as usize)
        .filter_map(move |start| AddrRange::new(start, (start + CELL).min(range.end())))
}

/// The true frequency of each cell, of one for all or one for each page.
fn cells_of(pages: &[f64], count: usize) -> impl Iterator<Item = f64> {
    let each = pages.len() / count.max(1);
    (0..count).map(move |nth| match pages {
        [same] => *same,
        _ => pages[nth * each..(nth + 1) * each].iter().sum::<f64>() / each as f64,
    })
}

/// The mean of what snapshots found in a range, each with the seconds that it counts for.
fn mean(snapshots: &[(&TakenSnapshot, f64)], range: AddrRange) -> f64 {
    let mut sum = (0.0, 0.0);
    for (taken, time) in snapshots {
        let first = taken.regions.partition_point(|region| region.range.end() <= range.start());
        let inside =
            taken.regions[first..].iter().map_while(|region| Some((region, region.range.intersection(range)?)));
        for (region, part) in inside {
            let weight = part.size() as f64 * time;
            sum = (sum.0 + weight * region.access_hz(taken.aggregation), sum.1 + weight);
        }
    }
    if sum.1 > 0.0 { sum.0 / sum.1 } else { 0.0 }
}

/// The rank of each value, with the mean of the ranks of those that are equal.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    for same in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let first = same.first().map_or(0, |first| order.partition_point(|&at| values[at] < values[*first]));
        same.iter().for_each(|&at| ranks[at] = first as f64 + (same.len() - 1) as f64 / 2.0);
    }
    ranks
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |of: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| of(a - mean_a, b - mean_b)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt().max(f64::MIN_POSITIVE)
}

impl PhaseTruth {
    /// The true frequencies of each mapped area in hertz: of all its pages, or one for each.
    fn frequencies(&self) -> Vec<(AddrRange, Vec<f64>)> {
        let of = |(range, touches): (AddrRange, Vec<isotherm_sim::Touch>)| {
            let hz = |page| touches.iter().map(|touch| touch.frequency(page, range.pages())).sum();
            let same = touches.iter().all(|touch| matches!(touch.order, Order::Sequential | Order::Random));
            (range, if same { vec![hz(0)] } else { (0..range.pages()).map(hz).collect() })
        };
        self.touches().map(of).collect()
    }
}

/// A random pattern in the language of patterns: memory of `mebibytes`, half of it idle, in areas of a 64th to a 16th
/// of it that are accessed 0.5 to 200 times a second, and others after 20 s. One processor can access 1 GiB as often by
/// far.
pub fn random_pattern(seed: u64, mebibytes: u64) -> String {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut text = format!("about = \"random areas and frequencies, seed {seed}\"\n");
    let (mut sizes, mut left) = (Vec::new(), mebibytes);
    while left > 0 {
        let size = (mebibytes / [64, 32, 16][rng.random_range(0..3)]).min(left);
        sizes.push(size);
        left -= size;
    }
    for (nth, size) in sizes.iter().enumerate() {
        let _ = write!(text, "\n[[area]]\nname = \"{nth}\"\nsize = \"{size} MiB\"\n");
    }
    for _ in 0..2 {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.shuffle(&mut rng);
        text += "\n[[phase]]\ntime = \"20s\"\ntouch = [\n";
        // Touches of pages in a second.
        let mut room = 1.5e6 * mebibytes as f64 / 1024.0;
        for &area in &order[..sizes.len() / 2] {
            let pages = (sizes[area] << 20) as f64 / 4096.0;
            // None is near the limit of hot memory.
            let mut hz = 0.0;
            while !(0.5..=7.0).contains(&hz) && !(14.0..=200.0).contains(&hz) {
                hz = 0.5 * 400_f64.powf(rng.random::<f64>());
            }
            if hz * pages > room / 2.0 {
                hz = 0.5 * 14_f64.powf(rng.random::<f64>());
            }
            room -= hz * pages;
            let kind = if rng.random_bool(0.5) { "sequential" } else { "random" };
            let micros = (1e6 / hz).round();
            let _ = writeln!(text, "  {{ area = \"{area}\", every = \"{micros}us\", order = \"{kind}\" }},");
        }
        text += "]\n";
    }
    text
}
