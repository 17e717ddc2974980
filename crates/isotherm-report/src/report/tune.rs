//! Attributes, working sets and advice.

use std::io::Write;

use isotherm_record::Mark;

use super::{Ask, Body, Kind, Made, Report};
use crate::format::Format;
use crate::notes::Notes;
use crate::svg::Drawing;
use crate::text::Terminal;
use crate::tune::Tune;
use crate::{ReportError, schema};

pub(super) const REPORT: Report = Report {
    kind: Kind::Tune,
    name: "tune",
    about: "Attributes, working sets and advice, as `isotherm tune` prints them",
    formats: &[Format::Text, Format::Json],
    choices: &[],
    examples: &[("tune", "what follows for the target?")],
    make,
    schema: Some(schema::of::<Tune>),
};

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    Ok(Made::bare(Tune::new(ask.source, ask.selection, None)?))
}

impl Body for Tune {
    fn text(&self, ask: &Ask<'_>, _: &[Mark], _: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        self.write(ask.format, &ask.options.terminal, out)
    }

    fn json(&self, ask: &Ask<'_>, _: &[Mark], _: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        self.write(ask.format, &ask.options.terminal, out)
    }

    fn picture(&self, ask: &Ask<'_>, _: &[Mark]) -> Result<Drawing, ReportError> {
        Err(ReportError::Unsupported { kind: Kind::Tune, format: ask.format })
    }

    fn is_fitted(&self) -> bool {
        false
    }
}
