//! The function that writes a report.

use std::io::Write;

use serde::Serialize;

use crate::axis::AxisResolution;
use crate::evidence::{Evidence, missed};
use crate::extent::Extent;
use crate::groups::Grouping;
use crate::heatmap::{Heatmap, Plan};
use crate::idle_time::IdleTime;
use crate::kind::{Format, Kind};
use crate::marks::{self, Marked};
use crate::notes::{Noted, Notes};
use crate::options::Options;
use crate::overhead::Overhead;
use crate::regions::{RegionOptions, TargetRegions, one_snapshot};
use crate::schemes::Schemes;
use crate::source::{Selection, Source, View, Visit, walk};
use crate::summary::{Summary, SummaryBuilder};
use crate::surveys::LastSurveys;
use crate::temperature::Temperatures;
use crate::text::{RegionsText, Terminal};
use crate::tune::{Surroundings, Tune};
use crate::wss::{GroupedWss, Wss};
use crate::{ReportError, escape, estimated, facts, histogram, html, png, surveyed, svg, text};

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
    let selection = &selection.within_part(source.header());
    match (kind, format) {
        (Kind::Tune, _) => {
            let tune = Tune::new(source, selection, &Surroundings::default())?;
            return tune.write(format, &options.terminal, out);
        }
        (_, Format::Html) => out.write_all(html::page(source, selection, options)?.as_bytes())?,
        (Kind::Html, _) => {
            let fix = "use --format html, or another kind of report";
            return Err(ReportError::Unsupported { kind, format, fix });
        }
        (_, Format::Text) => write_text(kind, source, selection, options, out)?,
        (Kind::Regions, Format::Json) => {
            if let Some(missed) = missed(source, selection)? {
                writeln!(out, "{}", escape::json(&serde_json::json!({ "warnings": [missed] }))?)?;
            }
            let narrowed = at(source, selection, options)?;
            let surveys = LastSurveys::new(source)?;
            walk(source, &narrowed, &mut [&mut JsonLines { out, options: options.regions, surveys }])?;
        }
        (_, Format::Json) => writeln!(out, "{}", json(kind, source, selection, options)?)?,
        (_, Format::Svg) => out.write_all(picture(kind, source, selection, options)?.as_bytes())?,
        (_, Format::Png) => out.write_all(&png::from_svg(&picture(kind, source, selection, options)?)?)?,
    }
    out.flush()?;
    Ok(())
}

/// Writes a report as text. Its first line warns if the report rests on little evidence, the last tells how often the
/// recording surveyed and sampled, and what that cost.
fn write_text(
    kind: Kind,
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let terminal = &options.terminal;
    let evidence = Evidence::of(source, selection);
    let measure = evidence.as_ref().ok().map(Evidence::measure);
    let Notes { warnings, pace } = Notes::of(kind, source, selection, evidence)?;
    warnings.into_iter().try_for_each(|warning| text::warning(out, terminal, Some(warning)))?;
    // It has that line among its facts.
    if kind == Kind::Overhead {
        return Ok(text::overhead(out, terminal, &overhead(source, selection)?)?);
    }
    let line = pace.line();
    let marks = marks::selected(source, selection)?;
    let above_axis = if marks.is_empty() { 0 } else { 2 };
    let notes = usize::from(line.is_some()) + usize::from(kind == Kind::Heatmap) + above_axis;
    let shorter = Terminal { rows: terminal.rows.saturating_sub(notes), ..*terminal };
    match kind {
        Kind::Heatmap => {
            let measure = options.measure.or(measure).unwrap_or_default();
            let map = Heatmap::of(source, selection, measure, |extent| text::plan(&shorter, extent))?;
            text::heatmap(out, &shorter, &map, &marks)?;
        }
        Kind::Wss => {
            let wss = Wss::new(source, selection, options.window)?;
            text::wss(out, &shorter, &wss, &grouped(&wss, source, selection, options)?, &marks)?;
        }
        Kind::Regions => {
            let surveys = LastSurveys::new(source)?;
            let mut view = RegionsText { out, terminal: *terminal, options: options.regions, surveys };
            walk(source, &at(source, selection, options)?, &mut [&mut view])?;
        }
        Kind::IdleTime => histogram::write(out, &shorter, &IdleTime::new(source, selection, options.by)?.histogram())?,
        Kind::Temperature => {
            histogram::write(out, &shorter, &Temperatures::new(source, selection, options.by)?.histogram())?
        }
        Kind::Schemes => text::schemes(out, terminal, &Schemes::new(source, selection)?)?,
        _ => return Ok(text::summary(out, terminal, &summary(source, selection, options)?, &marks)?),
    }
    text::note(out, terminal, line)?;
    Ok(())
}

