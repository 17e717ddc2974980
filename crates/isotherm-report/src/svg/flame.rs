//! Memory by call stack as a flame graph: a box for each function, as wide as the memory that was mapped by it and by
//! what it called. The colour tells how much of that memory is in use. Above a function lies what it called, and then
//! the memory that it has mapped itself: what is in use, and what is not.

use std::collections::BTreeMap;

use isotherm_core::units;

use super::{Anchor, Drawing, Scale, fit, legend, text_width};
use crate::colour::{Rgb, hex};
use crate::facts::facts;
use crate::measure::Measure;
use crate::options::Picture;
use crate::stacks::functions_of;
use crate::summary::{GroupTemperature, Summary};

const MARGIN: f64 = 12.0;
/// The height of a box with the space above it.
const ROW: f64 = 20.0;
/// Boxes that are narrower are left out.
const NARROWEST: f64 = 0.5;
/// A box that is narrower has no name.
const NAMED: f64 = 26.0;
/// Letters are white on a colour that is darker than this, of 255.
const DARK: f64 = 140.0;

/// Draws a summary by stack: the first callers at the bottom, and what they called above them.
pub(crate) fn draw(summary: &Summary, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(560));
    let mut drawing = Drawing::new(width);
    let surveyed = !summary.total.surveyed.resident_bytes.is_unknown();
    let (measure, uses, quantity) = match surveyed {
        true => (Measure::Touched, ["touched", "not touched"], "bytes in memory"),
        false => (Measure::Rate, ["accessed", "not accessed"], "mapped bytes, accessed or not as samples found them"),
    };
    drawing.text(MARGIN, 26.0, Anchor::Start, "title", &fit(&title(summary), width * 0.8));
    let note = format!("width: {quantity}, means over the time in which a stack has any");
    drawing.text(MARGIN, 46.0, Anchor::Start, "label", &fit(&note, width - 2.0 * MARGIN));
    drawing.scale(&Scale { measure, unobservable: measure == Measure::Rate, ..Scale::default() }, width - MARGIN, 58.0);

    let mut root = Function::default();
    for group in &summary.groups {
        root.add(functions_of(&group.group.name).into_iter().rev(), Memory::of(group));
    }
    let top = 58.0 + legend::HEIGHT + 10.0;
    let bottom = top + root.height() as f64 * ROW;
    let scale = (width - 2.0 * MARGIN) / root.memory.bytes.max(1) as f64;
    let all = root.memory.bytes;
    Boxes { drawing: &mut drawing, measure, uses, scale, all, bottom }.add("all", &root, (MARGIN, 0));
    drawing.height = bottom + MARGIN;
    drawing
}

fn title(summary: &Summary) -> String {
    facts(summary).into_iter().next().map_or_else(|| "Memory by call stack".into(), |fact| fact + ", by call stack")
}

/// Some memory, and how much of it is in use, in bytes.
#[derive(Clone, Copy, Default)]
struct Memory {
    bytes: u64,
    used: u64,
}

impl Memory {
    /// What surveys found of a group; without surveys, what samples did.
    fn of(group: &GroupTemperature) -> Self {
        let surveyed = &group.total.surveyed;
        let (resident, touched) = (surveyed.resident_bytes, surveyed.touched_bytes);
        let (bytes, used) = match resident.is_unknown() || touched.is_unknown() {
            false => (resident.least(), touched.least()),
            true => (group.total.size_bytes, group.total.working_set_bytes),
        };
        Self { bytes, used: used.min(bytes) }
    }

    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.used = self.used.saturating_add(other.used);
    }

    /// The share that is in use, 0 to 1.
    fn used_share(self) -> f64 {
        self.used as f64 / self.bytes.max(1) as f64
    }
}

/// A function, with the memory that it and those that it called have mapped.
#[derive(Default)]
struct Function<'a> {
    memory: Memory,
    /// What it has mapped itself.
    own: Memory,
    called: BTreeMap<&'a str, Self>,
}

