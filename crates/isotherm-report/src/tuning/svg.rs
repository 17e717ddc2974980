//! The result as a picture: for each parameter the score, the runtime and the memory along its range, and for two
//! parameters a map of the score.

use super::text::{baseline, head};
use super::{Changed, Expected, Profile, Tuning, percent, signed};
use crate::colour::{hex, of_rate};
use crate::options::Picture;
use crate::svg::{Anchor, Drawing, fit};

/// The left edge of plots. Labels of the vertical axis are left of it.
const LEFT: f64 = 64.0;

/// The space between two plots.
const GAP: f64 = 34.0;

/// A figure that is plotted: its title, its value, the bounds of what is believed, and the estimate.
struct Figure {
    title: &'static str,
    value: fn(&Changed) -> f64,
    between: fn(&Expected) -> Option<[f64; 2]>,
    estimate: fn(&Expected) -> Option<f64>,
    shown: fn(f64) -> String,
    /// The lowest value that is shown, so that scores of what is worthless do not hide the others.
    least: f64,
}

const FIGURES: [Figure; 3] = [
    Figure {
        title: "score",
        value: |changed| changed.score,
        between: |_| None,
        estimate: |_| None,
        shown: signed,
        least: -40.0,
    },
    Figure {
        title: "runtime",
        value: |changed| changed.runtime,
        between: |expected| Some(expected.runtime_between),
        estimate: |expected| expected.estimated_runtime,
        shown: percent,
        least: f64::NEG_INFINITY,
    },
    Figure {
        title: "resident memory",
        value: |changed| changed.rss,
        between: |expected| Some(expected.rss_between),
        estimate: |expected| expected.estimated_rss,
        shown: percent,
        least: f64::NEG_INFINITY,
    },
];

/// Draws the landscape.
pub(super) fn draw(tuning: &Tuning, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) * 0.22).max(90.0);
    let mut drawing = Drawing::new(width);
    drawing.text(12.0, 28.0, Anchor::Start, "title", &fit(&head(tuning), width * 0.8));
    let facts = [Some(format!("best: {}", tuning.objective)), baseline(tuning)];
    let mut y = 48.0;
    for fact in facts.into_iter().flatten() {
        drawing.text(12.0, y, Anchor::Start, "label", &fit(&fact, width - 24.0));
        y += 18.0;
    }
    let mut x = 12.0;
    let legend = [("curve", "expected by all runs"), ("third", "estimated from recordings"), ("second", "one run")];
    for (class, name) in legend {
        match class {
            "second" => drawing.rect((x + 10.0, y - 2.5), (5.0, 5.0), r#"class="second""#),
            _ => drawing.line((x, y), (x + 24.0, y), class),
        }
        drawing.text(x + 30.0, y + 4.0, Anchor::Start, "name", name);
        x += 60.0 + crate::svg::text_width(name);
    }
    y += 36.0;
    // Parameters side by side, figures below one another.
    let count = tuning.profiles.len().max(1) as f64;
    let each = (width - 24.0) / count;
    for (nth, figure) in FIGURES.iter().enumerate() {
        let top = y + nth as f64 * (height + GAP);
        for profile in &tuning.profiles {
            let left = LEFT + profile.parameter as f64 * each;
            let is_last = nth + 1 == FIGURES.len();
            plot(&mut drawing, tuning, profile, figure, (left, top), (each - LEFT - 8.0, height), is_last);
        }
    }
    y += FIGURES.len() as f64 * (height + GAP) + 16.0;
    if let Some(side) = map(&mut drawing, tuning, (LEFT, y), (width - LEFT - 24.0).min(420.0)) {
        y += side + 56.0;
    }
    for sentence in tuning.sentences() {
        drawing.text(12.0, y, Anchor::Start, "name", &fit(&sentence, width - 24.0));
        y += 18.0;
    }
    for note in &tuning.notes {
        drawing.text(12.0, y, Anchor::Start, "label", &fit(note, width - 24.0));
        y += 18.0;
    }
    drawing.height = y + 6.0;
    drawing
}