fn json(kind: Kind, source: &dyn Source, selection: &Selection, options: &Options) -> Result<String, ReportError> {
    let marks = || marks::selected(source, selection);
    let evidence = Evidence::of(source, selection);
    let measure = evidence.as_ref().ok().map(Evidence::measure);
    let notes = Notes::of(kind, source, selection, evidence)?;
    match kind {
        Kind::Heatmap => {
            let measure = options.measure.or(measure).unwrap_or_default();
            let map = Heatmap::of(source, selection, measure, |extent| all_targets(options, extent))?;
            escape::json(&Noted::new(Marked::new(map, &marks()?), notes))
        }
        Kind::Wss => {
            let wss = Wss::new(source, selection, options.window)?;
            let report = WssReport { groups: grouped(&wss, source, selection, options)?, wss };
            escape::json(&Noted::new(Marked::new(report, &marks()?), notes))
        }
        Kind::Overhead => escape::json(&Noted::new(overhead(source, selection)?.json()?, notes)),
        Kind::IdleTime => escape::json(&Noted::new(IdleTime::new(source, selection, options.by)?, notes)),
        Kind::Temperature => escape::json(&Noted::new(Temperatures::new(source, selection, options.by)?, notes)),
        Kind::Schemes => escape::json(&Noted::new(Schemes::new(source, selection)?, notes)),
        _ => {
            let summary = summary(source, selection, options)?;
            let warnings = notes.warnings.into_iter().chain(facts::warnings(&summary)).collect();
            escape::json(&Noted::new(Marked::new(summary, &marks()?), Notes { warnings, ..notes }))
        }
    }
}

/// A picture of its own, with what cannot be relied on above it, and below it how often the recording surveyed and
/// sampled.
fn picture(kind: Kind, source: &dyn Source, selection: &Selection, options: &Options) -> Result<String, ReportError> {
    let picture = options.picture;
    let marks = &marks::selected(source, selection)?;
    let evidence = Evidence::of(source, selection);
    let measure = evidence.as_ref().ok().map(Evidence::measure);
    let notes = Notes::of(kind, source, selection, evidence)?;
    let drawing = match kind {
        Kind::Heatmap => {
            let plan = |extent: &Extent| {
                let (columns, rows) = cells(options, extent);
                svg::plan(extent, picture, columns, rows)
            };
            let measure = options.measure.or(measure).unwrap_or_default();
            svg::draw_heatmap(&Heatmap::of(source, selection, measure, plan)?, marks, picture)?
        }
        Kind::Wss => {
            let wss = Wss::new(source, selection, options.window)?;
            svg::draw_wss(&wss, &grouped(&wss, source, selection, options)?, marks, picture)
        }
        Kind::Overhead => svg::draw_overhead(&overhead(source, selection)?, marks, picture),
        Kind::IdleTime => histogram::draw(&IdleTime::new(source, selection, options.by)?.histogram(), marks, picture),
        Kind::Temperature => {
            histogram::draw(&Temperatures::new(source, selection, options.by)?.histogram(), marks, picture)
        }
        Kind::Schemes => svg::draw_schemes(&Schemes::new(source, selection)?, marks, picture),
        Kind::Regions => {
            let selection = one_snapshot(source, selection, options.regions.at)?;
            let mut snapshots = svg::RegionLines::new(options.regions, LastSurveys::new(source)?);
            walk(source, &selection, &mut [&mut snapshots])?;
            snapshots.draw(picture)
        }
        Kind::Summary | Kind::Tune | Kind::Html => svg::draw_summary(&summary(source, selection, options)?, picture),
    };
    Ok(drawing.with_notes(&notes).standalone())
}

fn overhead(source: &dyn Source, selection: &Selection) -> Result<Overhead, ReportError> {
    let mut overhead = Overhead::new(source.header());
    overhead.add_surveys(source, selection)?;
    walk(source, selection, &mut [&mut overhead])?;
    Ok(overhead.finish())
}

fn summary(source: &dyn Source, selection: &Selection, options: &Options) -> Result<Summary, ReportError> {
    let grouping = Grouping::of(source, selection, options.by)?;
    let (mut summary, mut overhead) = (SummaryBuilder::grouped(grouping), Overhead::new(source.header()));
    overhead.add_surveys(source, selection)?;
    walk(source, selection, &mut [&mut summary, &mut overhead])?;
    let mut summary = summary.finish(source.header(), source.cut_short(), &overhead.finish());
    surveyed::add(&mut summary, source, selection)?;
    estimated::add(&mut summary, source, selection)?;
    summary.drop_empty_stacks();
    summary.sort(options.summary_sort);
    Ok(summary)
}

/// The working set with that of each group.
#[derive(Serialize)]
struct WssReport {
    #[serde(flatten)]
    wss: Wss,
    #[serde(flatten)]
    groups: GroupedWss,
}

fn grouped(
    wss: &Wss,
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
) -> Result<GroupedWss, ReportError> {
    GroupedWss::new(wss, source, selection, &Grouping::of(source, selection, options.by)?)
}

/// The selection, narrowed to one snapshot if the options ask for one.
fn at(source: &dyn Source, selection: &Selection, options: &Options) -> Result<Selection, ReportError> {
    match options.regions.at {
        Some(at) => one_snapshot(source, selection, Some(at)),
        None => Ok(selection.clone()),
    }
}

/// Writes one line of JSON for each snapshot and target during the walk.
struct JsonLines<'a> {
    out: &'a mut dyn Write,
    options: RegionOptions,
    surveys: LastSurveys<'a>,
}

impl View for JsonLines<'_> {
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if visit.chosen {
            let regions = TargetRegions::of(visit, &self.options, self.surveys.before(visit.row)?);
            writeln!(self.out, "{}", escape::json(&regions)?)?;
        }
        Ok(())
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
