//! Tables of answers, such as those of a query, with bars: the figures come from elsewhere, and look as those of the
//! reports do. Texts need not be safe: each format escapes them.

mod html;
mod svg;
mod text;

use crate::colour::Rgb;

/// A page of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// The title of the page.
    pub title: String,
    /// What it is about, in short: the answers follow from this.
    pub facts: Vec<String>,
    /// The answers.
    pub answers: Vec<Answer>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its name. A page has one answer of a name.
    pub name: String,
    /// What it answers.
    pub about: String,
    /// What it leaves out, if it does.
    pub note: Option<String>,
    /// The figures.
    pub table: Table,
    /// A picture of the figures.
    pub bars: Option<Bars>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The cells of each row, as many as columns.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name. It is broken after `_` if the table is narrow.
    pub name: String,
    /// Whether its cells are figures, which are aligned to the right.
    pub figures: bool,
}

/// Bars, one below the other, each of several parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bars {
    /// What the lengths mean.
    pub about: String,
    /// What the parts are, and their colours.
    pub parts: Vec<(&'static str, Rgb)>,
    /// What the mark of a bar means, if bars have marks.
    pub mark: Option<&'static str>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// The lengths of its parts, as many as [`Bars::parts`], in any unit.
    pub lengths: Vec<u64>,
    /// The parts as text, for tooltips.
    pub shown: Vec<String>,
    /// The figure after the bar.
    pub figure: String,
    /// A place that is marked, from the start of the bar.
    pub mark: Option<u64>,
}
