//! The heatmap.

use std::io::Write;

use isotherm_record::{Mark, Needs};

use super::{ALL, Ask, Body, Choice, Kind, Made, Report, line, shorter};
use crate::axis::AxisResolution;
use crate::evidence::Evidence;
use crate::extent::{Extent, SurveyedExtent};
use crate::format::Format;
use crate::heatmap::{Heatmap, Plan};
use crate::marks::{Marked, Marks};
use crate::measure::Measure;
use crate::notes::{Noted, Notes};
use crate::options::Options;
use crate::source::{Accumulator, Walks};
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::{ReportError, schema, svg, text};

pub(super) const REPORT: Report = Report {
    kind: Kind::Heatmap,
    name: "heatmap",
    about: "When and where memory is hot: frequencies by time and address",
    formats: ALL,
    choices: &[Choice::Measure],
    examples: &[
        ("heatmap --time 2s:10s", "when and where is it hot?"),
        ("heatmap -o heatmap.png", ""),
        ("heatmap --measure idle-time", "and for how long idle?"),
    ],
    make,
    schema: Some(schema::of::<Noted<Marked<Heatmap>>>),
};

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { format, source, selection, options } = *ask;
    let mut evidence = Evidence::new(source, selection, options.measure.is_none())?;
    let mut marks = Marks::new(selection);
    let (mut sampled, mut surveyed) = (Extent::new(selection), SurveyedExtent::new(selection));
    let mut walks = Walks::new(source, selection, Needs::SURVEYS);
    // Which extent it has depends on the measure, which may depend on the evidence.
    let may_be_rate = options.measure.is_none_or(|measure| measure == Measure::Rate);
    let mut first: Vec<&mut dyn Accumulator> = vec![&mut evidence, &mut marks];
    first.push(if may_be_rate { &mut sampled } else { &mut surveyed });
    let walked = walks.walk(&mut first);
    evidence.suffices(walked)?;
    let measure = options.measure.unwrap_or_else(|| evidence.measure());
    let extent = if measure == Measure::Rate {
        sampled.found()?
    } else {
        if may_be_rate {
            evidence.suffices(walks.walk(&mut [&mut surveyed]))?;
        }
        surveyed.found().ok_or(ReportError::NotSurveyed { measure })?
    };
    let plan = match format {
        Format::Text => {
            let terminal = shorter(&options.terminal, evidence.pace().line().is_some(), &marks.marks);
            text::plan(&Terminal { rows: terminal.rows.saturating_sub(1), ..terminal }, &extent)
        }
        Format::Json => all_targets(options, &extent),
        Format::Svg | Format::Png | Format::Html => {
            let (columns, rows) = cells(options, &extent);
            svg::plan(&extent, options.picture, columns, rows)
        }
    };
    let mut map = Heatmap::begin(selection, measure, &extent, &plan);
    evidence.suffices(walks.walk(&mut [&mut map]))?;
    Ok(Made::new(map.finish(), evidence.warnings(), &evidence, marks))
}

impl Body for Heatmap {
    fn text(&self, _: &Ask<'_>, marks: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        let terminal = Terminal { rows: terminal.rows.saturating_sub(1), ..*terminal };
        Ok(text::heatmap(out, &terminal, self, marks)?)
    }

    fn json(&self, _: &Ask<'_>, marks: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(Marked::new(self, marks), notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        svg::draw_heatmap(self, marks, ask.options.picture)
    }
}

/// The number of columns and of rows of a heatmap in JSON and pictures.
fn cells(options: &Options, extent: &Extent) -> (usize, usize) {
    let snapshots = usize::try_from(extent.snapshots).unwrap_or(usize::MAX);
    options.cells.unwrap_or((snapshots.min(400), 200))
}

/// The heatmap in JSON, with all targets.
fn all_targets(options: &Options, extent: &Extent) -> Plan {
    let (columns, rows) = cells(options, extent);
    let rows_of_area = (rows * 18 / options.picture.height.max(1) as usize).max(1);
    Plan::all(extent, columns, AxisResolution { rows: rows.max(1), rows_of_area, areas: 8, group: 1 })
}
