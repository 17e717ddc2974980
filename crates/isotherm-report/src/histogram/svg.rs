//! A histogram as a picture: a bar for each band, the bands over time, and a bar with all bands for each name.

use std::fmt::Write as _;
use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::{Histogram, Moment, NamedSizes, Sizes, folded};
use crate::colour::{Rgb, UNKNOWN, UNOBSERVABLE, hex, of_rate};
use crate::options::Picture;
use crate::svg::{Across, Anchor, Drawing, ON_COLOURS, fit, mark_row};
use crate::ticks;

/// The most moments in the plot over time.
const MOMENTS: usize = 400;
/// The most names.
const NAMES: usize = 16;
/// The width of names of bands and of mappings, and of the figures at the end of bars.
const NAME: f64 = 220.0;
const FIGURES: f64 = 140.0;
/// The height of a bar with the space below it.
const STEP: f64 = 24.0;
/// The left edge of the plot over time: the labels of the vertical axis are left of it.
const LEFT: f64 = 84.0;

/// Draws the histogram.
pub(crate) fn draw(histogram: &Histogram<'_>, marks: &[Mark], picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(720));
    let mut drawing = Drawing::new(width);
    drawing.text(12.0, 26.0, Anchor::Start, "title", &fit(&histogram.title, width * 0.8));
    let mut y = 40.0;
    for note in &histogram.notes {
        drawing.text(12.0, y + 8.0, Anchor::Start, "label", &fit(note, width - 24.0));
        y += 18.0;
    }
    let parts = parts(histogram);
    y = bands(&mut drawing, histogram, &parts, y + 16.0);
    if histogram.over_time.len() > 1 {
        let height = f64::from(picture.height) / 2.5;
        y = over_time(&mut drawing, histogram, &parts, marks, (y + 16.0, height));
    }
    for (title, all) in histogram.lists() {
        y = names(&mut drawing, &parts, &format!("by {title}"), all, y + 16.0);
    }
    drawing.height = y + 8.0;
    drawing
}

/// The bands, and what is in none of them: their names and colours.
fn parts<'a>(histogram: &'a Histogram<'_>) -> Vec<(&'a str, Rgb)> {
    let bands = histogram.bands.iter().map(|band| (&*band.name, of_rate(band.heat)));
    bands.chain([("not observable", UNOBSERVABLE), ("unknown", UNKNOWN)]).collect()
}

/// The bytes of each of the [`parts`].
fn bytes(sizes: &Sizes) -> Vec<u64> {
    sizes.bytes.iter().copied().chain([sizes.unobservable_bytes, sizes.unknown_bytes]).collect()
}