impl<'a> Function<'a> {
    /// Adds the memory that was mapped by the last of `called`, each of which called the next.
    fn add(&mut self, called: impl Iterator<Item = &'a str>, memory: Memory) {
        let mut function = self;
        function.memory.add(memory);
        for name in called {
            function = function.called.entry(name).or_default();
            function.memory.add(memory);
        }
        function.own.add(memory);
    }

    /// The number of boxes above each other.
    fn height(&self) -> usize {
        1 + self.called.values().map(Self::height).max().unwrap_or(1)
    }
}

struct Boxes<'a> {
    drawing: &'a mut Drawing,
    measure: Measure,
    /// What memory is called that is in use, and that is not.
    uses: [&'static str; 2],
    /// The width of a byte.
    scale: f64,
    /// All bytes.
    all: u64,
    /// Where the lowest box ends.
    bottom: f64,
}

impl Boxes<'_> {
    /// Draws a function from `left` on above `below` others, and above it what it called, the largest first, and its
    /// own memory.
    fn add(&mut self, name: &str, function: &Function<'_>, (left, below): (f64, usize)) {
        let Function { memory, own, called } = function;
        if !self.draw(name, memory.bytes, memory.used_share(), (left, below)) {
            return;
        }
        let mut called: Vec<_> = called.iter().collect();
        called.sort_by_key(|(_, function)| std::cmp::Reverse(function.memory.bytes));
        let mut x = left;
        for (name, function) in called {
            self.add(name, function, (x, below + 1));
            x += function.memory.bytes as f64 * self.scale;
        }
        let [used, unused] = self.uses;
        for (use_of, bytes, share) in [(used, own.used, 1.0), (unused, own.bytes - own.used, 0.0)] {
            self.draw(use_of, bytes, share, (x, below + 1));
            x += bytes as f64 * self.scale;
        }
    }

    /// Draws a box of so many bytes, with this share in use. Returns whether it is wide enough.
    fn draw(&mut self, name: &str, bytes: u64, used_share: f64, (left, below): (f64, usize)) -> bool {
        let width = bytes as f64 * self.scale;
        if width < NARROWEST {
            return false;
        }
        let y = self.bottom - (below + 1) as f64 * ROW;
        let (colour, size) = (self.measure.colour(used_share), units::bytes(bytes));
        let of_all = units::percent(bytes as f64 / self.all.max(1) as f64);
        let tip = format!("{name}: {size} ({of_all} of all), {} {}", units::percent(used_share), self.uses[0]);
        let fill = format!(r#"fill="{}""#, hex(colour));
        self.drawing.rect_with_tip((left, y), ((width - 0.5).max(NARROWEST), ROW - 1.0), &fill, &tip);
        if width >= NAMED {
            let class = if luminance(colour) < DARK { "on-dark" } else { "on-light" };
            let whole = format!("{name}  {size}");
            let text = if text_width(&whole) < width - 8.0 { whole } else { shortened(name, width - 8.0) };
            self.drawing.text(left + 4.0, y + 14.0, Anchor::Start, class, &text);
        }
        true
    }
}

/// The name of a function in this width: without the outer ones of its namespaces, and then cut at its end.
fn shortened(name: &str, width: f64) -> String {
    let mut rest = name;
    while text_width(rest) > width
        && let Some((_, inner)) = rest.split_once("::")
    {
        rest = inner;
    }
    fit(rest, width)
}

/// How light a colour is, 0 to 255 (Rec. 601).
fn luminance([r, g, b]: Rgb) -> f64 {
    0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_name_the_innermost_part_is_shown() {
        assert_eq!(shortened("v8::internal::Heap::Collect", 1000.0), "v8::internal::Heap::Collect");
        assert_eq!(shortened("v8::internal::Heap::Collect", 100.0), "Heap::Collect");
        assert_eq!(shortened("v8::internal::Heap::Collect", 30.0), "Col…");
        assert_eq!(shortened("table_grow", 30.0), "tab…");
    }
}
