//! What each report tells, and how it is drawn.

use std::io::Write;

use isotherm_record::{Mark, Needs};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Ask, Body, Kind, Made, shorter};
use crate::axis::AxisResolution;
use crate::evidence::Evidence;
use crate::extent::{Extent, SurveyedExtent};
use crate::format::Format;
use crate::groups::{GroupBy, Grouping};
use crate::heatmap::{Heatmap, Plan};
use crate::histogram::Histogram;
use crate::idle_time::{IdleTime, Surveys};
use crate::marks::{Marked, Marks};
use crate::measure::Measure;
use crate::notes::{Noted, Notes};
use crate::options::Options;
use crate::overhead::Overhead;
use crate::regions::{RegionOptions, TargetRegions, one_snapshot};
use crate::schemes::Schemes;
use crate::source::{Accumulator, Seen, Selection, Walks, walk};
use crate::summary::{Summary, SummaryBuilder};
use crate::surveyed::SurveyedMemory;
use crate::surveys::LastSurveys;
use crate::svg::Drawing;
use crate::temperature::{TemperatureBuilder, Temperatures};
use crate::text::{RegionsText, Terminal};
use crate::tune::Tune;
use crate::used::Used;
use crate::wss::{GroupedWss, Wss, WssBuilder};
use crate::{ReportError, escape, estimated, facts, histogram, svg, text};

fn line(out: &mut dyn Write, report: &impl Serialize) -> Result<(), ReportError> {
    Ok(writeln!(out, "{}", escape::json(report)?)?)
}

/// Walks for a report with its evidence and marks.
fn walk_with(
    ask: &Ask<'_>,
    evidence: &mut Evidence,
    marks: &mut Marks,
    report: &mut [&mut dyn Accumulator],
) -> Result<(), ReportError> {
    let mut all: Vec<&mut dyn Accumulator> = vec![evidence, marks];
    all.extend(report.iter_mut().map(|accumulator| &mut **accumulator as &mut dyn Accumulator));
    walk(ask.source, ask.selection, &mut all)
}

/// The evidence and the marks for a report that walks by itself.
fn sufficient(ask: &Ask<'_>) -> Result<(Evidence, Marks), ReportError> {
    let mut evidence = Evidence::new(ask.source, ask.selection, false)?;
    let mut marks = Marks::new(ask.selection);
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut []);
    evidence.suffices(walked)?;
    Ok((evidence, marks))
}

pub(super) fn heatmap(ask: &Ask<'_>) -> Result<Made, ReportError> {
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
    evidence.suffices(walks.last(&mut [&mut map]))?;
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

/// The working set with that of each group.
#[derive(Serialize, JsonSchema)]
pub(super) struct WssReport {
    #[serde(flatten)]
    wss: Wss,
    #[serde(flatten)]
    groups: GroupedWss,
}

pub(super) fn wss(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let mut evidence = Evidence::new(source, selection, false)?;
    let (mut marks, mut found) = (Marks::new(selection), WssBuilder::new(source.header(), selection));
    let mut groups = Grouping::reader(selection, options.by);
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut [&mut found, &mut groups]);
    evidence.suffices(walked)?;
    let wss = found.finish(source, options.window)?;
    let grouping = Grouping::of_reader(groups, source, selection, options.by)?;
    let groups = GroupedWss::new(&wss, source, selection, &grouping)?;
    Ok(Made::new(WssReport { wss, groups }, evidence.warnings(), &evidence, marks))
}

impl Body for WssReport {
    fn text(&self, _: &Ask<'_>, marks: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::wss(out, terminal, &self.wss, &self.groups, marks)?)
    }

    fn json(&self, _: &Ask<'_>, marks: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(Marked::new(self, marks), notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_wss(&self.wss, &self.groups, marks, ask.options.picture))
    }
}

/// The regions, which are written as they are read.
struct Regions {
    /// What is missing from the recording.
    missed: Option<String>,
}

pub(super) fn regions(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let (evidence, marks) = sufficient(ask)?;
    Ok(Made::new(Regions { missed: evidence.missed() }, evidence.warnings(), &evidence, marks))
}

