//! The summary as a picture: a bar for each mapping name, with parts for hot, warm, cold, unobservable and unknown
//! memory and for that in swap. With surveys, columns tell swapped and absent bytes.

use isotherm_core::units;

use super::{Anchor, Drawing, fit};
use crate::colour::{SWAPPED, UNKNOWN, UNOBSERVABLE, hex, of_rate};
use crate::facts::facts;
use crate::options::Picture;
use crate::summary::{Summary, Temperature, folded};

const NAMES: f64 = 220.0;
const FIGURES: f64 = 190.0;
const STEP: f64 = 26.0;
/// The width of the column of swapped or of absent bytes, and of both.
const COLUMN: f64 = 70.0;
const SURVEYED: f64 = 2.0 * COLUMN;

/// Draws the bars, the most hot memory first.
pub(crate) fn draw(summary: &Summary, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(560));
    let mut drawing = Drawing::new(width);
    let facts = facts(summary);
    drawing.text(12.0, 26.0, Anchor::Start, "title", &fit(facts.first().map_or("", |fact| fact), width * 0.8));
    let mut x = NAMES;
    let parts = [
        ("hot", of_rate(0.9)),
        ("warm", of_rate(0.5)),
        ("cold", of_rate(0.0)),
        ("not observable", UNOBSERVABLE),
        ("unknown", UNKNOWN),
        ("in swap", SWAPPED),
    ];
    let [unknown, swap] = [summary.total.unknown_bytes > 0, summary.total.surveyed.swapped_bytes > Some(0)];
    let shown = [true, true, true, true, unknown, swap];
    for ((name, colour), _) in parts.into_iter().zip(shown).filter(|(_, shown)| *shown) {
        drawing.rect((x, 42.0), (12.0, 12.0), &format!(r#"fill="{}""#, hex(colour)));
        drawing.text(x + 18.0, 52.0, Anchor::Start, "label", name);
        x += 36.0 + super::text_width(name);
    }
    let (shown, others) = folded(&summary.mappings, 20, 0.005);
    let bars: Vec<&Temperature> = shown.into_iter().chain(others.as_ref().map(|(_, rest)| rest)).collect();
    let length = |t: &Temperature| t.size_bytes.saturating_add(t.surveyed.swapped_bytes.unwrap_or(0)).max(1) as f64;
    let largest = bars.iter().map(|t| length(t)).fold(1.0, f64::max);
    let surveyed = summary.total.surveyed.resident_bytes.is_some();
    let columns = if surveyed { SURVEYED } else { 0.0 };
    let max_width = width - NAMES - FIGURES - columns - 12.0;
    if surveyed {
        drawing.text(width - COLUMN - 12.0, 52.0, Anchor::End, "label", "swapped");
        drawing.text(width - 12.0, 52.0, Anchor::End, "label", "absent");
    }
    let mut y = 68.0;
    for t in bars.into_iter().chain([&summary.total]) {
        let total = std::ptr::eq(t, &summary.total);
        if total {
            y += 8.0;
            drawing.line((12.0, y - 6.0), (width - 12.0, y - 6.0), "grid");
        }
        drawing.text(NAMES - 10.0, y + 15.0, Anchor::End, "name", &fit(&t.name, NAMES - 22.0));
        // The bar of the total has a scale of its own.
        let scale = max_width / if total { length(t) } else { largest };
        let mut x = NAMES;
        let swapped = t.surveyed.swapped_bytes.unwrap_or(0);
        let sizes = [t.hot_bytes, t.warm_bytes, t.cold_bytes, t.unobservable_bytes, t.unknown_bytes, swapped];
        for ((name, colour), bytes) in parts.into_iter().zip(sizes) {
            let long = bytes as f64 * scale;
            let tip = format!("{}: {} {name}", t.name, units::bytes(bytes));
            if bytes > 0 {
                drawing.rect_with_tip((x, y), (long, STEP - 7.0), &format!(r#"fill="{}""#, hex(colour)), &tip);
            }
            x += long;
        }
        let idle = t.cold_for_ns.map_or_else(String::new, |ns| format!(", cold for {}", units::nanoseconds(ns)));
        drawing.text(x + 8.0, y + 14.0, Anchor::Start, "label", &(units::bytes(t.size_bytes) + &idle));
        if surveyed {
            let figure = |bytes: Option<u64>| bytes.map_or_else(|| "–".into(), units::table_bytes);
            let [swapped, absent] = [t.surveyed.swapped_bytes, t.surveyed.absent_bytes].map(figure);
            drawing.text(width - COLUMN - 12.0, y + 14.0, Anchor::End, "label", &swapped);
            drawing.text(width - 12.0, y + 14.0, Anchor::End, "label", &absent);
        }
        y += STEP;
    }
    let note = format!("hot: {}; warm: in fewer; cold: in none", summary.intervals.hot());
    drawing.text(12.0, y + 14.0, Anchor::Start, "label", &fit(&note, width - 24.0));
    drawing.height = y + 26.0;
    drawing
}
