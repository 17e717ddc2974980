//! The layout of the screen. On a small screen the least important parts are left out.

use ratatui::layout::Rect;

/// The smallest screen, in columns and lines, that can show anything useful.
pub const SMALLEST: (u16, u16) = (24, 6);

/// The parts of the screen. A part that is left out has no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenLayout {
    pub title: Rect,
    /// Working set and temperature: one or two lines.
    pub memory: Rect,
    /// The memory of each node, if there are several.
    pub nodes: Rect,
    pub monitor: Rect,
    /// A line for each scheme; fewer if there are many or the screen is small.
    pub schemes: Rect,
    /// The working set over time, above the heatmap.
    pub working_set: Rect,
    pub heatmap: Rect,
    pub axis: Rect,
    pub legend: Rect,
    pub table: Rect,
    pub keys: Rect,
    /// The columns of both pictures: labels at the left, the picture, names at the right.
    pub gutter: u16,
    pub plot: u16,
    pub names: u16,
}

impl ScreenLayout {
    /// The layout of a screen of this size, with this number of schemes, and with or without a line of memory nodes;
    /// `None` if the screen is too small.
    pub fn new(width: u16, height: u16, schemes: usize, has_nodes: bool) -> Option<Self> {
        if width < SMALLEST.0 || height < SMALLEST.1 {
            return None;
        }
        let memory = if height >= 16 { 2 } else { u16::from(height >= 7) };
        let nodes = u16::from(has_nodes && height >= 18);
        let monitor = u16::from(height >= 9);
        let most = match height {
            0..16 => 0,
            16..24 => 1,
            24..32 => 3,
            _ => 4,
        };
        let schemes = u16::try_from(schemes).map_or(most, |schemes| schemes.min(most));
        let working_set = match height {
            0..12 => 0,
            12..30 => 1,
            30..50 => 2,
            _ => 3,
        };
        let axis = u16::from(height >= 8);
        let legend = u16::from(height >= 12);
        let table = if height >= 14 { (height / 4).clamp(4, 14) } else { 0 };
        let heatmap = height - 2 - memory - nodes - monitor - schemes - working_set - axis - legend - table;

        let mut y = 0;
        let mut next = |height| {
            let place = Rect::new(0, y, width, height);
            y += height;
            place
        };
        let gutter = if width >= 48 { 11 } else { 0 };
        let names = if width >= 72 { (width / 5).min(30) } else { 0 };
        Some(Self {
            title: next(1),
            memory: next(memory),
            nodes: next(nodes),
            monitor: next(monitor),
            schemes: next(schemes),
            working_set: next(working_set),
            heatmap: next(heatmap),
            axis: next(axis),
            legend: next(legend),
            table: next(table),
            keys: next(1),
            gutter,
            plot: width - gutter - names,
            names,
        })
    }

    /// The columns of the picture in `place`.
    pub fn plot(&self, place: Rect) -> Rect {
        Rect { x: place.x + self.gutter, width: self.plot, ..place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_screen_is_filled_and_none_overflows() {
        for (width, schemes) in (0..300).step_by(7).zip([0, 1, 2, 5, 100_000].into_iter().cycle()) {
            for height in 0..120 {
                let Some(p) = ScreenLayout::new(width, height, schemes, schemes == 1) else {
                    assert!(width < SMALLEST.0 || height < SMALLEST.1);
                    continue;
                };
                let layout = [
                    p.title,
                    p.memory,
                    p.nodes,
                    p.monitor,
                    p.schemes,
                    p.working_set,
                    p.heatmap,
                    p.axis,
                    p.legend,
                    p.table,
                    p.keys,
                ];
                assert!(layout.windows(2).all(|pair| pair[0].bottom() == pair[1].y));
                assert_eq!(p.keys.bottom(), height);
                assert!(p.heatmap.height >= 3, "{width}x{height}: {p:?}");
                assert_eq!(p.gutter + p.plot + p.names, width);
            }
        }
    }
}
