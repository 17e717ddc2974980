//! The regions of one snapshot as a picture: access rates by address, or the share that was touched if nothing was
//! sampled. With surveys, a strip below shows where the memory is: in memory, in swap, or nowhere.

use crate::bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use isotherm_core::rate::sampling_interval;
use isotherm_core::{AddrRange, Figures, units};

use super::heatmap::LANES;
use super::{Anchor, Drawing, Scale, fit};
use isotherm_record::Needs;

use crate::axis::{Axis, AxisResolution};
use crate::colour::{SWAPPED, UNOBSERVABLE, hex};
use crate::escape::sanitise;
use crate::extent::{Named, shown_name};
use crate::heatmap::LeftOut;
use crate::options::Picture;
use crate::outside::SwappedRange;
use crate::placement::{PlacedBytes, Placement};
use crate::regions::{Region, RegionOptions, TargetRegions};
use crate::source::{Accumulator, Piece, Seen, Share};
use crate::surveys::{LastSurveys, selected};
use crate::text::title::title_in;
use crate::{Measure, ReportError, Terminal};

/// A mapped piece of a region, or of memory in swap that no region covers.
struct Bar {
    named: Named,
    /// `None` without a region.
    share: Option<Share>,
    pages: Option<Figures>,
    /// Where the memory is. `None` if no survey tells.
    placement: Option<Placement>,
    tip: String,
}

impl Bar {
    /// The value of the bar and the share of it that could not be observed, 0 to 1 each.
    fn value(&self, measure: Measure) -> (f64, f64) {
        match self.pages.filter(|_| measure == Measure::Touched) {
            Some(pages) => {
                let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
                let observable = pages.present.saturating_sub(pages.unobservable);
                (share(pages.touched, observable).min(1.0), share(pages.unobservable, pages.present))
            }
            None => {
                let heat = |share: Share| Measure::heat_of(share.hz).into();
                (self.share.map_or(0.0, heat), 1.0 - self.share.map_or(1.0, |of| of.observed))
            }
        }
    }
}

/// A plot of the picture: its title, and its bars in the order of addresses.
struct TargetPlot {
    title: String,
    bars: Vec<Bar>,
    /// The bytes of its regions: in memory if surveys tell, or else mapped.
    bytes: u64,
}

/// The most bars of a target: several for each column of pixels.
const MOST_BARS: usize = 4000;

/// The targets of one snapshot.
pub(crate) struct RegionLines {
    options: RegionOptions,
    surveys: LastSurveys,
    /// The largest targets, in the order of the recording.
    targets: Vec<TargetPlot>,
    left_out: Option<LeftOut>,
    /// Whether a region was sampled.
    sampled: bool,
}

impl RegionLines {
    pub(crate) fn new(options: RegionOptions) -> Self {
        Self { options, surveys: LastSurveys::default(), targets: vec![], left_out: None, sampled: false }
    }

    /// Draws a plot for each of the largest targets, and says how many more there are.
    pub(crate) fn draw(&self, picture: Picture) -> Drawing {
        let width = f64::from(picture.width.max(420));
        let height = (f64::from(picture.height) / 3.0).max(100.0);
        let mut drawing = Drawing::new(width);
        let bars = || self.targets.iter().flat_map(|target| &target.bars);
        let surveyed = bars().any(|bar| bar.pages.is_some());
        let swap = bars().any(|bar| bar.placement.is_some_and(|of| of.swapped > Some(0.0)));
        let measure = if self.sampled || !surveyed { Measure::Rate } else { Measure::Touched };
        drawing.scale(
            &Scale { measure, unobservable: measure == Measure::Rate, swap, ..Scale::default() },
            width - 12.0,
            12.0,
        );
        let mut y = 44.0;
        for TargetPlot { title, bars, .. } in &self.targets {
            drawing.text(12.0, y + 14.0, Anchor::Start, "title", &fit(title, width * 0.8));
            draw_target(&mut drawing, bars, measure, y + 28.0, height);
            y += height + 100.0 + if surveyed { STRIP + 4.0 } else { 0.0 };
        }
        if let Some(left_out) = self.left_out {
            drawing.text(12.0, y + 14.0, Anchor::Start, "label", &left_out.text());
            y += 28.0;
        }
        drawing.height = y;
        drawing
    }
}

