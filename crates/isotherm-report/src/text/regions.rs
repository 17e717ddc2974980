//! Regions for a terminal: a table for each snapshot and target, written during the walk.

use crate::bytes::Bytes;
use std::io::Write;

use isotherm_core::units;

use super::chart::bar;
use super::table::{Cell, Column, table};
use super::{Colour, Terminal, cut, target_title};
use isotherm_record::Needs;

use crate::ReportError;
use crate::colour::of_rate;
use crate::measure::Measure;
use crate::outside::{Outside, SwappedRange};
use crate::regions::{Region, RegionOptions, TargetRegions};
use crate::source::{Accumulator, Seen, Takes};
use crate::surveys::LastSurveys;

/// Writes each row as a table when it is visited.
pub(crate) struct RegionsText<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) terminal: Terminal,
    pub(crate) options: RegionOptions,
    pub(crate) surveys: LastSurveys,
}

/// The most lines of one table, which is in memory as a whole.
const MOST_LINES: usize = 100_000;

/// Which columns have a figure.
#[derive(Clone, Copy)]
struct Shown {
    surveyed: bool,
    swapped: bool,
    unobservable: bool,
    unknown: bool,
}

impl Shown {
    fn of(snapshot: &TargetRegions) -> Self {
        let any = |of: &dyn Fn(&Region) -> bool| snapshot.regions.iter().any(of);
        let in_swap = snapshot.outside.as_ref().is_some_and(|outside| !outside.swapped.is_empty());
        Self {
            surveyed: in_swap || any(&|region| region.present_bytes.is_some()),
            swapped: in_swap || any(&|region| region.swapped_bytes > Some(0)),
            unobservable: any(&|region| region.unobservable_bytes.map_or(region.unobservable_share > 0.0, |of| of > 0)),
            unknown: any(&|region| region.unknown_bytes > Some(0)),
        }
    }
}

/// The columns. Those without a figure are left out.
fn columns(shown: Shown) -> Vec<Column> {
    let Shown { surveyed, swapped, unobservable, unknown } = shown;
    let all = [
        (Column::figure("start", 0), true),
        (Column::figure("end", 10), true),
        (Column::figure("size", 2), true),
        (Column::figure("mapped", 11), true),
        (Column::figure("resident", 3), surveyed),
        (Column::figure("touched", 5), surveyed),
        (Column::figure("absent", 7), surveyed),
        (Column::figure("swapped", 6), swapped),
        (Column::figure("rate", 1), true),
        (Column::text("", 10), true),
        (Column::figure("Hz", 4), true),
        (Column::figure("age", 3), true),
        (Column::figure("unobs.", 8), unobservable),
        (Column::figure("unknown", 9), unknown),
        (Column::name("mostly"), true),
    ];
    all.into_iter().filter(|(_, shown)| *shown).map(|(column, _)| column).collect()
}

impl Accumulator for RegionsText<'_> {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS | Needs::SURVEYS
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Some(visit) = self.surveys.chosen(event) else { return Ok(()) };
        let snapshot = TargetRegions::of(visit, &self.options, self.surveys.before(&visit.row));
        let title = format!(
            "{}, {} ({} region{}{})",
            units::nanoseconds(snapshot.time_ns),
            target_title(snapshot.id(), &snapshot.info),
            snapshot.regions.len(),
            if snapshot.regions.len() == 1 { "" } else { "s" },
            snapshot.outside.as_ref().and_then(outside).unwrap_or_default(),
        );
        writeln!(self.out, "{}", self.terminal.bold(&cut(&title, self.terminal.width(), &self.terminal)))?;
        let shown = Shown::of(&snapshot);
        let regions = snapshot.regions.iter().map(|region| self.cells(region, shown));
        let ranges = snapshot.outside.iter().flat_map(|outside| &outside.swapped);
        let mut lines = regions.chain(ranges.map(|range| in_swap(range, shown)));
        let rows: Vec<_> = lines.by_ref().take(MOST_LINES).collect();
        let left = lines.count();
        if !rows.is_empty() {
            table(self.out, &self.terminal, &columns(shown), &rows)?;
        }
        if left > 0 {
            let more = units::count(left as u64);
            writeln!(self.out, "{more} more; choose fewer, for example with --min-rate, or use --format json")?;
        }
        writeln!(self.out)?;
        Ok(())
    }
}

