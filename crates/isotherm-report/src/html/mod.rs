//! The HTML page: all reports in one file. It needs no network, and its content security policy forbids any.

mod data;
mod tables;

use base64::Engine as _;
use isotherm_core::units;
use sha2::{Digest, Sha256};

use crate::escape::{json_in_html, markup};
use crate::evidence::Evidence;
use crate::extent::{Extent, TargetExtent};
use crate::facts::{facts, warnings};
use crate::heatmap::Heatmap;
use crate::overhead::Overhead;
use crate::schemes::Schemes;
use crate::source::{Selection, Source, walk};
use crate::summary::SummaryBuilder;
use crate::surveys::LastSurveys;
use crate::text::wss_notes;
use crate::wss::Wss;
use crate::{Measure, Options, Picture, ReportError, svg};

const TEMPLATE: &str = include_str!("../../assets/page.html");
const STYLE: &str = concat!(include_str!("../../assets/page.css"), include_str!("../../assets/picture-dark.css"));
const PICTURE_STYLE: &str = include_str!("../../assets/picture.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// The maximum number of targets with a heatmap on the page. Those with most memory are chosen.
const TARGETS: usize = 24;

/// The page. Its size is at most a few megabytes, however large the recording is.
pub(crate) fn page(source: &dyn Source, selection: &Selection, options: &Options) -> Result<String, ReportError> {
    let extent = Extent::of(source, selection)?;
    let mut targets: Vec<&TargetExtent> = extent.targets.iter().collect();
    targets.sort_by_key(|target| std::cmp::Reverse(target.bytes()));
    let left_out = targets.len().saturating_sub(TARGETS);
    targets.truncate(TARGETS);

    // Without samples there are no access rates.
    let evidence = Evidence::of(source, selection)?;
    let sampled = evidence.has_samples() || !evidence.has_intervals();
    let resolution = data::resolution(&extent, targets.len());
    let mut heatmap = Heatmap::blank(&extent, targets.iter().copied(), resolution);
    let mut moments = data::SampledSnapshots::new(&targets, LastSurveys::new(source)?, sampled);
    let mut overhead = Overhead::new(source.header());
    overhead.add_surveys(source, selection)?;
    let wss = Wss::new(source, selection, options.window)?;
    let mut summary = SummaryBuilder::default();
    walk(source, selection, &mut [&mut heatmap, &mut moments, &mut overhead, &mut summary])?;
    heatmap.add_places(source, selection)?;
    if !sampled {
        heatmap = Heatmap::of(source, selection, Measure::Touched, |extent| data::resolution(extent, targets.len()))?;
        heatmap.targets.retain(|map| targets.iter().any(|target| target.id == map.id));
    }
    let overhead = overhead.finish();
    let schemes = Schemes::if_any(source, selection)?;
    let mut summary = summary.finish(source.header(), source.cut_short(), &overhead);
    crate::surveyed::add(&mut summary, source, selection)?;

    let facts = facts(&summary);
    let title = facts.first().map_or("", |fact| fact);
    let items = |lines: &[String]| lines.iter().map(|line| format!("<li>{}</li>\n", markup(line))).collect::<String>();
    let note = note(&heatmap, &moments, left_out);
    let style = format!("\n{PICTURE_STYLE}{STYLE}");
    let script = format!("\n{SCRIPT}");
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(&style)
    );
    let picture = options.picture;
    let fill = |name: &str| -> Result<String, ReportError> {
        Ok(match name {
            "policy" => policy.clone(),
            "title" => markup(title),
            "style" => style.clone(),
            "script" => script.clone(),
            "facts" => items(facts.get(1..).unwrap_or_default()),
            "warnings" => items(&evidence.warnings().chain(warnings(&summary)).collect::<Vec<_>>()),
            "summary" => tables::summary(&summary),
            "hot" => markup(&summary.intervals.hot()),
            "targets" => tables::targets(&summary),
            "note" => markup(&note),
            "heatmap" => svg::draw_heatmap(&heatmap, picture)?.embedded(if sampled {
                "Access rate over time and addresses"
            } else {
                "Touched share over time and addresses"
            }),
            "wss" => svg::draw_wss(&wss, picture).embedded("Working set over time, and its percentiles"),
            "percentiles" => tables::percentiles(&wss) + &tables::windows(source, selection)?,
            "wss-notes" => items(&wss_notes(&wss)),
            "schemes" => schemes.as_ref().map_or_else(String::new, |schemes| schemes_section(schemes, picture)),
            "overhead" => svg::draw_overhead(&overhead, picture).embedded("Regions, reads and CPU time over time"),
            "cost" => tables::overhead(&overhead),
            "data" => json_in_html(&data::data(&heatmap, &moments))?,
            other => format!("(no {other})"),
        })
    };
    filled(TEMPLATE, fill)
}

/// The section about schemes. A page has it only if schemes ran.
fn schemes_section(schemes: &Schemes, picture: Picture) -> String {
    format!(
        "<section aria-labelledby=\"h-schemes\">\n<h2 id=\"h-schemes\">Schemes</h2>\n\
         <div class=\"scroll\">{}</div>\n{}{}</section>\n",
        tables::schemes(schemes),
        tables::each_scheme(schemes),
        svg::draw_schemes(schemes, picture).embedded("What schemes did over time, and memory in use"),
    )
}

/// A note about the resolution of the page, and what it leaves out.
fn note(heatmap: &Heatmap, moments: &data::SampledSnapshots<'_>, left_out: usize) -> String {
    let width = (heatmap.end - heatmap.start) / heatmap.columns as u32;
    let rows = heatmap.targets.first().map_or(0, |target| target.axis.rows);
    let bytes = heatmap.targets.first().map_or(0, |target| target.axis.bytes());
    let mut note = format!(
        "A cell is {} wide and about {} high; regions are held of {} moments of {}.",
        units::duration(width),
        units::bytes(bytes / rows.max(1) as u64),
        units::count(moments.held()),
        units::count(moments.rows()),
    );
    if let Some(caption) = heatmap.caption() {
        note += &format!(" Intervals: {caption}.");
    }
    if left_out > 0 {
        note +=
            &format!(" The {left_out} targets with the least memory are not shown here: report them with --target.");
    }
    note
}

/// The hash of an inline script or style, in the form of a content security policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// The template with each `{{name}}` replaced. The replacements are not expanded again.
fn filled(template: &str, fill: impl Fn(&str) -> Result<String, ReportError>) -> Result<String, ReportError> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out += before;
        out += &fill(name)?;
        rest = after;
    }
    Ok(out + rest)
}
