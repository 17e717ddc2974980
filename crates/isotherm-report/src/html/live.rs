//! The live page of the daemon. It has the heatmap of the report, and asks for what it shows.

use serde_json::{Value, json};

use super::data::Limits;
use super::maps::Maps;
use super::{
    HEATMAP_SCRIPT, PICTURE_STYLE, REGIONS, STYLE, filled, legend, map, note, policy, touched_legend, with_head,
};
use crate::colour::{self, hex, of_rate};
use crate::escape::json_in_html;
use crate::evidence::Evidence;
use crate::extent::Extent;
use crate::marks::Marks;
use crate::source::{Selection, Source, walk};
use crate::{HOT_HZ, ReportError};

const TEMPLATE: &str = include_str!("../../assets/live/page.html");
const LIVE_STYLE: &str = include_str!("../../assets/live/page.css");
const SCRIPT: &str = concat!(
    include_str!("../../assets/live/daemon.js"),
    include_str!("../../assets/live/colours.js"),
    include_str!("../../assets/live/trend.js"),
    include_str!("../../assets/live/overview.js"),
    include_str!("../../assets/live/columns.js"),
    include_str!("../../assets/live/group.js"),
    include_str!("../../assets/live/page.js")
);

/// The live page.
#[derive(Clone, Debug)]
pub struct LivePage {
    /// The document.
    pub html: Vec<u8>,
    /// Its content security policy. It allows no other script and style than those in the document, and no requests
    /// but to the server of the page.
    pub policy: String,
}

/// The live page, which asks its server for all that it shows: the paths are those of the daemon.
///
/// # Errors
/// If it cannot be written to memory.
pub fn live_page() -> Result<LivePage, ReportError> {
    let (style, script) = (format!("\n{PICTURE_STYLE}{STYLE}{LIVE_STYLE}"), format!("\n{HEATMAP_SCRIPT}{SCRIPT}"));
    let policy = format!("{}; connect-src 'self'", policy(Some(&script), &style));
    let mut html = Vec::new();
    with_head(&mut html, "live", &policy, &style)?;
    filled(&mut html, TEMPLATE, |name, out| match name {
        "colours" => json_in_html(out, &colours()),
        // The legends come with the data.
        "map" => map(out, [""; 3]),
        "regions" => Ok(out.write_all(REGIONS.as_bytes())?),
        "script" => Ok(out.write_all(script.as_bytes())?),
        other => Ok(write!(out, "(no {other})")?),
    })?;
    Ok(LivePage { html, policy })
}

/// The colours of memory by what is known of it, as the bars of the report have them.
fn colours() -> Value {
    json!({
        "hot": hex(of_rate(0.9)),
        "warm": hex(of_rate(0.5)),
        "cold": hex(of_rate(0.08)),
        "unobservable": hex(colour::UNOBSERVABLE),
        "unknown": hex(colour::UNKNOWN),
        "swapped": hex(colour::SWAPPED),
        "hot_hz": HOT_HZ,
    })
}

/// What the live page draws of a recording, or of a part of it: what the page of a report has, with less detail. Times
/// are in seconds since the start of the recording, which is at `started_unix_ns` of its header.
///
/// # Errors
/// If the recording cannot be read, or has nothing in the selection.
pub fn live_heatmap(source: &dyn Source, selection: &Selection) -> Result<Value, ReportError> {
    with_maps(source, selection, |_, data| data)
}

/// Hands the heatmaps of the live page to `then`, with what it draws of them.
pub(super) fn with_maps<T>(
    source: &dyn Source,
    selection: &Selection,
    then: impl FnOnce(Maps<'_>, Value) -> T,
) -> Result<T, ReportError> {
    let selection = &selection.within_part(source.header());
    let mut evidence = Evidence::new(source, selection, true)?;
    let (mut extent, mut marks) = (Extent::new(selection), Marks::new(selection));
    walk(source, selection, &mut [&mut evidence, &mut extent, &mut marks])?;
    let extent = extent.found()?;
    let mut maps = Maps::begin(source, selection, &extent, &evidence, Limits::LIVE)?;
    walk(source, selection, &mut maps.accumulators().collect::<Vec<_>>())?;
    let maps = maps.finish();
    let mut data = maps.data(&marks.marks);
    data["started"] = json!(source.header().started_unix_ns as f64 / 1e9);
    data["legend"] = json!(legend(&maps.heatmap));
    data["touched_legend"] = json!(maps.touched.as_ref().map(|_| touched_legend(&maps.heatmap)));
    data["note"] = json!(note(&maps.heatmap, &maps.moments));
    data["warnings"] = json!(evidence.warnings().collect::<Vec<_>>());
    Ok(then(maps, data))
}
