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

/// The columns. Without a survey, those that only it fills are left out.
fn columns(surveyed: bool) -> Vec<Column> {
    let all = [
        (Column::figure("start", 0), true),
        (Column::figure("end", 10), true),
        (Column::figure("size", 2), true),
        (Column::figure("mapped", 11), true),
        (Column::figure("resident", 3), surveyed),
        (Column::figure("touched", 5), surveyed),
        (Column::figure("rate", 1), true),
        (Column::text("", 9), true),
        (Column::figure("age", 4), true),
        (Column::figure("unobs.", 6), true),
        (Column::figure("unknown", 8), surveyed),
        (Column::name("mostly"), true),
    ];
    all.into_iter().filter(|(_, shown)| *shown).map(|(column, _)| column).collect()
}

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
        let surveyed = snapshot.regions.iter().any(|region| region.present_bytes.is_some());
        let rows: Vec<_> = snapshot.regions.iter().map(|region| self.cells(region, surveyed)).collect();
        if !rows.is_empty() {
            table(self.out, &self.terminal, &columns(surveyed), &rows)?;
        }
        writeln!(self.out)?;
        Ok(())
    }
}

impl RegionsText<'_> {
    fn cells(&self, region: &Region, surveyed: bool) -> Vec<Cell> {
        const BAR: usize = 10;
        let text = bar(region.access_rate, BAR, &self.terminal);
        // Dark blue is hard to see on black, so the colour of the bar starts further up the scale.
        let styled = self.terminal.paint(&text, Some(of_rate(0.25 + 0.75 * region.access_rate)), None);
        let dark =
            if region.unobservable_share > 0.0 { units::percent(region.unobservable_share) } else { String::new() };
        let shown: Arc<str> = region.name.clone();
        let bytes = |bytes: Option<u64>| bytes.map_or_else(String::new, units::bytes).into();
        let dark = match region.unobservable_bytes {
            Some(0) => String::new(),
            Some(bytes) => units::bytes(bytes),
            None => dark,
        };
        let all: [(Cell, bool); 12] = [
            (format!("{:x}", region.start).into(), true),
            (format!("{:x}", region.end).into(), true),
            (units::bytes(region.size()).into(), true),
            (units::bytes(region.mapped_bytes).into(), true),
            (bytes(region.present_bytes), surveyed),
            (bytes(region.touched_bytes), surveyed),
            (units::percent(region.access_rate).into(), true),
            (if self.terminal.colour == Colour::None { text.into() } else { Cell::painted(text, styled) }, true),
            (units::nanoseconds(region.age_ns).into(), true),
            (dark.into(), true),
            (bytes(region.unknown_bytes.filter(|&bytes| bytes > 0)), surveyed),
            (shown.to_string().into(), true),
        ];
        all.into_iter().filter(|(_, shown)| *shown).map(|(cell, _)| cell).collect()
    }
}
