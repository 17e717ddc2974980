//! The report as one page, with pictures of a recorded run of each workload.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isotherm_record::Recording;
use isotherm_report::{Format, Kind, Options, Picture, ReportError, Selection};

use super::Report;
use super::grid::Grid;
use crate::{EvalError, Paper, Results};

const STYLE: &str = include_str!("page.css");

/// What there is a picture of, and what it shows.
const PICTURES: [(Kind, &str); 4] = [
    (Kind::Heatmap, "How often memory is accessed, over time and addresses"),
    (Kind::Wss, "The working set: its distribution, and over time"),
    (Kind::IdleTime, "For how long memory has been idle"),
    (Kind::Overhead, "The operations of the monitor: their distribution, and over time"),
];

pub(super) fn write(
    report: &Report,
    grids: &[Grid],
    results: &Results,
    paper: Paper,
    out: &mut dyn Write,
) -> Result<(), EvalError> {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n\
         <title>isotherm eval</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>isotherm eval</h1>\n"
    );
    page += &list(&report.facts(paper));
    for grid in grids {
        page += &format!("<h2>{}</h2>\n{}", escaped(&grid.title), table(grid));
    }
    for (title, lines) in [("What the tables say", &report.conclusions), ("What is missing", &report.missing())] {
        if !lines.is_empty() {
            page += &format!("<h2>{title}</h2>\n{}", list(lines));
        }
    }
    for (workload, configuration) in report.recorded(results) {
        page += &format!("<h2>{} under {}</h2>\n", escaped(workload), configuration.name());
        let recording = Recording::open(&results.recording(workload, configuration))?;
        for (kind, what) in PICTURES {
            page += &picture(&recording, kind, what)?;
        }
    }
    page += "</body>\n</html>\n";
    out.write_all(page.as_bytes()).map_err(EvalError::Write)
}

fn picture(recording: &Recording, kind: Kind, what: &str) -> Result<String, EvalError> {
    let options = Options { picture: Picture { width: 1000, height: 300 }, ..Options::default() };
    let mut svg = Vec::new();
    match isotherm_report::write(kind, Format::Svg, recording, &Selection::default(), &options, &mut svg) {
        Ok(()) => {}
        // A short run may have no survey or no sample.
        Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {
            return Ok(format!("<p>{what}: nothing was recorded.</p>\n"));
        }
        Err(error) => return Err(error.into()),
    }
    let data = STANDARD.encode(svg);
    let image = format!("<img alt=\"{what}\" src=\"data:image/svg+xml;base64,{data}\">");
    Ok(format!("<figure>{image}\n<figcaption>{what}</figcaption></figure>\n"))
}

fn table(grid: &Grid) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells.iter().enumerate().map(|(nth, cell)| {
            let class = if nth < grid.words { "" } else { " class=\"n\"" };
            format!("<{tag}{class}>{}</{tag}>", escaped(cell))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = grid.rows.iter().map(|cells| row("td", cells)).collect();
    let header = row("th", &grid.header);
    format!("<div><table>\n<thead>{header}</thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n")
}

fn list(lines: &[String]) -> String {
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// Text for HTML. Names of workloads and what programs say are not trusted.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
