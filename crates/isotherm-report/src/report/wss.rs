//! The working set.

use std::io::Write;

use isotherm_record::Mark;
use schemars::JsonSchema;
use serde::Serialize;

use super::{ALL, Ask, BY_PROCESS, Body, Choice, Kind, Made, Report, line, walk_with};
use crate::evidence::Evidence;
use crate::groups::Grouping;
use crate::marks::{Marked, Marks};
use crate::notes::{Noted, Notes};
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::wss::{GroupedWss, Wss, WssBuilder};
use crate::{ReportError, schema, svg, text};

pub(super) const REPORT: Report = Report {
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
    make,
    schema: Some(schema::of::<Noted<Marked<WssReport>>>),
};

/// The working set with that of each group.
#[derive(Serialize, JsonSchema)]
struct WssReport {
    #[serde(flatten)]
    wss: Wss,
    #[serde(flatten)]
    groups: GroupedWss,
}

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let mut evidence = Evidence::new(source, selection, false)?;
    let (mut marks, mut found) = (Marks::new(selection), WssBuilder::new(source.header(), selection));
    let mut groups = Grouping::reader(selection, options.by);
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut [&mut found, &mut groups]);
    evidence.suffices(walked)?;
    let wss = found.finish(source, options.window)?;
    let grouping = Grouping::of_reader(groups, source, selection, options.by)?;
    let groups = GroupedWss::new(&wss, source, selection, &grouping)?;
    Ok(Made::new(WssReport { wss, groups }, evidence.warnings(), &evidence, marks))
}

impl Body for WssReport {
    fn text(&self, _: &Ask<'_>, marks: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::wss(out, terminal, &self.wss, &self.groups, marks)?)
    }

    fn json(&self, _: &Ask<'_>, marks: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(Marked::new(self, marks), notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_wss(&self.wss, &self.groups, marks, ask.options.picture))
    }
}
