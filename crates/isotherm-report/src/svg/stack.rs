//! The working set of groups over time, in layers.

use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::layers::Layer;
use super::plot::{LEFT, Plot};
use super::{Anchor, Drawing, fit, mark_row};
use crate::colour::{OTHERS, hex, of_layer};
use crate::groups::GroupBy;
use crate::ticks;
use crate::wss::{GroupWss, GroupedWss};

/// The number of groups that have a layer of their own.
const MOST: usize = 8;

/// The width of a column, in which a layer has one height: the mean of its time.
const COLUMN: f64 = 1.5;

/// The height of a line of the legend, at most.
const LINE: f64 = 24.0;

/// The working sets of the groups below `at`, in the time and the place of the plot of the working set. Returns the
/// height.
pub(super) fn groups(
    drawing: &mut Drawing,
    grouped: &GroupedWss,
    (y, width, height): (f64, f64, f64),
    (time, side): ((Duration, Duration), f64),
    marks: &[Mark],
) -> f64 {
    let plot_width = width - LEFT - side - 24.0;
    let columns = (plot_width / COLUMN).max(1.0) as usize;
    let layers = layers(&grouped.groups, grouped.group_by, time, columns);
    let all = units::count(grouped.groups.len() as u64);
    let title = format!("Working set by {}: {all} groups, one on the other", grouped.group_by.word());
    drawing.text(12.0, y + 20.0, Anchor::Start, "title", &title);
    let others = if layers.len() < grouped.groups.len() { ", and of the others over all of the time" } else { "" };
    let note = format!("means over the life of each{others}; what several share counts for each of them");
    drawing.text(12.0, y + 40.0, Anchor::Start, "label", &note);
    let top_of_plot = y + 58.0 + mark_row(marks) / 2.0;
    let highest = (0..columns).map(|column| layers.iter().map(|layer| layer.values[column]).sum::<f64>());
    let top = highest.fold(1.0, f64::max) * 1.06;
    let ticks = ticks::bytes(top as u64, 6).into_iter().map(|(v, label)| (v as f64, label)).collect();
    let (at, size) = ((LEFT, top_of_plot), (plot_width, height));
    Plot { at, size, time, layers: &layers, curves: &[], ticks, top, limit: None, marks }.draw(drawing);
    // The legend has the order of the layers, from the top down.
    let x = width - side;
    drawing.text(width - 12.0, top_of_plot + 4.0, Anchor::End, "label", "mean");
    let step = ((height - 12.0) / layers.len().max(1) as f64).min(LINE);
    for (nth, layer) in layers.iter().rev().enumerate() {
        let y = top_of_plot + 12.0 + step * nth as f64;
        drawing.rect((x + 8.0, y), (14.0, (step - 6.0).min(14.0)), &format!(r#"fill="{}""#, hex(layer.colour)));
        drawing.text(x + 28.0, y + 11.0, Anchor::Start, "name", &fit(&layer.name, side - 28.0 - 84.0));
        drawing.text(width - 12.0, y + 11.0, Anchor::End, "name", &units::bytes(layer.mean));
    }
    top_of_plot - y + height + 34.0
}

/// The layers from the bottom up: the groups that hold most over the time, and then the sum of the others.
fn layers(groups: &[GroupWss], by: GroupBy, time: (Duration, Duration), columns: usize) -> Vec<Layer> {
    let weight = |group: &GroupWss| -> f64 {
        group.over_time.iter().map(|held| held.bytes as f64 * held.span.as_secs_f64()).sum()
    };
    let mut order: Vec<(f64, &GroupWss)> = groups.iter().map(|group| (weight(group), group)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rest = if order.len() > MOST + 1 { order.split_off(MOST) } else { Vec::new() };
    let layer = |(nth, (_, group)): (usize, &(f64, &GroupWss))| {
        let mut values = vec![0.0; columns];
        add(&mut values, group, time);
        Layer { name: group.group.listed(by), colour: of_layer(nth), values, mean: group.mean_bytes }
    };
    let mut layers: Vec<Layer> = order.iter().enumerate().map(layer).collect();
    if !rest.is_empty() {
        let mut values = vec![0.0; columns];
        rest.iter().for_each(|(_, group)| add(&mut values, group, time));
        let mean = (values.iter().sum::<f64>() / columns as f64).round() as u64;
        let name = format!("{} others", units::count(rest.len() as u64));
        layers.push(Layer { name, colour: OTHERS, values, mean });
    }
    layers
}

/// Adds the bytes of a group in each column in whose middle it has some: those in the middle if it changes once within
/// the column, and the mean if it changes more often. So an edge within a column is no step of its own, which would be
/// a bar of one column, and of two groups that follow one another, one has the column.
fn add(values: &mut [f64], group: &GroupWss, (start, end): (Duration, Duration)) {
    let wide = (end.saturating_sub(start)).as_secs_f64().max(1e-9) / values.len() as f64;
    let place = |time: Duration| (time.saturating_sub(start).as_secs_f64() / wide).min(values.len() as f64);
    let mut columns = vec![Column::default(); values.len()];
    for held in &group.over_time {
        let (from, to) = (place(held.time.saturating_sub(held.span)), place(held.time));
        for (nth, column) in columns.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
            let share = (to.min(nth as f64 + 1.0) - from.max(nth as f64)).max(0.0);
            column.bytes += held.bytes as f64 * share;
            column.covered += share;
            column.points += 1;
            let middle = nth as f64 + 0.5;
            column.middle = Some(held.bytes as f64).filter(|_| from <= middle && middle < to).or(column.middle);
        }
    }
    for (value, Column { bytes, covered, points, middle }) in values.iter_mut().zip(columns) {
        *value += middle.map_or(0.0, |middle| if points > 2 { bytes / covered } else { middle });
    }
}

/// What a group has in a column.
#[derive(Clone, Copy, Default)]
struct Column {
    /// The bytes of its points, each times the share of the column that it covers.
    bytes: f64,
    /// The share that all of them cover.
    covered: f64,
    points: usize,
    /// The bytes in the middle of the column.
    middle: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::Life;
    use crate::groups::Group;
    use crate::wss::Held;

    #[test]
    fn points_that_follow_one_another_leave_no_gap_and_groups_do_not_overlap() {
        let ms = Duration::from_millis;
        let of = |points: &[(u64, u64, u64)]| {
            let held = |&(from, to, bytes): &(u64, u64, u64)| Held { time: ms(to), span: ms(to - from), bytes };
            let group = GroupWss {
                group: Group::default(),
                life: Life::default(),
                mean_bytes: 0,
                present_bytes: None,
                counted_once: true,
                over_time: points.iter().map(held).collect(),
            };
            let mut values = vec![0.0; 10];
            add(&mut values, &group, (ms(0), ms(1000)));
            values
        };
        // One point is shorter than a column, and the others end within one.
        assert_eq!(of(&[(0, 340, 8), (340, 380, 8), (380, 1000, 8)]), [8.0; 10]);
        let (first, second) = (of(&[(0, 530, 8)]), of(&[(530, 1000, 8)]));
        assert_eq!(first.iter().zip(&second).map(|(a, b)| a + b).collect::<Vec<_>>(), [8.0; 10]);
        let (first, second) = (of(&[(0, 550, 8)]), of(&[(550, 1000, 8)]));
        assert_eq!(first.iter().zip(&second).map(|(a, b)| a + b).collect::<Vec<_>>(), [8.0; 10]);
        // A change within a column is one step. Many within one are their mean.
        assert_eq!(of(&[(0, 530, 8), (530, 1000, 4)]), [8.0, 8.0, 8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 4.0, 4.0]);
        let short: Vec<_> = (0..50).map(|nth| (nth * 20, nth * 20 + 20, 8 * (nth % 5))).collect();
        assert!(of(&short).iter().all(|value| (value - 16.0).abs() < 1e-6));
    }
}
