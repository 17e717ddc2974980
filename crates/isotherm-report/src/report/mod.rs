//! The reports that there are, and the function that writes one.
//!
//! A report is a row of [`REPORTS`], and a [`Body`]: what a walk over the recording has found, which is drawn in each
//! format. What all reports have besides, warnings, marks and the pace of the recording, is written here.

mod kinds;

use std::io::Write;

use isotherm_record::Mark;

use crate::evidence::Evidence;
use crate::format::Format;
use crate::heatmap::Heatmap;
use crate::idle_time::IdleTime;
use crate::marks::{Marked, Marks};
use crate::notes::{Noted, Notes};
use crate::options::Options;
use crate::overhead::Overhead;
use crate::schemes::Schemes;
use crate::source::{Selection, Source};
use crate::summary::Summary;
use crate::svg::Drawing;
use crate::temperature::Temperatures;
use crate::text::Terminal;
use crate::tune::Tune;
use crate::{ReportError, html, png, schema, text};

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

/// All reports.
const REPORTS: &[Report] = &[
    Report {
        kind: Kind::Heatmap,
        name: "heatmap",
        about: "When and where memory is hot: access rates by time and address",
        formats: ALL,
        choices: &[Choice::Measure],
        examples: &[
            ("heatmap --time 2s:10s", "when and where is it hot?"),
            ("heatmap -o heatmap.png", ""),
            ("heatmap --measure idle-time", "and for how long idle?"),
        ],
        make: kinds::heatmap,
        schema: Some(schema::of::<Noted<Marked<Heatmap>>>),
    },
    Report {
        kind: Kind::Wss,
        name: "wss",
        about: "The working set: how much memory is in use, over time",
        formats: ALL,
        choices: &[BY_PROCESS, Choice::Window],
        examples: &[
            ("wss --window 10s", "how much is touched within 10 s?"),
            ("wss --format json", ""),
            ("wss monday.rec tuesday.rec", "two recordings as one"),
        ],
        make: kinds::wss,
        schema: Some(schema::of::<Noted<Marked<kinds::WssReport>>>),
    },
    Report {
        kind: Kind::Regions,
        name: "regions",
        about: "The regions of each snapshot",
        formats: ALL,
        choices: &[Choice::Regions],
        examples: &[("regions --at 3s --sort rate --min-rate 50%", "")],
        make: kinds::regions,
        schema: Some(schema::of::<kinds::RegionsLine>),
    },
    Report {
        kind: Kind::Summary,
        name: "summary",
        about: "Resident, hot, warm, cold and idle bytes, and the working set of each mapping",
        formats: ALL,
        choices: &[Choice::Summary],
        examples: &[
            ("summary", "how much is hot, warm, cold?"),
            ("summary --by unit --sort hot", "of which systemd unit?"),
        ],
        make: kinds::summary,
        schema: Some(schema::of::<Noted<Marked<Summary>>>),
    },
    Report {
        kind: Kind::IdleTime,
        name: "idle-time",
        about: "For how long memory has been idle: a histogram, by mapping and command, and over time",
        formats: ALL,
        choices: &[BY_COMMAND],
        examples: &[("idle-time", "for how long is it idle?")],
        make: kinds::idle_time,
        schema: Some(schema::of::<Noted<IdleTime>>),
    },
    Report {
        kind: Kind::Temperature,
        name: "temperature",
        about: "How many bytes are accessed how often: a histogram of rates, by mapping and command, and over time",
        formats: ALL,
        choices: &[BY_COMMAND],
        examples: &[("temperature", "how much is accessed how often?")],
        make: kinds::temperature,
        schema: Some(schema::of::<Noted<Temperatures>>),
    },
    Report {
        kind: Kind::Overhead,
        name: "overhead",
        about: "What the monitoring cost: regions, page reads, CPU time, late rounds",
        formats: ALL,
        choices: &[],
        examples: &[("overhead", "what did isotherm cost?")],
        make: kinds::overhead,
        schema: Some(schema::of::<Noted<Overhead>>),
    },
    Report {
        kind: Kind::Schemes,
        name: "schemes",
        about: "What schemes did, and the memory in use; for recordings of `isotherm run --record`",
        formats: ALL,
        choices: &[],
        examples: &[("schemes acted.rec", "what did the schemes do?")],
        make: kinds::schemes,
        schema: Some(schema::of::<Noted<Schemes>>),
    },
    Report {
        kind: Kind::Tune,
        name: "tune",
        about: "Attributes, working sets and advice, as `isotherm tune` prints them",
        formats: &[Format::Text, Format::Json],
        choices: &[],
        examples: &[("tune", "what follows for the target?")],
        make: kinds::tune,
        schema: Some(schema::of::<Tune>),
    },
    Report {
        kind: Kind::Html,
        name: "html",
        about: "All reports but tune in one page, which needs no network",
        formats: &[Format::Html],
        choices: &[BY_PROCESS, Choice::Window],
        examples: &[("html -o memory.html", "all reports in one page")],
        make: kinds::page,
        schema: None,
    },
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
        &REPORTS[self as usize]
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.report().name
    }

    /// What it shows.
    pub fn about(self) -> &'static str {
        self.report().about
    }

    /// The formats that it has.
    pub fn formats(self) -> &'static [Format] {
        self.report().formats
    }

    /// The format of this kind if none is chosen.
    pub fn default_format(self) -> Format {
        self.formats().first().copied().unwrap_or(Format::Text)
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
