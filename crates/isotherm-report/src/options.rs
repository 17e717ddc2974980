//! Options of reports.

use std::time::Duration;

use crate::Terminal;
use crate::groups::GroupBy;
use crate::measure::Measure;
use crate::regions::RegionOptions;
use crate::summary::SummarySort;

/// The size of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The width in pixels.
    pub width: u32,
    /// The height of the plot in pixels, without titles and axes.
    pub height: u32,
}

impl Default for Picture {
    fn default() -> Self {
        Self { width: 1200, height: 640 }
    }
}

/// Options of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// The terminal that text is fitted to.
    pub terminal: Terminal,
    /// Which regions are shown, and in which order.
    pub regions: RegionOptions,
    /// The size of pictures.
    pub picture: Picture,
    /// Columns and rows of a heatmap in JSON and pictures. The default is one column per snapshot, at most 400, and
    /// 200 rows.
    pub cells: Option<(usize, usize)>,
    /// The window of the working set, one of [`WINDOWS`](isotherm_core::survey::WINDOWS). The default is the survey
    /// interval.
    pub window: Option<Duration>,
    /// What the summary and the working set are grouped by. The default is the process, or the command if there are
    /// more than eight targets of several programs.
    pub by: Option<GroupBy>,
    /// What the mappings and groups of a summary are sorted by.
    pub summary_sort: SummarySort,
    /// What a heatmap measures. The default is what there is information for.
    pub measure: Option<Measure>,
}
