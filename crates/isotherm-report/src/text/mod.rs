//! Reports for a terminal, fitted to its size, colours and characters.

pub(crate) mod bar;
pub(crate) mod chart;
mod groups;
mod heatmap;
mod marks;
mod overhead;
mod regions;
mod schemes;
mod summary;
pub(crate) mod table;
pub(crate) mod title;
mod wss;

use std::fmt::Write as _;
use std::io::{self, Write};

use isotherm_core::TargetId;
use isotherm_record::TargetInfo;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::colour::{self, Rgb};
use crate::command::{shown_command, shown_pid};
use crate::escape::sanitise;

pub(crate) use heatmap::{heatmap, plan};
pub(crate) use overhead::{cpu, cpu_over_windows, overhead};
pub(crate) use regions::RegionsText;
pub use schemes::net_freed;
pub(crate) use schemes::{bytes_ticks, facts as scheme_facts, returned_share, schemes};
pub(crate) use summary::summary;
pub(crate) use wss::{notes as wss_notes, time_of, wss};

/// The colour of warnings.
const WARNING: Rgb = [200, 140, 20];

/// The colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// 16 million.
    True,
    /// 256.
    Ansi256,
    /// No colours, or not a terminal.
    None,
}

/// The terminal that text is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Characters per line. Fewer than 10 count as 10.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
    /// The colours.
    pub colour: Colour,
    /// Whether it can show box-drawing and block characters.
    pub unicode: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { columns: 100, rows: 40, colour: Colour::None, unicode: true }
    }
}

impl Terminal {
    /// The width, at least 10.
    pub(crate) fn width(&self) -> usize {
        self.columns.max(10)
    }

    /// The first text if the terminal shows more than ASCII, else the second.
    pub(crate) fn pick(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// The text in these colours, if the terminal has colours.
    pub(crate) fn paint(&self, text: &str, fore: Option<Rgb>, back: Option<Rgb>) -> String {
        if self.colour == Colour::None || (fore, back) == (None, None) {
            return text.into();
        }
        let code = |kind: u8, rgb: Rgb| match self.colour {
            Colour::True => format!("{kind};2;{};{};{}", rgb[0], rgb[1], rgb[2]),
            _ => format!("{kind};5;{}", colour::ansi256(rgb)),
        };
        let codes: Vec<_> = fore.map(|rgb| code(38, rgb)).into_iter().chain(back.map(|rgb| code(48, rgb))).collect();
        format!("\x1b[{}m{text}\x1b[0m", codes.join(";"))
    }

    /// The text in bold.
    pub(crate) fn bold(&self, text: &str) -> String {
        if self.colour == Colour::None { text.into() } else { format!("\x1b[1m{text}\x1b[0m") }
    }

    /// The text dimmed.
    pub(crate) fn dim(&self, text: &str) -> String {
        if self.colour == Colour::None { text.into() } else { format!("\x1b[2m{text}\x1b[0m") }
    }
}

/// The number of columns of a text.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The text, cut on the right if it is wider than `columns`.
pub(crate) fn cut(text: &str, columns: usize, terminal: &Terminal) -> String {
    start_in(text, columns, terminal.pick("…", "~"))
}

/// The name of a mapping in at most `columns`: the end of a path, the start of other names.
pub(crate) fn name_in(name: &str, columns: usize, terminal: &Terminal) -> String {
    part_in(&sanitise(name), columns, terminal.pick("…", "~"))
}

/// The text in at most `columns` columns, with a mark of one column where it is cut. Of a path the end is kept, of
/// other texts the start.
pub fn part_in(text: &str, columns: usize, mark: &str) -> String {
    if !text.starts_with('/') || columns == 0 || width(text) <= columns {
        return start_in(text, columns, mark);
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    let tail: Vec<char> = text.chars().rev().take_while(fits).collect();
    mark.chars().chain(tail.into_iter().rev()).collect()
}

/// The text, cut on the right if it is wider than `columns`.
fn start_in(text: &str, columns: usize, mark: &str) -> String {
    if width(text) <= columns {
        return text.into();
    }
    if columns == 0 {
        return String::new();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).chain(mark.chars()).collect()
}

/// The text, padded on the left to `columns`.
pub(crate) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The text, padded on the right to `columns`.
pub(crate) fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The title of a target: its process ID and command.
pub(crate) fn target_title(id: TargetId, info: &TargetInfo) -> String {
    let Some(pid) = id.pid() else {
        return id.to_string();
    };
    format!("pid {}: {}", shown_pid(pid, info.inner_pid), shown_command(&info.command))
}

/// Writes a warning, if there is one.
pub(crate) fn warning(out: &mut dyn Write, terminal: &Terminal, warning: Option<String>) -> io::Result<()> {
    let Some(warning) = warning else { return Ok(()) };
    let text = wrap(&format!("! {warning}"), terminal.width(), 2);
    writeln!(out, "{}", terminal.paint(&text, Some(WARNING), None))
}

/// Writes a note, if there is one.
pub(crate) fn note(out: &mut dyn Write, terminal: &Terminal, note: Option<String>) -> io::Result<()> {
    let Some(note) = note else { return Ok(()) };
    writeln!(out, "{}", terminal.dim(&wrap(&note, terminal.width(), 2)))
}

/// Writes a fact next to its name, or after it in a narrow terminal.
pub(crate) fn fact(out: &mut dyn Write, terminal: &Terminal, name: &str, fact: &str) -> io::Result<()> {
    let width = terminal.width();
    if width >= 40 {
        writeln!(out, "{name:<14}{}", wrap(fact, width - 14, 14))
    } else {
        writeln!(out, "{}", wrap(&format!("{name}: {fact}"), width, 1))
    }
}

/// The text in lines of at most `columns`. All but the first are indented.
pub fn wrap(text: &str, columns: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    let longest = columns.saturating_sub(indent).max(1);
    for word in words(text).iter().flat_map(|word| broken(word, longest)) {
        if used > 0 && used + 1 + width(&word) > columns {
            _ = write!(out, "\n{:indent$}", "");
            used = indent;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(&word);
        used += width(&word);
    }
    out
}

/// The word in pieces of at most `longest` columns.
fn broken(word: &str, longest: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in word.chars() {
        match pieces.last_mut() {
            Some(last) if width(last) + width(c.encode_utf8(&mut [0; 4])) <= longest => last.push(c),
            _ => pieces.push(c.into()),
        }
    }
    pieces
}

/// The words of a text. A number and its unit are one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![];
    for word in text.split(' ') {
        let unit = word.chars().filter(|c| c.is_alphabetic() || *c == '%').count() <= 3;
        match words.last_mut() {
            Some(last) if unit && last.ends_with(|c: char| c.is_ascii_digit()) && !word.starts_with('(') => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.into()),
        }
    }
    words
}
