//! A trial of two memories: what share of the accesses the slow tier would serve, by the size of the fast tier and by
//! placement. docs/tier-try.md describes the model and what it does not know.
//!
//! The trial is pure computation on a recording. It reads the recording three times, and takes memory in proportion to
//! the blocks of 2 MiB that have memory, up to a bound.

mod curve;
mod html;
mod memory;
mod place;
mod replay;
mod svg;
mod text;
mod tiers;
mod units;

use std::io::Write;

use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::tiering::DEFAULT_RATE;
use isotherm_core::units::{bytes, percent};
use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::source::{Selection, Source};
use crate::{Format, Options, ReportError, escape, png};

use memory::Memory;
use place::{Served, Size};
use replay::Plan;

/// The shares of the peak resident memory that the curve is made of, in per cent.
const CURVE: [u32; 13] = [5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100];

/// A size of the fast tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FastSize {
    /// Bytes.
    Bytes(u64),
    /// A share of the peak resident memory, 0 to 1.
    Share(f64),
}

impl FastSize {
    fn bytes(self, peak: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (peak as f64 * share).round() as u64,
        }
    }
}

/// What is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialOptions {
    /// The sizes of the fast tier. Without any, the curve is made.
    pub fast: Vec<FastSize>,
    /// Whether the curve is made beside these sizes.
    pub curve: bool,
    /// The most bytes that are moved in a second, in both directions together.
    pub rate: u64,
    /// The time that the program takes with slow memory only, divided by that with fast memory only; 1 or more.
    pub slow_price: Option<f64>,
}

impl Default for TrialOptions {
    fn default() -> Self {
        Self { fast: vec![], curve: false, rate: DEFAULT_RATE, slow_price: None }
    }
}

/// What one placement would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Placed {
    /// The share of the accesses that the slow tier serves, 0 to 1.
    pub slow_share: f64,
    /// The same in the second half of the time.
    pub late_slow_share: f64,
    /// The modelled time, divided by that with fast memory only. `None` without a price of slow memory.
    pub modelled_time: Option<f64>,
}

/// What would happen with one size of the fast tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Tried {
    /// The size of the fast tier.
    pub fast_bytes: u64,
    /// The same, as a share of the peak resident memory.
    pub fast_share: f64,
    /// Memory stays where it was first seen.
    pub first_touch: Placed,
    /// isotherm promotes hot memory, and demotes cold memory.
    pub isotherm: Placed,
    /// In each look the hottest memory is in the fast tier.
    pub best: Placed,
    /// Bytes that isotherm moves to the fast tier.
    pub promoted_bytes: u64,
    /// Bytes that isotherm moves to the slow tier.
    pub demoted_bytes: u64,
}

/// The result of a trial.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TierTrial {
    /// The start of the selected time.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// What limits the evidence.
    pub warnings: Vec<String>,
    /// What the model assumes here.
    pub notes: Vec<String>,
    /// The number of targets.
    pub targets: usize,
    /// The most bytes in memory.
    pub peak_resident_bytes: u64,
    /// The mean share of the memory whose accesses are not known, 0 to 1.
    pub unknown_share: f64,
    /// Accesses to pages, as far as they were found.
    pub accesses: f64,
    /// The size of a unit that is placed.
    pub unit_bytes: u64,
    /// The length of a look.
    pub look_ns: u64,
    /// The number of looks.
    pub looks: u64,
    /// The limit of moves, in bytes a second.
    pub rate_bytes: u64,
    /// The price of slow memory.
    pub slow_price: Option<f64>,
    /// The sizes that were asked for.
    pub sizes: Vec<Tried>,
    /// Sizes from a part of the resident memory to all of it. Empty if the curve is not asked for.
    pub curve: Vec<Tried>,
}

