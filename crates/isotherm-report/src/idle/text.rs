//! The report for a terminal: the sum, the tree of cgroups, and processes with their mappings.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use isotherm_core::units;

use super::bands::{bands, spread};
use super::tree::parts;
use super::{CgroupFigures, IdleFigures, IdleReport, ProcessFigures};
use crate::colour::{UNOBSERVABLE, of_rate};
use crate::command::{shown_command, shown_pid};
use crate::escape::sanitise;
use crate::text::bar::{Part, stacked};
use crate::text::table::{Cell, Column, table};
use crate::text::{Terminal, wrap};

/// Cgroups with less than this share of all scanned memory share one line.
const LEAST: f64 = 0.002;

/// The maximum number of processes, and of mapping names of each.
const MOST_PROCESSES: usize = 20;
const MOST_MAPPINGS: usize = 12;

pub(super) fn write(out: &mut dyn Write, terminal: &Terminal, report: &IdleReport) -> io::Result<()> {
    let width = terminal.width();
    let total = &report.total;
    let first = format!(
        "Idle for {}: {} of {} ({})",
        units::nanoseconds(report.interval_ns),
        units::table_bytes(total.idle_bytes),
        units::table_bytes(total.size_bytes),
        units::percent(total.idle_share())
    );
    writeln!(out, "{}", terminal.bold(&wrap(&first, width, 2)))?;
    writeln!(out, "{}", wrap(&facts(report), width, 2))?;
    for note in &report.notes {
        let note = wrap(&format!("! {}", sanitise(note)), width, 2);
        writeln!(out, "{}", terminal.paint(&note, Some([200, 140, 20]), None))?;
    }
    if !report.nodes.is_empty() {
        writeln!(out)?;
        nodes(out, terminal, report)?;
    }
    if !report.cgroups.is_empty() {
        writeln!(out)?;
        cgroups(out, terminal, report)?;
    }
    if !report.processes.is_empty() {
        writeln!(out)?;
        processes(out, terminal, report)?;
    }
    Ok(())
}

fn facts(report: &IdleReport) -> String {
    let way = match report.way {
        "idle_page_tracking" => "by idle page tracking",
        _ => "by page tables (bpf)",
    };
    let mut facts = way.to_owned();
    if let Some(shared) = report.shared.as_ref().filter(|shared| shared.size_bytes > 0) {
        facts += &format!(
            "; several processes map {} ({} idle), counted once",
            units::table_bytes(shared.size_bytes),
            units::table_bytes(shared.idle_bytes)
        );
    }
    for (bytes, what) in [
        (report.total.unobservable_bytes, "unobservable"),
        (report.total.unevictable_bytes, "unevictable (not counted)"),
        (report.total.lazily_freed_bytes, "freed lazily (not counted)"),
    ] {
        if bytes > 0 {
            facts += &format!("; {} {what}", units::table_bytes(bytes));
        }
    }
    facts += &format!("; the scan took {} of CPU time", units::nanoseconds(report.cost.cpu_ns));
    if report.cut_short {
        facts += "; stopped before the interval was over";
    }
    facts
}

/// A line of the tree: depth, name and figures, and whether it stands for several cgroups.
struct Line<'a> {
    depth: usize,
    name: String,
    own: IdleFigures,
    total: IdleFigures,
    of: Option<&'a CgroupFigures>,
}

