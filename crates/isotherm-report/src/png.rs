//! PNG: an SVG drawn with an embedded font, so that it looks the same on every machine.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::ReportError;

/// Pixels per unit of the SVG. 2 is sharp on screens of high resolution.
const SCALE: f32 = 2.0;

/// The PNG of an SVG.
pub(crate) fn from_svg(svg: &str) -> Result<Vec<u8>, ReportError> {
    let failed = |error: &dyn std::fmt::Display| ReportError::Picture(error.to_string());
    // DejaVu Sans Condensed: free to embed (Bitstream Vera and Arev licences).
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans_condensed::regular().to_vec());
    fonts.load_font_data(dejavu::sans_condensed::bold().to_vec());
    let options = Options { fontdb: fonts.into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|e| failed(&e))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed(&"its size is out of bounds"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| failed(&"its size is out of bounds"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| failed(&e))
}
