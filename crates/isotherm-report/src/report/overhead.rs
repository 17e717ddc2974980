//! The cost of the monitoring.

use std::io::Write;

use isotherm_record::Mark;

use super::{ALL, Ask, Body, Kind, Made, Report, line, walk_with};
use crate::evidence::Evidence;
use crate::marks::Marks;
use crate::notes::{Noted, Notes};
use crate::overhead::Overhead;
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::{ReportError, schema, svg, text};

pub(super) const REPORT: Report = Report {
    kind: Kind::Overhead,
    name: "overhead",
    about: "What the monitoring cost: regions, page reads, CPU time, late rounds",
    formats: ALL,
    choices: &[],
    examples: &[("overhead", "what did isotherm cost?")],
    make,
    schema: Some(schema::of::<Noted<Overhead>>),
};

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let mut evidence = Evidence::new(ask.source, ask.selection, false)?;
    let mut marks = Marks::new(ask.selection);
    let mut overhead = Overhead::new(ask.source.header(), ask.selection);
    walk_with(ask, &mut evidence, &mut marks, &mut [&mut overhead])?;
    // That there was little to find says nothing of what the monitoring cost.
    Ok(Made::new(overhead.finish(), evidence.of_monitoring(), &evidence, marks))
}

impl Body for Overhead {
    fn text(&self, _: &Ask<'_>, _: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::overhead(out, terminal, self)?)
    }

    fn json(&self, _: &Ask<'_>, _: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(Overhead::json(self)?, notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_overhead(self, marks, ask.options.picture))
    }

    fn is_fitted(&self) -> bool {
        false
    }
}
