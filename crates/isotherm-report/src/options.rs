//! What a report depends on besides its kind and format.

use crate::Terminal;
use crate::regions::RegionOptions;

/// The size of pictures, and how finely a heatmap is divided in them and in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its width in pixels.
    pub width: u32,
    /// The height of the plot in pixels; titles and axes come on top.
    pub height: u32,
}

impl Default for Picture {
    fn default() -> Self {
        Self { width: 1200, height: 640 }
    }
}

/// What else a report depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// What text is fitted to.
    pub terminal: Terminal,
    /// Which regions are told, and in which order.
    pub regions: RegionOptions,
    /// The size of pictures.
    pub picture: Picture,
    /// Columns and rows of a heatmap in JSON and pictures; by default as many columns as there are snapshots, up to
    /// 400, and 200 rows.
    pub cells: Option<(usize, usize)>,
}
