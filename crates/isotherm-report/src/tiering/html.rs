//! The trial as a page: the picture, and a table of all figures.

use std::io::Write;

use isotherm_core::units::{bytes, percent, table_bytes};

use super::text::{LATER, foot, what};
use super::{TierTrial, svg};
use crate::escape::markup;
use crate::html::{document, items};
use crate::{Picture, ReportError};

const TEMPLATE: &str = include_str!("../../assets/tier-try.html");

/// The page. It needs no network and has no script.
pub(super) fn page(trial: &TierTrial, picture: Picture, out: &mut dyn Write) -> Result<(), ReportError> {
    document(out, "two tiers of memory", None, TEMPLATE, |name, out| {
        let text = match name {
            "facts" => markup(&what(trial)),
            "warnings" => items(&[&trial.warnings[..], &trial.notes].concat()),
            "sentences" => items(&trial.sentences()),
            "picture" => {
                svg::draw(trial, picture).embedded("Share of the accesses to the slow tier by size of the fast tier")
            }
            "table" => table(trial),
            "foot" => markup(&format!("{}; {LATER}", foot(trial))),
            other => format!("(no {other})"),
        };
        Ok(out.write_all(text.as_bytes())?)
    })
}

fn table(trial: &TierTrial) -> String {
    let head = "<tr><th>fast</th><th>of all</th><th>first touch</th><th>isotherm</th><th>later</th><th>best</th>\
                <th>moved</th><th>modelled time</th></tr>";
    let rows = trial.sizes.iter().chain(&trial.curve).map(|tried| {
        let cells = [
            percent(tried.fast_share),
            percent(tried.first_touch.slow_share),
            percent(tried.isotherm.slow_share),
            percent(tried.isotherm.late_slow_share),
            percent(tried.best.slow_share),
            table_bytes(tried.promoted_bytes + tried.demoted_bytes),
            tried.isotherm.modelled_time.map_or_else(|| "-".into(), |time| format!("{time:.3}")),
        ];
        let cells = cells.map(|cell| format!("<td>{}</td>", markup(&cell))).concat();
        format!("<tr><th>{}</th>{cells}</tr>\n", markup(&bytes(tried.fast_bytes)))
    });
    format!("<table class=\"figures\"><thead>{head}</thead>\n<tbody>\n{}</tbody></table>", rows.collect::<String>())
}
