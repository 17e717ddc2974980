//! The summary as a picture: a bar for each group if there are several, and for each mapping name, with parts for hot,
//! warm, cold, unobservable and unknown memory and for that in swap. With surveys, columns tell swapped and absent
//! bytes.

use crate::bytes::Bytes;
use isotherm_core::units;

use super::{Anchor, BAR_STEP, Drawing, fit};
use crate::colour::{Rgb, SWAPPED, UNKNOWN, UNOBSERVABLE, hex, of_rate};
use crate::facts::facts;
use crate::groups::GroupBy;
use crate::options::Picture;
use crate::summary::{GroupTemperature, Summary, Temperature, folded};

const NAMES: f64 = 220.0;
const FIGURES: f64 = 190.0;
/// The width of the column of swapped or of absent bytes, and of both.
const COLUMN: f64 = 70.0;
const SURVEYED: f64 = 2.0 * COLUMN;
/// The number of bars of groups, and of mapping names.
const MOST: usize = 20;

/// Draws the bars in the order of the summary.
pub(crate) fn draw(summary: &Summary, picture: Picture) -> Drawing {
    let mut bars = Bars::new(summary, picture, 68.0);
    let facts = facts(summary);
    let title = fit(facts.first().map_or("", |fact| fact), bars.width() * 0.8);
    bars.drawing.text(12.0, 26.0, Anchor::Start, "title", &title);
    bars.legend(42.0);
    let grouped = summary.groups.len() > 1;
    if grouped {
        bars.groups();
    }
    if !grouped || summary.group_by != GroupBy::Mapping {
        if grouped {
            bars.heading("mapping, means over all of the time");
        }
        bars.mappings();
    }
    bars.total();
    summary.total.surveyed.remarks().iter().for_each(|text| bars.note(text));
    bars.end()
}

/// Draws the bars of the groups.
pub(crate) fn draw_groups(summary: &Summary, picture: Picture) -> Drawing {
    let mut bars = Bars::new(summary, picture, 32.0);
    bars.legend(6.0);
    bars.groups();
    bars.end()
}

/// Bars, one below the other.
struct Bars<'a> {
    drawing: Drawing,
    summary: &'a Summary,
    y: f64,
}

impl<'a> Bars<'a> {
    fn new(summary: &'a Summary, picture: Picture, y: f64) -> Self {
        Self { drawing: Drawing::new(f64::from(picture.width.max(560))), summary, y }
    }

    fn width(&self) -> f64 {
        self.drawing.width
    }

    fn is_surveyed(&self) -> bool {
        !self.summary.total.surveyed.resident_bytes.is_unknown()
    }

