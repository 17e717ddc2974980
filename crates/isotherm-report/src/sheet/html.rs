//! Answers as a page.

use std::fmt::Write as _;
use std::io::Write;

use super::{Answer, Sheet, Table};
use crate::ReportError;
use crate::escape::markup;
use crate::html::{document, items};

const TEMPLATE: &str = include_str!("../../assets/sheet.html");

impl Sheet {
    /// Writes the page. It needs no network and has no script.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn html(&self, out: &mut dyn Write) -> Result<(), ReportError> {
        document(out, &self.title, None, TEMPLATE, |name, out| {
            let text = match name {
                "title" => markup(&self.title),
                "facts" => items(&self.facts),
                "sections" => self.answers.iter().map(section).collect(),
                other => format!("(no {other})"),
            };
            Ok(out.write_all(text.as_bytes())?)
        })
    }
}

fn section(answer: &Answer) -> String {
    let (name, about) = (markup(&answer.name), markup(&answer.about));
    let mut out = format!("<section aria-labelledby=\"h-{name}\">\n<h2 id=\"h-{name}\">{name}</h2>\n<p>{about}</p>\n");
    if let Some(bars) = &answer.bars {
        _ = writeln!(out, "<div class=\"scroll wide\">{}</div>", bars.draw().embedded(&bars.about));
    }
    _ = writeln!(out, "<div class=\"scroll\">{}</div>", table(&answer.table));
    if let Some(note) = &answer.note {
        _ = writeln!(out, "<p class=\"quiet\">{}</p>", markup(note));
    }
    out + "</section>\n"
}

fn table(table: &Table) -> String {
    let side = |figures: bool| if figures { "" } else { " class=\"words\"" };
    let heads = table.columns.iter().map(|column| {
        // A long name is broken where a reader would.
        format!("<th{}>{}</th>", side(column.figures), markup(&column.name).replace('_', "_<wbr>"))
    });
    let heads: String = heads.collect();
    let rows = table.rows.iter().map(|row| {
        let cells = row.iter().zip(&table.columns);
        let cells = cells.map(|(cell, column)| format!("<td{}>{}</td>", side(column.figures), markup(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    });
    let rows: String = rows.collect();
    format!("<table class=\"figures\"><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table>")
}
