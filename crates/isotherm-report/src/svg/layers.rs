//! Quantities of several groups over time as layers, one on the other.

use std::fmt::Write as _;
use std::ops::Range;

use isotherm_core::units;

use super::{Drawing, n};
use crate::colour::{Rgb, hex};
use crate::escape::markup;

/// One layer.
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) colour: Rgb,
    /// The mean of each column, from the left to the right.
    pub(super) values: Vec<f64>,
    /// What the legend and the tooltip say: bytes.
    pub(super) mean: u64,
}

/// Draws layers within the plot whose left edge is `x` and whose width is `width`.
pub(super) fn draw(drawing: &mut Drawing, layers: &[Layer], x: f64, width: f64, height: &dyn Fn(f64) -> f64) {
    let columns = layers.first().map_or(0, |layer| layer.values.len());
    let wide = width / columns.max(1) as f64;
    let mut below = vec![0.0; columns];
    for layer in layers {
        let above: Vec<f64> = below.iter().zip(&layer.values).map(|(below, value)| below + value).collect();
        let mut path = String::new();
        let mut column = 0;
        // Where a group has nothing, its layer has a gap.
        while column < columns {
            let end = (column..columns).find(|&at| layer.values[at] <= 0.0).unwrap_or(columns);
            if end > column {
                _ = write!(path, "M{} {}", n(x + wide * column as f64), n(height(below[column])));
                steps(&mut path, column..end, &above, x, wide, height);
                _ = write!(path, "V{}", n(height(below[end - 1])));
                back(&mut path, column..end, &below, x, wide, height);
                path.push('Z');
            }
            column = end + 1;
        }
        let (colour, name) = (hex(layer.colour), markup(&layer.name));
        if !path.is_empty() {
            let mean = units::bytes(layer.mean);
            drawing.raw(&format!(r#"<path d="{path}" fill="{colour}"><title>{name}: {mean}</title></path>"#));
        }
        below = above;
    }
}

/// Adds the steps of an edge from the left to the right. Columns of the same height are one step.
fn steps(path: &mut String, columns: Range<usize>, edge: &[f64], x: f64, wide: f64, height: &dyn Fn(f64) -> f64) {
    for column in columns.clone() {
        if column == columns.start || edge[column] != edge[column - 1] {
            _ = write!(path, "V{}", n(height(edge[column])));
        }
        if column + 1 == columns.end || edge[column] != edge[column + 1] {
            _ = write!(path, "H{}", n(x + wide * (column + 1) as f64));
        }
    }
}

/// The same from the right to the left.
fn back(path: &mut String, columns: Range<usize>, edge: &[f64], x: f64, wide: f64, height: &dyn Fn(f64) -> f64) {
    for column in columns.clone().rev() {
        if column + 1 < columns.end && edge[column] != edge[column + 1] {
            _ = write!(path, "V{}", n(height(edge[column])));
        }
        if column == columns.start || edge[column] != edge[column - 1] {
            _ = write!(path, "H{}", n(x + wide * column as f64));
        }
    }
}
