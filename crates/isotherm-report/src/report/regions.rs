//! The regions of each snapshot.

use std::io::Write;

use isotherm_record::{Mark, Needs};
use schemars::JsonSchema;
use serde::Serialize;

use super::{ALL, Ask, Body, Choice, Kind, Made, Report, line, sufficient};
use crate::notes::Notes;
use crate::options::Options;
use crate::regions::{RegionOptions, TargetRegions, one_snapshot};
use crate::source::{Accumulator, Seen, Selection, Takes, walk};
use crate::surveys::LastSurveys;
use crate::svg::Drawing;
use crate::text::{RegionsText, Terminal};
use crate::{ReportError, schema, svg};

pub(super) const REPORT: Report = Report {
    kind: Kind::Regions,
    name: "regions",
    about: "The regions of each snapshot",
    formats: ALL,
    choices: &[Choice::Regions],
    examples: &[("regions --at 3s --sort rate --min-rate 50%", "")],
    make,
    schema: Some(schema::of::<RegionsLine>),
};

/// The regions, which are written as they are read.
struct Regions {
    /// What is missing from the recording.
    missed: Option<String>,
}

fn make(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let (evidence, marks) = sufficient(ask)?;
    Ok(Made::new(Regions { missed: evidence.missed() }, evidence.warnings(), &evidence, marks))
}

impl Body for Regions {
    fn text(&self, ask: &Ask<'_>, _: &[Mark], _: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        let Options { terminal, regions: options, .. } = *ask.options;
        let mut view = RegionsText { out, terminal, options, surveys: LastSurveys::default() };
        walk(ask.source, &at(ask)?, &mut [&mut view])
    }

    fn json(&self, ask: &Ask<'_>, _: &[Mark], _: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        if let Some(missed) = &self.missed {
            line(out, &RegionsLine::Warnings { warnings: [missed.clone()] })?;
        }
        let surveys = LastSurveys::default();
        walk(ask.source, &at(ask)?, &mut [&mut JsonLines { out, options: ask.options.regions, surveys }])
    }

    fn picture(&self, ask: &Ask<'_>, _: &[Mark]) -> Result<Drawing, ReportError> {
        let Ask { source, selection, options, .. } = *ask;
        let selection = one_snapshot(source, selection, options.regions.at)?;
        let mut snapshots = svg::RegionLines::new(options.regions);
        walk(source, &selection, &mut [&mut snapshots])?;
        Ok(snapshots.draw(options.picture))
    }
}

/// A line of the regions in JSON.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum RegionsLine {
    /// The first line, if something is missing from the recording.
    Warnings {
        /// What is missing.
        warnings: [String; 1],
    },
    /// The regions of one target in one snapshot.
    Target(TargetRegions),
}

/// The selection, narrowed to one snapshot if the options ask for one.
fn at(ask: &Ask<'_>) -> Result<Selection, ReportError> {
    match ask.options.regions.at {
        Some(at) => one_snapshot(ask.source, ask.selection, Some(at)),
        None => Ok(ask.selection.clone()),
    }
}

/// Writes one line of JSON for each snapshot and target during the walk.
struct JsonLines<'a> {
    out: &'a mut dyn Write,
    options: RegionOptions,
    surveys: LastSurveys,
}

impl Accumulator for JsonLines<'_> {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS | Needs::SURVEYS
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Some(visit) = self.surveys.chosen(event) else { return Ok(()) };
        let regions = TargetRegions::of(visit, &self.options, self.surveys.before(&visit.row));
        line(self.out, &RegionsLine::Target(regions))
    }
}