    /// What the colours mean, and the titles of columns.
    fn legend(&mut self, y: f64) {
        let total = &self.summary.total;
        let mut x = NAMES;
        let [unknown, swap] = [total.unknown_bytes > 0, !total.surveyed.swapped_bytes.is_zero()];
        let shown = [true, true, true, true, unknown, swap];
        for ((name, colour), _) in parts().into_iter().zip(shown).filter(|(_, shown)| *shown) {
            x = self.drawing.key((x, y), &format!(r#"fill="{}""#, hex(colour)), name);
        }
        if self.is_surveyed() {
            let width = self.width();
            self.drawing.text(width - COLUMN - 12.0, y + 10.0, Anchor::End, "label", "swapped");
            self.drawing.text(width - 12.0, y + 10.0, Anchor::End, "label", "absent");
        }
    }

    fn heading(&mut self, by: &str) {
        self.drawing.text(12.0, self.y + 14.0, Anchor::Start, "label", &format!("by {by}"));
        self.y += 22.0;
    }

    /// The groups. Their sizes are means over their lives, so that those that are left out have no sum.
    fn groups(&mut self) {
        let (by, groups) = (self.summary.group_by, &self.summary.groups);
        self.heading(&format!("{}, means over the life of each", by.word()));
        let (shown, rest) = groups.split_at(groups.len().min(MOST));
        let bars: Vec<Temperature> = shown.iter().map(|group| listed(group, by)).collect();
        let largest = bars.iter().map(length).fold(1.0, f64::max);
        for (bar, group) in bars.iter().zip(shown) {
            let several = by != GroupBy::Mapping && group.group.processes > 1;
            let processes = || format!(", {} processes", units::count(group.group.processes as u64));
            self.bar(bar, largest, &if several { processes() } else { String::new() });
        }
        if let Some(most) = rest.iter().map(|group| group.total.size_bytes).max() {
            let text = format!("{} more, {} at most each", units::count(rest.len() as u64), units::bytes(most));
            self.drawing.text(NAMES, self.y + 13.0, Anchor::Start, "label", &text);
            self.y += BAR_STEP;
        }
        self.y += 8.0;
    }

    fn mappings(&mut self) {
        let (shown, others) = folded(&self.summary.mappings, MOST, 0.005);
        let bars: Vec<&Temperature> = shown.into_iter().chain(others.as_ref().map(|(_, rest)| rest)).collect();
        let largest = bars.iter().map(|bar| length(bar)).fold(1.0, f64::max);
        bars.into_iter().for_each(|bar| self.bar(bar, largest, ""));
    }

    /// The bar of all memory, which has a scale of its own.
    fn total(&mut self) {
        self.y += 8.0;
        let (y, width, total) = (self.y, self.width(), &self.summary.total);
        self.drawing.line((12.0, y - 6.0), (width - 12.0, y - 6.0), "grid");
        self.bar(total, length(total), "");
    }

    /// A bar as long as its part of `largest`.
    fn bar(&mut self, t: &Temperature, largest: f64, note: &str) {
        let (y, width, surveyed) = (self.y, self.width(), self.is_surveyed());
        let drawing = &mut self.drawing;
        drawing.text(NAMES - 10.0, y + 15.0, Anchor::End, "name", &fit(&t.name, NAMES - 22.0));
        let columns = if surveyed { SURVEYED } else { 0.0 };
        let scale = (width - NAMES - FIGURES - columns - 12.0) / largest;
        let swapped = t.surveyed.swapped_bytes.least();
        let sizes = [t.hot_bytes, t.warm_bytes, t.cold_bytes, t.unobservable_bytes, t.unknown_bytes, swapped];
        let parts = parts().into_iter().zip(sizes).map(|((name, colour), bytes)| {
            (bytes as f64 * scale, colour, format!("{}: {} {name}", t.name, units::bytes(bytes)))
        });
        let x = drawing.stacked((NAMES, y), parts);
        let idle = t.cold_for_ns.map_or_else(String::new, |ns| format!(", cold for {}", units::nanoseconds(ns)));
        let figures = units::bytes(t.size_bytes) + note + &idle;
        drawing.text(x + 8.0, y + 14.0, Anchor::Start, "label", &figures);
        if surveyed {
            let figure = |bytes: Bytes| bytes.cell().unwrap_or_else(|| "–".into());
            let [swapped, absent] = [t.surveyed.swapped_bytes, t.surveyed.absent_bytes].map(figure);
            drawing.text(width - COLUMN - 12.0, y + 14.0, Anchor::End, "label", &swapped);
            drawing.text(width - 12.0, y + 14.0, Anchor::End, "label", &absent);
        }
        self.y += BAR_STEP;
    }

    fn note(&mut self, text: &str) {
        let text = fit(text, self.width() - 24.0);
        self.drawing.text(12.0, self.y + 14.0, Anchor::Start, "label", &text);
        self.y += 18.0;
    }

    fn end(mut self) -> Drawing {
        self.note(&self.summary.temperatures());
        self.drawing.height = self.y + 8.0;
        self.drawing
    }
}

/// The parts of a bar, from the left to the right.
fn parts() -> [(&'static str, Rgb); 6] {
    [
        ("hot", of_rate(0.9)),
        ("warm", of_rate(0.5)),
        ("cold", of_rate(0.0)),
        ("not observable", UNOBSERVABLE),
        ("unknown", UNKNOWN),
        ("in swap", SWAPPED),
    ]
}

/// The bytes of a bar.
fn length(t: &Temperature) -> f64 {
    t.size_bytes.saturating_add(t.surveyed.swapped_bytes.least()).max(1) as f64
}

/// The memory of a group under a name that tells it from the others.
fn listed(group: &GroupTemperature, by: GroupBy) -> Temperature {
    Temperature { name: group.group.listed(by).into(), ..group.total.clone() }
}
