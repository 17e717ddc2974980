//! The working set and the cost of monitoring over time, as pictures.

use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::plot::{Curve, LEFT, Plot, time_of};
use super::{Anchor, Drawing, mark_row, stack};
use crate::options::Picture;
use crate::overhead::{Moment, Overhead};
use crate::ticks;
use crate::wss::{GroupedWss, Total, Wss};

/// Draws the working set over time, with its percentiles on the right, and below it that of each group if there are
/// several.
pub(crate) fn wss(wss: &Wss, groups: &GroupedWss, marks: &[Mark], picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) / 2.0).max(160.0);
    let mut drawing = Drawing::new(width);
    let sums = wss.sums();
    let known = wss.percentiles();
    let percentiles = known.unwrap_or_default();
    let bounds = wss.percentiles_of_bounds();
    let largest = bounds.map_or(percentiles, |(_, high)| high).0[6];
    let targets = wss.targets();
    let of = if targets > 1 { format!(" of {targets} targets together") } else { String::new() };
    let present = wss.percentiles_of(|amount| amount.present_bytes).map(|present| present.median());
    let told = wss.told();
    let seconds: f64 = told.iter().map(|total| total.span.as_secs_f64()).sum();
    let mapped = told.iter().map(|total| total.amount.mapped as f64 * total.span.as_secs_f64()).sum::<f64>();
    let mapped = mapped / seconds.max(1e-9);
    let figures = match wss.median() {
        Some(median) => format!("{median} median, {} most", units::bytes(percentiles.0[6])),
        None => "not known".into(),
    };
    let title = format!(
        "Working set{of}: {figures}, of {}",
        present.map_or_else(
            || format!("{} mapped", units::bytes(mapped as u64)),
            |present| format!("{} resident", units::bytes(present))
        )
    );
    drawing.text(12.0, 28.0, Anchor::Start, "title", &title);
    let band = if bounds.is_some() { "; the band holds the truth in 19 of 20 cases" } else { "" };
    let unknown_until = wss.unknown_until();
    let until = unknown_until.map_or(String::new(), |until| format!("; not known until {}", units::duration(until)));
    let meaning = wss.unknown().unwrap_or_else(|| wss.meaning() + band + &until);
    let top_of_plot = 66.0 + mark_row(marks) / 2.0;
    drawing.text(12.0, 48.0, Anchor::Start, "label", &meaning);
    let side = (width * 0.26).min(300.0);
    let all: Vec<_> = sums.iter().map(|total| (total.time, total.amount.bytes as f64)).collect();
    let of_time = |total: &&Total| unknown_until.is_none_or(|until| total.time > until);
    let known = || sums.iter().filter(of_time);
    let points: Vec<_> = known().map(|total| (total.time, total.amount.bytes as f64)).collect();
    let of_points: Vec<_> = known().map(|total| (total.amount.low() as f64, total.amount.high() as f64)).collect();
    let top = largest as f64 * 1.06;
    let ticks = ticks::bytes(top as u64, 6).into_iter().map(|(v, label)| (v as f64, label)).collect();
    let size = (width - LEFT - side - 24.0, height);
    let time = time_of(&all);
    Plot {
        at: (LEFT, top_of_plot),
        size,
        time,
        layers: &[],
        curves: &[Curve { bounds: &of_points, since: unknown_until, ..Curve::main(&points) }],
        ticks,
        top,
        limit: None,
        marks,
    }
    .draw(&mut drawing);
    // A bar for each percentile, from the largest down.
    let x = width - side;
    drawing.text(x + 40.0, top_of_plot + 12.0, Anchor::End, "label", "percentile");
    let step = (height - 16.0) / 7.0;
    for (i, (p, bytes)) in percentiles.iter().enumerate() {
        let y = top_of_plot + height - step * (i as f64 + 1.0) + 2.0;
        let max_length = side - 48.0 - 84.0;
        let across = |bytes: u64| max_length * bytes as f64 / largest.max(1) as f64;
        drawing.text(x + 40.0, y + step / 2.0 + 2.0, Anchor::End, "label", &p.to_string());
        drawing.rect((x + 48.0, y), (across(bytes), step - 5.0), r#"class="bar""#);
        let mut end = across(bytes);
        if let Some((low, high)) = bounds {
            let (low, high) = (across(low.0[i]), across(high.0[i]));
            let middle = y + (step - 5.0) / 2.0;
            drawing.line((x + 48.0 + low, middle), (x + 48.0 + high, middle), "bounds");
            end = high;
        }
        drawing.text(x + 54.0 + end, y + step / 2.0 + 2.0, Anchor::Start, "name", &units::bytes(bytes));
    }
    drawing.height = top_of_plot + height + 34.0;
    if groups.groups.len() > 1 {
        let at = (drawing.height + 6.0, width, height);
        drawing.height += 6.0 + stack::groups(&mut drawing, groups, at, (time, side), marks);
    }
    drawing
}