impl Accumulator for RegionLines {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS | Needs::SURVEYS
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Some(visit) = self.surveys.chosen(event) else { return Ok(()) };
        let last = self.surveys.before(&visit.row);
        let target = TargetRegions::of(visit, &self.options, last);
        self.sampled |= visit.row.target.regions.iter().any(|region| region.nr_samples > 0);
        let placed = last.map(|found| {
            let (sums, mapped) = selected(found, visit.address());
            format!(", {}", PlacedBytes::new(found.id, &sums, mapped).text())
        });
        let sampling = sampling_interval(visit.row.aggregation, visit.row.samples);
        let regions: BTreeMap<u64, &Region> = target.regions.iter().map(|region| (region.start, region)).collect();
        let region_of = |piece: Piece<'_>| {
            let (_, region) = regions.range(..=piece.range.start()).next_back()?;
            (piece.range.start() < region.end).then_some(*region)
        };
        let mut pieces: Vec<_> = visit.pieces().filter_map(|piece| Some((piece, region_of(piece)?))).collect();
        let mut swapped: Vec<_> = target.outside.iter().flat_map(|outside| &outside.swapped).collect();
        let count = pieces.len() + swapped.len();
        keep_largest(&mut pieces, |(piece, _)| piece.range.size());
        keep_largest(&mut swapped, |range| range.end - range.start);
        let drawn = match pieces.len() + swapped.len() {
            drawn if drawn < count => format!(", the {} largest parts drawn", units::count(drawn as u64)),
            _ => String::new(),
        };
        let title = format!(
            "{} at {} ({} regions{drawn}, sampling {}{})",
            title_in(target.id(), &target.info, 60, &Terminal::default()),
            units::nanoseconds(target.time_ns),
            units::count(target.regions.len() as u64),
            units::duration(sampling),
            placed.unwrap_or_default(),
        );
        let mut bars: Vec<Bar> = pieces
            .into_iter()
            .map(|(piece, region)| {
                let accessed = match piece.region.pages.filter(|_| piece.region.nr_samples == 0) {
                    Some(pages) => {
                        format!("touched {} of {}", units::bytes(pages.touched), units::bytes(pages.present))
                    }
                    None => {
                        let at_least = if region.is_saturated() { "at least " } else { "" };
                        let hz = units::hertz(region.access_hz);
                        format!("accessed at {at_least}{hz}")
                    }
                };
                let placed = region.present_bytes.map_or_else(String::new, |present| {
                    let (swapped, absent) = (region.swapped_bytes, region.absent_bytes);
                    format!(", {}", PlacedBytes { present, swapped: swapped.into(), absent }.text())
                });
                let tip = format!(
                    "{:x}-{:x} {}, {accessed}, age {}{placed}",
                    region.start,
                    region.end,
                    shown_name(&piece.mapping.label()),
                    units::nanoseconds(region.age_ns)
                );
                let of = |bytes: u64| bytes as f64 / region.mapped_bytes.max(1) as f64;
                let placement = region
                    .present_bytes
                    .map(|present| Placement { present: of(present), swapped: region.swapped_bytes.map(of) });
                let named = Named { range: piece.range, name: piece.mapping.label() };
                let share = Some(Share::of(piece.region, visit.row.samples, visit.row.aggregation));
                Bar { named, share, pages: piece.region.pages, placement, tip }
            })
            .collect();
        bars.extend(swapped.into_iter().filter_map(in_swap));
        bars.sort_by_key(|bar| bar.named.range.start());
        let bytes = target.regions.iter().map(|region| region.present_bytes.unwrap_or(region.mapped_bytes)).sum();
        self.targets.push(TargetPlot { title, bars, bytes });
        if self.targets.len() > LANES
            && let Some(least) = (0..self.targets.len()).rev().min_by_key(|&nth| self.targets[nth].bytes)
        {
            let left_out = LeftOut::of(std::iter::once(self.targets.remove(least).bytes));
            self.left_out = left_out.map(|left_out| left_out.and(self.left_out));
        }
        Ok(())
    }
}

/// Keeps [`MOST_BARS`] of the parts, the largest.
fn keep_largest<T>(parts: &mut Vec<T>, size: impl Fn(&T) -> u64) {
    if parts.len() > MOST_BARS {
        parts.select_nth_unstable_by_key(MOST_BARS, |part| Reverse(size(part)));
        parts.truncate(MOST_BARS);
    }
}

/// The bar of memory in swap that no region covers.
fn in_swap(range: &SwappedRange) -> Option<Bar> {
    let SwappedRange { start, end, swapped_bytes, absent_bytes, name } = range;
    let named = Named { range: AddrRange::new(*start, *end)?, name: name.clone() };
    let placed = PlacedBytes { present: 0, swapped: Bytes::exact(*swapped_bytes), absent: Some(*absent_bytes) };
    let swapped = *swapped_bytes as f64 / (end - start) as f64;
    Some(Bar {
        named,
        share: None,
        pages: None,
        placement: Some(Placement { present: 0.0, swapped: Some(swapped) }),
        tip: format!("{start:x}-{end:x} {name}, {}", placed.text()),
    })
}

const LEFT: f64 = 56.0;
const GAP: f64 = 10.0;
/// The height of the strip that shows where the memory is.
const STRIP: f64 = 12.0;

