//! PNG: the shapes of an SVG as pixels.

use resvg::tiny_skia::{Pixmap, Transform};

use crate::ReportError;
use crate::outlines::{failed, outlined};

/// Pixels per unit of the SVG. 2 is sharp on screens of high resolution.
const SCALE: f32 = 2.0;

/// The PNG of an SVG.
pub(crate) fn from_svg(svg: &str) -> Result<Vec<u8>, ReportError> {
    let tree = outlined(svg)?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed(&"its size is out of bounds"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| failed(&"its size is out of bounds"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(&error))
}