fn bands(drawing: &mut Drawing, histogram: &Histogram<'_>, parts: &[(&str, Rgb)], mut y: f64) -> f64 {
    let sizes = bytes(histogram.total);
    let largest = sizes.iter().copied().max().unwrap_or(0).max(1);
    let most = drawing.width - NAME - FIGURES;
    drawing.text(NAME - 10.0, y + 6.0, Anchor::End, "label", histogram.quantity);
    y += 14.0;
    let all = histogram.total.all().max(1) as f64;
    let ever = |nth: usize| {
        let over_time = histogram.over_time.iter().map(|moment| &moment.sizes);
        over_time.chain([histogram.total]).any(|sizes| self::bytes(sizes).get(nth) > Some(&0))
    };
    for (nth, ((name, colour), &bytes)) in parts.iter().zip(&sizes).enumerate() {
        if nth >= histogram.bands.len() && !ever(nth) {
            continue;
        }
        drawing.text(NAME - 10.0, y + 13.0, Anchor::End, "name", &fit(name, NAME - 22.0));
        let long = bytes as f64 / largest as f64 * most;
        drawing.rect((NAME, y), (long, STEP - 6.0), &format!(r#"fill="{}""#, hex(*colour)));
        let figures = format!("{} ({})", units::table_bytes(bytes), units::percent(bytes as f64 / all));
        drawing.text(NAME + long + 8.0, y + 13.0, Anchor::Start, "label", &figures);
        y += STEP;
    }
    y
}

/// The bands over time, one on the other: the coldest at the bottom.
fn over_time(
    drawing: &mut Drawing,
    histogram: &Histogram<'_>,
    parts: &[(&str, Rgb)],
    marks: &[Mark],
    (y, height): (f64, f64),
) -> f64 {
    drawing.text(12.0, y + 8.0, Anchor::Start, "name", "over time");
    let (y, width) = (y + 18.0 + mark_row(marks) / 2.0, drawing.width - LEFT - 16.0);
    let moments = thinned(histogram.over_time);
    let times: Vec<Duration> = moments.iter().map(|moment| Duration::from_nanos(moment.time_ns)).collect();
    let (first, last) = histogram.time();
    let top = moments.iter().map(|moment| moment.sizes.all()).max().unwrap_or(0).max(1);
    drawing.rect((LEFT, y), (width, height), r#"class="frame""#);
    for (value, label) in ticks::bytes(top, 5) {
        let at = y + height * (1.0 - value as f64 / top as f64);
        drawing.line((LEFT, at), (LEFT + width, at), "grid");
        drawing.text(LEFT - 7.0, at + 4.0, Anchor::End, "label", &label);
    }
    let length = last.saturating_sub(first).as_secs_f64().max(1e-9);
    let across = |time: Duration| LEFT + time.saturating_sub(first).as_secs_f64() / length * width;
    let edge = |values: &[u64]| -> Vec<(f64, f64)> {
        let at = |bytes: u64| y + height * (1.0 - bytes as f64 / top as f64);
        if histogram.is_state {
            return times.iter().zip(values).map(|(&time, &bytes)| (across(time), at(bytes))).collect();
        }
        // A value covers the time before it.
        let starts = std::iter::once(first).chain(times.iter().copied());
        let spans = starts.zip(&times).zip(values);
        spans.flat_map(|((start, &end), &bytes)| [(across(start), at(bytes)), (across(end), at(bytes))]).collect()
    };
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&a, &b| heat(histogram, a).total_cmp(&heat(histogram, b)));
    let mut below = vec![0_u64; times.len()];
    for part in order {
        let above: Vec<u64> = moments
            .iter()
            .zip(&below)
            .map(|(moment, below)| below.saturating_add(bytes(&moment.sizes).get(part).copied().unwrap_or(0)))
            .collect();
        if above != below {
            let mut path = String::new();
            for (nth, (x, y)) in edge(&above).into_iter().chain(edge(&below).into_iter().rev()).enumerate() {
                _ = write!(path, "{}{x:.1} {y:.1}", if nth == 0 { 'M' } else { 'L' });
            }
            drawing.raw(&format!(r#"<path d="{path}Z" fill="{}"/>"#, hex(parts[part].1)));
        }
        below = above;
    }
    let across = Across { left: LEFT, width, time: (first, last) };
    drawing.mark_lines(marks, across, (y, y + height), ON_COLOURS);
    drawing.mark_labels(marks, across, LEFT + width, y);
    drawing.time_axis(LEFT, width, y + height, (first, last));
    y + height + 26.0
}

/// At most [`MOMENTS`] moments, each with the mean of as many neighbours.
fn thinned(moments: &[Moment]) -> Vec<Moment> {
    let together = moments.len().div_ceil(MOMENTS).max(1);
    let mean = |group: &[Moment]| {
        let mut sizes = Sizes::default();
        group.iter().for_each(|moment| sizes.add(&moment.sizes));
        let mean = |sum: u64| sum / group.len().max(1) as u64;
        Moment {
            time_ns: group.last().map_or(0, |last| last.time_ns),
            sizes: Sizes {
                bytes: sizes.bytes.into_iter().map(mean).collect(),
                unobservable_bytes: mean(sizes.unobservable_bytes),
                unknown_bytes: mean(sizes.unknown_bytes),
            },
        }
    };
    moments.chunks(together).map(mean).collect()
}

/// How hot a part is. What is in no band comes on top.
fn heat(histogram: &Histogram<'_>, part: usize) -> f64 {
    histogram.bands.get(part).map_or(2.0, |band| band.heat)
}

fn names(drawing: &mut Drawing, parts: &[(&str, Rgb)], title: &str, all: &[NamedSizes], mut y: f64) -> f64 {
    drawing.text(12.0, y + 8.0, Anchor::Start, "name", title);
    y += 18.0;
    let shown = folded(all, NAMES);
    let largest = shown.iter().map(|of| of.sizes.all()).max().unwrap_or(0).max(1);
    let most = drawing.width - NAME - FIGURES;
    for of in &shown {
        drawing.text(NAME - 10.0, y + 13.0, Anchor::End, "name", &fit(&of.name, NAME - 22.0));
        let mut x = NAME;
        for ((name, colour), bytes) in parts.iter().zip(bytes(&of.sizes)) {
            let long = bytes as f64 / largest as f64 * most;
            if bytes > 0 {
                let tip = format!("{}: {} {name}", of.name, units::bytes(bytes));
                drawing.rect_with_tip((x, y), (long, STEP - 6.0), &format!(r#"fill="{}""#, hex(*colour)), &tip);
            }
            x += long;
        }
        drawing.text(x + 8.0, y + 13.0, Anchor::Start, "label", &units::table_bytes(of.sizes.all()));
        y += STEP;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_of_a_long_recording_has_means_of_neighbours() {
        let moment = |n: u64| Moment { time_ns: n, sizes: Sizes { bytes: vec![n], ..Sizes::default() } };
        let few: Vec<Moment> = (1..=400).map(moment).collect();
        assert_eq!(thinned(&few).len(), 400);
        let many: Vec<Moment> = (1..=999).map(moment).collect();
        let thinned = thinned(&many);
        assert_eq!(thinned.len(), 333);
        assert_eq!((thinned[0].time_ns, &thinned[0].sizes.bytes[..]), (3, &[2][..]));
    }
}