/// One figure along the range of one parameter.
fn plot(
    drawing: &mut Drawing,
    tuning: &Tuning,
    profile: &Profile,
    figure: &Figure,
    (x, y): (f64, f64),
    (w, h): (f64, f64),
    has_axis: bool,
) {
    let parameter = profile.parameter;
    let value = |changed: &Changed| (figure.value)(changed).max(figure.least);
    let along = profile.points.iter().flat_map(|point| {
        let between = (figure.between)(point).into_iter().flatten();
        between.chain((figure.estimate)(point)).chain([value(&point.changed)])
    });
    let all: Vec<f64> = along.chain(tuning.runs.iter().map(|run| value(&run.changed))).chain([0.0]).collect();
    let (low, high) = all.iter().fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    let span = (high - low).max(1e-9);
    let across = |at: f64| x + w * at;
    let down = |value: f64| y + h * (1.0 - (value - low) / span);
    drawing.rect((x, y), (w, h), r#"class="frame""#);
    drawing.text(x, y - 6.0, Anchor::Start, "name", figure.title);
    for value in [low, 0.0, high] {
        // Labels at the same place hide one another.
        if value == 0.0 || (down(value) - down(0.0)).abs() > 12.0 {
            drawing.line((x, down(value)), (x + w, down(value)), if value == 0.0 { "axis" } else { "grid" });
            drawing.text(x - 7.0, down(value) + 4.0, Anchor::End, "label", &(figure.shown)(value));
        }
    }
    for pair in profile.points.windows(2) {
        let [a, b] = pair else { continue };
        if let (Some([a_low, a_high]), Some([b_low, b_high])) = ((figure.between)(a), (figure.between)(b)) {
            let (low, high) = ((a_low + b_low) / 2.0, (a_high + b_high) / 2.0);
            let size = (across(b.at) - across(a.at), down(low) - down(high));
            drawing.rect((across(a.at), down(high)), size, r#"class="band""#);
        }
    }
    for pair in profile.points.windows(2) {
        let [a, b] = pair else { continue };
        if let (Some(first), Some(second)) = ((figure.estimate)(a), (figure.estimate)(b)) {
            drawing.line((across(a.at), down(first)), (across(b.at), down(second)), "third");
        }
        let (first, second) = (value(&a.changed), value(&b.changed));
        drawing.line((across(a.at), down(first)), (across(b.at), down(second)), "curve");
    }
    for run in &tuning.runs {
        let at = (across(run.at[parameter]) - 2.5, down(value(&run.changed)) - 2.5);
        let tip = format!("{}: {}", run.shown.join(", "), (figure.shown)((figure.value)(&run.changed)));
        drawing.rect_with_tip(at, (5.0, 5.0), r#"class="second""#, &tip);
    }
    if let Some(best) = &tuning.best {
        let at = across(best.at[parameter]);
        drawing.line((at, y), (at, y + h), "limit");
        if figure.title == "score" {
            let (from, anchor) = if at > x + w * 0.7 { (at - 5.0, Anchor::End) } else { (at + 5.0, Anchor::Start) };
            drawing.text(from, y + 14.0, anchor, "limit-label", &best.shown[parameter]);
        }
    }
    if has_axis {
        for tick in &tuning.parameters[parameter].ticks {
            drawing.line((across(tick.at), y + h), (across(tick.at), y + h + 4.0), "axis");
            drawing.text(across(tick.at), y + h + 17.0, Anchor::Middle, "label", &tick.label);
        }
        drawing.text(x + w, y + h + 32.0, Anchor::End, "name", &tuning.parameters[parameter].name);
    }
}

/// The score over the ranges of two parameters: bright is best. Returns its height, if there is one.
fn map(drawing: &mut Drawing, tuning: &Tuning, (x, y): (f64, f64), side: f64) -> Option<f64> {
    let map = tuning.map.as_ref()?;
    let [first, second] = [tuning.parameters.first()?, tuning.parameters.get(1)?];
    let high = map.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // What is worthless would take all colours.
    let low = map.scores.iter().copied().fold(high, f64::min).max(high - 60.0);
    let cell = side / map.side as f64;
    for (nth, score) in map.scores.iter().enumerate() {
        let (column, row) = ((nth % map.side) as f64, (nth / map.side) as f64);
        let part = ((score - low) / (high - low).max(1e-9)).clamp(0.0, 1.0);
        let paint = format!(r#"class="cell" fill="{}""#, hex(of_rate(part)));
        drawing.rect((x + column * cell, y + side - (row + 1.0) * cell), (cell + 0.3, cell + 0.3), &paint);
    }
    for run in &tuning.runs {
        let at = (x + run.at[0] * side - 2.5, y + side - run.at[1] * side - 2.5);
        let tip = format!("{}: {}", run.shown.join(", "), signed(run.changed.score));
        drawing.rect_with_tip(at, (5.0, 5.0), r#"class="second""#, &tip);
    }
    if let Some(best) = &tuning.best {
        let (at, down) = (x + best.at[0] * side, y + side - best.at[1] * side);
        drawing.line((at, y), (at, y + side), "limit");
        drawing.line((x, down), (x + side, down), "limit");
    }
    for tick in &first.ticks {
        drawing.text(x + tick.at * side, y + side + 17.0, Anchor::Middle, "label", &tick.label);
    }
    for tick in &second.ticks {
        drawing.text(x - 7.0, y + side - tick.at * side + 4.0, Anchor::End, "label", &tick.label);
    }
    drawing.text(x + side, y + side + 32.0, Anchor::End, "name", &format!("{} across", first.name));
    drawing.text(x + side + 10.0, y + 10.0, Anchor::Start, "name", &format!("{} up", second.name));
    let best = format!("bright: a score of {}, dark: {} or less", signed(high), signed(low));
    drawing.text(x + side + 10.0, y + 28.0, Anchor::Start, "label", &best);
    Some(side)
}
