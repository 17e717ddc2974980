//! The heatmap as a picture: low addresses at the bottom, names on the right.

use isotherm_core::units;

use super::{Anchor, Drawing, Scale, code, fit, text_width};
use crate::ReportError;
use crate::axis::Area;
use crate::escape::sanitise;
use crate::extent::shown_name;
use crate::heatmap::{Heatmap, TargetMap};
use crate::options::Picture;
use crate::text::target_title;
use crate::ticks;

const LEFT: f64 = 112.0;
const RIGHT: f64 = 190.0;
const GAP: f64 = 7.0;

/// Draws one picture for each target, one below the other.
pub(crate) fn draw(heatmap: &Heatmap, picture: Picture) -> Result<Drawing, ReportError> {
    let width = f64::from(picture.width.max(420));
    let mut drawing = Drawing::new(width);
    let mut y = 14.0;
    let scale = Scale { measure: heatmap.measure, most_hz: heatmap.most_hz(), swap: heatmap.shows_swap() };
    drawing.scale(&scale, width - 12.0, y + 4.0);
    // The scale stands next to the first title if there is space.
    if width < 1000.0 {
        y += 24.0;
    }
    for (i, target) in heatmap.targets.iter().enumerate() {
        let title_width = if i == 0 && width >= 1000.0 { width - 540.0 } else { width - 24.0 };
        let size = format!(" ({})", target.size());
        // The letters of titles are larger than those that `fit` assumes. The size is never cut.
        let title = fit(&target_title(target.id, &target.info), (title_width * 0.8 - text_width(&size)).max(60.0));
        drawing.text(12.0, y + 15.0, Anchor::Start, "title", &(title + &size));
        y += 32.0;
        y = draw_target(&mut drawing, heatmap, target, y, f64::from(picture.height.max(60)))? + 28.0;
    }
    if let Some(caption) = heatmap.caption() {
        drawing.text(LEFT, y - 2.0, Anchor::Start, "label", &caption);
        y += 16.0;
    }
    drawing.height = y;
    Ok(drawing)
}

fn draw_target(
    drawing: &mut Drawing,
    heatmap: &Heatmap,
    target: &TargetMap,
    top: f64,
    height: f64,
) -> Result<f64, ReportError> {
    let axis = &target.axis;
    let width = drawing.width - LEFT - RIGHT;
    let gaps = GAP * axis.areas.len().saturating_sub(1) as f64;
    let of_row = (height - gaps).max(height / 2.0) / axis.rows.max(1) as f64;
    let mut y = top;
    for area in axis.areas.iter().rev() {
        let tall = of_row * area.rows as f64;
        let cells: Vec<u8> = (area.first_row..area.first_row + area.rows)
            .rev()
            .flat_map(|row| (0..heatmap.columns).map(move |column| code(target.shown(row, column))))
            .collect();
        drawing.rect((LEFT, y), (width, tall), r#"class="frame""#);
        drawing.cells((LEFT, y), (width, tall), (heatmap.columns, area.rows), &cells)?;
        address_axis(drawing, area, y, tall);
        names(drawing, target, area, LEFT + width, y, of_row);
        y += tall + GAP;
    }
    y -= GAP;
    drawing.time_axis(LEFT, width, y, (heatmap.start, heatmap.end));
    Ok(y + 20.0)
}

/// Labels of an area: its start address at the bottom, and mapped sizes above.
fn address_axis(drawing: &mut Drawing, area: &Area, y: f64, tall: f64) {
    drawing.line((LEFT, y), (LEFT, y + tall), "axis");
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
        drawing.text(LEFT - 7.0, at + lower, Anchor::End, "label", &label);
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
        let base = if shown.starts_with('/') { shown.rsplit('/').next().unwrap_or(shown) } else { shown };
        let text = fit(&sanitise(base), RIGHT - 22.0);
        // Rows are rounded. The exact size is shown if the name has only one run.
        let bytes: u64 = area.mapped.iter().filter(|named| named.name == name).map(|named| named.range.size()).sum();
        let size = if single(&name) { format!("  {}", units::bytes(bytes)) } else { String::new() };
        let whole = if text_width(&text) + text_width(&size) < RIGHT - 22.0 { text + &size } else { text };
        drawing.text(x + 14.0, middle + 4.0, Anchor::Start, "name", &whole);
    }
}
