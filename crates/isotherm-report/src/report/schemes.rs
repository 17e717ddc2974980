//! What schemes did.

use std::io::Write;

use isotherm_record::Mark;

use super::{ALL, Ask, Body, Kind, Made, Report, line, walk_with};
use crate::evidence::Evidence;
use crate::marks::Marks;
use crate::notes::{Noted, Notes};
use crate::schemes::Schemes;
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::{ReportError, schema, svg, text};

pub(super) const REPORT: Report = Report {
    kind: Kind::Schemes,
    name: "schemes",
    about: "What schemes did, and the memory in use; for recordings of `isotherm run --record`",
    formats: ALL,
    choices: &[],
    examples: &[("schemes acted.rec", "what did the schemes do?")],
    make,
    schema: Some(schema::of::<Noted<Schemes>>),
};

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let mut evidence = Evidence::new(ask.source, ask.selection, false)?;
    let mut marks = Marks::new(ask.selection);
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut []);
    let schemes = Schemes::new(ask.source, ask.selection)?;
    match evidence.suffices(walked) {
        Ok(()) => Ok(Made::new(schemes, evidence.warnings(), &evidence, marks)),
        // While all schemes are asleep, there are no snapshots.
        Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {
            let notes = Notes { warnings: evidence.missed().into_iter().collect(), ..Notes::default() };
            Ok(Made { body: Box::new(schemes), marks: marks.marks, notes })
        }
        Err(error) => Err(error),
    }
}

impl Body for Schemes {
    fn text(&self, ask: &Ask<'_>, _: &[Mark], _: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(text::schemes(out, &ask.options.terminal, self)?)
    }

    fn json(&self, _: &Ask<'_>, _: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(self, notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(svg::draw_schemes(self, marks, ask.options.picture))
    }
}
