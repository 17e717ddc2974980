//! The trial as a picture: the share of the slow tier by the size of the fast one, a curve for each placement.

use isotherm_core::units::{bytes, percent};

use super::text::{foot, what};
use super::{TierTrial, Tried};
use crate::options::Picture;
use crate::svg::{Anchor, Drawing, fit};
use crate::ticks;

/// The left edge of the plot. The labels of the vertical axis are left of it.
const LEFT: f64 = 64.0;

type Share = fn(&Tried) -> f64;

/// The placements: name, class of the line, share.
const PLACEMENTS: [(&str, &str, Share); 3] = [
    ("first touch", "second", |tried| tried.first_touch.slow_share),
    ("isotherm", "curve", |tried| tried.isotherm.slow_share),
    ("best with hindsight", "third", |tried| tried.best.slow_share),
];

/// Draws the curve, with the sizes that were asked for.
pub(super) fn draw(trial: &TierTrial, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) * 0.6).max(160.0);
    let mut drawing = Drawing::new(width);
    let title = "Share of the accesses that the slow tier serves, by the size of the fast tier";
    drawing.text(12.0, 28.0, Anchor::Start, "title", &fit(title, width * 0.8));
    drawing.text(12.0, 48.0, Anchor::Start, "label", &fit(&what(trial), width - 24.0));
    let (x, y, w) = (LEFT, 84.0, width - LEFT - 24.0);
    let mut at = x;
    for (name, class, _) in PLACEMENTS {
        drawing.line((at, 70.0), (at + 24.0, 70.0), class);
        drawing.text(at + 30.0, 74.0, Anchor::Start, "name", name);
        at += 60.0 + crate::svg::text_width(name);
    }
    drawing.rect((x, y), (w, height), r#"class="frame""#);
    let mut tried: Vec<&Tried> = trial.sizes.iter().chain(&trial.curve).collect();
    tried.sort_by_key(|tried| tried.fast_bytes);
    let right = tried.iter().map(|tried| tried.fast_bytes).chain([trial.peak_resident_bytes]).max().unwrap_or(0).max(1);
    let across = |size: u64| x + w * size as f64 / right as f64;
    let down = |share: f64| y + height * (1.0 - share.clamp(0.0, 1.0));
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        drawing.line((x, down(share)), (x + w, down(share)), "grid");
        drawing.text(x - 7.0, down(share) + 4.0, Anchor::End, "label", &percent(share));
    }
    let bottom = y + height;
    drawing.line((x, bottom), (x + w, bottom), "axis");
    for (size, label) in ticks::bytes(right, (w / 90.0).max(1.0) as usize) {
        drawing.line((across(size), bottom), (across(size), bottom + 4.0), "axis");
        drawing.text(across(size), bottom + 17.0, Anchor::Middle, "label", &label);
    }
    if trial.has_accesses() {
        for (name, class, share) in PLACEMENTS {
            // Without any fast memory, the slow tier serves all.
            let points = [(0, 1.0)].into_iter().chain(tried.iter().map(|tried| (tried.fast_bytes, share(tried))));
            let points: Vec<(f64, f64)> = points.map(|(size, share)| (across(size), down(share))).collect();
            points.windows(2).for_each(|pair| drawing.line(pair[0], pair[1], class));
            for (&(px, py), tried) in points.iter().skip(1).zip(&tried) {
                let tip = format!("{}: {} by {name}", bytes(tried.fast_bytes), percent(share(tried)));
                drawing.rect_with_tip((px - 2.5, py - 2.5), (5.0, 5.0), &format!(r#"class="{class}""#), &tip);
            }
        }
    }
    for asked in &trial.sizes {
        let at = across(asked.fast_bytes);
        drawing.line((at, y), (at, bottom), "limit");
        let (from, anchor) = if at > x + w * 0.8 { (at - 5.0, Anchor::End) } else { (at + 5.0, Anchor::Start) };
        drawing.text(from, y + 14.0, anchor, "limit-label", &bytes(asked.fast_bytes));
    }
    let mut below = bottom + 42.0;
    let lines = trial.sentences().into_iter().map(|text| ("name", text));
    let others = trial.notes.iter().chain(&trial.warnings).cloned().chain([foot(trial)]).map(|text| ("label", text));
    for (class, text) in lines.chain(others) {
        drawing.text(12.0, below, Anchor::Start, class, &fit(&text, width - 24.0));
        below += 18.0;
    }
    drawing.height = below;
    drawing
}
