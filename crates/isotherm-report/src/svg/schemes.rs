//! What schemes did over time and the memory in use, as a picture.

use isotherm_core::units;
use isotherm_record::Mark;

use super::plot::{Curve, LEFT, Plot};
use super::{Anchor, Drawing, fit, mark_row, text_width};
use crate::options::Picture;
use crate::schemes::{Points, Scheme, Schemes};
use crate::text::bytes_ticks;
use crate::ticks;

/// The maximum number of schemes that are drawn: those that were applied to the most bytes.
const SCHEMES: usize = 12;

/// Draws a plot for each scheme, for memory in use, for the time that tasks waited for memory, and for free memory.
pub(crate) fn draw(s: &Schemes, marks: &[Mark], picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) / 5.5).max(80.0);
    let mut page = Page { drawing: Drawing::new(width), y: 8.0, height, s, marks };
    let (busiest, left_out) = s.busiest(SCHEMES);
    for scheme in busiest {
        page.plot(&rate_title(scheme), &[(s.rate(&scheme.name), "curve", "")], bytes_ticks);
        let quota = s.tuned_quota(&scheme.name);
        if !quota.is_empty() {
            let score = scheme
                .goal_score
                .map_or_else(String::new, |score| format!("; goals reached to {}", units::percent(score.max(0.0))));
            let title = format!("Quota of {}, bytes a period{score} at the end", scheme.name);
            page.plot(&title, &[(quota, "curve", "")], bytes_ticks);
        }
    }
    if left_out > 0 {
        let text = format!("{left_out} more schemes, applied to less, are not drawn");
        page.drawing.text(LEFT, page.y + 12.0, Anchor::Start, "label", &text);
        page.y += 22.0;
    }
    if let Some(faults) = s.major_faults {
        let title = format!("Major faults of the targets a second: {} in all", units::count(faults));
        page.plot(&title, &[(s.fault_rate(), "curve", "")], ticks::count);
    }
    let used = |part: usize| s.points(|moment| Some(moment.used()[part]? as f64));
    if !used(0).is_empty() {
        let mut curves = vec![(used(0), "curve", "RSS"), (used(1), "second", "PSS"), (used(2), "third", "swap")];
        curves.retain(|(points, _, _)| !points.is_empty());
        page.plot("Memory of the targets", &curves, bytes_ticks);
    }
    let stalled = s.points(|moment| Some(moment.system.stalled_share? * 100.0));
    if !stalled.is_empty() {
        let mean = stalled.iter().map(|(_, share)| share).sum::<f64>() / stalled.len() as f64 / 100.0;
        let title = format!("Some task waits for memory (PSI), % of the time: {} on the mean", units::percent(mean));
        page.plot(&title, &[(stalled, "curve", "")], ticks::count);
    }
    let free = s.points(|moment| Some(moment.system.free_bytes as f64));
    let total = s.over_time.iter().map(|moment| moment.system.total_bytes).max().unwrap_or(0);
    if total > 0 {
        page.plot(&format!("Free memory, of {}", units::bytes(total)), &[(free, "curve", "")], bytes_ticks);
    }
    page.drawing.height = page.y + 6.0;
    page.drawing
}

fn rate_title(scheme: &Scheme) -> String {
    let total = &scheme.total;
    let mut title = format!(
        "{} ({}): {}, bytes a second; {} in all, of {} advised",
        scheme.name,
        scheme.action,
        if scheme.frees() { "freed" } else { "applied" },
        units::bytes(total.applied_bytes),
        units::bytes(total.passed_bytes)
    );
    if total.returned_bytes > 0 {
        title += &format!(", {} came back soon", units::bytes(total.returned_bytes));
    }
    if total.refused_bytes() > 0 {
        title += &format!(", {} refused", units::bytes(total.refused_bytes()));
    }
    title
}

/// Plots, one below the other.
struct Page<'a> {
    drawing: Drawing,
    y: f64,
    height: f64,
    s: &'a Schemes,
    marks: &'a [Mark],
}

impl Page<'_> {
    /// Adds a plot of curves, each with its class and its name.
    fn plot(
        &mut self,
        title: &str,
        curves: &[(Points, &'static str, &str)],
        ticks: fn(f64, usize) -> Vec<(f64, String)>,
    ) {
        let Self { drawing, y, height, s, marks } = self;
        let above = 30.0 + mark_row(marks) / 2.0;
        let width = drawing.width;
        // `fit` assumes a smaller font that is not bold.
        drawing.text(12.0, *y + 20.0, Anchor::Start, "title", &fit(title, (width - 24.0) / 1.4));
        let mut x = width - 16.0;
        for (points, class, name) in curves.iter().rev().filter(|(_, _, name)| !name.is_empty()) {
            let last = points.last().map_or(0.0, |&(_, value)| value);
            let last = if last > 0.0 { units::bytes(last as u64) } else { "0".into() };
            let text = format!("{name} {last} at the end");
            x -= text_width(&text);
            drawing.text(x, *y + 19.0, Anchor::Start, "label", &text);
            drawing.line((x - 24.0, *y + 15.0), (x - 6.0, *y + 15.0), class);
            x -= 44.0;
        }
        let most = curves.iter().flat_map(|(points, ..)| points).map(|&(_, value)| value).fold(0.0, f64::max);
        let top = if most > 0.0 { most * 1.1 } else { 1.0 };
        let ticks = if most > 0.0 { ticks(top, 3) } else { vec![(0.0, "0".into())] };
        let curves: Vec<Curve<'_>> =
            curves.iter().map(|(points, class, _)| Curve { points, bounds: &[], since: None, class }).collect();
        let (at, size) = ((LEFT, *y + above), (width - LEFT - 16.0, *height));
        Plot { at, size, time: s.time(), layers: &[], curves: &curves, ticks, top, limit: None, marks }.draw(drawing);
        *y += above + *height + 28.0;
    }
}
