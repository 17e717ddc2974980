//! The tables of groups: what each has in memory, how hot it is, and when it was largest.

use crate::bytes::Bytes;
use std::io::{self, Write};

use isotherm_core::units;

use super::table::{Cell, Column, table};
use super::{Terminal, wrap};
use crate::course::Life;
use crate::groups::{Group, GroupBy};
use crate::resident::Surveyed;
use crate::stacks;
use crate::summary::{GroupTemperature, Summary, Temperature};
use crate::wss::{GroupWss, GroupedWss};

/// A group that lived for less than this share of the time has columns that say when.
const WHOLE: f64 = 0.95;

/// The number of groups in a table.
fn most(terminal: &Terminal) -> usize {
    (terminal.rows / 2).max(8)
}

/// Columns that say which group it is: the process ID, or how many processes it has.
fn which(by: GroupBy) -> Column {
    if by == GroupBy::Process { Column::figure("pid", 0) } else { Column::figure("procs", 5) }
}

fn which_cell(group: &Group, by: GroupBy) -> Cell {
    let pid = group.pids.iter().flatten().next();
    match pid.filter(|_| by == GroupBy::Process) {
        Some(pid) => pid.to_string().into(),
        None => units::count(group.processes as u64).into(),
    }
}

/// The columns of the peak, and of the life if any of `lives` is shorter than the time.
fn life_columns(lives: impl Iterator<Item = Life>, time_ns: u64) -> Vec<Column> {
    let mut columns = vec![Column::figure("peak", 1), Column::figure("at", 4)];
    if lives.into_iter().any(|life| (life.lived_ns as f64) < time_ns as f64 * WHOLE) {
        columns.extend([Column::figure("from", 6), Column::figure("lived", 5)]);
    }
    columns
}

fn life_cells(life: &Life, columns: usize) -> Vec<Cell> {
    let times = [life.peak_ns, life.first_ns, life.lived_ns].map(|ns| Cell::from(units::nanoseconds(ns)));
    let mut cells = vec![units::table_bytes(life.peak_bytes).into()];
    cells.extend(times.into_iter().take(columns - 1));
    cells
}

/// Writes the tables of the groups of a summary.
pub(crate) fn groups(out: &mut dyn Write, terminal: &Terminal, summary: &Summary) -> io::Result<()> {
    let by = summary.group_by;
    let (shown, rest) = summary.groups.split_at(summary.groups.len().min(most(terminal)));
    let uses = |group: &GroupTemperature| {
        group.proportional_bytes.is_some() || !group.total.surveyed.resident_bytes.is_unknown()
    };
    let tells_use = summary.groups.iter().any(uses);
    // The second table has it as touched.
    let tells_wss = !tells_use || summary.total.surveyed.touched_bytes.is_unknown();
    let lives = || summary.groups.iter().map(|group| group.life);
    let life = life_columns(lives(), summary.to_ns - summary.from_ns);
    let life_len = life.len();
    let row = |(nth, group): (usize, &GroupTemperature)| {
        let [size, hot, warm, cold, dark, wss, idle] = figures(&group.total);
        let mut cells = vec![which_cell(&group.group, by), size.into()];
        cells.extend(life_cells(&group.life, life_len));
        cells.extend([hot, warm, cold, dark].map(Cell::from));
        cells.extend(tells_wss.then(|| wss.into()));
        cells.extend([idle, shown_name(&group.group, by, nth)].map(Cell::from));
        cells
    };
    let mut rows: Vec<Vec<Cell>> = shown.iter().enumerate().map(row).collect();
    if by == GroupBy::Mapping {
        rows.push(total(summary, life_len, tells_wss));
    }
    let mut columns = vec![which(by), Column::figure("size", 0)];
    columns.extend(life);
    columns.extend(
        [("hot", 2), ("warm", 8), ("cold", 3), ("unobs.", 10)].map(|(title, rank)| Column::figure(title, rank)),
    );
    columns.extend(tells_wss.then(|| Column::figure("wss", 7)));
    columns.extend([Column::figure("cold for", 9), Column::name(by.title())]);
    table(out, terminal, &columns, &rows)?;
    let time = (summary.to_ns - summary.from_ns).max(1) as f64;
    let in_all = |group: &GroupTemperature| group.total.size_bytes as f64 * group.life.lived_ns as f64 / time;
    more(out, terminal, rest.len(), rest.iter().map(in_all).sum())?;
    writeln!(out)?;
    if tells_use {
        let tells_pss = shown.iter().any(|group| group.proportional_bytes.is_some());
        let rows: Vec<Vec<Cell>> =
            shown.iter().enumerate().map(|(nth, group)| used(group, by, nth, tells_pss)).collect();
        let mut columns = vec![which(by), Column::figure("resident", 0)];
        columns.extend(tells_pss.then(|| Column::figure("PSS", 0)));
        columns.push(Column::figure("touched", 1));
        columns.extend(idle_titles(by).iter().zip(2..).map(|(title, rank)| Column::figure(title, rank)));
        columns.extend([("absent", 5), ("swapped", 4)].map(|(title, rank)| Column::figure(title, rank)));
        columns.push(Column::name(by.title()));
        table(out, terminal, &columns, &rows)?;
        more(out, terminal, rest.len(), 0.0)?;
        writeln!(out)?;
    }
    if by == GroupBy::Stack {
        stack_names(out, terminal, shown)?;
    }
    if by != GroupBy::Process && summary.groups.iter().any(|group| !group.counted_once) {
        let knows_pss = summary.groups.iter().any(|group| group.proportional_bytes.is_some());
        let pss = if knows_pss { "; PSS, by the kernel, divides it among them" } else { "" };
        let text = format!("What several processes of one line share counts for each of them{pss}.");
        writeln!(out, "{}\n", wrap(&text, terminal.width(), 0))?;
    }
    if let Some(once) = summary.counted_once.filter(|_| summary.targets.len() > 1) {
        let [resident, shared, touched] =
            [once.resident_bytes, once.shared_bytes, once.touched_bytes].map(units::bytes);
        let mut text = format!(
            "Each page counted once: {resident} resident, of which several targets map {shared}; {touched} touched"
        );
        if let Some(swapped) = once.swapped_bytes.some() {
            text += &format!("; {swapped} in swap");
        }
        text += ".";
        writeln!(out, "{}\n", wrap(&text, terminal.width(), 0))?;
    }
    Ok(())
}

