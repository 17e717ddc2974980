//! The regions of one snapshot as a picture: access rates by address.

use isotherm_core::units;

use super::{Anchor, Drawing, fit};
use crate::ReportError;
use crate::axis::{Axis, AxisResolution};
use crate::colour::{UNOBSERVABLE, hex, of_rate};
use crate::escape::sanitise;
use crate::extent::{Named, shown_name};
use crate::options::Picture;
use crate::regions::{RegionOptions, TargetRegions};
use crate::source::{Share, View, Visit};
use crate::text::target_title;

/// A mapped piece of a region.
struct Bar {
    named: Named,
    share: Share,
    tip: String,
}

/// The targets of one snapshot.
pub(crate) struct RegionLines {
    options: RegionOptions,
    targets: Vec<(String, Vec<Bar>)>,
}

impl RegionLines {
    pub(crate) fn new(options: RegionOptions) -> Self {
        Self { options, targets: vec![] }
    }

    /// Draws a plot for each target.
    pub(crate) fn draw(&self, picture: Picture) -> String {
        let width = f64::from(picture.width.max(420));
        let height = (f64::from(picture.height) / 3.0).max(100.0);
        let mut drawing = Drawing::new(width);
        drawing.scale(crate::Measure::Rate, width - 12.0, 14.0);
        let mut y = 36.0;
        for (title, bars) in &self.targets {
            drawing.text(12.0, y + 14.0, Anchor::Start, "title", &fit(title, width * 0.8));
            draw_target(&mut drawing, bars, y + 28.0, height);
            y += height + 100.0;
        }
        drawing.height = y;
        drawing.standalone()
    }
}

impl View for RegionLines {
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if !visit.chosen {
            return Ok(());
        }
        let target = TargetRegions::of(visit, &self.options);
        let title = format!(
            "{} at {} ({} regions)",
            target_title(target.id(), &target.info),
            units::nanoseconds(target.time_ns),
            units::count(target.regions.len() as u64)
        );
        let bars = visit
            .pieces()
            .filter_map(|piece| {
                let region = target.regions.iter().find(|r| (r.start..r.end).contains(&piece.range.start()))?;
                let tip = format!(
                    "{:x}-{:x} {}, rate {}, age {}",
                    region.start,
                    region.end,
                    shown_name(&piece.mapping.label()),
                    units::percent(region.access_rate),
                    units::nanoseconds(region.age_ns)
                );
                let named = Named { range: piece.range, name: piece.mapping.label() };
                Some(Bar { named, share: Share::of(piece.region, visit.row.samples), tip })
            })
            .collect();
        self.targets.push((title, bars));
        Ok(())
    }
}

const LEFT: f64 = 56.0;
const GAP: f64 = 10.0;

fn draw_target(drawing: &mut Drawing, bars: &[Bar], y: f64, height: f64) {
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
    for (value, label) in [(0.0, "0"), (0.25, ""), (0.5, "0.5"), (0.75, ""), (1.0, "1")] {
        let at = y + height * (1.0 - value);
        drawing.line((LEFT, at), (LEFT + width, at), "grid");
        drawing.text(LEFT - 7.0, at + 4.0, Anchor::End, "label", label);
    }
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
            let dark = 1.0 - bar.share.observed;
            drawing.rect((from, y), (to - from, height * dark), &(fill(UNOBSERVABLE) + r#" fill-opacity="0.45""#));
            let rate = bar.share.rate().unwrap_or(0.0);
            // Cold memory is a thin line at the bottom.
            let tall = (height * rate).max(2.0);
            drawing.rect_with_tip((from, y + height - tall), (to - from, tall), &fill(of_rate(rate)), &bar.tip);
        }
        drawing.line((x, y + height), (x + wide, y + height), "axis");
        let size = if wide > 200.0 { format!(", {}", units::bytes(area.bytes)) } else { String::new() };
        drawing.text(x, y + height + 30.0, Anchor::Start, "label", &format!("{:#x}{size}", area.start()));
        for named in runs(&area.mapped) {
            let (from, to) = (across(named.range.start()), across(named.range.end() - 1));
            if to - from > 40.0 {
                let name = shown_name(&named.name);
                let base = if name.starts_with('/') { name.rsplit('/').next().unwrap_or(name) } else { name };
                let text = fit(&sanitise(base), to - from - 4.0);
                drawing.text((from + to) / 2.0, y + height + 15.0, Anchor::Middle, "name", &text);
                drawing.line((from, y + height), (from, y + height + 5.0), "axis");
            }
        }
        x += wide + GAP;
    }
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
            Some(last) if last.name == named.name => {
                if let Some(range) = isotherm_core::AddrRange::new(last.range.start(), named.range.end()) {
                    last.range = range;
                }
            }
            _ => runs.push(named.clone()),
        }
    }
    runs
}