/// Draws a target.
fn draw_target(drawing: &mut Drawing, bars: &[Bar], measure: Measure, y: f64, height: f64) {
    let width = drawing.width - LEFT - 16.0;
    let mapped: Vec<Named> = bars.iter().map(|bar| bar.named.clone()).collect();
    // Each area is wide enough for its start address.
    let fineness = AxisResolution { rows: 1000, rows_of_area: 100, areas: 6, group: 1 };
    let mut axis = Axis::new(&mapped, fineness);
    if axis.areas.is_empty() {
        return;
    }
    let available = width - GAP * (axis.areas.len() - 1) as f64;
    let parts = shares(&axis, 110.0 / available);
    let (title, ticks) = match measure {
        Measure::Rate => ("Hz", [(0.0, "0")].into_iter().chain(measure.ticks()).collect()),
        Measure::Touched | Measure::IdleTime => {
            ("", vec![(0.0, "0"), (0.25, ""), (0.5, "0.5"), (0.75, ""), (1.0, "1")])
        }
    };
    for (value, label) in ticks {
        let at = y + height * (1.0 - value);
        drawing.line((LEFT, at), (LEFT + width, at), "grid");
        drawing.text(LEFT - 7.0, at + 4.0, Anchor::End, "label", label);
    }
    drawing.text(LEFT - 7.0, y + 4.0, Anchor::End, "label", title);
    let surveyed = bars.iter().any(|bar| bar.placement.is_some());
    // What stands below the plot.
    let below = y + height + if surveyed { STRIP + 4.0 } else { 0.0 };
    let mut x = LEFT;
    for (i, (area, part)) in axis.areas.drain(..).zip(parts).enumerate() {
        let wide = available * part;
        let across = |addr: u64| x + area.offset_of(addr) as f64 / area.bytes as f64 * wide;
        if i > 0 {
            drawing.rect((x - GAP, y), (GAP, height), r#"class="paper""#);
        }
        for bar in bars.iter().filter(|bar| (area.start()..area.end()).contains(&bar.named.range.start())) {
            let range = bar.named.range;
            let (from, to) = (across(range.start()), across(range.end() - 1) + wide / area.bytes as f64);
            let fill = |rgb| format!(r#"fill="{}""#, hex(rgb));
            if let Some(placement) = bar.placement {
                draw_placement(drawing, placement, (from, y + height + 3.0), to - from, &bar.tip);
            }
            if bar.share.is_none() {
                continue;
            }
            let (rate, dark) = bar.value(measure);
            drawing.rect((from, y), (to - from, height * dark), &(fill(UNOBSERVABLE) + r#" fill-opacity="0.45""#));
            // Cold memory is a thin line at the bottom.
            let tall = (height * rate).max(2.0);
            drawing.rect_with_tip((from, y + height - tall), (to - from, tall), &fill(measure.colour(rate)), &bar.tip);
        }
        drawing.line((x, y + height), (x + wide, y + height), "axis");
        let size = if wide > 200.0 { format!(", {}", units::bytes(area.bytes)) } else { String::new() };
        drawing.text(x, below + 30.0, Anchor::Start, "label", &format!("{:#x}{size}", area.start()));
        for named in runs(&area.mapped) {
            let (from, to) = (across(named.range.start()), across(named.range.end() - 1));
            if to - from > 40.0 {
                let name = shown_name(&named.name);
                let base = if name.starts_with('/') { name.rsplit('/').next().unwrap_or(name) } else { name };
                let text = fit(&sanitise(base), to - from - 4.0);
                drawing.text((from + to) / 2.0, below + 15.0, Anchor::Middle, "name", &text);
                drawing.line((from, below), (from, below + 5.0), "axis");
            }
        }
        x += wide + GAP;
    }
}

/// Draws where the memory of a bar is, in parts: in memory, in swap, absent.
fn draw_placement(drawing: &mut Drawing, placement: Placement, (x, y): (f64, f64), width: f64, tip: &str) {
    let in_memory = width * placement.present.min(1.0);
    let swapped = width * placement.swapped.unwrap_or(0.0).min(1.0 - placement.present.min(1.0));
    drawing.rect_with_tip((x, y), (width, STRIP), r#"class="frame""#, tip);
    drawing.rect_with_tip((x, y), (in_memory, STRIP), r#"class="kept""#, tip);
    let fill = format!(r#"fill="{}""#, hex(SWAPPED));
    drawing.rect_with_tip((x + in_memory, y), (swapped, STRIP), &fill, tip);
}

/// The share of the width of each area: in proportion to its size, but at least `least`.
fn shares(axis: &Axis, least: f64) -> Vec<f64> {
    let total = axis.bytes().max(1) as f64;
    let least = least.min(1.0 / axis.areas.len() as f64);
    let wide: Vec<f64> = axis.areas.iter().map(|area| (area.bytes as f64 / total).max(least)).collect();
    let spare: f64 = wide.iter().map(|w| w - least).sum();
    let over = wide.iter().sum::<f64>() - 1.0;
    wide.iter().map(|w| if spare > 0.0 { w - over * (w - least) / spare } else { *w }).collect()
}

/// The pieces, with neighbours of the same name joined.
fn runs(mapped: &[Named]) -> Vec<Named> {
    let mut runs: Vec<Named> = vec![];
    for named in mapped {
        match runs.last_mut() {
            Some(last) if shown_name(&last.name) == shown_name(&named.name) => {
                if let Some(range) = isotherm_core::AddrRange::new(last.range.start(), named.range.end()) {
                    last.range = range;
                }
            }
            _ => runs.push(named.clone()),
        }
    }
    runs
}
