//! The summary.

use std::io::Write;

use isotherm_record::Mark;

use super::{ALL, Ask, Body, Choice, Kind, Made, Report, line, walk_with};
use crate::evidence::Evidence;
use crate::groups::Grouping;
use crate::marks::{Marked, Marks};
use crate::notes::{Noted, Notes};
use crate::overhead::Overhead;
use crate::source::Accumulator;
use crate::summary::{Summary, SummaryBuilder};
use crate::surveyed::SurveyedMemory;
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::used::Used;
use crate::wss::WssBuilder;
use crate::{ReportError, estimated, facts, schema, svg, text};

pub(super) const REPORT: Report = Report {
    kind: Kind::Summary,
    name: "summary",
    about: "Resident, hot, warm, cold and idle bytes, and the working set of each mapping",
    formats: ALL,
    choices: &[Choice::Summary],
    examples: &[
        ("summary", "how much is hot, warm, cold?"),
        ("summary --by unit --sort hot", "of which systemd unit?"),
    ],
    make,
    schema: Some(schema::of::<Noted<Marked<Summary>>>),
};

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let grouping = Grouping::of(source, selection, options.by)?;
    let header = source.header();
    let (mut evidence, mut marks) = (Evidence::new(source, selection, false)?, Marks::new(selection));
    let (mut surveyed, mut used) = (SurveyedMemory::new(selection, &grouping), Used::new(header, selection, &grouping));
    let (mut wss, mut overhead) = (WssBuilder::new(header, selection), Overhead::sums(header, selection));
    let mut summary = SummaryBuilder::grouped(grouping);
    let mut all: [&mut dyn Accumulator; 5] = [&mut summary, &mut overhead, &mut surveyed, &mut used, &mut wss];
    walk_with(ask, &mut evidence, &mut marks, &mut all)?;
    let mut summary = summary.finish(header, source.cut_short(), &overhead.finish());
    used.write(&mut summary);
    surveyed.write(&mut summary);
    estimated::add(&mut summary, &wss.finish(source, None)?, source, selection)?;
    summary.drop_empty_stacks();
    summary.sort(options.summary_sort);
    Ok(Made::new(summary, evidence.warnings(), &evidence, marks))
}

impl Body for Summary {
    fn text(&self, _: &Ask<'_>, marks: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::summary(out, terminal, self, marks)?)
    }

    fn json(&self, _: &Ask<'_>, marks: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        let warnings = notes.warnings.into_iter().chain(facts::warnings(self)).collect();
        line(out, &Noted::new(Marked::new(self, marks), Notes { warnings, ..notes }))
    }

    fn picture(&self, ask: &Ask<'_>, _: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_summary(self, ask.options.picture))
    }

    fn is_fitted(&self) -> bool {
        false
    }
}
