//! The reports that there are, and the function that writes one.
//!
//! A report is a row of [`REPORTS`], and a [`Body`]: what a walk over the recording has found, which is drawn in each
//! format. What all reports have besides, warnings, marks and the pace of the recording, is written here.

mod heatmap;
mod histograms;
mod overhead;
mod regions;
mod schemes;
mod summary;
mod tune;
mod wss;

use std::io::Write;

use isotherm_record::Mark;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::format::Format;
use crate::marks::Marks;
use crate::notes::Notes;
use crate::options::Options;
use crate::source::{Accumulator, Selection, Source, walk};
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::{ReportError, escape, html, png, text};

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The access rate of all memory over time.
    Heatmap,
    /// The working set: percentiles, and over time.
    Wss,
    /// The regions of each snapshot.
    Regions,
    /// How much memory is hot, warm and cold, by mapping name.
    Summary,
    /// For how long memory has been idle.
    IdleTime,
    /// How many bytes are accessed how often.
    Temperature,
    /// What the monitoring cost.
    Overhead,
    /// What schemes did, and the memory in use.
    Schemes,
    /// Attributes, working sets and advice.
    Tune,
    /// All reports but `Tune` in one page.
    Html,
}

/// A row of the table of reports.
struct Report {
    kind: Kind,
    /// The name on the command line.
    name: &'static str,
    /// What it shows.
    about: &'static str,
    /// The formats that it has. The first is the default.
    formats: &'static [Format],
    /// The options that it has besides those of all reports.
    choices: &'static [Choice],
    /// Calls of it, after `isotherm report`, and what they are for.
    examples: &'static [(&'static str, &'static str)],
    /// Reads what it tells.
    make: fn(&Ask<'_>) -> Result<Made, ReportError>,
    /// The JSON Schema of it. `None` if it has no JSON.
    schema: Option<fn(&str, &str) -> serde_json::Value>,
}

/// Options of the command line that only some reports have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// [`Options::by`].
    By {
        /// What memory is grouped by without it.
        default: &'static str,
    },
    /// [`Options::by`], also by stack, and [`Options::summary_sort`].
    Summary,
    /// [`Options::window`].
    Window,
    /// [`Options::measure`].
    Measure,
    /// [`Options::regions`].
    Regions,
}

const BY_PROCESS: Choice = Choice::By { default: "process; command with more than 8 targets of several programs" };
const BY_COMMAND: Choice = Choice::By { default: "command" };

/// Formats of a report that has its place on the page.
const ALL: &[Format] = &[Format::Text, Format::Json, Format::Png, Format::Svg, Format::Html];

const PAGE: Report = Report {
    kind: Kind::Html,
    name: "html",
    about: "All reports but tune in one page, which needs no network",
    formats: &[Format::Html],
    choices: &[BY_PROCESS, Choice::Window],
    examples: &[("html -o memory.html", "all reports in one page")],
    make: page,
    schema: None,
};

/// All reports, in the order of the kinds.
const REPORTS: [&Report; 10] = [
    &heatmap::REPORT,
    &wss::REPORT,
    &regions::REPORT,
    &summary::REPORT,
    &histograms::IDLE_TIME,
    &histograms::TEMPERATURE,
    &overhead::REPORT,
    &schemes::REPORT,
    &tune::REPORT,
    &PAGE,
];

impl Kind {
    /// All kinds.
    pub const ALL: [Self; REPORTS.len()] = {
        let mut all = [Self::Heatmap; REPORTS.len()];
        let mut nth = 0;
        while nth < all.len() {
            all[nth] = REPORTS[nth].kind;
            nth += 1;
        }
        all
    };

    /// Its row among the reports.
    fn report(self) -> &'static Report {
        // Each kind has one, in the order of the kinds: a test holds it.
        REPORTS[self as usize]
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.report().name
    }

    /// What it shows.
    pub fn about(self) -> &'static str {
        self.report().about
    }

    /// The formats that it has. The first is the default.
    pub fn formats(self) -> &'static [Format] {
        self.report().formats
    }

    /// The options that it has besides those of all reports.
    pub fn choices(self) -> &'static [Choice] {
        self.report().choices
    }

    /// Calls of it, after `isotherm report`, and what they are for.
    pub fn examples(self) -> &'static [(&'static str, &'static str)] {
        self.report().examples
    }

    /// The JSON Schema of it. `None` if it has no JSON.
    pub fn schema(self) -> Option<serde_json::Value> {
        let Report { name, about, schema, .. } = self.report();
        schema.map(|schema| schema(&format!("report {name}"), about))
    }
}

