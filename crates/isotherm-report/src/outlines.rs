//! An SVG as shapes: texts are outlines of an embedded font, so that a picture looks the same on every machine.

use std::fmt::Display;

use resvg::usvg::{Options, Tree, fontdb};

use crate::ReportError;

/// The shapes of an SVG.
///
/// # Errors
/// If the text is no SVG.
pub(crate) fn outlined(svg: &str) -> Result<Tree, ReportError> {
    // DejaVu Sans Condensed: free to embed (Bitstream Vera and Arev licences).
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans_condensed::regular().to_vec());
    fonts.load_font_data(dejavu::sans_condensed::bold().to_vec());
    let options = Options { fontdb: fonts.into(), ..Options::default() };
    Tree::from_str(svg, &options).map_err(|error| failed(&error))
}

/// The error that a picture cannot be drawn.
pub(crate) fn failed(reason: &dyn Display) -> ReportError {
    ReportError::Picture(reason.to_string())
}
