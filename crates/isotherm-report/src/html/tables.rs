//! The tables of the page. They need no script.

use crate::bytes::Bytes;
use std::cmp::Reverse;
use std::fmt::Write as _;

use isotherm_core::survey::WINDOWS;
use isotherm_core::units;
use isotherm_record::Mark;

use super::data::MARKS;
use crate::colour::{SWAPPED, UNKNOWN, UNOBSERVABLE, hex, of_rate};
use crate::command::shown_command;
use crate::escape::markup;
use crate::groups::GroupBy;
use crate::overhead::{Load, Overhead};
use crate::schemes::{Scheme, Schemes};
use crate::summary::{Summary, TargetTemperature, Temperature, folded};
use crate::text::{cpu, cpu_over_windows, net_freed, returned_share, scheme_facts};
use crate::wss::{PERCENTILES, Percentiles, Wss, WssBuilder};
use crate::{ReportError, Source};

/// The marks. Nothing if there are none.
pub(crate) fn marks(marks: &[Mark]) -> String {
    if marks.is_empty() {
        return String::new();
    }
    let row =
        |mark: &Mark| format!("<tr><td>{}</td><th>{}</th></tr>\n", units::duration(mark.time), markup(&mark.text));
    let mut rows: String = marks.iter().take(MARKS).map(row).collect();
    if marks.len() > MARKS {
        _ = writeln!(rows, "<tr><td></td><th>{} more</th></tr>", units::count((marks.len() - MARKS) as u64));
    }
    format!(
        "<div class=\"scroll\"><table class=\"figures\"><thead><tr><th>time</th><th>mark</th></tr></thead>\n\
         <tbody>{rows}</tbody></table></div>\n"
    )
}

/// Names with less than this share of the size and of the hot memory share one line.
const LEAST: f64 = 0.002;

/// A size, if it is known.
fn size(bytes: impl Into<Bytes>) -> String {
    bytes.into().cell().unwrap_or_else(|| "–".into())
}

fn cells(t: &Temperature) -> String {
    let idle = t.cold_for_ns.map_or_else(|| "–".into(), units::nanoseconds);
    let surveyed = [t.surveyed.absent_bytes, t.surveyed.swapped_bytes];
    let surveyed = surveyed.map(size);
    [t.size_bytes, t.hot_bytes, t.warm_bytes, t.cold_bytes, t.unobservable_bytes, t.working_set_bytes]
        .map(units::table_bytes)
        .into_iter()
        .chain([idle])
        .chain(surveyed)
        .map(|text| format!("<td>{text}</td>"))
        .collect()
}

const HEADS: &str = "<th>size</th><th>hot</th><th>warm</th><th>cold</th>\
    <th title=\"could not be observed\">unobs.</th><th title=\"working set: bytes of regions that were accessed at \
    all\">WSS</th>\
    <th title=\"how long the cold had been cold at the end\">cold for</th>\
    <th title=\"mapped, and neither in memory nor in swap\">absent</th><th title=\"in swap at the end\">swapped</th>";

