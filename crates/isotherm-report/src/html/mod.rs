//! The HTML page: all reports in one file. It needs no network, and its content security policy forbids any.

mod data;
mod later;
mod live;
mod maps;
mod moments;
mod tables;

use std::io::Write;

use base64::Engine as _;
use isotherm_core::units;
use isotherm_record::Mark;
use sha2::{Digest, Sha256};

use crate::escape::{json_in_html, markup};
use crate::evidence::Evidence;
use crate::extent::Extent;
use crate::facts::{facts, warnings};
use crate::groups::{GroupBy, Grouping};
use crate::heatmap::Heatmap;
use crate::idle_time::{IdleTime, Surveys};
use crate::marks::Marks;
use crate::overhead::Overhead;
use crate::schemes::Schemes;
use crate::source::{Accumulator, Selection, Source, walk};
use crate::summary::SummaryBuilder;
use crate::surveyed::SurveyedMemory;
use crate::svg::Scale;
use crate::temperature::TemperatureBuilder;
use crate::text::wss_notes;
use crate::used::Used;
use crate::wss::{GroupedWss, WssBuilder};
use crate::{Measure, Options, Picture, ReportError, histogram, svg};

use data::Limits;
use maps::Maps;

pub use later::LiveHeatmap;
pub use live::{LivePage, live_heatmap, live_page};

/// The head of all pages.
const HEAD: &str = include_str!("../../assets/head.html");
const TEMPLATE: &str = include_str!("../../assets/page.html");
/// The heatmap with its controls, its lanes, and what is read off it.
const MAP: &str = include_str!("../../assets/map.html");
/// The table of regions.
const REGIONS: &str = include_str!("../../assets/regions.html");
const STYLE: &str = concat!(include_str!("../../assets/page.css"), include_str!("../../assets/picture-dark.css"));
const PICTURE_STYLE: &str = include_str!("../../assets/picture.css");
/// Draws the heatmap, its lanes and the table of regions.
const HEATMAP_SCRIPT: &str = concat!(
    include_str!("../../assets/figures.js"),
    include_str!("../../assets/lanes.js"),
    include_str!("../../assets/heatmap.js"),
    include_str!("../../assets/regions.js")
);
const SCRIPT: &str = concat!(include_str!("../../assets/panels.js"), include_str!("../../assets/page.js"));