fn cgroups(out: &mut dyn Write, terminal: &Terminal, report: &IdleReport) -> io::Result<()> {
    let least = (report.total.size_bytes as f64 * LEAST) as u64;
    let mut lines = Vec::new();
    let named: Vec<&CgroupFigures> = report.cgroups.iter().filter(|cgroup| cgroup.path.is_some()).collect();
    if let Some((top, below)) = named.split_first() {
        branch(top, below, 0, "/".into(), least, &mut lines);
    }
    for cgroup in report.cgroups.iter().filter(|cgroup| cgroup.path.is_none()) {
        let name = cgroup.inode.map_or_else(|| "(no cgroup)".into(), |inode| format!("(inode {inode})"));
        lines.push(Line { depth: 0, name, own: cgroup.own.clone(), total: cgroup.total.clone(), of: Some(cgroup) });
    }
    let largest = lines.iter().map(|line| line.total.size_bytes).max().unwrap_or(0);
    let [idle, percent, of, dark, picture] = FIGURES;
    let columns = [
        idle,
        percent,
        of,
        dark,
        Column::figure("own idle", 3),
        Column::figure("own", 3),
        picture,
        Column::name("cgroup"),
    ];
    let rows: Vec<Vec<Cell>> = lines
        .iter()
        .map(|line| {
            let leaf = line.own == line.total;
            let own = |bytes| if leaf { String::new() } else { units::table_bytes(bytes) };
            vec![
                units::table_bytes(line.total.idle_bytes).into(),
                share(&line.total).into(),
                units::table_bytes(line.total.size_bytes).into(),
                or_nothing(line.total.unobservable_bytes).into(),
                own(line.own.idle_bytes).into(),
                own(line.own.size_bytes).into(),
                bar(&line.total, largest, terminal),
                format!("{:1$}{2}", "", line.depth * 2, sanitise(&line.name)).into(),
            ]
        })
        .collect();
    table(out, terminal, &columns, &rows)?;
    if report.total.idle_by_intervals.is_some() {
        writeln!(out)?;
        ages(out, terminal, report, &lines)?;
    }
    Ok(())
}

/// Adds a cgroup and those below it, the most idle memory first. `below` has them in the order of the tree.
fn branch<'a>(
    top: &'a CgroupFigures,
    below: &[&'a CgroupFigures],
    depth: usize,
    name: String,
    least: u64,
    lines: &mut Vec<Line<'a>>,
) {
    let level = |cgroup: &CgroupFigures| cgroup.path.as_deref().map_or(0, |path| parts(path).len());
    let here = level(top);
    let mut children: Vec<&[&CgroupFigures]> = Vec::new();
    let mut rest = below;
    while !rest.is_empty() {
        let end = 1 + rest[1..].iter().take_while(|cgroup| level(cgroup) > here + 1).count();
        let (child, others) = rest.split_at(end);
        children.push(child);
        rest = others;
    }
    // A cgroup whose only content is one other cgroup shares a line with it.
    if let ([only], true, true) = (&children[..], top.own.size_bytes == 0 && top.own.unevictable_bytes == 0, depth > 0)
    {
        let longer = format!("{name}/{}", last_part(only[0]));
        return branch(only[0], &only[1..], depth, longer, least, lines);
    }
    lines.push(Line { depth, name, own: top.own.clone(), total: top.total.clone(), of: Some(top) });
    children.sort_by_key(|child| std::cmp::Reverse(child[0].total.idle_bytes));
    let (shown, folded): (Vec<_>, Vec<_>) = children.into_iter().partition(|child| child[0].total.size_bytes >= least);
    for child in shown {
        branch(child[0], &child[1..], depth + 1, last_part(child[0]), least, lines);
    }
    if let [only] = folded[..] {
        branch(only[0], &only[1..], depth + 1, last_part(only[0]), least, lines);
    } else if !folded.is_empty() {
        let total = folded.iter().fold(IdleFigures::default(), |sum, child| plus(sum, &child[0].total));
        let name = format!("({} others)", folded.len());
        lines.push(Line { depth: depth + 1, name, own: total.clone(), total, of: None });
    }
}

fn last_part(cgroup: &CgroupFigures) -> String {
    cgroup.path.as_deref().and_then(|path| parts(path).last().map(|part| (*part).to_owned())).unwrap_or_default()
}

