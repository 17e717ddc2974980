//! The heatmap as a picture: a lane for each target on one time axis, low addresses at the bottom, names on the right.

use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::{Across, Anchor, Drawing, ON_COLOURS, Scale, fit, legend, mark_row, text_width};
use crate::axis::{Area, AxisResolution};
use crate::escape::sanitise;
use crate::extent::{Extent, shown_name};
use crate::heatmap::{Heatmap, LeftOut, Plan, Shown, TargetMap, shares};
use crate::options::Picture;
use crate::text::title::title_in;
use crate::ticks;
use crate::{ReportError, Terminal};

const LEFT: f64 = 112.0;
const RIGHT: f64 = 190.0;
/// The height of the gap between two areas.
const GAP: f64 = 7.0;
/// The maximum number of lanes. Further targets are summed up in a line.
pub(super) const LANES: usize = 12;
/// The height of a title, and the least height of a lane below it.
const TITLE: f64 = 26.0;
const LOWEST: f64 = 30.0;
/// The distance of two labels.
const LINE: f64 = 12.0;
/// The height that an area needs for its label.
const LABEL: f64 = 18.0;

/// The largest targets, with as many rows as their lanes are high for. One target has `rows` rows.
pub(crate) fn plan(extent: &Extent, picture: Picture, columns: usize, rows: usize) -> Plan {
    let height = f64::from(picture.height.max(60));
    let seconds = |(start, end): (Duration, Duration)| end.saturating_sub(start).as_secs_f64();
    let whole = seconds(extent.time.unwrap_or_default()).max(1e-9);
    Plan::largest(extent, LANES, columns, |target, share| {
        let tall = lane_height(share, height);
        let rows = ((rows as f64 * tall / height).ceil() as usize).max(1);
        // An area must be tall enough for its label.
        let rows_of_area = ((rows as f64 * LABEL / tall) as usize).max(1);
        let areas = ((tall / (LABEL + GAP)) as usize).clamp(1, 8);
        // A target has its columns for itself, so that its lane begins and ends with its life.
        let own_columns = (columns as f64 * (seconds(target.life) / whole).min(1.0)).round() as usize;
        (AxisResolution { rows, rows_of_area, areas, group: 1 }, Some(own_columns.max(1)))
    })
}

/// The height of a lane that has a share of the height of the picture.
fn lane_height(share: f64, height: f64) -> f64 {
    (share * height).max(LOWEST)
}

/// What the colours of a heatmap mean.
pub(crate) fn scale(heatmap: &Heatmap) -> Scale {
    Scale {
        measure: heatmap.measure,
        unobservable: heatmap.may_show(Shown::Unobservable),
        unknown: heatmap.shows(Shown::Unknown),
        swap: heatmap.shows(Shown::Swapped),
        absent: heatmap.shows(Shown::Absent),
    }
}

/// Draws a lane for each of the first targets, one below the other. The first one has the labels of the marks above it.
pub(crate) fn draw(heatmap: &Heatmap, marks: &[Mark], picture: Picture) -> Result<Drawing, ReportError> {
    let width = f64::from(picture.width.max(420));
    let mut drawing = Drawing::new(width);
    drawing.scale(&scale(heatmap), width - 12.0, 12.0);
    let mut y = 12.0 + legend::HEIGHT;
    let (lanes, rest) = heatmap.targets.split_at(heatmap.targets.len().min(LANES));
    let shares = shares(lanes.iter().map(|target| target.most_bytes).collect::<Vec<_>>().into_iter());
    let across = Across { left: LEFT, width: width - LEFT - RIGHT, time: (heatmap.start, heatmap.end) };
    for (nth, (target, share)) in lanes.iter().zip(shares).enumerate() {
        let size = format!(" ({})", target.size());
        // The letters of titles are larger than those that `text_width` assumes. The size is never cut.
        let columns = ((width - 24.0) * 0.78 / text_width("0")) as usize;
        let room = columns.saturating_sub(crate::text::width(&size)).max(12);
        let title = title_in(target.id, &target.info, room, &Terminal::default());
        drawing.text(12.0, y + 15.0, Anchor::Start, "title", &(title + &size));
        y += TITLE;
        if nth == 0 {
            y += mark_row(marks);
            drawing.mark_labels(marks, across, width - 12.0, y);
        }
        let top = y;
        y = draw_target(&mut drawing, heatmap, target, y, lane_height(share, f64::from(picture.height.max(60))))?;
        drawing.mark_lines(marks, across, (top, y), ON_COLOURS);
        y += 6.0;
    }
    drawing.time_axis(across.left, across.width, y - 6.0, across.time);
    y += 30.0;
    let rest = LeftOut::of(rest.iter().map(|target| target.most_bytes));
    let left_out = rest.map(|rest| rest.and(heatmap.left_out)).or(heatmap.left_out);
    let unseen = heatmap.unseen().map(|unseen| unseen + "; --measure touched shows it");
    for line in left_out.map(LeftOut::text).into_iter().chain(heatmap.caption()).chain(unseen) {
        drawing.text(LEFT, y + 4.0, Anchor::Start, "label", &line);
        y += 18.0;
    }
    drawing.height = y;
    Ok(drawing)
}