/// Writes the page. Its size is at most a few megabytes, however large the recording is.
pub(crate) fn page(
    source: &dyn Source,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let header = source.header();
    // Without samples there are no access rates.
    let mut evidence = Evidence::new(source, selection, true)?;
    let (mut extent, mut marks) = (Extent::new(selection), Marks::new(selection));
    let (mut groups, mut found) = (Grouping::reader(selection, options.by), WssBuilder::new(header, selection));
    let mut surveys = Surveys::new(selection);
    let mut all: [&mut dyn Accumulator; 6] =
        [&mut evidence, &mut extent, &mut marks, &mut groups, &mut found, &mut surveys];
    walk(source, selection, &mut all)?;
    let (extent, marks, picture) = (extent.found()?, &marks.marks[..], options.picture);
    let by_name = Grouping::of_reader(groups.clone(), source, selection, options.by.or(Some(GroupBy::Command)))?;
    let grouping = Grouping::of_reader(groups, source, selection, options.by)?;
    // What has a moment for each survey is drawn before the next walk, so that it takes no memory beside it.
    let idle_time = {
        let found = IdleTime::after(surveys, source, selection, &by_name)?;
        histogram::draw(&found.histogram(), marks, picture).embedded("For how long memory has been idle")
    };
    let wss = found.finish(source, options.window)?;
    let usual = options.window.map(|_| found.finish(source, None)).transpose()?;
    let percentiles = tables::percentiles(&wss) + &tables::windows(&found, source)?;
    drop(found);
    let wss_notes = items(&wss_notes(&wss));
    let wss_groups = GroupedWss::new(&wss, source, selection, &grouping)?;
    let working_set =
        svg::draw_wss(&wss, &wss_groups, marks, picture).embedded("Working set over time, and its percentiles");
    drop(wss_groups);
    let usual = usual.unwrap_or(wss);

    let mut maps = Maps::begin(source, selection, &extent, &evidence, Limits::REPORT)?;
    let (mut overhead, mut used) = (Overhead::new(header, selection), Used::new(header, selection, &grouping));
    let mut in_surveys = SurveyedMemory::new(selection, &grouping);
    let mut summary = SummaryBuilder::grouped(grouping);
    let mut temperatures = TemperatureBuilder::default();
    let mut all: Vec<&mut dyn Accumulator> =
        vec![&mut overhead, &mut used, &mut in_surveys, &mut summary, &mut temperatures];
    all.extend(maps.accumulators());
    walk(source, selection, &mut all)?;
    let maps = maps.finish();
    let heatmap = &maps.heatmap;
    let overhead = overhead.finish();
    let temperatures = temperatures.finish(&by_name);
    let schemes = Schemes::if_any(source, selection)?;
    let mut summary = summary.finish(header, source.cut_short(), &overhead);
    used.write(&mut summary);
    in_surveys.write(&mut summary);
    crate::estimated::add(&mut summary, &usual, source, selection)?;
    drop(usual);
    summary.sort(options.summary_sort);

    let facts = facts(&summary);
    let title = facts.first().map_or("", |fact| fact);
    let note = note(heatmap, &maps.moments);
    let script = format!("\n{HEATMAP_SCRIPT}{SCRIPT}");
    let fill = |name: &str, out: &mut dyn Write| -> Result<(), ReportError> {
        let text = match name {
            "data" => return json_in_html(out, &maps.data(marks)),
            "map" => {
                let touched = maps.touched.as_ref().map_or_else(String::new, |_| touched_legend(heatmap));
                return map(out, [&legend(heatmap), &touched, ALL_TIMES]);
            }
            "title" => markup(title),
            "script" => script.clone(),
            "regions" => REGIONS.into(),
            "facts" => items(facts.get(1..).unwrap_or_default()),
            "warnings" => items(&evidence.warnings().chain(warnings(&summary)).collect::<Vec<_>>()),
            "summary" => tables::summary(&summary),
            "bars" => svg::draw_groups(&summary, picture)
                .map_or_else(String::new, |drawing| drawing.embedded("Memory of the groups by temperature")),
            "marks" => tables::marks(marks),
            "hot" => markup(&summary.temperatures()),
            "groups" => tables::groups(&summary),
            "targets" => tables::targets(&summary),
            "note" => markup(&note),
            "heatmap" => svg::draw_heatmap(heatmap, marks, picture)?.embedded(if maps::has_rates(&evidence) {
                "How often memory is accessed, over time and addresses"
            } else {
                "Touched share over time and addresses"
            }),
            "wss" => working_set.clone(),
            "percentiles" => percentiles.clone(),
            "wss-notes" => wss_notes.clone(),
            "idle-time" => idle_time.clone(),
            "temperature" => {
                histogram::draw(&temperatures.histogram(), marks, picture).embedded("Memory by access rate")
            }
            "schemes" => schemes.as_ref().map_or_else(String::new, |schemes| schemes_section(schemes, marks, picture)),
            "overhead" => {
                svg::draw_overhead(&overhead, marks, picture).embedded("Regions, reads and CPU time over time")
            }
            "cost" => tables::overhead(&overhead),
            other => format!("(no {other})"),
        };
        Ok(out.write_all(text.as_bytes())?)
    };
    document(out, title, Some(&script), TEMPLATE, fill)
}

/// What the page says of its pictures beside the heatmap.
const ALL_TIMES: &str = " All pictures over time show the same time, which can be chosen in each of them: drag, or \
                         wheel with Ctrl.";

/// Writes the heatmap with its controls: its legends, and more help.
fn map(out: &mut dyn Write, [legend, touched_legend, more_help]: [&str; 3]) -> Result<(), ReportError> {
    filled(out, MAP, |name, out| {
        let text = match name {
            "legend" => legend,
            "touched-legend" => touched_legend,
            "more-help" => more_help,
            other => return Ok(write!(out, "(no {other})")?),
        };
        Ok(out.write_all(text.as_bytes())?)
    })
}