/// A bar with parts for hot, warm, cold, unobservable and unknown memory, and for that in swap.
fn bar(t: &Temperature, largest: u64) -> String {
    let mut parts = String::new();
    let mut x = 0.0;
    let colours = [of_rate(0.9), of_rate(0.5), of_rate(0.08), UNOBSERVABLE, UNKNOWN, SWAPPED];
    let sizes = [t.hot_bytes, t.warm_bytes, t.cold_bytes, t.unobservable_bytes, t.unknown_bytes, in_swap(t)];
    for (bytes, colour) in sizes.into_iter().zip(colours) {
        let wide = bytes as f64 / largest.max(1) as f64 * 100.0;
        if wide > 0.0 {
            _ = write!(parts, r#"<rect x="{x:.2}" width="{wide:.2}" height="10" fill="{}"/>"#, hex(colour));
        }
        x += wide;
    }
    format!(r#"<svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{parts}</svg>"#)
}

fn in_swap(t: &Temperature) -> u64 {
    t.surveyed.swapped_bytes.least()
}

/// The length of a bar.
fn length(t: &Temperature) -> u64 {
    t.size_bytes.saturating_add(in_swap(t))
}

/// A line for each mapping name.
pub(crate) fn summary(summary: &Summary) -> String {
    let (shown, others) = folded(&summary.mappings, 30, LEAST);
    let shown: Vec<&Temperature> = shown.into_iter().chain(others.as_ref().map(|(_, rest)| rest)).collect();
    let largest = shown.iter().map(|t| length(t)).max().unwrap_or(0);
    let mut out =
        format!("<table class=\"figures\"><thead><tr><th>mapping</th>{HEADS}<th></th></tr></thead>\n<tbody>\n");
    for t in shown {
        _ = writeln!(out, "<tr><th>{}</th>{}<td>{}</td></tr>", markup(&t.name), cells(t), bar(t, largest));
    }
    let total = &summary.total;
    _ = writeln!(
        out,
        "</tbody>\n<tfoot><tr><th>total</th>{}<td>{}</td></tr></tfoot></table>",
        cells(total),
        bar(total, length(total))
    );
    let remarks = total.surveyed.remarks();
    remarks.iter().for_each(|text| _ = writeln!(out, "<p class=\"quiet\">{}</p>", markup(text)));
    out + &nodes(summary)
}

/// A line for each memory node, if there are several: of each group, and of all.
fn nodes(summary: &Summary) -> String {
    if summary.nodes.is_empty() {
        return String::new();
    }
    let groups = summary.groups.iter().filter(|_| summary.groups.len() > 1).take(MOST);
    let groups = groups.map(|group| (&*group.group.name, &group.nodes[..]));
    let mut out = "<table class=\"figures\"><thead><tr><th>memory nodes</th><th>node</th><th>resident</th>\
                   <th>touched</th><th>idle 10 s</th><th>1 min</th><th>10 min</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for (name, nodes) in groups.chain([("total", &summary.nodes[..])]) {
        for node in nodes {
            let known = [Some(node.resident_bytes), Some(node.touched_bytes)];
            let idle = [node.idle_10s_bytes, node.idle_1m_bytes, node.idle_10m_bytes];
            let cells = known.into_iter().chain(idle).map(|bytes| format!("<td>{}</td>", size(bytes)));
            let cells: String = cells.collect();
            _ = writeln!(out, "<tr><th>{}</th><td>{}</td>{cells}</tr>", markup(name), node.node);
        }
    }
    out + "</tbody></table>\n"
}

/// Groups or targets in a table.
const MOST: usize = 100;

const PSS: &str = "<th title=\"resident, with what several processes share divided among them; by \
                   the kernel\">PSS</th>";

/// How many groups or targets a table leaves out, if any.
fn others(count: usize) -> String {
    if count > MOST { format!("<tr><th>and {} others</th></tr>\n", count - MOST) } else { String::new() }
}

/// A line for each group of several targets, if memory is grouped so.
pub(crate) fn groups(summary: &Summary) -> String {
    if matches!(summary.group_by, GroupBy::Process | GroupBy::Mapping) {
        return String::new();
    }
    let mut out = format!(
        "<table class=\"figures\"><thead><tr><th>{}</th><th>processes</th>{HEADS}{PSS}<th>peak</th><th>at</th></tr>\
         </thead>\n<tbody>\n",
        summary.group_by.title()
    );
    for t in summary.groups.iter().take(MOST) {
        let (name, processes, at) = (markup(&t.group.name), t.group.processes, units::nanoseconds(t.life.peak_ns));
        let [pss, peak] = [t.proportional_bytes, Some(t.life.peak_bytes)].map(size);
        let cells = cells(&t.total);
        _ = writeln!(
            out,
            "<tr><th>{name}</th><td>{processes}</td>{cells}<td>{pss}</td><td>{peak}</td><td>{at}</td></tr>"
        );
    }
    out + &others(summary.groups.len()) + "</tbody></table>\n"
}

/// A line for each target, if there are several: the largest first.
pub(crate) fn targets(summary: &Summary) -> String {
    if summary.targets.len() < 2 {
        return String::new();
    }
    let mut out = format!("<table class=\"figures\"><thead><tr><th>target</th>{HEADS}{PSS}</tr></thead>\n<tbody>\n");
    let mut targets: Vec<&TargetTemperature> = summary.targets.iter().collect();
    targets.sort_by_key(|target| Reverse(target.total.size_bytes));
    for t in targets.into_iter().take(MOST) {
        let command: String = shown_command(&t.command).chars().take(200).collect();
        let pss = size(t.proportional_bytes);
        _ = writeln!(out, "<tr><th>{} {}</th>{}<td>{pss}</td></tr>", t.pid, markup(&command), cells(&t.total));
    }
    out + &others(summary.targets.len()) + "</tbody></table>\n"
}

/// The percentiles of the working set.
pub(crate) fn percentiles(wss: &Wss) -> String {
    let heads: String = PERCENTILES.iter().map(|p| format!("<th>{p}</th>")).collect();
    let row = |name: &str, of: Percentiles<u64>| {
        let cells: String = of.iter().map(|(_, bytes)| format!("<td>{}</td>", units::bytes(bytes))).collect();
        format!("<tr><th>{name}</th>{cells}</tr>")
    };
    let Some(percentiles) = wss.percentiles() else {
        return wss.unknown().map_or_else(String::new, |why| format!("<p>{}</p>\n", markup(&why)));
    };
    let mut rows = row("working set", percentiles);
    if let Some((low, high)) = wss.percentiles_of_bounds() {
        rows += &row("lower bound, 95 %", low);
        rows += &row("upper bound, 95 %", high);
    }
    format!(
        "<table class=\"figures\"><thead><tr><th>percentile</th>{heads}</tr></thead>\
         <tbody>{rows}</tbody></table>\n"
    )
}

/// The median working set by window, if there are surveys that cover the window.
///
/// # Errors
/// If the source cannot be read.
pub(crate) fn windows(wss: &WssBuilder, source: &dyn Source) -> Result<String, ReportError> {
    let (mut heads, mut cells) = (String::new(), String::new());
    for window in WINDOWS {
        let median = match wss.finish(source, Some(window)) {
            Ok(wss) => wss.median(),
            Err(ReportError::NoSurveys { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(median) = median else { break };
        _ = write!(heads, "<th>{}</th>", units::duration(window));
        _ = write!(cells, "<td>{median}</td>");
    }
    if heads.is_empty() {
        return Ok(String::new());
    }
    Ok(format!(
        "<table class=\"figures\"><thead><tr><th>window</th>{heads}</tr></thead>\
         <tbody><tr><th>touched within it, median</th>{cells}</tr></tbody></table>\n"
    ))
}

/// The table of costs.
pub(crate) fn overhead(o: &Overhead) -> String {
    let row = |name: &str, load: &Load| {
        let percentiles: String =
            load.percentiles.iter().skip(1).take(5).map(|(_, v)| format!("<td>{v:.1}</td>")).collect();
        format!(
            "<tr><th>{name}</th><td>{:.1}</td>{percentiles}<td>{}</td><td>{}</td></tr>\n",
            load.mean,
            units::count(load.max),
            if o.max_regions > 0 { units::count(o.max_regions) } else { "?".into() }
        )
    };
    let facts = [
        ("RecordedPace", o.pace.line().unwrap_or_default()),
        ("CPU time", cpu(o)),
        ("CPU time over each 10 s", cpu_over_windows(o)),
        ("Sampling rounds", format!("{}, {} of them late", units::count(o.rounds), units::count(o.late_rounds))),
        ("Pages", format!("{} read, {} cleared", units::count(o.reads), units::count(o.clears))),
        (
            "Not observable",
            format!(
                "{} on the mean, {} at most",
                units::bytes(o.unobservable_bytes),
                units::bytes(o.unobservable_bytes_max)
            ),
        ),
    ];
    let unknown = [("Cost", format!("not known: {} tells none", o.probe))];
    let facts: String = if o.measured { &facts[..] } else { &unknown }
        .iter()
        .map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", markup(fact)))
        .collect();
    format!(
        "<dl>{facts}</dl>\n<table class=\"figures\"><thead><tr><th></th><th>mean</th><th>25 %</th><th>50 %</th><th>75 \
         %</th>\
         <th>90 %</th><th>99 %</th><th>max</th><th>limit</th></tr></thead><tbody>\n{}{}</tbody></table>\n",
        row("regions", &o.regions),
        if o.measured { row("pages read in a sampling round", &o.reads_per_sampling) } else { String::new() }
    )
}

/// The maximum number of schemes on the page, and of regions of each.
const SCHEMES: usize = 40;
const REGIONS: usize = 20;

/// A line for each scheme.
pub(crate) fn schemes(s: &Schemes) -> String {
    const HEADS: &str = "<th>scheme</th><th>action</th><th>applications</th><th title=\"what it wanted and the quota \
        allowed\">tried</th>\
        <th title=\"what the action was called for\">advised</th>\
        <th title=\"what it was carried out on; freed, by pageout\">applied</th>\
        <th title=\"by pageout: unmapped, and in memory still\">not freed</th>\
        <th title=\"share of what was freed and watched that was in memory again soon\">came back</th>\
        <th title=\"by the kernel\">refused</th><th title=\"by filters\">rejected</th>\
        <th title=\"by the quota, in the last application\">held back</th><th title=\"periods in which the quota did \
        not suffice\">exceeded</th>\
        <th title=\"time that actions took\">took</th><th title=\"share of the time\">awake</th>";
    let faults = s.major_faults.map(|faults| format!("<p>{} major faults of the targets</p>\n", units::count(faults)));
    let table = format!("<table class=\"figures\"><thead><tr>{HEADS}</tr></thead>\n<tbody>\n");
    let net = net_freed(s.compressed_growth_bytes, s.net_freed_bytes).map(|text| format!("<p>{text}</p>\n"));
    let mut out = faults.unwrap_or_default() + &net.unwrap_or_default() + &table;
    for scheme in s.schemes.iter().take(SCHEMES) {
        let total = &scheme.total;
        let cells: String = [
            markup(&scheme.action).to_string(),
            units::count(total.applications),
            units::table_bytes(total.tried_bytes),
            units::table_bytes(total.passed_bytes),
            units::table_bytes(total.applied_bytes),
            units::table_bytes(total.unmapped_bytes),
            returned_share(scheme).unwrap_or_else(|| "-".into()),
            units::table_bytes(total.refused_bytes()),
            units::table_bytes(total.rejected_bytes),
            units::table_bytes(scheme.last.as_ref().map_or(0, |last| last.held_back_bytes)),
            units::count(total.quota_exceeded),
            units::nanoseconds(total.spent_ns),
            units::percent(scheme.awake_share),
        ]
        .map(|text| format!("<td>{text}</td>"))
        .concat();
        _ = writeln!(out, "<tr><th>{}</th>{cells}</tr>", markup(&scheme.name));
    }
    if s.schemes.len() > SCHEMES {
        _ = writeln!(out, "<tr><th>and {} others</th></tr>", s.schemes.len() - SCHEMES);
    }
    out + "</tbody></table>\n"
}

/// Facts about each scheme and the regions of its last application, in elements that the reader unfolds.
pub(crate) fn each_scheme(s: &Schemes) -> String {
    s.schemes.iter().take(SCHEMES).map(|scheme| one_scheme(scheme, s)).collect()
}

fn one_scheme(scheme: &Scheme, s: &Schemes) -> String {
    let facts: String = scheme_facts(scheme, s)
        .iter()
        .map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", markup(fact)))
        .collect();
    let gone = if scheme.in_force { "" } else { ", not in force at the end" };
    let (name, action) = (markup(&scheme.name), markup(&scheme.action));
    let mut out = format!("<details><summary>{name} ({action}{gone})</summary>\n<dl>{facts}</dl>\n");
    let regions = scheme.last_acting.as_ref().map_or(&[][..], |last| &last.regions);
    if !regions.is_empty() {
        out += "<table \
            class=\"figures\"><thead><tr><th>pid</th><th>from</th><th>size</th><th>applied</th></tr></thead><tbody>\n";
        for region in regions.iter().take(REGIONS) {
            _ = writeln!(
                out,
                "<tr><th>{}</th><td>{:#x}</td><td>{}</td><td>{}</td></tr>",
                region.pid,
                region.start,
                units::table_bytes(region.end - region.start),
                units::table_bytes(region.applied_bytes)
            );
        }
        if regions.len() > REGIONS {
            _ = writeln!(out, "<tr><th>and {} more</th></tr>", regions.len() - REGIONS);
        }
        out += "</tbody></table>\n";
    }
    out + "</details>\n"
}
