//! The histograms: idle time and temperature.

use std::io::Write;

use isotherm_record::Mark;
use serde::Serialize;

use super::{ALL, Ask, BY_COMMAND, Body, Kind, Made, Report, line, walk_with};
use crate::evidence::Evidence;
use crate::groups::{GroupBy, Grouping};
use crate::histogram::Histogram;
use crate::idle_time::{IdleTime, Surveys};
use crate::marks::Marks;
use crate::notes::{Noted, Notes};
use crate::svg::Drawing;
use crate::temperature::{TemperatureBuilder, Temperatures};
use crate::text::Terminal;
use crate::{ReportError, histogram, schema};

pub(super) const IDLE_TIME: Report = Report {
    kind: Kind::IdleTime,
    name: "idle-time",
    about: "For how long memory has been idle: a histogram, by mapping and command, and over time",
    formats: ALL,
    choices: &[BY_COMMAND],
    examples: &[("idle-time", "for how long is it idle?")],
    make: idle_time,
    schema: Some(schema::of::<Noted<IdleTime>>),
};

pub(super) const TEMPERATURE: Report = Report {
    kind: Kind::Temperature,
    name: "temperature",
    about: "How many bytes are accessed how often: a histogram of rates, by mapping and command, and over time",
    formats: ALL,
    choices: &[BY_COMMAND],
    examples: &[("temperature", "how much is accessed how often?")],
    make: temperature,
    schema: Some(schema::of::<Noted<Temperatures>>),
};

/// A report that is a histogram.
trait Banded: Serialize {
    fn histogram(&self) -> Histogram<'_>;
}

impl Banded for IdleTime {
    fn histogram(&self) -> Histogram<'_> {
        self.histogram()
    }
}

impl Banded for Temperatures {
    fn histogram(&self) -> Histogram<'_> {
        self.histogram()
    }
}

struct Bands<T>(T);

impl<T: Banded> Body for Bands<T> {
    fn text(&self, _: &Ask<'_>, _: &[Mark], terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        Ok(histogram::write(out, terminal, &self.0.histogram())?)
    }

    fn json(&self, _: &Ask<'_>, _: &[Mark], notes: Notes, out: &mut dyn Write) -> Result<(), ReportError> {
        line(out, &Noted::new(&self.0, notes))
    }

    fn picture(&self, ask: &Ask<'_>, marks: &[Mark]) -> Result<Drawing, ReportError> {
        Ok(histogram::draw(&self.0.histogram(), marks, ask.options.picture))
    }
}

fn idle_time(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let by = options.by.or(Some(GroupBy::Command));
    let (mut evidence, mut marks) = (Evidence::new(source, selection, false)?, Marks::new(selection));
    let (mut groups, mut surveys) = (Grouping::reader(selection, by), Surveys::new(selection));
    let walked = walk_with(ask, &mut evidence, &mut marks, &mut [&mut groups, &mut surveys]);
    evidence.suffices(walked)?;
    let grouping = Grouping::of_reader(groups, source, selection, by)?;
    let idle_time = IdleTime::after(surveys, source, selection, &grouping)?;
    Ok(Made::new(Bands(idle_time), evidence.warnings(), &evidence, marks))
}

fn temperature(ask: &Ask<'_>) -> Result<Made, ReportError> {
    let Ask { source, selection, options, .. } = *ask;
    let by = options.by.or(Some(GroupBy::Command));
    let (mut evidence, mut marks) = (Evidence::new(source, selection, false)?, Marks::new(selection));
    let (mut groups, mut found) = (Grouping::reader(selection, by), TemperatureBuilder::default());
    walk_with(ask, &mut evidence, &mut marks, &mut [&mut groups, &mut found])?;
    let temperatures = found.finish(&Grouping::of_reader(groups, source, selection, by)?);
    Ok(Made::new(Bands(temperatures), evidence.warnings(), &evidence, marks))
}