/// What no region covers: `, outside of them 12 MiB in swap, 20 MiB absent`.
fn outside(outside: &Outside) -> Option<String> {
    let parts = [(outside.swapped_bytes, "in swap"), (Bytes::exact(outside.absent_bytes), "absent")];
    let parts = parts.into_iter().filter_map(|(bytes, what)| Some(format!("{} {what}", bytes.some()?)));
    let parts: Vec<_> = parts.collect();
    (!parts.is_empty()).then(|| format!(", outside of them {}", parts.join(", ")))
}

/// The line of memory in swap that no region covers.
fn in_swap(range: &SwappedRange, columns: Shown) -> Vec<Cell> {
    let Shown { surveyed, swapped, unobservable, unknown } = columns;
    let SwappedRange { start, end, swapped_bytes, absent_bytes, name } = range;
    let size = units::bytes(end - start);
    let nothing = || (Cell::from(""), true);
    shown([
        (format!("{start:x}").into(), true),
        (format!("{end:x}").into(), true),
        (size.clone().into(), true),
        (size.into(), true),
        (units::bytes(0).into(), surveyed),
        (units::bytes(0).into(), surveyed),
        (units::bytes(*absent_bytes).into(), surveyed),
        (units::bytes(*swapped_bytes).into(), swapped),
        nothing(),
        nothing(),
        nothing(),
        nothing(),
        ("".into(), unobservable),
        ("".into(), unknown),
        (name.to_string().into(), true),
    ])
}

/// The cells that are shown.
fn shown(cells: [(Cell, bool); 15]) -> Vec<Cell> {
    cells.into_iter().filter(|(_, shown)| *shown).map(|(cell, _)| cell).collect()
}

impl RegionsText<'_> {
    fn cells(&self, region: &Region, columns: Shown) -> Vec<Cell> {
        let Shown { surveyed, swapped, unobservable, unknown } = columns;
        const BAR: usize = 10;
        let heat = f64::from(Measure::heat_of(region.access_hz));
        let text = bar(heat, BAR, &self.terminal);
        // Dark blue is hard to see on black, so the colour of the bar starts further up the scale.
        let styled = self.terminal.paint(&text, Some(of_rate(0.25 + 0.75 * heat)), None);
        let dark =
            if region.unobservable_share > 0.0 { units::percent(region.unobservable_share) } else { String::new() };
        let bytes = |bytes: Option<u64>| bytes.map_or_else(String::new, units::bytes).into();
        let dark = match region.unobservable_bytes {
            Some(0) => String::new(),
            Some(bytes) => units::bytes(bytes),
            None => dark,
        };
        let at_least = if region.is_saturated() { self.terminal.pick("≥", ">=") } else { "" };
        let none = self.terminal.pick("–", "-");
        let hertz = format!("{at_least}{}", units::table_hertz(region.access_hz));
        shown([
            (format!("{:x}", region.start).into(), true),
            (format!("{:x}", region.end).into(), true),
            (units::bytes(region.size()).into(), true),
            (units::bytes(region.mapped_bytes).into(), true),
            (bytes(region.present_bytes), surveyed),
            (bytes(region.touched_bytes), surveyed),
            (bytes(region.absent_bytes), surveyed),
            (bytes(region.swapped_bytes), swapped),
            (if region.has_frequency() { units::percent(region.access_rate) } else { none.into() }.into(), true),
            (if self.terminal.colour == Colour::None { text.into() } else { Cell::painted(text, styled) }, true),
            (if region.has_frequency() { hertz } else { String::new() }.into(), true),
            (units::nanoseconds(region.age_ns).into(), true),
            (dark.into(), unobservable),
            (bytes(region.unknown_bytes.filter(|&bytes| bytes > 0)), unknown),
            (region.name.to_string().into(), true),
        ])
    }
}
