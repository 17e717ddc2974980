//! Pictures as SVG: for files, as the source of PNGs, and inside the HTML page.
//!
//! Elements have classes instead of colours where a page with a dark colour scheme needs other colours. A picture in a
//! file of its own includes the style sheet of the light scheme.

mod flame;
mod heatmap;
mod layers;
mod legend;
mod lines;
mod marks;
mod plot;
mod regions;
mod schemes;
mod stack;
mod summary;

use std::fmt::{Display, Write as _};
use std::time::Duration;

use base64::Engine as _;

use crate::ReportError;
use crate::colour::{ABSENT, Rgb, SWAPPED, UNKNOWN, UNOBSERVABLE, hex};
use crate::escape::markup;
use crate::groups::GroupBy;
use crate::heatmap::{HIGHEST_RATE, IN_SWAP, IS_ABSENT, IS_UNKNOWN, NOTHING};
use crate::measure::Measure;
use crate::notes::Notes;
use crate::options::Picture;
use crate::ticks;

pub(crate) use regions::RegionLines;

/// The style of a picture in a file of its own. The page has the same classes.
const STYLE: &str = include_str!("../../assets/picture.css");

/// Draws a summary: a flame graph if it is by stack.
pub(crate) fn draw_summary(summary: &crate::summary::Summary, picture: Picture) -> Drawing {
    if summary.group_by == GroupBy::Stack { flame::draw(summary, picture) } else { summary::draw(summary, picture) }
}

/// Draws the groups of a summary as bars. `None` if there are not several, or they are stacks.
pub(crate) fn draw_groups(summary: &crate::summary::Summary, picture: Picture) -> Option<Drawing> {
    (summary.groups.len() > 1 && summary.group_by != GroupBy::Stack).then(|| summary::draw_groups(summary, picture))
}

pub(crate) use heatmap::{draw as draw_heatmap, plan, scale};
pub(crate) use legend::Scale;
pub(crate) use lines::{overhead as draw_overhead, wss as draw_wss};
pub(crate) use marks::{Across, ON_COLOURS, row as mark_row};
pub(crate) use schemes::draw as draw_schemes;

/// The distance of bars, one below the other.
pub(crate) const BAR_STEP: f64 = 26.0;

/// The left margin of notes, and the distance of their lines.
const NOTES_LEFT: f64 = 12.0;
const NOTES_LINE: f64 = 17.0;

/// The anchor of a text.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture: its elements and its size.
pub(crate) struct Drawing {
    pub(crate) width: f64,
    pub(crate) height: f64,
    body: String,
}

