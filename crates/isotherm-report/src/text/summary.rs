//! The summary for a terminal: facts about the recording, warnings, and a table of the mapping names.

use crate::bytes::Bytes;
use std::io::{self, Write};

use isotherm_core::units;
use isotherm_record::Mark;

use super::bar::{self, Part};
use super::groups::{figures, groups};
use super::marks::list;
use super::table::{Cell, Column, table};
use super::{Terminal, wrap};
use crate::colour::{UNKNOWN, UNOBSERVABLE, of_rate};
use crate::facts::{facts, warnings};
use crate::groups::GroupBy;
use crate::node_memory::NodeMemory;
use crate::resident::Surveyed;
use crate::summary::{Summary, Temperature, folded};

/// Names with less than this share of the size and of the hot memory share one line.
const LEAST: f64 = 0.005;

/// Writes the facts, the warnings, the table and the marks.
pub(crate) fn summary(out: &mut dyn Write, terminal: &Terminal, summary: &Summary, marks: &[Mark]) -> io::Result<()> {
    let width = terminal.width();
    for (i, fact) in facts(summary).iter().enumerate() {
        let text = wrap(fact, width, 2);
        writeln!(out, "{}", if i == 0 { terminal.bold(&text) } else { text })?;
    }
    for warning in warnings(summary) {
        super::warning(out, terminal, Some(warning))?;
    }
    writeln!(out)?;
    let is_grouped = summary.group_by != GroupBy::Process || summary.targets.len() > 1;
    if is_grouped {
        groups(out, terminal, summary)?;
    }
    if summary.group_by != GroupBy::Mapping {
        mappings(out, terminal, summary)?;
    }
    for text in summary.total.surveyed.remarks() {
        writeln!(out, "{}\n", wrap(&text, width, 0))?;
    }
    if let [target] = &summary.targets[..]
        && let Some(bytes) = target.proportional_bytes
    {
        let text = format!(
            "PSS, by the kernel: {}; memory that other processes share counts for its part",
            units::bytes(bytes)
        );
        writeln!(out, "{}\n", wrap(&text, width, 0))?;
    }
    nodes(out, terminal, summary)?;
    list(out, terminal, marks)?;
    let surveyed = !summary.total.surveyed.resident_bytes.is_unknown();
    let wss = if surveyed { "touched within a survey interval" } else { "regions accessed at all" };
    let lives = if is_grouped { ", in the first table over the life of each line" } else { "" };
    let note = format!(
        "{}; mean over {}{lives}; wss: {wss}; cold for: age of the cold at the end",
        summary.temperatures(),
        units::nanoseconds(summary.to_ns - summary.from_ns)
    );
    writeln!(out, "{}", terminal.dim(&wrap(&note, width, 0)))
}