/// Draws the lane of a target, over its life only.
fn draw_target(
    drawing: &mut Drawing,
    heatmap: &Heatmap,
    target: &TargetMap,
    top: f64,
    height: f64,
) -> Result<f64, ReportError> {
    let axis = &target.axis;
    let width = drawing.width - LEFT - RIGHT;
    let across = |time: Duration| {
        let span = heatmap.end.saturating_sub(heatmap.start).as_secs_f64().max(1e-9);
        LEFT + (time.saturating_sub(heatmap.start).as_secs_f64() / span).min(1.0) * width
    };
    let (born, died) = (across(target.life.0), across(target.life.1));
    let (from, to) = (across(target.columns.start), across(target.columns.end));
    let columns = target.columns.count;
    let gaps = GAP * axis.areas.len().saturating_sub(1) as f64;
    let of_row = (height - gaps).max(height / 2.0) / axis.rows.max(1) as f64;
    let mut y = top;
    let mut last_label = f64::MIN;
    for area in axis.areas.iter().rev() {
        let tall = of_row * area.rows as f64;
        let cells: Vec<u8> = (area.first_row..area.first_row + area.rows)
            .rev()
            .flat_map(|row| &target.codes()[row * columns..][..columns])
            .copied()
            .collect();
        drawing.rect((born, y), ((died - born).max(1.0), tall), r#"class="frame""#);
        drawing.cells((from, y), (to - from, tall), (columns, area.rows), (heatmap.measure, &cells))?;
        address_axis(drawing, area, y, tall, &mut last_label);
        names(drawing, target, area, LEFT + width, y, of_row);
        y += tall + GAP;
    }
    Ok(y - GAP)
}

/// Labels of an area: its start address at the bottom, and mapped sizes above. An address that would be too close to
/// the label above, at `last_label`, is left out.
fn address_axis(drawing: &mut Drawing, area: &Area, y: f64, tall: f64, last_label: &mut f64) {
    drawing.line((LEFT, y), (LEFT, y + tall), "axis");
    let has_room = y + tall - *last_label >= LINE;
    let most = (tall / 44.0) as usize;
    let ticks = if most == 0 { vec![(0, String::new())] } else { ticks::bytes(area.bytes, most) };
    for (offset, label) in ticks {
        let at = y + tall * (1.0 - offset as f64 / area.bytes.max(1) as f64);
        let label = if offset == 0 { format!("{:#x}", area.start()) } else { format!("+{label}") };
        if offset > 0 && at < y + 5.0 {
            continue;
        }
        drawing.line((LEFT - 4.0, at), (LEFT, at), "axis");
        // The address stands above its tick, so that it does not overlap the labels of the next area.
        let lower = if offset == 0 { -1.0 } else { 4.0 };
        if offset > 0 || has_room {
            drawing.text(LEFT - 7.0, at + lower, Anchor::End, "label", &label);
        }
    }
    if has_room {
        *last_label = y + tall;
    }
}

/// Marks with names for runs of rows with the same name. If marks are too close together, the tallest run is marked.
fn names(drawing: &mut Drawing, target: &TargetMap, area: &Area, x: f64, y: f64, of_row: f64) {
    let mut runs: Vec<(usize, usize, std::sync::Arc<str>)> = vec![];
    for row in 0..area.rows {
        let name = target.axis.row_name(area.first_row + row);
        match runs.last_mut() {
            Some((_, end, same)) if *same == name => *end = row + 1,
            _ => runs.push((row, row + 1, name)),
        }
    }
    let bottom = y + of_row * area.rows as f64;
    runs.sort_by_key(|&(from, to, _)| std::cmp::Reverse(to - from));
    let mut taken: Vec<f64> = vec![];
    let single = |name: &str| runs.iter().filter(|(_, _, other)| **other == *name).count() == 1;
    for (from, to, name) in runs.iter().cloned() {
        let (low, high) = (bottom - of_row * from as f64, bottom - of_row * to as f64);
        if low - high >= 6.0 {
            let (right, high, low) = (x + 9.0, high + 1.0, low - 1.0);
            drawing.raw(&format!(
                r#"<path d="M{x0:.1} {high:.1}H{right:.1}V{low:.1}H{x0:.1}" class="mark"/>"#,
                x0 = x + 4.0
            ));
        }
        let middle = (low + high) / 2.0;
        if taken.iter().any(|at| (at - middle).abs() < 13.0) || low - high < 5.0 {
            continue;
        }
        taken.push(middle);
        let shown = shown_name(&name);
        // Without its directory, a device such as /dev/zero has no meaning.
        let is_file = shown.starts_with('/') && !shown.starts_with("/dev/");
        let base = if is_file { shown.rsplit('/').next().unwrap_or(shown) } else { shown };
        let text = fit(&sanitise(base), RIGHT - 22.0);
        // Rows are rounded. The exact size is shown if the name has only one run.
        let bytes: u64 = area.mapped.iter().filter(|named| named.name == name).map(|named| named.range.size()).sum();
        let size = if single(&name) { format!("  {}", units::bytes(bytes)) } else { String::new() };
        let whole = if text_width(&text) + text_width(&size) < RIGHT - 22.0 { text + &size } else { text };
        drawing.text(x + 14.0, middle + 4.0, Anchor::Start, "name", &whole);
    }
}
