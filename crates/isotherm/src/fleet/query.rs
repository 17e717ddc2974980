//! `isotherm fleet query` and `isotherm fleet report`.

use std::io::{IsTerminal as _, Write, stdout};
use std::process::ExitCode;

use anyhow::Result;
use isotherm_fleet::{Dataset, Days, Engine, RowFormat, VIEWS, view};
use isotherm_output::{Output, OutputError, standard_output};
use isotherm_report::sheet::{Answer, Sheet};
use isotherm_report::{Terminal, format_of, wrap};

use crate::WrongCall;
use crate::cli::{AnswerFormat, AnswerOptions, FleetQuery, FleetReport};
use crate::report::unknown_format;
use crate::terminal::terminal;

pub fn query(options: &FleetQuery) -> Result<ExitCode> {
    let of = &options.answer;
    let format = format("fleet query", of)?;
    let engine = open(of)?;
    if let Some(rows) = rows(format) {
        return write(of, |out| Ok(engine.write(&options.sql, rows, out)?));
    }
    let table = engine.ask(&options.sql)?.table()?;
    let answer = Answer { name: "Answer".into(), about: options.sql.clone(), table, ..Answer::default() };
    let facts = vec![of.dataset.display().to_string()];
    let sheet = Sheet { title: "A query about a fleet".into(), facts, answers: vec![answer] };
    write(of, |out| match format {
        AnswerFormat::Html => Ok(sheet.html(out)?),
        AnswerFormat::Text | AnswerFormat::Csv | AnswerFormat::Json => {
            Ok(sheet.answers[0].table.text(&shown_in(of), out)?)
        }
    })
}

pub fn report(options: &FleetReport) -> Result<ExitCode> {
    let of = &options.answer;
    let format = format("fleet report", of)?;
    let views = match &options.view {
        Some(name) => vec![*view(name)?],
        None => VIEWS.to_vec(),
    };
    let engine = open(of)?;
    let Some(rows) = rows(format) else {
        let sheet = engine.report(&views, options.rows as usize)?;
        return write(of, |out| match format {
            AnswerFormat::Html => Ok(sheet.html(out)?),
            AnswerFormat::Text | AnswerFormat::Csv | AnswerFormat::Json => text(&sheet, &shown_in(of), out),
        });
    };
    write(of, |out| {
        for view in &views {
            // Each view has a line of its own before it, as several have different columns.
            match rows {
                RowFormat::Csv if views.len() > 1 => writeln!(out, "# {}", view.name)?,
                RowFormat::Json if views.len() > 1 => writeln!(out, "{{\"view\":\"{}\"}}", view.name)?,
                RowFormat::Csv | RowFormat::Json => {}
            }
            engine.write_view(view, Some(options.rows as usize), rows, out)?;
        }
        Ok(())
    })
}

/// The format of rows that are written one after the other.
fn rows(format: AnswerFormat) -> Option<RowFormat> {
    match format {
        AnswerFormat::Csv => Some(RowFormat::Csv),
        AnswerFormat::Json => Some(RowFormat::Json),
        AnswerFormat::Text | AnswerFormat::Html => None,
    }
}

fn open(of: &AnswerOptions) -> Result<Engine> {
    // A query makes a table for each host.
    isotherm_kernel::keep_freed_memory();
    let days = Days::new(of.from.as_deref(), of.to.as_deref())?;
    Ok(Engine::open(&Dataset::at(&of.dataset)?, &days)?)
}

/// The format is the chosen one, or that of the name of the output, or text.
fn format(command: &'static str, of: &AnswerOptions) -> Result<AnswerFormat, WrongCall> {
    const EXTENSIONS: [(AnswerFormat, &[&str]); 4] = [
        (AnswerFormat::Text, &["txt", "text"]),
        (AnswerFormat::Csv, &["csv"]),
        (AnswerFormat::Json, &["json", "jsonl"]),
        (AnswerFormat::Html, &["html", "htm"]),
    ];
    let named = match (of.format, &of.output) {
        (Some(format), _) => Some(format),
        (None, Some(path)) => format_of(path, &EXTENSIONS).map_err(|error| unknown_format(command, &error))?,
        (None, None) => None,
    };
    let format = named.unwrap_or(AnswerFormat::Text);
    if format == AnswerFormat::Html && of.output.is_none() && stdout().is_terminal() {
        return Err(WrongCall::new(command, "html cannot be shown on a terminal; name a file with -o"));
    }
    Ok(format)
}

/// The terminal that text is fitted to.
fn shown_in(of: &AnswerOptions) -> Terminal {
    if of.output.is_none() { terminal() } else { Terminal::default() }
}

fn text(sheet: &Sheet, terminal: &Terminal, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}", wrap(&isotherm_core::sanitise(&sheet.facts.join(", ")), terminal.columns, 2))?;
    for answer in &sheet.answers {
        writeln!(out, "\n{}", wrap(&format!("{}: {}", answer.name, answer.about), terminal.columns, 2))?;
        answer.table.text(terminal, out)?;
        if let Some(note) = &answer.note {
            writeln!(out, "{note}")?;
        }
    }
    Ok(())
}

/// Lets `write` write an answer to the output. A file appears whole.
fn write(of: &AnswerOptions, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<ExitCode> {
    match &of.output {
        None => write(&mut standard_output())?,
        Some(path) => {
            let file = Output::new(path).create()?;
            let mut writer = file.writer()?;
            write(&mut writer)?;
            writer.flush().map_err(|error| OutputError::new(path, error))?;
            file.finish()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