/// What is asked of a report.
struct Ask<'a> {
    format: Format,
    source: &'a dyn Source,
    selection: &'a Selection,
    options: &'a Options,
}

/// A report, ready to be drawn.
struct Made {
    body: Box<dyn Body>,
    marks: Vec<Mark>,
    notes: Notes,
}

impl Made {
    /// A report with the evidence and the marks of its walk.
    fn new(
        body: impl Body + 'static,
        warnings: impl Iterator<Item = String>,
        evidence: &Evidence,
        marks: Marks,
    ) -> Self {
        let notes = Notes { warnings: warnings.collect(), pace: evidence.pace() };
        Self { body: Box::new(body), marks: marks.marks, notes }
    }

    /// A report that has no notes.
    fn bare(body: impl Body + 'static) -> Self {
        Self { body: Box::new(body), marks: vec![], notes: Notes::default() }
    }
}

/// What a report tells, apart from what all reports have.
trait Body {
    /// Writes it as text.
    fn text(&self, ask: &Ask<'_>, marks: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError>;

    /// Writes it as JSON, with marks and notes.
    fn json(&self, ask: &Ask<'_>, marks: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError>;

    /// Draws it.
    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError>;

    /// Whether the text ends with the pace of the recording, and is shortened by the lines around it.
    fn is_fitted(&self) -> bool {
        true
    }
}

/// Writes a line of JSON.
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

/// The page is written as a whole; no other format of it is asked for.
fn page(ask: &Ask<'_>) -> Result<Made, ReportError> {
    Err(ReportError::Unsupported { kind: Kind::Html, format: ask.format })
}

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
    let report = kind.report();
    if !report.formats.contains(&format) {
        return Err(ReportError::Unsupported { kind, format });
    }
    let selection = &selection.within_part(source.header());
    let ask = &Ask { format, source, selection, options };
    let picture = |made: Made| {
        let drawing = made.body.picture(ask, &made.marks)?;
        Ok::<_, ReportError>(drawing.with_notes(&made.notes).standalone())
    };
    match format {
        Format::Html => html::page(source, selection, options, out)?,
        Format::Text => write_text(ask, (report.make)(ask)?, out)?,
        Format::Json => {
            let Made { body, marks, notes } = (report.make)(ask)?;
            body.json(ask, &marks, notes, out)?;
        }
        Format::Svg => out.write_all(picture((report.make)(ask)?)?.as_bytes())?,
        Format::Png => out.write_all(&png::from_svg(&picture((report.make)(ask)?)?)?)?,
    }
    out.flush()?;
    Ok(())
}

/// Writes a report as text. Its first line warns if the report rests on little evidence, the last tells how often the
/// recording surveyed and sampled, and what that cost.
fn write_text(ask: &Ask<'_>, made: Made, out: &mut dyn Write) -> Result<(), ReportError> {
    let terminal = &ask.options.terminal;
    let Made { body, marks, notes: Notes { warnings, pace } } = made;
    warnings.into_iter().try_for_each(|warning| text::warning(out, terminal, Some(warning)))?;
    if !body.is_fitted() {
        return body.text(ask, &marks, terminal, out);
    }
    let line = pace.line();
    body.text(ask, &marks, &shorter(terminal, line.is_some(), &marks), out)?;
    text::note(out, terminal, line)?;
    Ok(())
}

/// The terminal without the lines around a report.
fn shorter(terminal: &Terminal, has_pace: bool, marks: &[Mark]) -> Terminal {
    let above_axis = if marks.is_empty() { 0 } else { 2 };
    Terminal { rows: terminal.rows.saturating_sub(usize::from(has_pace) + above_axis), ..*terminal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_a_report_with_a_format() {
        for kind in Kind::ALL {
            assert!(kind.report().kind == kind && !kind.formats().is_empty(), "{kind:?}");
            assert_eq!(kind.formats().contains(&Format::Json), kind.schema().is_some(), "{kind:?}");
        }
    }
}
