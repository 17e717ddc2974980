//! PDF: the shapes of an SVG on a page of its size.
//!
//! It draws what the pictures of this crate have: paths of one colour, clips, and indexed images. Anything else is an
//! error, so that no picture lacks a part without a word.

use std::io::{Cursor, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::{Content, Filter, Finish as _, Name, Pdf, Rect, Ref};
use resvg::tiny_skia::{Path, PathSegment, Point};
use resvg::usvg::{self, FillRule, Group, Image, ImageKind, LineCap, LineJoin, Node, Paint, Transform};

use crate::ReportError;
use crate::outlines::{failed, outlined};
use crate::svg::NOTHING;

/// Points per unit of the SVG: a point is 1/72 of an inch, a unit 1/96.
const SCALE: f32 = 0.75;

const CATALOG: i32 = 1;
const PAGES: i32 = 2;
const PAGE: i32 = 3;
const CONTENT: i32 = 4;
/// Images and opacities follow.
const FIRST: i32 = 5;

/// The PDF of an SVG.
pub(crate) fn from_svg(svg: &str) -> Result<Vec<u8>, ReportError> {
    let tree = outlined(svg)?;
    let (width, height) = (tree.size().width() * SCALE, tree.size().height() * SCALE);
    let mut drawn = Drawn { content: Content::new(), images: vec![], opacities: vec![] };
    // The origin of a PDF is at the bottom.
    drawn.content.transform([SCALE, 0.0, 0.0, -SCALE, 0.0, height]);
    drawn.group(tree.root())?;

    let mut pdf = Pdf::new();
    pdf.catalog(Ref::new(CATALOG)).pages(Ref::new(PAGES));
    pdf.pages(Ref::new(PAGES)).kids([Ref::new(PAGE)]).count(1);
    let image_ref = |index: usize| Ref::new(FIRST + index as i32);
    let opacity_ref = |index: usize| Ref::new(FIRST + (drawn.images.len() + index) as i32);
    let mut page = pdf.page(Ref::new(PAGE));
    page.parent(Ref::new(PAGES)).media_box(Rect::new(0.0, 0.0, width, height)).contents(Ref::new(CONTENT));
    let mut resources = page.resources();
    let mut images = resources.x_objects();
    for index in 0..drawn.images.len() {
        images.pair(Name(image_name(index).as_bytes()), image_ref(index));
    }
    images.finish();
    let mut states = resources.ext_g_states();
    for index in 0..drawn.opacities.len() {
        states.pair(Name(opacity_name(index).as_bytes()), opacity_ref(index));
    }
    states.finish();
    resources.finish();
    page.finish();
    for (index, image) in drawn.images.iter().enumerate() {
        write_image(&mut pdf, image_ref(index), image)?;
    }
    for (index, &opacity) in drawn.opacities.iter().enumerate() {
        pdf.ext_graphics(opacity_ref(index)).non_stroking_alpha(opacity).stroking_alpha(opacity);
    }
    let content = compressed(&drawn.content.finish())?;
    pdf.stream(Ref::new(CONTENT), &content).filter(Filter::FlateDecode);
    Ok(pdf.finish())
}

fn image_name(index: usize) -> String {
    format!("I{index}")
}

fn opacity_name(index: usize) -> String {
    format!("A{index}")
}

fn compressed(bytes: &[u8]) -> Result<Vec<u8>, ReportError> {
    let mut encoder = ZlibEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Writes an indexed PNG as an image of the same colours, in which nothing is drawn for [`NOTHING`].
fn write_image(pdf: &mut Pdf, id: Ref, image: &[u8]) -> Result<(), ReportError> {
    let mut reader = png::Decoder::new(Cursor::new(image)).read_info().map_err(|error| failed(&error))?;
    let (width, height) = (reader.info().width, reader.info().height);
    let palette = reader.info().palette.as_deref().unwrap_or_default().to_vec();
    let mut cells = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let frame = reader.next_frame(&mut cells).map_err(|error| failed(&error))?;
    if frame.color_type != png::ColorType::Indexed || frame.bit_depth != png::BitDepth::Eight {
        return Err(failed(&"its image has no palette"));
    }
    let samples = compressed(&cells)?;
    let mut object = pdf.image_xobject(id, &samples);
    object.filter(Filter::FlateDecode);
    object.width(width as i32).height(height as i32).bits_per_component(8);
    let highest = (palette.len() / 3).saturating_sub(1) as i32;
    object.color_space().indexed(Name(b"DeviceRGB"), highest, &palette);
    object.insert(Name(b"Mask")).array().items([i32::from(NOTHING), i32::from(NOTHING)]);
    Ok(())
}

/// What is drawn, and what it needs.
struct Drawn<'a> {
    content: Content,
    /// PNGs.
    images: Vec<&'a [u8]>,
    /// The opacities other than 1, 0 to 1.
    opacities: Vec<f32>,
}

impl<'a> Drawn<'a> {
    fn group(&mut self, group: &'a Group) -> Result<(), ReportError> {
        self.content.save_state();
        self.transform(group.transform());
        if let Some(clip) = group.clip_path() {
            self.clip(clip)?;
        }
        for node in group.children() {
            match node {
                Node::Group(group) => self.group(group)?,
                Node::Text(text) => self.group(text.flattened())?,
                Node::Path(path) if path.is_visible() => self.path(path)?,
                Node::Image(image) if image.is_visible() => self.image(image)?,
                Node::Path(_) | Node::Image(_) => {}
            }
        }
        self.content.restore_state();
        Ok(())
    }

    fn transform(&mut self, transform: Transform) {
        let Transform { sx, kx, ky, sy, tx, ty } = transform;
        if !transform.is_identity() {
            self.content.transform([sx, ky, kx, sy, tx, ty]);
        }
    }

    /// Clips what follows to a rectangle or another path.
    fn clip(&mut self, clip: &usvg::ClipPath) -> Result<(), ReportError> {
        let [Node::Path(path)] = clip.root().children() else { return Err(failed(&"its clip is not a path")) };
        let outline = path.data().clone().transform(clip.transform());
        self.outline(&outline.ok_or_else(|| failed(&"its clip is out of bounds"))?);
        self.content.clip_nonzero().end_path();
        Ok(())
    }

    fn path(&mut self, path: &usvg::Path) -> Result<(), ReportError> {
        if let Some(fill) = path.fill() {
            let [r, g, b] = colour(fill.paint())?;
            self.content.save_state().set_fill_rgb(r, g, b);
            self.opacity(fill.opacity().get());
            self.outline(path.data());
            match fill.rule() {
                FillRule::NonZero => self.content.fill_nonzero(),
                FillRule::EvenOdd => self.content.fill_even_odd(),
            };
            self.content.restore_state();
        }
        if let Some(stroke) = path.stroke() {
            let [r, g, b] = colour(stroke.paint())?;
            self.content.save_state().set_stroke_rgb(r, g, b).set_line_width(stroke.width().get());
            self.opacity(stroke.opacity().get());
            self.content.set_line_join(match stroke.linejoin() {
                LineJoin::Round => LineJoinStyle::RoundJoin,
                LineJoin::Bevel => LineJoinStyle::BevelJoin,
                LineJoin::Miter | LineJoin::MiterClip => LineJoinStyle::MiterJoin,
            });
            self.content.set_line_cap(match stroke.linecap() {
                LineCap::Butt => LineCapStyle::ButtCap,
                LineCap::Round => LineCapStyle::RoundCap,
                LineCap::Square => LineCapStyle::ProjectingSquareCap,
            });
            if let Some(dashes) = stroke.dasharray() {
                self.content.set_dash_pattern(dashes.iter().copied(), stroke.dashoffset());
            }
            self.outline(path.data());
            self.content.stroke().restore_state();
        }
        Ok(())
    }

    fn opacity(&mut self, opacity: f32) {
        if opacity < 1.0 {
            let known = self.opacities.iter().position(|&known| known == opacity);
            let index = known.unwrap_or_else(|| {
                self.opacities.push(opacity);
                self.opacities.len() - 1
            });
            self.content.set_parameters(Name(opacity_name(index).as_bytes()));
        }
    }

    fn outline(&mut self, path: &Path) {
        let mut at = Point::zero();
        for segment in path.segments() {
            match segment {
                PathSegment::MoveTo(to) => {
                    self.content.move_to(to.x, to.y);
                    at = to;
                }
                PathSegment::LineTo(to) => {
                    self.content.line_to(to.x, to.y);
                    at = to;
                }
                PathSegment::QuadTo(control, to) => {
                    // The cubic curve of the same shape.
                    let towards = |from: f32, control: f32| from + (control - from) * 2.0 / 3.0;
                    let (x1, y1) = (towards(at.x, control.x), towards(at.y, control.y));
                    let (x2, y2) = (towards(to.x, control.x), towards(to.y, control.y));
                    self.content.cubic_to(x1, y1, x2, y2, to.x, to.y);
                    at = to;
                }
                PathSegment::CubicTo(first, second, to) => {
                    self.content.cubic_to(first.x, first.y, second.x, second.y, to.x, to.y);
                    at = to;
                }
                PathSegment::Close => {
                    self.content.close_path();
                }
            }
        }
    }

    fn image(&mut self, image: &'a Image) -> Result<(), ReportError> {
        let ImageKind::PNG(png) = image.kind() else { return Err(failed(&"its image is not a PNG")) };
        self.images.push(png);
        let name = image_name(self.images.len() - 1);
        let (width, height) = (image.size().width(), image.size().height());
        // An image of a PDF is a square of 1 with the first row at its top.
        self.content.save_state().transform([width, 0.0, 0.0, -height, 0.0, height]);
        self.content.x_object(Name(name.as_bytes())).restore_state();
        Ok(())
    }
}

/// The colour of a paint, each part 0 to 1.
fn colour(paint: &Paint) -> Result<[f32; 3], ReportError> {
    match paint {
        Paint::Color(colour) => Ok([colour.red, colour.green, colour.blue].map(|part| f32::from(part) / 255.0)),
        _ => Err(failed(&"it has a gradient or a pattern")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Result<String, ReportError> {
        let svg = format!(r#"<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100">{body}</svg>"#);
        Ok(String::from_utf8_lossy(&from_svg(&svg)?).into_owned())
    }

    #[test]
    fn a_page_has_the_size_of_the_picture_and_the_opacities_of_its_shapes() {
        let pdf = of(r##"<rect width="10" height="10" fill="#f00" fill-opacity="0.5"/><text x="9" y="9">text</text>"##);
        let pdf = pdf.unwrap();
        assert!(pdf.starts_with("%PDF-") && pdf.contains("/MediaBox [0 0 150 75]"), "{pdf}");
        assert!(pdf.contains("/ca 0.5") && !pdf.contains("/Font"), "{pdf}");
    }

    #[test]
    fn cells_are_an_image_that_leaves_out_what_is_not_recorded() {
        let mut drawing = crate::svg::Drawing::new(100.0);
        drawing.height = 50.0;
        let cells = [0, 100, 250, NOTHING];
        drawing.cells((0.0, 0.0), (100.0, 50.0), (2, 2), (crate::Measure::Rate, &cells)).unwrap();
        let pdf = from_svg(&drawing.standalone()).unwrap();
        let pdf = String::from_utf8_lossy(&pdf);
        assert!(pdf.contains("/Width 2") && pdf.contains("/Indexed") && pdf.contains("/Mask [255 255]"), "{pdf}");
    }

    #[test]
    fn what_cannot_be_drawn_is_an_error() {
        let gradient = r#"<linearGradient id="g"><stop offset="0"/><stop offset="1" stop-color="red"/></linearGradient>
            <rect width="9" height="9" fill="url(#g)"/>"#;
        assert!(of(gradient).unwrap_err().to_string().contains("gradient"));
    }
}