/// A number with at most two decimals, without zeros at the end.
fn n(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Drawing {
    pub(crate) fn new(width: f64) -> Self {
        Self { width, height: 0.0, body: String::new() }
    }

    pub(crate) fn raw(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (n(x), n(y), markup(text));
        self.raw(&format!(r#"<text x="{x}" y="{y}" text-anchor="{anchor}" class="{class}">{text}</text>"#));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let (x1, y1, x2, y2) = (n(x1), n(y1), n(x2), n(y2));
        self.raw(&format!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#));
    }

    /// A rectangle. `paint` has its other attributes.
    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), paint: &str) {
        let (x, y, w, h) = (n(x), n(y), n(w.max(0.0)), n(h.max(0.0)));
        self.raw(&format!(r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" {paint}/>"#));
    }

    /// A rectangle with a tooltip.
    pub(crate) fn rect_with_tip(&mut self, at: (f64, f64), size: (f64, f64), paint: &str, tip: &str) {
        let (x, y, w, h) = (n(at.0), n(at.1), n(size.0.max(0.0)), n(size.1.max(0.0)));
        let tip = markup(tip);
        self.raw(&format!(r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" {paint}><title>{tip}</title></rect>"#));
    }

    /// A key of a legend: a square of this paint and its meaning. Returns the place of the next one.
    pub(crate) fn key(&mut self, (x, y): (f64, f64), paint: &str, name: &str) -> f64 {
        self.rect((x, y), (12.0, 12.0), paint);
        self.text(x + 18.0, y + 10.0, Anchor::Start, "label", name);
        x + 36.0 + text_width(name)
    }

    /// A bar of parts, one after the other: their length, colour and tooltip. Returns its end.
    pub(crate) fn stacked(&mut self, (x, y): (f64, f64), parts: impl Iterator<Item = (f64, Rgb, String)>) -> f64 {
        parts.fold(x, |x, (long, colour, tip)| {
            if long > 0.0 {
                self.rect_with_tip((x, y), (long, BAR_STEP - 7.0), &format!(r#"fill="{}""#, hex(colour)), &tip);
            }
            x + long
        })
    }

    /// Cells of a heatmap as an image in a rectangle, from left to right and top to bottom.
    pub(crate) fn cells(
        &mut self,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        (columns, rows): (usize, usize),
        (measure, cells): (Measure, &[u8]),
    ) -> Result<(), ReportError> {
        let png = base64::engine::general_purpose::STANDARD.encode(raster(columns, rows, measure, cells)?);
        let (x, y, w, h) = (n(x), n(y), n(w), n(h));
        self.raw(&format!(
            concat!(
                r#"<image x="{x}" y="{y}" width="{w}" height="{h}" preserveAspectRatio="none" class="cells" "#,
                r#"href="data:image/png;base64,{png}"/>"#
            ),
            x = x,
            y = y,
            w = w,
            h = h,
            png = png
        ));
        Ok(())
    }

    /// The time axis below a plot: a line, ticks and labels. A page draws it anew when its part of the time changes.
    pub(crate) fn time_axis(&mut self, x: f64, width: f64, y: f64, (start, end): (Duration, Duration)) {
        let span = (end.saturating_sub(start)).as_secs_f64().max(1e-9);
        self.line((x, y), (x + width, y), "axis");
        let place = format!(r#"data-x="{}" data-y="{}" data-width="{}""#, n(x), n(y), n(width));
        self.raw(&format!(r#"<g class="times" {place}>"#));
        for (t, label) in ticks::time(start, end, (width / 90.0).max(1.0) as usize) {
            let at = x + (t.saturating_sub(start)).as_secs_f64() / span * width;
            self.line((at, y), (at, y + 4.0), "axis");
            self.text(at, y + 17.0, Anchor::Middle, "label", &label);
        }
        self.raw("</g>");
    }

    fn open(&self, attributes: &dyn Display) -> String {
        let (w, h) = (n(self.width), n(self.height));
        format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" {attributes}>"#)
    }

    /// The picture with warnings above it, and how often the recording surveyed and sampled below it.
    pub(crate) fn with_notes(self, notes: &Notes) -> Self {
        let columns = ((self.width - 2.0 * NOTES_LEFT) / text_width("0")) as usize;
        let lines = |text: &str| crate::text::wrap(text, columns, 2).lines().map(str::to_owned).collect::<Vec<_>>();
        let mut drawing = Self::new(self.width);
        let mut y = 0.0;
        for line in notes.warnings.iter().flat_map(|warning| lines(&format!("! {warning}"))) {
            drawing.text(NOTES_LEFT, y + 20.0, Anchor::Start, "warning", &line);
            y += NOTES_LINE;
        }
        if y > 0.0 {
            y += 8.0;
            drawing.raw(&format!(r#"<g transform="translate(0 {})">"#, n(y)));
        }
        drawing.body += &self.body;
        if y > 0.0 {
            drawing.raw("</g>");
        }
        y += self.height;
        for line in notes.pace.line().iter().flat_map(|line| lines(line)) {
            drawing.text(NOTES_LEFT, y + 8.0, Anchor::Start, "label", &line);
            y += NOTES_LINE;
        }
        drawing.height = y;
        drawing
    }

    /// The picture as a file of its own.
    pub(crate) fn standalone(&self) -> String {
        let size = format!(r#"width="{}" height="{}""#, n(self.width), n(self.height));
        let mut out = self.open(&size);
        _ = write!(out, "\n<style>\n{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n");
        out + &self.body + "</svg>\n"
    }

    /// The picture as part of a page that has the style. `label` describes it for screen readers.
    pub(crate) fn embedded(&self, label: &str) -> String {
        let attributes = format!(r#"role="img" aria-label="{}" class="picture""#, markup(label));
        self.open(&attributes) + "\n" + &self.body + "</svg>\n"
    }
}

/// The colour of each byte.
pub(crate) fn palette(measure: Measure) -> Vec<u8> {
    let colour = |byte: u8| match byte {
        ..=HIGHEST_RATE => measure.colour(f64::from(byte) / f64::from(HIGHEST_RATE)),
        IS_UNKNOWN => UNKNOWN,
        IS_ABSENT => ABSENT,
        IN_SWAP => SWAPPED,
        _ => UNOBSERVABLE,
    };
    (0..=u8::MAX).flat_map(colour).collect()
}

/// A PNG with one pixel per cell.
fn raster(columns: usize, rows: usize, measure: Measure, cells: &[u8]) -> Result<Vec<u8>, ReportError> {
    let failed = |error: png::EncodingError| ReportError::Picture(error.to_string());
    let mut out = vec![];
    let mut encoder = png::Encoder::new(&mut out, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette(measure));
    let mut opaque = vec![255_u8; 256];
    opaque[usize::from(NOTHING)] = 0;
    encoder.set_trns(opaque);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(cells).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(out)
}

/// The approximate width of a text of size 12, in the font of the pictures.
pub(crate) fn text_width(text: &str) -> f64 {
    crate::text::width(text) as f64 * 6.6
}

/// The text, cut on the right to approximately this width.
pub(crate) fn fit(text: &str, width: f64) -> String {
    let columns = (width / 6.6).max(1.0) as usize;
    crate::text::name_in(text, columns, &crate::Terminal::default())
}