/// A quantity of the cost of a snapshot.
type Value<'a> = &'a dyn Fn(&Moment) -> f64;

/// Draws regions, reads and CPU time over time, with their limits.
pub(crate) fn overhead(overhead: &Overhead, marks: &[Mark], picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) / 4.0).max(90.0);
    let mut drawing = Drawing::new(width);
    let limit = overhead.max_regions as f64;
    let highest = |value: &dyn Fn(&Moment) -> f64| overhead.over_time.iter().map(value).fold(0.0, f64::max);
    let regions = |m: &Moment| f64::from(m.regions);
    let reads = |m: &Moment| f64::from(m.max_reads);
    let cpu = |m: &Moment| m.cpu_percent;
    let load_text =
        |load: &crate::overhead::Load| format!("{:.1} on the mean, {} at most", load.mean, units::count(load.max));
    let unknown = if overhead.measured { "" } else { "; the recording contains no costs" };
    let plots: [(String, Value<'_>, bool); 3] = [
        (format!("Regions: {}{unknown}", load_text(&overhead.regions)), &regions, true),
        (format!("Pages read in a sampling round: {}", load_text(&overhead.reads_per_sampling)), &reads, true),
        (
            format!(
                "CPU time: {:.2} % of one CPU{}; {} of {} rounds began late",
                overhead.pace.cpu_percent.unwrap_or(0.0),
                overhead.pace.budget_percent.map_or_else(String::new, |budget| format!(", budget {budget} %")),
                units::count(overhead.late_rounds),
                units::count(overhead.rounds)
            ),
            &cpu,
            false,
        ),
    ];
    let mut y = 8.0;
    let shown = if overhead.measured { plots.len() } else { 1 };
    for (title, value, limited) in plots.into_iter().take(shown) {
        let is_cpu = !limited;
        let limited = limited && overhead.max_regions > 0;
        drawing.text(12.0, y + 20.0, Anchor::Start, "title", &title);
        y += 34.0 + mark_row(marks) / 2.0;
        let points: Vec<_> = overhead.over_time.iter().map(|m| (Duration::from_nanos(m.time_ns), value(m))).collect();
        let most = highest(value);
        // The axis reaches to the limit, unless the values would then be a flat line at the bottom.
        let top = if limited && most > limit / 5.0 { limit.max(most) * 1.04 } else { (most * 1.15).max(1e-3) };
        let ticks = ticks::count(top, 4);
        let budget = overhead.pace.budget_percent.filter(|_| is_cpu);
        let limit = limited
            .then(|| (limit, format!("limit {}", units::count(overhead.max_regions))))
            .or(budget.map(|budget| (budget, format!("budget {budget} %"))));
        let size = (width - LEFT - 16.0, height);
        let (time, curves) = (time_of(&points), &[Curve::main(&points)]);
        Plot { at: (LEFT, y), size, time, layers: &[], curves, ticks, top, limit, marks }.draw(&mut drawing);
        y += height + 30.0;
    }
    drawing.height = y + 6.0;
    drawing
}
