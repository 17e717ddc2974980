//! How a report looks in each format.

use std::io::{self, Write};

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, Table as Drawn};

use super::grid::{Grid, grids};
use super::{Report, csv, html};
use crate::{Configuration, EvalError, Paper, Results};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// For a terminal.
    Text,
    /// For documents.
    Markdown,
    /// For spreadsheets: a line for each workload, configuration and table.
    Csv,
    /// For programs.
    Json,
    /// A page with pictures, which needs no network.
    Html,
}

impl Rendering {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Text, Self::Markdown, Self::Csv, Self::Json, Self::Html];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Markdown => "markdown",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Html => "html",
        }
    }

    /// The format that the extension of a file's name selects.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension {
            "txt" | "text" => Some(Self::Text),
            "md" => Some(Self::Markdown),
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

impl Report {
    /// Writes the report. `results` are those that it was made of: they have recordings for pictures. Tables have the
    /// figures of `paper` beside ours. `spread` adds deviations, minima and maxima.
    ///
    /// # Errors
    /// If `out` cannot be written to, or a recording cannot be read.
    pub fn write(
        &self,
        rendering: Rendering,
        results: &Results,
        paper: Paper,
        spread: bool,
        out: &mut dyn Write,
    ) -> Result<(), EvalError> {
        match rendering {
            Rendering::Text => self.text(&grids(self, paper, spread), paper, false, out).map_err(EvalError::Write)?,
            Rendering::Markdown => {
                self.text(&grids(self, paper, spread), paper, true, out).map_err(EvalError::Write)?
            }
            Rendering::Csv => csv::write(self, out)?,
            Rendering::Json => {
                serde_json::to_writer_pretty(&mut *out, self).map_err(|error| EvalError::Write(error.into()))?;
                out.write_all(b"\n").map_err(EvalError::Write)?;
            }
            Rendering::Html => html::write(self, &grids(self, paper, spread), results, paper, out)?,
        }
        out.flush().map_err(EvalError::Write)
    }

    fn text(&self, grids: &[Grid], paper: Paper, markdown: bool, out: &mut dyn Write) -> io::Result<()> {
        let heading = |title: &str| if markdown { format!("## {title}\n") } else { title.to_owned() };
        let item = if markdown { "- " } else { "" };
        for line in self.facts(paper) {
            writeln!(out, "{item}{line}")?;
        }
        for grid in grids {
            writeln!(out, "\n{}\n{}", heading(&grid.title), drawn(grid, markdown))?;
        }
        for (title, lines) in [("What the tables say", self.conclusions.clone()), ("What is missing", self.missing())] {
            if !lines.is_empty() {
                writeln!(out, "\n{}", heading(title))?;
                lines.iter().try_for_each(|line| writeln!(out, "{item}{line}"))?;
            }
        }
        Ok(())
    }

    /// Where and how the runs were made.
    pub(super) fn facts(&self, paper: Paper) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(session) = self.sessions.last() {
            let machine = &session.machine;
            let described = machine.described();
            facts.push(format!("isotherm {}, suite {}, {described}", session.isotherm, session.suite));
            let or_none = |text: &str| if text.is_empty() { "none".into() } else { text.to_owned() };
            facts.push(format!(
                "Transparent huge pages: {}; swap: {}; changed by isotherm: {}; options: {}; work: {} %.",
                or_none(&machine.huge_pages),
                if machine.swap { "yes" } else { "no" },
                or_none(&session.may_change.join(", ")),
                or_none(&session.options.join(" ")),
                session.scale,
            ));
        }
        let dates: Vec<String> = self.sessions.iter().map(|session| date(session.started_unix_ns)).collect();
        if let (Some(first), Some(last)) = (dates.first(), dates.last()) {
            let until = if first == last { String::new() } else { format!(" to {last}") };
            facts.push(format!("Runs of {first}{until}."));
        }
        facts.push(format!(
            "Changes are to orig, in per cent, with the interval of 95 % confidence. {}: {}.",
            paper.name(),
            paper.about()
        ));
        facts
    }

    /// What was not run or failed, and why. Workloads with the same reason share a line.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut whys: Vec<(String, Vec<String>)> = Vec::new();
        let mut add = |what: String, why: &str| match whys.iter_mut().find(|(known, _)| known == why) {
            Some((_, all)) => all.push(what),
            None => whys.push((why.to_owned(), vec![what])),
        };
        for left_out in &self.left_out {
            let under = left_out.configuration.map_or_else(String::new, |of| format!(" under {}", of.name()));
            add(format!("{}{under}", left_out.workload), &left_out.why);
        }
        for run in &self.failed {
            let what = format!("{} under {}, run {}", run.workload, run.configuration.name(), run.nth);
            add(what, run.failed.as_deref().unwrap_or_default());
        }
        whys.into_iter().map(|(why, all)| format!("{}: {why}.", all.join(", "))).collect()
    }

    /// The workloads that have a recording, and under which configuration: the first that there is.
    pub(super) fn recorded<'a>(&'a self, results: &'a Results) -> impl Iterator<Item = (&'a str, Configuration)> {
        use Configuration::{Ethp, Prcl, Rec};
        let names = self.tables.first().into_iter().flat_map(|table| table.workloads()).map(|row| &*row.name);
        names.filter_map(|name| {
            let of = [Rec, Ethp, Prcl].into_iter().find(|of| results.recording(name, *of).exists());
            Some((name, of?))
        })
    }
}

/// The day of a time in nanoseconds since the Unix epoch, in UTC: `2026-11-27`. The day of the year counts from March,
/// so that a leap day is the last one (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(unix_ns: u64) -> String {
    let days = unix_ns / 86_400_000_000_000 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month < 3))
}

pub(crate) fn drawn(grid: &Grid, markdown: bool) -> Drawn {
    let mut table = Drawn::new();
    table.load_style(if markdown { ASCII_MARKDOWN } else { NOTHING });
    table.set_header(&grid.header).add_rows(&grid.rows);
    for column in table.column_iter_mut().skip(grid.words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_dates() {
        let of = |days: u64| date(days * 86_400_000_000_000 + 1);
        assert_eq!(
            [0, 58, 59, 11_016, 11_017, 20_784].map(of),
            ["1970-01-01", "1970-02-28", "1970-03-01", "2000-02-29", "2000-03-01", "2026-11-27"]
        );
    }
}