/// The name of a group in a table. Names of stacks are long: a number stands for each.
fn shown_name(group: &Group, by: GroupBy, nth: usize) -> String {
    if by == GroupBy::Stack { format!("#{}", nth + 1) } else { group.name.clone() }
}

/// Writes which stack each number stands for.
fn stack_names(out: &mut dyn Write, terminal: &Terminal, shown: &[GroupTemperature]) -> io::Result<()> {
    for (nth, group) in shown.iter().enumerate() {
        let text = format!("#{} {}", nth + 1, stacks::brief(&group.group.name));
        writeln!(out, "{}", wrap(&text, terminal.width(), 4))?;
    }
    writeln!(out)
}

/// The figures of a line: size, hot, warm, cold, unobservable, working set, and for how long it has been cold.
pub(super) fn figures(t: &Temperature) -> [String; 7] {
    let size = units::table_bytes;
    [
        size(t.size_bytes),
        size(t.hot_bytes),
        size(t.warm_bytes),
        size(t.cold_bytes),
        size(t.unobservable_bytes),
        size(t.working_set_bytes),
        t.cold_for_ns.map_or_else(String::new, units::nanoseconds),
    ]
}

/// The line of all memory, whose means are over the selected time.
fn total(summary: &Summary, life_columns: usize, tells_wss: bool) -> Vec<Cell> {
    let [size, hot, warm, cold, dark, wss, idle] = figures(&summary.total);
    let mut cells = vec![units::count(summary.targets.len() as u64).into(), size.into()];
    cells.extend(std::iter::repeat_n("", life_columns).map(Cell::from));
    cells.extend([hot, warm, cold, dark].map(Cell::from));
    cells.extend(tells_wss.then(|| wss.into()));
    cells.extend([idle, "total".into()].map(Cell::from));
    cells
}

/// The columns of idle memory: of stacks, it tells which code holds memory that nobody uses.
fn idle_titles(by: GroupBy) -> &'static [&'static str] {
    if by == GroupBy::Stack { &["idle 10 s", "1 min"] } else { &[] }
}

/// The memory that a group uses.
fn used(group: &GroupTemperature, by: GroupBy, nth: usize, tells_pss: bool) -> Vec<Cell> {
    let Surveyed { resident_bytes, touched_bytes, absent_bytes, swapped_bytes, idle_10s_bytes, idle_1m_bytes, .. } =
        group.total.surveyed;
    let cell = |bytes: Bytes| Cell::from(bytes.cell().unwrap_or_default());
    let mut cells = vec![which_cell(&group.group, by), cell(resident_bytes)];
    cells.extend(tells_pss.then(|| cell(group.proportional_bytes.into())));
    cells.push(cell(touched_bytes));
    cells.extend([idle_10s_bytes, idle_1m_bytes].into_iter().take(idle_titles(by).len()).map(cell));
    cells.extend([absent_bytes, swapped_bytes].map(cell));
    cells.push(shown_name(&group.group, by, nth).into());
    cells
}

/// Writes the table of the working sets of groups.
pub(crate) fn grouped_wss(
    out: &mut dyn Write,
    terminal: &Terminal,
    grouped: &GroupedWss,
    time_ns: u64,
) -> io::Result<()> {
    let by = grouped.group_by;
    let (shown, rest) = grouped.groups.split_at(grouped.groups.len().min(most(terminal)));
    let life = life_columns(grouped.groups.iter().map(|group| group.life), time_ns);
    let life_len = life.len();
    let tells_present = grouped.groups.iter().any(|group| group.present_bytes.is_some());
    let row = |group: &GroupWss| {
        let mut cells = vec![which_cell(&group.group, by), units::table_bytes(group.mean_bytes).into()];
        cells.extend(life_cells(&group.life, life_len));
        let present = || group.present_bytes.map_or_else(String::new, units::table_bytes);
        cells.extend(tells_present.then(|| present().into()));
        cells.push(group.group.name.clone().into());
        cells
    };
    let rows: Vec<Vec<Cell>> = shown.iter().map(row).collect();
    let mut columns = vec![which(by), Column::figure("mean", 0)];
    columns.extend(life);
    columns.extend(tells_present.then(|| Column::figure("resident", 3)));
    columns.push(Column::name(by.title()));
    table(out, terminal, &columns, &rows)?;
    let in_all = |group: &GroupWss| group.mean_bytes as f64 * group.life.lived_ns as f64 / time_ns.max(1) as f64;
    more(out, terminal, rest.len(), rest.iter().map(in_all).sum())
}

/// Writes how many groups a table leaves out, and the mean of their bytes together over the whole time.
fn more(out: &mut dyn Write, terminal: &Terminal, count: usize, bytes: f64) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let mark = terminal.pick("…", "...");
    let bytes = if bytes > 0.0 { format!(": {}", units::bytes(bytes.round() as u64)) } else { String::new() };
    writeln!(out, "{}", terminal.dim(&format!("{mark} {} more{bytes}", units::count(count as u64))))
}
