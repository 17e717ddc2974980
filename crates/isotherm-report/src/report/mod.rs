//! The reports that there are, and the function that writes one.
//!
//! A report is a row of [`REPORTS`], and a [`Body`]: what a walk over the recording has found, which is drawn in each
//! format. What all reports have besides, warnings, marks and the pace of the recording, is written here.

mod kinds;

use std::io::Write;

use isotherm_record::Mark;

use crate::evidence::Evidence;
use crate::kind::{Format, Kind};
use crate::marks::Marks;
use crate::notes::Notes;
use crate::options::Options;
use crate::source::{Selection, Source};
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::{ReportError, html, png, text};

/// A kind of report.
pub(crate) struct Report {
    pub(crate) kind: Kind,
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The formats that it has. The first is the default.
    pub(crate) formats: &'static [Format],
    /// Reads what it tells.
    make: fn(&Ask<'_>) -> Result<Made, ReportError>,
}

/// Formats of a report that has its place on the page.
const ALL: &[Format] = &[Format::Text, Format::Json, Format::Png, Format::Svg, Format::Html];

/// All reports.
pub(crate) const REPORTS: [Report; 10] = [
    Report { kind: Kind::Heatmap, name: "heatmap", formats: ALL, make: kinds::heatmap },
    Report { kind: Kind::Wss, name: "wss", formats: ALL, make: kinds::wss },
    Report { kind: Kind::Regions, name: "regions", formats: ALL, make: kinds::regions },
    Report { kind: Kind::Summary, name: "summary", formats: ALL, make: kinds::summary },
    Report { kind: Kind::IdleTime, name: "idle-time", formats: ALL, make: kinds::idle_time },
    Report { kind: Kind::Temperature, name: "temperature", formats: ALL, make: kinds::temperature },
    Report { kind: Kind::Overhead, name: "overhead", formats: ALL, make: kinds::overhead },
    Report { kind: Kind::Schemes, name: "schemes", formats: ALL, make: kinds::schemes },
    Report { kind: Kind::Tune, name: "tune", formats: &[Format::Text, Format::Json], make: kinds::tune },
    Report { kind: Kind::Html, name: "html", formats: &[Format::Html], make: kinds::page },
];

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
        Format::Html => out.write_all(html::page(source, selection, options)?.as_bytes())?,
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