impl Body for Regions {
    fn text(&self, ask: &Ask<'_>, _: &[Mark], _: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        let Options { terminal, regions: options, .. } = *ask.options;
        let mut view = RegionsText { out, terminal, options, surveys: LastSurveys::default() };
        walk(ask.source, &at(ask)?, &mut [&mut view])
    }

    fn json(&self, ask: &Ask<'_>, _: &[Mark], _: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        if let Some(missed) = &self.missed {
            line(out, &RegionsLine::Warnings { warnings: [missed.clone()] })?;
        }
        let surveys = LastSurveys::default();
        walk(ask.source, &at(ask)?, &mut [&mut JsonLines { out, options: ask.options.regions, surveys }])
    }

    fn picture(&self, ask: &Ask<'_>, _: &[Mark]) -> Result<Drawing, ReportError> {
        let Ask { source, selection, options, .. } = *ask;
        let selection = one_snapshot(source, selection, options.regions.at)?;
        let mut snapshots = svg::RegionLines::new(options.regions);
        walk(source, &selection, &mut [&mut snapshots])?;
        Ok(snapshots.draw(options.picture))
    }
}

/// A line of the regions in JSON.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum RegionsLine {
    /// The first line, if something is missing from the recording.
    Warnings {
        /// What is missing.
        warnings: [String; 1],
    },
    /// The regions of one target in one snapshot.
    Target(TargetRegions),
}

/// The selection, narrowed to one snapshot if the options ask for one.
fn at(ask: &Ask<'_>) -> Result<Selection, ReportError> {
    match ask.options.regions.at {
        Some(at) => one_snapshot(ask.source, ask.selection, Some(at)),
        None => Ok(ask.selection.clone()),
    }
}

/// Writes one line of JSON for each snapshot and target during the walk.
struct JsonLines<'a> {
    out: &'a mut dyn Write,
    options: RegionOptions,
    surveys: LastSurveys,
}

impl Accumulator for JsonLines<'_> {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS | Needs::SURVEYS
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Some(visit) = self.surveys.chosen(event) else { return Ok(()) };
        let regions = TargetRegions::of(visit, &self.options, self.surveys.before(visit.row));
        line(self.out, &RegionsLine::Target(regions))
    }
}

pub(super) fn summary(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let grouping = Grouping::of(source, selection, options.by)?;
    let header = source.header();
    let (mut evidence, mut marks) = (Evidence::new(source, selection, false)?, Marks::new(selection));
    let (mut surveyed, mut used) = (SurveyedMemory::new(selection, &grouping), Used::new(header, selection, &grouping));
    let (mut wss, mut overhead) = (WssBuilder::new(header, selection), Overhead::sums(header, selection));
    let mut summary = SummaryBuilder::grouped(grouping);
    let mut all: [&mut dyn Accumulator; 5] = [&mut summary, &mut overhead, &mut surveyed, &mut used, &mut wss];
    walk_with(ask, &mut evidence, &mut marks, &mut all)?;
    let mut summary = summary.finish(header, source.cut_short(), &overhead.finish());
    used.write(&mut summary);
    surveyed.write(&mut summary);
    estimated::add(&mut summary, &wss.finish(source, None)?, source, selection)?;
    summary.drop_empty_stacks();
    summary.sort(options.summary_sort);
    Ok(Made::new(summary, evidence.warnings(), &evidence, marks))
}

impl Body for Summary {
    fn text(&self, _: &Ask<'_>, marks: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::summary(out, terminal, self, marks)?)
    }

    fn json(&self, _: &Ask<'_>, marks: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        let warnings = notes.warnings.into_iter().chain(facts::warnings(self)).collect();
        line(out, &Noted::new(Marked::new(self, marks), Notes { warnings, ..notes }))
    }

    fn picture(&self, ask: &Ask<'_>, _: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_summary(self, ask.options.picture))
    }

    fn is_fitted(&self) -> bool {
        false
    }
}

/// A report that is a histogram.
trait Banded: Serialize {
    fn histogram(&self) -> Histogram<'_>;
}

impl Banded for IdleTime {
    fn histogram(&self) -> Histogram<'_> {
        self.histogram()
    }
}

impl Banded for Temperatures {
    fn histogram(&self) -> Histogram<'_> {
        self.histogram()
    }
}

struct Bands<T>(T);

impl<T: Banded> Body for Bands<T> {
    fn text(&self, _: &Ask<'_>, _: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(histogram::write(out, terminal, &self.0.histogram())?)
    }