/// What the colours of a heatmap mean.
fn legend(heatmap: &Heatmap) -> String {
    svg::scale(heatmap).draw().embedded("What the colours mean")
}

/// What its colours mean when they show the share that surveys found touched.
fn touched_legend(heatmap: &Heatmap) -> String {
    Scale { measure: Measure::Touched, ..svg::scale(heatmap) }.draw().embedded("What the colours mean")
}

/// The section about schemes. A page has it only if schemes ran.
fn schemes_section(schemes: &Schemes, marks: &[Mark], picture: Picture) -> String {
    format!(
        "<section aria-labelledby=\"h-schemes\">\n<h2 id=\"h-schemes\">Schemes</h2>\n\
         <div class=\"scroll\">{}</div>\n{}{}</section>\n",
        tables::schemes(schemes),
        tables::each_scheme(schemes),
        svg::draw_schemes(schemes, marks, picture).embedded("What schemes did over time, and memory in use"),
    )
}

/// A note about the resolution of the page, and what it leaves out.
fn note(heatmap: &Heatmap, moments: &moments::SampledSnapshots<'_>) -> String {
    let held = (units::count(moments.held()), units::count(moments.rows()));
    let mut note = format!("Regions are held of {} moments of {}.", held.0, held.1);
    if let Some(first) = heatmap.targets.first() {
        let width = (first.columns.end - first.columns.start) / first.columns.count as u32;
        let high = first.axis.bytes() / first.axis.rows.max(1) as u64;
        let of = if heatmap.targets.len() > 1 { " of the largest target" } else { "" };
        let (width, high) = (units::duration(width), units::bytes(high));
        note = format!("A cell{of} is {width} wide and about {high} high. {note}");
    }
    if let Some(caption) = heatmap.caption() {
        note += &format!(" Intervals: {caption}.");
    }
    if let Some(unseen) = heatmap.unseen() {
        note += &format!(" {unseen}; the touched share shows it.");
    }
    if let Some(left_out) = heatmap.left_out {
        note += &format!(" Without a lane: {}; report them with --target.", left_out.text());
    }
    note
}

/// The lines as items of a list.
pub(crate) fn items(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<li>{}</li>\n", markup(line))).collect()
}

/// Writes a page with this title, whose body is the template with each `{{name}}` replaced by what `fill` writes for
/// it. Its content security policy allows no other script than the given one, and nothing from elsewhere.
pub(crate) fn document(
    out: &mut dyn Write,
    title: &str,
    script: Option<&str>,
    body: &str,
    fill: impl Fn(&str, &mut dyn Write) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let style = format!("\n{PICTURE_STYLE}{STYLE}");
    let policy = policy(script, &style);
    with_head(out, title, &policy, &style)?;
    filled(out, body, fill)
}

/// The content security policy of a page with this script and style, and with no others.
fn policy(script: Option<&str>, style: &str) -> String {
    let [script, images] = match script {
        Some(script) => [format!("script-src '{}'; ", hash(script)), "img-src data:; ".into()],
        None => Default::default(),
    };
    format!("default-src 'none'; {script}style-src '{}'; {images}base-uri 'none'; form-action 'none'", hash(style))
}

/// Writes the head of a page.
fn with_head(out: &mut dyn Write, title: &str, policy: &str, style: &str) -> Result<(), ReportError> {
    filled(out, HEAD, |name, out| {
        let text = match name {
            "policy" => policy.into(),
            "title" => markup(title),
            "style" => style.into(),
            other => format!("(no {other})"),
        };
        Ok(out.write_all(text.as_bytes())?)
    })
}

/// The hash of an inline script or style, in the form of a content security policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// Writes the template with each `{{name}}` replaced. The replacements are not expanded again.
fn filled(
    out: &mut dyn Write,
    template: &str,
    fill: impl Fn(&str, &mut dyn Write) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out.write_all(before.as_bytes())?;
        fill(name, out)?;
        rest = after;
    }
    Ok(out.write_all(rest.as_bytes())?)
}
