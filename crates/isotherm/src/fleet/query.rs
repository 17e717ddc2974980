//! `isotherm fleet query` and `isotherm fleet report`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_fleet::{Answer, Dataset, Engine, VIEWS, view};
use isotherm_output::standard_output;

use crate::cli::{AnswerFormat, FleetQuery, FleetReport};

pub fn query(options: &FleetQuery) -> Result<ExitCode> {
    let answer = Engine::open(&Dataset::at(&options.dataset)?)?.ask(&options.sql)?;
    print(&answer, options.format)?;
    Ok(ExitCode::SUCCESS)
}

pub fn report(options: &FleetReport) -> Result<ExitCode> {
    let views = match &options.view {
        Some(name) => vec![*view(name)?],
        None => VIEWS.to_vec(),
    };
    let engine = Engine::open(&Dataset::at(&options.dataset)?)?;
    for (nth, view) in views.iter().enumerate() {
        let answer = engine.ask_view(view, Some(options.rows))?;
        // JSON has the name of the view in a line of its own, as several have different columns.
        match options.format {
            AnswerFormat::Text => {
                writeln!(standard_output(), "{}{}: {}", if nth == 0 { "" } else { "\n" }, view.name, view.about())?
            }
            AnswerFormat::Csv if views.len() > 1 => writeln!(standard_output(), "# {}", view.name)?,
            AnswerFormat::Json if views.len() > 1 => writeln!(standard_output(), "{{\"view\":\"{}\"}}", view.name)?,
            AnswerFormat::Csv | AnswerFormat::Json => {}
        }
        print(&answer, options.format)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(answer: &Answer, format: AnswerFormat) -> Result<()> {
    let mut out = standard_output();
    match format {
        AnswerFormat::Text => writeln!(out, "{}", answer.text()?)?,
        AnswerFormat::Csv => out.write_all(&answer.csv()?)?,
        AnswerFormat::Json => out.write_all(&answer.json()?)?,
    }
    Ok(())
}