    fn json(&self, _: &Ask<'_>, _: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(&self.0, notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(histogram::draw(&self.0.histogram(), marks, ask.options.picture))
    }
}

pub(super) fn idle_time(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let by = options.by.or(Some(GroupBy::Command));
    let (mut evidence, mut marks) = (Evidence::new(source, selection, false)?, Marks::new(selection));
    let (mut groups, mut surveys) = (Grouping::reader(selection, by), Surveys::new(selection));
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut [&mut groups, &mut surveys]);
    evidence.suffices(walked)?;
    let grouping = Grouping::of_reader(groups, source, selection, by)?;
    let idle_time = IdleTime::after(surveys, source, selection, &grouping)?;
    Ok(Made::new(Bands(idle_time), evidence.warnings(), &evidence, marks))
}

pub(super) fn temperature(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let by = options.by.or(Some(GroupBy::Command));
    let (mut evidence, mut marks) = (Evidence::new(source, selection, false)?, Marks::new(selection));
    let (mut groups, mut found) = (Grouping::reader(selection, by), TemperatureBuilder::default());
    walk_with(ask, &mut evidence, &mut marks, &mut [&mut groups, &mut found])?;
    let temperatures = found.finish(&Grouping::of_reader(groups, source, selection, by)?);
    Ok(Made::new(Bands(temperatures), evidence.warnings(), &evidence, marks))
}

pub(super) fn overhead(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let mut evidence = Evidence::new(ask.source, ask.selection, false)?;
    let mut marks = Marks::new(ask.selection);
    let mut overhead = Overhead::new(ask.source.header(), ask.selection);
    walk_with(ask, &mut evidence, &mut marks, &mut [&mut overhead])?;
    // That there was little to find says nothing of what the monitoring cost.
    Ok(Made::new(overhead.finish(), evidence.of_monitoring(), &evidence, marks))
}

impl Body for Overhead {
    fn text(&self, _: &Ask<'_>, _: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::overhead(out, terminal, self)?)
    }

    fn json(&self, _: &Ask<'_>, _: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(Overhead::json(self)?, notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_overhead(self, marks, ask.options.picture))
    }

    fn is_fitted(&self) -> bool {
        false
    }
}

pub(super) fn schemes(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let mut evidence = Evidence::new(ask.source, ask.selection, false)?;
    let mut marks = Marks::new(ask.selection);
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut []);
    let schemes = Schemes::new(ask.source, ask.selection)?;
    match evidence.suffices(walked) {
        Ok(()) => Ok(Made::new(schemes, evidence.warnings(), &evidence, marks)),
        // While all schemes are asleep, there are no snapshots.
        Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {
            let notes = Notes { warnings: evidence.missed().into_iter().collect(), ..Notes::default() };
            Ok(Made { body: Box::new(schemes), marks: marks.marks, notes })
        }
        Err(error) => Err(error),
    }
}

impl Body for Schemes {
    fn text(&self, ask: &Ask<'_>, _: &[Mark], _: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::schemes(out, &ask.options.terminal, self)?)
    }

    fn json(&self, _: &Ask<'_>, _: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(self, notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_schemes(self, marks, ask.options.picture))
    }
}

pub(super) fn tune(ask: &Ask<'_>) -> Result<Made, ReportError> {
    Ok(Made::bare(Tune::new(ask.source, ask.selection, None)?))
}

impl Body for Tune {
    fn text(&self, ask: &Ask<'_>, _: &[Mark], _: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        self.write(ask.format, &ask.options.terminal, out)
    }

    fn json(&self, ask: &Ask<'_>, _: &[Mark], _: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        self.write(ask.format, &ask.options.terminal, out)
    }

    fn picture(&self, ask: &Ask<'_>, _: &[Mark]) -> Result<Drawing, ReportError> {
        Err(ReportError::Unsupported { kind: Kind::Tune, format: ask.format })
    }

    fn is_fitted(&self) -> bool {
        false
    }
}

/// The page is written as a whole; no other format of it is asked for.
pub(super) fn page(ask: &Ask<'_>) -> Result<Made, ReportError> {
    Err(ReportError::Unsupported { kind: Kind::Html, format: ask.format })
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
