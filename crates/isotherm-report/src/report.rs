//! The function that writes a report.

use std::io::Write;

use crate::axis::AxisResolution;
use crate::evidence::Evidence;
use crate::extent::Extent;
use crate::heatmap::{Heatmap, Resolution};
use crate::kind::{Format, Kind};
use crate::options::Options;
use crate::overhead::Overhead;
use crate::regions::{RegionOptions, TargetRegions, one_snapshot};
use crate::schemes::Schemes;
use crate::source::{Selection, Source, View, Visit, walk};
use crate::summary::{Summary, SummaryBuilder};
use crate::text::RegionsText;
use crate::wss::Wss;
use crate::{ReportError, escape, html, png, surveyed, svg, text};

/// Writes a report.
///
/// # Errors
/// If the recording cannot be read, is empty or has nothing in the selection; if the kind does not have the format; or
/// if `out` cannot be written to.
pub fn write(
    kind: Kind,
    format: Format,
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    if format == Format::Text && matches!(kind, Kind::Heatmap | Kind::Wss | Kind::Regions | Kind::Summary) {
        text::warning(out, &options.terminal, Evidence::of(source, selection)?.warning())?;
    }
    match (kind, format) {
        (_, Format::Html) => out.write_all(html::page(source, selection, options)?.as_bytes())?,
        (Kind::Html, _) => {
            let fix = "use --format html, or another kind of report";
            return Err(ReportError::Unsupported { kind, format, fix });
        }
        (Kind::Regions, Format::Text | Format::Json) => write_regions(format, source, selection, options, out)?,
        (_, Format::Text) => write_text(kind, source, selection, options, out)?,
        (_, Format::Json) => writeln!(out, "{}", json(kind, source, selection, options)?)?,
        (_, Format::Svg) => out.write_all(picture(kind, source, selection, options)?.as_bytes())?,
        (_, Format::Png) => out.write_all(&png::from_svg(&picture(kind, source, selection, options)?)?)?,
    }
    out.flush()?;
    Ok(())
}

fn write_text(
    kind: Kind,
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let terminal = &options.terminal;
    match kind {
        Kind::Heatmap => {
            let map = heatmap(source, selection, options, |extent| text::resolution(terminal, extent))?;
            text::heatmap(out, terminal, &map)?;
        }
        Kind::Wss => text::wss(out, terminal, &Wss::new(source, selection, options.window)?)?,
        Kind::Overhead => text::overhead(out, terminal, &overhead(source, selection)?)?,
        Kind::Schemes => text::schemes(out, terminal, &Schemes::new(source, selection)?)?,
        _ => text::summary(out, terminal, &summary(source, selection)?)?,
    }
    Ok(())
}

fn json(kind: Kind, source: &dyn Source, selection: &Selection, options: &Options) -> Result<String, ReportError> {
    match kind {
        Kind::Heatmap => escape::json(&heatmap(source, selection, options, |extent| resolution(options, extent))?),
        Kind::Wss => escape::json(&Wss::new(source, selection, options.window)?),
        Kind::Overhead => overhead(source, selection)?.json(),
        Kind::Schemes => escape::json(&Schemes::new(source, selection)?),
        _ => escape::json(&summary(source, selection)?),
    }
}

fn picture(kind: Kind, source: &dyn Source, selection: &Selection, options: &Options) -> Result<String, ReportError> {
    let picture = options.picture;
    Ok(match kind {
        Kind::Heatmap => {
            svg::heatmap(&heatmap(source, selection, options, |extent| resolution(options, extent))?, picture)?
        }
        Kind::Wss => svg::wss(&Wss::new(source, selection, options.window)?, picture),
        Kind::Overhead => svg::overhead(&overhead(source, selection)?, picture),
        Kind::Schemes => svg::schemes(&Schemes::new(source, selection)?, picture),
        Kind::Regions => {
            let selection = one_snapshot(source, selection, options.regions.at)?;
            let mut snapshots = svg::RegionLines::new(options.regions);
            walk(source, &selection, &mut [&mut snapshots])?;
            snapshots.draw(picture)
        }
        Kind::Summary | Kind::Html => svg::summary(&summary(source, selection)?, picture),
    })
}

fn heatmap(
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
    resolution: impl FnOnce(&Extent) -> Resolution,
) -> Result<Heatmap, ReportError> {
    let measure = match options.measure {
        Some(measure) => measure,
        None => Evidence::of(source, selection)?.measure(),
    };
    Heatmap::of(source, selection, measure, resolution)
}

fn overhead(source: &dyn Source, selection: &Selection) -> Result<Overhead, ReportError> {
    let mut overhead = Overhead::new(source.header());
    walk(source, selection, &mut [&mut overhead])?;
    Ok(overhead.finish())
}

fn summary(source: &dyn Source, selection: &Selection) -> Result<Summary, ReportError> {
    let (mut summary, mut overhead) = (SummaryBuilder::default(), Overhead::new(source.header()));
    walk(source, selection, &mut [&mut summary, &mut overhead])?;
    let mut summary = summary.finish(source.header(), source.cut_short(), &overhead.finish());
    surveyed::add(&mut summary, source, selection)?;
    Ok(summary)
}

fn write_regions(
    format: Format,
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let narrowed = match options.regions.at {
        Some(at) => one_snapshot(source, selection, Some(at))?,
        None => selection.clone(),
    };
    match format {
        Format::Text => {
            let mut view = RegionsText { out, terminal: options.terminal, options: options.regions };
            walk(source, &narrowed, &mut [&mut view])
        }
        _ => walk(source, &narrowed, &mut [&mut JsonLines { out, options: options.regions }]),
    }
}

/// Writes one line of JSON for each snapshot and target during the walk.
struct JsonLines<'a> {
    out: &'a mut dyn Write,
    options: RegionOptions,
}

impl View for JsonLines<'_> {
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if visit.chosen {
            writeln!(self.out, "{}", escape::json(&TargetRegions::of(visit, &self.options))?)?;
        }
        Ok(())
    }
}

/// The resolution of a heatmap in JSON and pictures.
fn resolution(options: &Options, extent: &Extent) -> Resolution {
    let snapshots = usize::try_from(extent.snapshots).unwrap_or(usize::MAX);
    let (columns, rows) = options.cells.unwrap_or((snapshots.min(400), 200));
    // In a picture an area must be tall enough for its label.
    let rows_of_area = (rows * 18 / options.picture.height.max(1) as usize).max(1);
    let axis = AxisResolution { rows: rows.max(1), rows_of_area, areas: 8, group: 1 };
    Resolution { columns: columns.max(1), axis }
}
