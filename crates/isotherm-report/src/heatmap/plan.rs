//! The targets that a heatmap shows, and into how many cells each is divided.

use isotherm_core::units;

use crate::axis::AxisResolution;
use crate::extent::{Extent, TargetExtent};

/// About how many cells all targets have together, where none is left out.
const MOST_CELLS: usize = 1 << 20;

/// The targets of a heatmap in their order, and their resolution.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of columns of the whole time, at least one.
    pub columns: usize,
    /// One for each target.
    pub lanes: Vec<Lane>,
    /// The targets without a lane.
    pub left_out: Option<LeftOut>,
}

/// One target of a heatmap.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// The index of the target in the extent.
    pub target: usize,
    /// Rows of the target.
    pub axis: AxisResolution,
    /// Into how many columns the life of the target is divided. `None`: its columns are those of the whole time.
    pub own_columns: Option<usize>,
}

/// Targets that a picture does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of targets.
    pub targets: usize,
    /// Bytes of the largest of them.
    pub largest: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl LeftOut {
    /// Those of these sizes. `None` if there are none.
    pub(crate) fn of(sizes: impl Iterator<Item = u64>) -> Option<Self> {
        sizes.fold(None, |sum: Option<Self>, bytes| {
            let sum = sum.unwrap_or(Self { targets: 0, largest: 0, bytes: 0 });
            Some(Self {
                targets: sum.targets + 1,
                largest: sum.largest.max(bytes),
                bytes: sum.bytes.saturating_add(bytes),
            })
        })
    }

    /// These and others.
    pub(crate) fn and(self, others: Option<Self>) -> Self {
        let others = others.unwrap_or(Self { targets: 0, largest: 0, bytes: 0 });
        Self {
            targets: self.targets + others.targets,
            largest: self.largest.max(others.largest),
            bytes: self.bytes.saturating_add(others.bytes),
        }
    }

    /// `46 more targets: 12 MiB at most each, 320 MiB in all`.
    pub(crate) fn text(self) -> String {
        if self.targets == 1 {
            return format!("1 more target: {}", units::bytes(self.bytes));
        }
        let (largest, all) = (units::bytes(self.largest), units::bytes(self.bytes));
        format!("{} more targets: {largest} at most each, {all} in all", units::count(self.targets as u64))
    }
}

impl Plan {
    /// All targets in the order in which they appear, each with this resolution, as long as all of them together have
    /// no more than about a million cells. If there are so many targets, each has fewer rows, and then fewer columns.
    pub fn all(extent: &Extent, columns: usize, axis: AxisResolution) -> Self {
        let cells = (MOST_CELLS / extent.targets.len().max(1)).max(1);
        let columns = columns.clamp(1, cells);
        let rows = axis.rows.min((cells / columns).max(1));
        // Each area has a row at least.
        let axis = AxisResolution { rows, areas: axis.areas.min(rows), ..axis };
        let lanes = (0..extent.targets.len()).map(|target| Lane { target, axis, own_columns: None }).collect();
        Self { columns, lanes, left_out: None }
    }

    /// The largest targets, at most `most` of them, the largest first. `lane` has the resolution of a target whose
    /// share of the picture, 0 to 1, is that of [`shares`].
    pub(crate) fn largest(
        extent: &Extent,
        most: usize,
        columns: usize,
        lane: impl Fn(&TargetExtent, f64) -> (AxisResolution, Option<usize>),
    ) -> Self {
        let mut sizes: Vec<(usize, u64)> = extent.targets.iter().map(|target| target.most_bytes).enumerate().collect();
        sizes.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let (shown, rest) = sizes.split_at(most.clamp(1, sizes.len().max(1)).min(sizes.len()));
        let shares = shares(shown.iter().map(|&(_, bytes)| bytes));
        let lanes = shown.iter().zip(shares).map(|(&(target, _), share)| {
            let (axis, own_columns) = lane(&extent.targets[target], share);
            Lane { target, axis, own_columns }
        });
        let lanes = lanes.collect();
        Self { columns: columns.max(1), lanes, left_out: LeftOut::of(rest.iter().map(|&(_, bytes)| bytes)) }
    }
}

/// How much of a picture each of several targets gets, 1 in all: half of it in equal parts, and half by size.
pub(crate) fn shares(sizes: impl ExactSizeIterator<Item = u64> + Clone) -> Vec<f64> {
    let count = sizes.len().max(1) as f64;
    let all = sizes.clone().map(|bytes| bytes as f64).sum::<f64>().max(1.0);
    sizes.map(|bytes| 0.5 / count + 0.5 * bytes as f64 / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_a_part_of_the_picture_and_the_largest_has_most() {
        assert_eq!(shares([7].into_iter()), [1.0]);
        let shares = shares([900, 50, 50, 0].into_iter());
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
        assert!(shares[0] > 0.5 && shares[1] == shares[2] && shares[3] > 0.1, "{shares:?}");
    }

    #[test]
    fn targets_that_are_left_out_are_counted_and_summed_up() {
        assert_eq!(LeftOut::of([].into_iter()), None);
        let some = LeftOut::of([3 << 20, 12 << 20].into_iter()).unwrap();
        assert_eq!(some.text(), "2 more targets: 12 MiB at most each, 15 MiB in all");
        let one = LeftOut::of([1 << 30].into_iter()).unwrap();
        assert_eq!(one.text(), "1 more target: 1 GiB");
        assert_eq!(some.and(Some(one)), LeftOut { targets: 3, largest: 1 << 30, bytes: (1 << 30) + (15 << 20) });
        assert_eq!(some.and(None), some);
    }
}