impl TierTrial {
    /// Tries sizes of the fast tier on a selection.
    ///
    /// # Errors
    /// If the source cannot be read, or has nothing in the selection.
    pub fn new(source: &dyn Source, selection: &Selection, options: &TrialOptions) -> Result<Self, ReportError> {
        let selection = &selection.within_part(source.header());
        let evidence = Evidence::of(source, selection)?;
        let plan = Plan::new(source, selection)?;
        // A first replay with coarse units finds how much memory there is.
        let mut coarse = Memory::new(BLOCK_SIZE << 9, &[]);
        plan.replay(source, selection, &mut coarse, options.rate)?;
        let peak = coarse.totals.peak;
        let wants_curve = options.curve || options.fast.is_empty();
        let of_curve: &[u32] = if wants_curve { &CURVE } else { &[] };
        let asked = options.fast.iter().copied();
        let shares = of_curve.iter().map(|&share| FastSize::Share(f64::from(share) / 100.0));
        let sizes: Vec<u64> = asked.chain(shares).map(|size| size.bytes(peak)).collect();
        let unit = Plan::unit(coarse.totals.blocks);
        let mut memory = Memory::new(unit, &sizes);
        plan.replay(source, selection, &mut memory, options.rate)?;

        let totals = memory.totals;
        let placed = |served: Served| {
            let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
            let slow_share = share(served.all, totals.accesses);
            Placed {
                slow_share,
                late_slow_share: share(served.late, totals.late_accesses),
                modelled_time: options.slow_price.map(|price| 1.0 + (price - 1.0) * slow_share),
            }
        };
        let tried = |size: &Size| Tried {
            fast_bytes: size.bytes,
            fast_share: size.bytes as f64 / peak.max(1) as f64,
            first_touch: placed(size.first),
            isotherm: placed(size.moved),
            best: placed(size.best),
            promoted_bytes: size.promoted,
            demoted_bytes: size.demoted,
        };
        let (sizes, curve) = memory.sizes.split_at(options.fast.len());
        let unknown_share = if totals.resident > 0.0 { totals.unknown / totals.resident } else { 0.0 };
        let cut = source.cut_short();
        let mut warnings: Vec<String> = cut.into_iter().chain(evidence.warnings()).collect();
        if totals.accesses == 0.0 {
            warnings.push("nothing found an access, so that no share is known".into());
        }
        Ok(Self {
            from_ns: plan.time.0.as_nanos() as u64,
            to_ns: plan.time.1.as_nanos() as u64,
            warnings,
            notes: notes(&plan, unit, unknown_share, totals.early),
            targets: plan.targets,
            peak_resident_bytes: peak,
            unknown_share,
            accesses: totals.accesses,
            unit_bytes: unit,
            look_ns: (plan.recorded.as_nanos() as u64).checked_div(totals.looks).unwrap_or_default(),
            looks: totals.looks,
            rate_bytes: options.rate,
            slow_price: options.slow_price,
            sizes: sizes.iter().map(tried).collect(),
            curve: curve.iter().map(tried).collect(),
        })
    }

    /// Whether any access was found, so that shares are known.
    pub fn has_accesses(&self) -> bool {
        self.accesses > 0.0
    }

    /// Writes the trial.
    ///
    /// # Errors
    /// If `out` cannot be written to, or the picture cannot be drawn.
    pub fn write(&self, format: Format, options: &Options, out: &mut dyn Write) -> Result<(), ReportError> {
        let picture = || svg::draw(self, options.picture).standalone();
        match format {
            Format::Text => text::write(out, &options.terminal, self)?,
            Format::Json => writeln!(out, "{}", escape::json(self)?)?,
            Format::Svg => out.write_all(picture().as_bytes())?,
            Format::Png => out.write_all(&png::from_svg(&picture())?)?,
            Format::Html => html::page(self, options.picture, out)?,
        }
        out.flush()?;
        Ok(())
    }
}

/// What the model assumes of this recording.
fn notes(plan: &Plan, unit: u64, unknown_share: f64, early: u64) -> Vec<String> {
    let mut notes = vec![format!(
        "{} were there in the first look; first touch places them in the order of addresses, since it is not known in \
         which order they were touched",
        bytes(early)
    )];
    if plan.unsurveyed > 0 {
        notes.push(
            "without surveys it is not known which memory is there: all that is mapped counts as resident; record with \
             --survey auto"
                .into(),
        );
    }
    if unknown_share >= 0.005 {
        notes.push(format!(
            "it is not known of {} of the memory whether it is accessed; it counts as not accessed, and isotherm does \
             not move it",
            percent(unknown_share)
        ));
    }
    match plan.shared {
        Some(0) if plan.unsurveyed < 2 => {}
        Some(shared) if plan.unsurveyed < 2 => notes.push(format!(
            "memory that several targets map counts once for each of them: up to {} too much",
            bytes(shared)
        )),
        _ => notes.push(
            "memory that several targets map counts once for each of them; the recording does not tell how much that is"
                .into(),
        ),
    }
    if unit > BLOCK_SIZE {
        notes.push(format!("there is very much memory, so that it is placed in units of {}", bytes(unit)));
    }
    notes
}
