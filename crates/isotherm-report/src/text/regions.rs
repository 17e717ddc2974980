//! Regions for a terminal: a table for each snapshot and target, written during the walk.

use std::io::Write;
use std::sync::Arc;

use isotherm_core::units;

use super::chart::bar;
use super::table::{Cell, Column, table};
use super::{Colour, Terminal, cut, target_title};
use crate::ReportError;
use crate::colour::of_rate;
use crate::regions::{Region, RegionOptions, TargetRegions};
use crate::source::{View, Visit};

/// Writes each row as a table when it is visited.
pub(crate) struct RegionsText<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) terminal: Terminal,
    pub(crate) options: RegionOptions,
}

const COLUMNS: [Column; 9] = [
    Column::figure("start", 0),
    Column::figure("end", 7),
    Column::figure("size", 2),
    Column::figure("mapped", 8),
    Column::figure("rate", 1),
    Column::text("", 6),
    Column::figure("age", 3),
    Column::figure("unobs.", 5),
    Column::name("mostly"),
];

impl View for RegionsText<'_> {
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if !visit.chosen {
            return Ok(());
        }
        let snapshot = TargetRegions::of(visit, &self.options);
        let title = format!(
            "{}, {} ({} region{})",
            units::nanoseconds(snapshot.time_ns),
            target_title(snapshot.id(), &snapshot.info),
            snapshot.regions.len(),
            if snapshot.regions.len() == 1 { "" } else { "s" },
        );
        writeln!(self.out, "{}", self.terminal.bold(&cut(&title, self.terminal.width(), &self.terminal)))?;
        let rows: Vec<_> = snapshot.regions.iter().map(|region| self.cells(region)).collect();
        if !rows.is_empty() {
            table(self.out, &self.terminal, &COLUMNS, &rows)?;
        }
        writeln!(self.out)?;
        Ok(())
    }
}

impl RegionsText<'_> {
    fn cells(&self, region: &Region) -> Vec<Cell> {
        const BAR: usize = 10;
        let text = bar(region.access_rate, BAR, &self.terminal);
        // Dark blue is hard to see on black, so the colour of the bar starts further up the scale.
        let styled = self.terminal.paint(&text, Some(of_rate(0.25 + 0.75 * region.access_rate)), None);
        let dark =
            if region.unobservable_share > 0.0 { units::percent(region.unobservable_share) } else { String::new() };
        let shown: Arc<str> = region.name.clone();
        vec![
            format!("{:x}", region.start).into(),
            format!("{:x}", region.end).into(),
            units::bytes(region.size()).into(),
            units::bytes(region.mapped_bytes).into(),
            units::percent(region.access_rate).into(),
            if self.terminal.colour == Colour::None { text.into() } else { Cell::painted(text, styled) },
            units::nanoseconds(region.age_ns).into(),
            dark.into(),
            shown.to_string().into(),
        ]
    }
}