/// The table of memory nodes, if there are several: of each group, and of all.
fn nodes(out: &mut dyn Write, terminal: &Terminal, summary: &Summary) -> io::Result<()> {
    if summary.nodes.is_empty() {
        return Ok(());
    }
    let groups: Vec<(&str, &[NodeMemory])> = match &summary.groups[..] {
        [_, _, ..] => {
            let shown = summary.groups.iter().filter(|group| !group.nodes.is_empty()).take((terminal.rows / 4).max(4));
            shown.map(|group| (&*group.group.name, &group.nodes[..])).collect()
        }
        _ => Vec::new(),
    };
    let rows = groups.into_iter().chain([("total", &summary.nodes[..])]).flat_map(|(name, nodes)| {
        nodes.iter().map(move |node| {
            let bytes = |bytes: Option<u64>| Cell::from(bytes.map_or_else(String::new, units::table_bytes));
            let mut cells = vec![Cell::from(node.node.to_string())];
            cells.extend([Some(node.resident_bytes), Some(node.touched_bytes)].map(bytes));
            cells.extend([node.idle_10s_bytes, node.idle_1m_bytes, node.idle_10m_bytes].map(bytes));
            cells.push(name.into());
            cells
        })
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    table(out, terminal, &NODES, &rows)?;
    writeln!(out)
}

const NODES: [Column; 7] = [
    Column::figure("node", 0),
    Column::figure("resident", 0),
    Column::figure("touched", 0),
    Column::figure("idle 10 s", 1),
    Column::figure("1 min", 2),
    Column::figure("10 min", 3),
    Column::name("memory nodes"),
];

/// The tables of mapping names.
fn mappings(out: &mut dyn Write, terminal: &Terminal, summary: &Summary) -> io::Result<()> {
    let (shown, others) = folded(&summary.mappings, terminal.rows.saturating_sub(10).max(8), LEAST);
    let shown: Vec<&Temperature> = shown.into_iter().chain(others.as_ref().map(|(_, rest)| rest)).collect();
    let largest = shown.iter().map(|t| t.size_bytes).max().unwrap_or(0);
    let bar_columns = if terminal.width() >= 110 { 24 } else { 12 };
    let rows: Vec<Vec<Cell>> = shown
        .iter()
        .map(|t| line(t, &stacked(t, largest, bar_columns, terminal)))
        .chain([line(&summary.total, &(String::new(), String::new()))])
        .collect();
    let [size, hot, warm, cold, dark, wss, idle] = FIGURES;
    let bar = Column::text("", 4);
    table(out, terminal, &[size, hot, warm, cold, dark, wss, idle, bar, Column::name("mapping")], &rows)?;
    if !summary.total.surveyed.resident_bytes.is_unknown() {
        writeln!(out)?;
        let all = || shown.iter().copied().chain([&summary.total]);
        let more: Vec<_> = RARE.into_iter().filter(|(.., bytes)| !bytes(&summary.total.surveyed).is_zero()).collect();
        let [before @ .., name] = SURVEYED;
        let rare = more.iter().map(|(title, rank, _)| Column::figure(title, *rank));
        let columns: Vec<Column> = before.into_iter().chain(rare).chain([name]).collect();
        let rows: Vec<Vec<Cell>> = all().map(|t| surveyed(t, &more)).collect();
        table(out, terminal, &columns, &rows)?;
    }
    writeln!(out)
}

/// What surveys found.
const SURVEYED: [Column; 9] = [
    Column::figure("resident", 0),
    Column::figure("touched", 0),
    Column::figure("idle 10 s", 2),
    Column::figure("1 min", 3),
    Column::figure("10 min", 4),
    Column::figure("absent", 5),
    Column::figure("swapped", 7),
    Column::figure("unknown", 6),
    Column::name("mapping"),
];

/// The title and the rank of a column that is shown if there is something to show, and its bytes.
type Rare = (&'static str, u8, fn(&Surveyed) -> Bytes);

const RARE: [Rare; 2] = [("no access", 8, |s| s.no_access_bytes), ("again", 9, |s| s.mapped_again_bytes)];

fn surveyed(t: &Temperature, more: &[Rare]) -> Vec<Cell> {
    let s = t.surveyed;
    let bytes = |bytes: Bytes| bytes.cell().unwrap_or_default().into();
    let idle = [s.idle_10s_bytes, s.idle_1m_bytes, s.idle_10m_bytes];
    let mut cells: Vec<Cell> = vec![bytes(s.resident_bytes), bytes(s.touched_bytes)];
    cells.extend(idle.map(bytes));
    cells.extend([s.absent_bytes, s.swapped_bytes, Bytes::exact(t.unknown_bytes)].map(bytes));
    cells.extend(more.iter().map(|(.., of)| bytes(of(&s))));
    cells.push(t.name.to_string().into());
    cells
}

const FIGURES: [Column; 7] = [
    Column::figure("size", 1),
    Column::figure("hot", 0),
    Column::figure("warm", 3),
    Column::figure("cold", 2),
    Column::figure("unobs.", 6),
    Column::figure("wss", 5),
    Column::figure("cold for", 3),
];

fn line(t: &Temperature, (text, styled): &(String, String)) -> Vec<Cell> {
    let mut cells: Vec<Cell> = figures(t).map(Cell::from).into();
    cells.push(Cell::painted(text.clone(), styled.clone()));
    cells.push(t.name.to_string().into());
    cells
}

/// A bar with parts for hot, warm, cold, unobservable and unknown memory, as plain and as styled text.
fn stacked(t: &Temperature, largest: u64, columns: usize, terminal: &Terminal) -> (String, String) {
    let parts: [Part; 5] = [
        (t.hot_bytes, of_rate(0.9), "█", "#"),
        (t.warm_bytes, of_rate(0.5), "▓", "+"),
        (t.cold_bytes, of_rate(0.15), "░", "."),
        (t.unobservable_bytes, UNOBSERVABLE, "?", "?"),
        (t.unknown_bytes, UNKNOWN, "u", "u"),
    ];
    bar::stacked(&parts, largest, columns, terminal)
}