fn plus(sum: IdleFigures, other: &IdleFigures) -> IdleFigures {
    IdleFigures {
        size_bytes: sum.size_bytes + other.size_bytes,
        idle_bytes: sum.idle_bytes + other.idle_bytes,
        accessed_bytes: sum.accessed_bytes + other.accessed_bytes,
        unobservable_bytes: sum.unobservable_bytes + other.unobservable_bytes,
        unevictable_bytes: sum.unevictable_bytes + other.unevictable_bytes,
        lazily_freed_bytes: sum.lazily_freed_bytes + other.lazily_freed_bytes,
        idle_by_intervals: None,
    }
}

/// Writes for how long memory has been idle, by cgroup.
fn ages(out: &mut dyn Write, terminal: &Terminal, report: &IdleReport, lines: &[Line<'_>]) -> io::Result<()> {
    let bands = bands(std::iter::once(&report.total), terminal.width().saturating_sub(30) / 10);
    let time = |band: u32| {
        let time = Duration::from_nanos(report.interval_ns).saturating_mul(band);
        // Whole seconds, unless the time is shorter than one.
        let whole = Duration::from_secs(time.as_secs_f64().round() as u64);
        units::duration(if whole.is_zero() { time } else { whole })
    };
    let titles = bands.iter().enumerate().map(|(i, &band)| {
        let open = if i + 1 == bands.len() { "+" } else { "" };
        Column::titled(format!("{}{open}", time(band)), 0)
    });
    let columns: Vec<Column> =
        std::iter::once(Column::figure("accessed", 1)).chain(titles).chain([Column::name("cgroup")]).collect();
    let rows: Vec<Vec<Cell>> = lines
        .iter()
        .filter(|line| line.of.is_some())
        .map(|line| {
            let mut cells = vec![or_nothing(line.total.accessed_bytes).into()];
            cells.extend(spread(&line.total, &bands).into_iter().map(|bytes| Cell::from(or_nothing(bytes))));
            cells.push(format!("{:1$}{2}", "", line.depth * 2, sanitise(&line.name)).into());
            cells
        })
        .collect();
    table(out, terminal, &columns, &rows)?;
    let note = "by how long it has been idle: at least the time above, and less than the next";
    writeln!(out, "{}", terminal.dim(&wrap(note, terminal.width(), 0)))
}

/// Writes the memory of each node.
fn nodes(out: &mut dyn Write, terminal: &Terminal, report: &IdleReport) -> io::Result<()> {
    let largest = report.nodes.iter().map(|node| node.figures.size_bytes).max().unwrap_or(0);
    let [idle, percent, of, dark, picture] = FIGURES;
    let columns = [idle, percent, of, dark, picture, Column::name("memory node")];
    let rows: Vec<Vec<Cell>> = report
        .nodes
        .iter()
        .map(|node| {
            let mut cells = figures(&node.figures, largest, terminal);
            cells.push(node.node.map_or_else(|| "(not known)".into(), |node| node.to_string()).into());
            cells
        })
        .collect();
    table(out, terminal, &columns, &rows)
}

fn processes(out: &mut dyn Write, terminal: &Terminal, report: &IdleReport) -> io::Result<()> {
    let largest = report.processes.iter().map(|process| process.figures.size_bytes).max().unwrap_or(0);
    let shown = &report.processes[..report.processes.len().min(MOST_PROCESSES)];
    let any_shared = shown.iter().any(|process| process.shared_bytes > 0);
    let mut columns = vec![
        Column::figure("pid", 0),
        Column::figure("idle", 0),
        Column::figure("%", 2),
        Column::figure("of", 1),
        Column::figure("unobs.", 4),
        Column::text("", 5),
    ];
    if any_shared {
        columns.push(Column::figure("shared", 3));
    }
    columns.push(Column::name("process"));
    let rows: Vec<Vec<Cell>> = shown
        .iter()
        .map(|process| {
            let mut cells = vec![process.pid.to_string().into()];
            cells.extend(figures(&process.figures, largest, terminal));
            if any_shared {
                cells.push(or_nothing(process.shared_bytes).into());
            }
            cells.push(shown_command(&process.command).into_owned().into());
            cells
        })
        .collect();
    table(out, terminal, &columns, &rows)?;
    if report.processes.len() > shown.len() {
        let rest = &report.processes[shown.len()..];
        let idle: u64 = rest.iter().map(|process| process.figures.idle_bytes).sum();
        let note = format!("and {} others, {} idle; JSON has all", rest.len(), units::table_bytes(idle));
        writeln!(out, "{}", terminal.dim(&wrap(&note, terminal.width(), 0)))?;
    }
    for process in shown.iter().filter(|process| !process.mappings.is_empty()) {
        writeln!(out)?;
        mappings(out, terminal, process)?;
    }
    Ok(())
}

/// Writes the idle memory of a process by mapping name.
fn mappings(out: &mut dyn Write, terminal: &Terminal, process: &ProcessFigures) -> io::Result<()> {
    let title = format!("pid {}: {}", shown_pid(process.pid, process.inner_pid), shown_command(&process.command));
    writeln!(out, "{}", terminal.bold(&crate::text::cut(&title, terminal.width(), terminal)))?;
    let mut names: BTreeMap<&str, IdleFigures> = BTreeMap::new();
    for mapping in &process.mappings {
        let sum = names.entry(&mapping.name).or_default();
        *sum = plus(std::mem::take(sum), &mapping.figures);
    }
    let mut names: Vec<_> = names.into_iter().map(|(name, figures)| (name.to_owned(), figures)).collect();
    names.sort_by_key(|(_, figures)| std::cmp::Reverse((figures.idle_bytes, figures.size_bytes)));
    if names.len() > MOST_MAPPINGS {
        let rest = names.split_off(MOST_MAPPINGS - 1);
        let sum = rest.iter().fold(IdleFigures::default(), |sum, (_, figures)| plus(sum, figures));
        names.push((format!("({} others)", rest.len()), sum));
    }
    let largest = names.iter().map(|(_, figures)| figures.size_bytes).max().unwrap_or(0);
    let [idle, percent, of, dark, picture] = FIGURES;
    let columns = [idle, percent, of, dark, picture, Column::name("mapping")];
    let rows: Vec<Vec<Cell>> = names
        .into_iter()
        .map(|(name, figures)| {
            let mut cells = self::figures(&figures, largest, terminal);
            cells.push(name.into());
            cells
        })
        .collect();
    table(out, terminal, &columns, &rows)
}

/// The columns of [`figures`].
const FIGURES: [Column; 5] = [
    Column::figure("idle", 0),
    Column::figure("%", 2),
    Column::figure("of", 1),
    Column::figure("unobs.", 4),
    Column::text("", 5),
];

fn figures(figures: &IdleFigures, largest: u64, terminal: &Terminal) -> Vec<Cell> {
    vec![
        units::table_bytes(figures.idle_bytes).into(),
        share(figures).into(),
        units::table_bytes(figures.size_bytes).into(),
        or_nothing(figures.unobservable_bytes).into(),
        bar(figures, largest, terminal),
    ]
}

fn bar(figures: &IdleFigures, largest: u64, terminal: &Terminal) -> Cell {
    let columns = if terminal.width() >= 110 { 24 } else { 12 };
    let parts: [Part; 3] = [
        (figures.accessed_bytes, of_rate(0.9), "█", "#"),
        (figures.idle_bytes, of_rate(0.15), "░", "."),
        (figures.unobservable_bytes, UNOBSERVABLE, "?", "?"),
    ];
    let (text, styled) = stacked(&parts, largest, columns, terminal);
    Cell::painted(text, styled)
}

fn or_nothing(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { units::bytes(bytes) }
}

/// The idle share without the percent sign.
fn share(figures: &IdleFigures) -> String {
    units::percent(figures.idle_share()).trim_end_matches(" %").to_owned()
}
