//! The difference as a page: what is compared, the picture, and tables of all figures.

use std::fmt::Write as _;
use std::io::Write;

use isotherm_core::units;

use super::text::{means, percent, sharing, what};
use super::{Changes, Count, Diff, folded, signed, svg};
use crate::escape::markup;
use crate::html::{document, items};
use crate::{Picture, ReportError};

const TEMPLATE: &str = include_str!("../../assets/diff.html");

/// The maximum number of names of a quantity.
const NAMES: usize = 60;

/// The page. It needs no network and has no script.
pub(super) fn page(diff: &Diff, picture: Picture, out: &mut dyn Write) -> Result<(), ReportError> {
    let title = format!("From {} to {}", diff.before.name, diff.after.name);
    let sides = [("before", &diff.before), ("after", &diff.after)];
    document(out, &title, None, TEMPLATE, |name, out| {
        let text = match name {
            "title" => markup(&title),
            "facts" => sides.map(|(when, side)| format!("<dt>{when}</dt><dd>{}</dd>\n", markup(&what(side)))).concat(),
            "warnings" => items(&diff.warnings),
            "picture" => {
                svg::draw(diff, picture).embedded("Working set, resident, hot and cold memory before and after")
            }
            "total" => table("", &Count::ALL.map(|quantity| row(diff.name(quantity), &diff.total, quantity)).concat()),
            "sharing" => sharing(diff).unwrap_or_default().into(),
            "tables" => tables(diff),
            other => format!("(no {other})"),
        };
        Ok(out.write_all(text.as_bytes())?)
    })
}

fn tables(diff: &Diff) -> String {
    let mut out = String::new();
    for quantity in Count::ALL {
        _ = writeln!(out, "<h2>{}</h2>", markup(&diff.meaning(quantity)));
        for (all, title) in [(&diff.mappings, "mapping"), (&diff.programs, "command")] {
            let (shown, others) = folded(all, quantity, NAMES);
            let rows: String = shown.into_iter().chain(&others).map(|of| row(&of.name, of, quantity)).collect();
            out += &format!("<div class=\"scroll\">{}</div>\n", table(title, &rows));
        }
    }
    out
}

fn table(title: &str, rows: &str) -> String {
    format!(
        "<table class=\"figures\"><thead><tr><th>{title}</th><th>before</th><th>after</th><th>difference</th><th></th>\
         <th>peak before</th><th>peak after</th></tr></thead>\n<tbody>\n{rows}</tbody></table>"
    )
}

fn row(name: &str, changes: &Changes, quantity: Count) -> String {
    let change = changes.of(quantity);
    let [before, after] = means(change);
    let peak = |amount: Option<super::Amount>| amount.map_or_else(|| "-".into(), |a| units::table_bytes(a.peak_bytes));
    let figures =
        [before, after, signed(change.difference()), percent(change), peak(change.before), peak(change.after)];
    let cells = figures.map(|figure| format!("<td>{figure}</td>")).concat();
    format!("<tr><th>{}</th>{cells}</tr>\n", markup(name))
}
