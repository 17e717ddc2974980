//! Tables. Columns of figures without any are left out, and then the least important ones until the table fits the
//! terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use super::{Terminal, cut, left, name_in, right};

/// One column of a table.
pub(crate) struct Column {
    title: Cow<'static, str>,
    kind: Kind,
    /// Columns with the highest rank are left out first. Rank 0 always stays.
    rank: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Figure,
    Text,
    /// Takes the remaining width, and is cut to it.
    Name,
}

impl Column {
    /// A column that is aligned to the right.
    pub(crate) const fn figure(title: &'static str, rank: u8) -> Self {
        Self { title: Cow::Borrowed(title), kind: Kind::Figure, rank }
    }

    /// A figure column whose title is computed.
    pub(crate) fn titled(title: String, rank: u8) -> Self {
        Self { title: Cow::Owned(title), kind: Kind::Figure, rank }
    }

    /// A column that is aligned to the left.
    pub(crate) const fn text(title: &'static str, rank: u8) -> Self {
        Self { title: Cow::Borrowed(title), kind: Kind::Text, rank }
    }

    /// A column of names, cut to the remaining width.
    pub(crate) const fn name(title: &'static str) -> Self {
        Self { title: Cow::Borrowed(title), kind: Kind::Name, rank: 0 }
    }
}

/// A cell: its plain text, and its styled text of the same width.
pub(crate) struct Cell {
    text: String,
    styled: Option<String>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, styled: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: text.into(), styled: None }
    }
}

impl Cell {
    /// A cell with a styled text.
    pub(crate) fn painted(text: String, styled: String) -> Self {
        Self { text, styled: Some(styled) }
    }
}

const GAP: usize = 2;

/// Writes a table.
pub(crate) fn table(
    out: &mut dyn Write,
    terminal: &Terminal,
    columns: &[Column],
    rows: &[Vec<Cell>],
) -> io::Result<()> {
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let widest = rows.iter().filter_map(|row| row.get(i)).map(|cell| super::width(&cell.text)).max();
            widest.unwrap_or(0).max(super::width(&column.title))
        })
        .collect();
    let has_figures =
        |i: usize| rows.iter().any(|row| row.get(i).is_some_and(|cell| !cell.text.is_empty())) || rows.is_empty();
    let mut kept: Vec<usize> =
        (0..columns.len()).filter(|&i| columns[i].kind != Kind::Figure || has_figures(i)).collect();
    let least_name = (terminal.width() / 4).clamp(3, 18);
    let needed = |kept: &[usize]| -> usize {
        let least = |&i: &usize| if columns[i].kind == Kind::Name { widths[i].min(least_name) } else { widths[i] };
        kept.iter().map(least).sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    while needed(&kept) > terminal.width() {
        let Some(&loser) = kept.iter().max_by_key(|&&i| columns[i].rank).filter(|&&i| columns[i].rank > 0) else {
            break;
        };
        kept.retain(|&i| i != loser);
    }
    if needed(&kept) > terminal.width() && kept.len() > 1 {
        kept.retain(|&i| columns[i].kind != Kind::Name);
    }
    let others: usize = kept.iter().filter(|&&i| columns[i].kind != Kind::Name).map(|&i| widths[i] + GAP).sum();
    let available = terminal.width().saturating_sub(others).max(1);
    let fit = |i: usize| if columns[i].kind == Kind::Name { widths[i].min(available) } else { widths[i] };
    let line = |out: &mut dyn Write, cells: &[Cell], style: &dyn Fn(&str) -> String| {
        let shown: Vec<(usize, Option<&Cell>)> = kept.iter().map(|&i| (i, cells.get(i))).collect();
        let filled = shown.iter().rposition(|(_, cell)| cell.is_some_and(|c| !c.text.is_empty())).map_or(0, |i| i + 1);
        let mut used = 0;
        for (nth, &(i, cell)) in shown[..filled].iter().enumerate() {
            let Some(cell) = cell else { continue };
            let gap = if nth == 0 { 0 } else { GAP };
            let width = fit(i).min(terminal.width().saturating_sub(used + gap));
            let named = columns[i].kind == Kind::Name;
            let text = if named { name_in(&cell.text, width, terminal) } else { cut(&cell.text, width, terminal) };
            let pad = if columns[i].kind == Kind::Figure { right(&text, width) } else { left(&text, width) };
            let pad = if nth + 1 == filled { pad.trim_end() } else { &pad };
            let styled = match &cell.styled {
                Some(styled) => pad.replacen(&text, styled, 1),
                None => style(pad),
            };
            write!(out, "{:gap$}{styled}", "")?;
            used += gap + width;
        }
        writeln!(out)
    };
    if columns.iter().any(|column| !column.title.is_empty()) {
        let titles: Vec<Cell> = columns.iter().map(|column| (&*column.title).into()).collect();
        line(out, &titles, &|text| terminal.dim(text))?;
    }
    for row in rows {
        line(out, row, &str::to_owned)?;
    }
    Ok(())
}
