//! PNG: an SVG as pixels. Its texts have an embedded font, so that a picture looks the same on every machine.

use std::fmt::Display;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::ReportError;

/// Pixels per unit of the SVG. 2 is sharp on screens of high resolution.
const SCALE: f32 = 2.0;

/// The PNG of an SVG.
pub(crate) fn from_svg(svg: &str) -> Result<Vec<u8>, ReportError> {
    // DejaVu Sans Condensed: free to embed (Bitstream Vera and Arev licences).
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans_condensed::regular().to_vec());
    fonts.load_font_data(dejavu::sans_condensed::bold().to_vec());
    let options = Options { fontdb: fonts.into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(&error))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed(&"its size is out of bounds"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| failed(&"its size is out of bounds"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(&error))
}

/// The error that a picture cannot be drawn.
fn failed(reason: &dyn Display) -> ReportError {
    ReportError::Picture(reason.to_string())
}
