//! A table as text.

use std::io::{self, Write};

use super::Table;
use crate::Terminal;
use crate::escape::sanitise;
use crate::text::{cut, left, right, width};

const GAP: usize = 2;
/// The width to which text is cut if the table is too wide, at least.
const LEAST: usize = 12;

impl Table {
    /// Writes the table in the width of the terminal. If its figures do not fit, a row is a block, with a line for each
    /// column. Texts are cut; figures are not.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn text(&self, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| sanitise(cell).into_owned()).collect()).collect();
        match self.widths(&rows, terminal.width()) {
            Some(widths) => self.lines(&rows, &widths, terminal, out),
            None => self.blocks(&rows, terminal, out),
        }
    }

    /// The lines of the name of a column.
    fn heading(&self, nth: usize) -> Vec<String> {
        sanitise(&self.columns[nth].name).split_inclusive('_').map(str::to_owned).fold(vec![], |mut lines, part| {
            // Short parts share a line, so that names have few lines.
            match lines.last_mut() {
                Some(last) if width(last) + width(&part) <= 10 => last.push_str(&part),
                _ => lines.push(part),
            }
            lines
        })
    }

    /// The widths of the columns. Texts give way, the widest first. `None` if that is not enough.
    fn widths(&self, rows: &[Vec<String>], most: usize) -> Option<Vec<usize>> {
        let heading = |nth| self.heading(nth).iter().map(|line| width(line)).max().unwrap_or(0);
        let cells = |nth: usize| rows.iter().map(|row| width(&row[nth])).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|nth| cells(nth).max(heading(nth))).collect();
        let all = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        while all(&widths) > most {
            let texts = (0..widths.len()).filter(|&nth| !self.columns[nth].figures && widths[nth] > LEAST);
            let widest = texts.max_by_key(|&nth| widths[nth])?;
            widths[widest] -= 1;
        }
        Some(widths)
    }

    fn lines(
        &self,
        rows: &[Vec<String>],
        widths: &[usize],
        terminal: &Terminal,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut line = |cells: &[String], dim: bool| {
            let cells = cells.iter().zip(widths).zip(&self.columns).map(|((cell, &width), column)| {
                let text = cut(cell, width, terminal);
                if column.figures { right(&text, width) } else { left(&text, width) }
            });
            let text = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
            let text = text.trim_end();
            if dim { writeln!(out, "{}", terminal.dim(text)) } else { writeln!(out, "{text}") }
        };
        let headings: Vec<Vec<String>> = (0..self.columns.len()).map(|nth| self.heading(nth)).collect();
        let high = headings.iter().map(Vec::len).max().unwrap_or(0);
        for nth in 0..high {
            // The last lines are beside one another.
            let part = |heading: &Vec<String>| {
                (nth + heading.len()).checked_sub(high).and_then(|at| heading.get(at)).cloned().unwrap_or_default()
            };
            line(&headings.iter().map(part).collect::<Vec<_>>(), true)?;
        }
        rows.iter().try_for_each(|row| line(row, false))
    }

    fn blocks(&self, rows: &[Vec<String>], terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = self.columns.iter().map(|column| sanitise(&column.name).into_owned()).collect();
        let wide = names.iter().map(|name| width(name)).max().unwrap_or(0).min(terminal.width() / 2);
        for (nth, row) in rows.iter().enumerate() {
            writeln!(out, "{}", terminal.dim(&format!("row {}", nth + 1)))?;
            for (name, cell) in names.iter().zip(row) {
                let name = left(&cut(name, wide, terminal), wide);
                let cell = cut(cell, terminal.width().saturating_sub(wide + GAP + 2).max(LEAST), terminal);
                writeln!(out, "  {name}{:GAP$}{cell}", "")?;
            }
        }
        if rows.is_empty() {
            writeln!(out, "no rows of {}", names.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::super::Column;
    use super::*;

    fn shown(names: &[(&str, bool)], row: &[&str], columns: usize) -> String {
        let columns_of = |&(name, figures): &(&str, bool)| Column { name: name.into(), figures };
        let row = row.iter().map(|cell| (*cell).to_owned()).collect();
        let table = Table { columns: names.iter().map(columns_of).collect(), rows: vec![row] };
        let mut out = Vec::new();
        table.text(&Terminal { columns, ..Terminal::default() }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_fits_and_its_names_are_above_one_another() {
        let names = [("service", false), ("mean_present_bytes", true)];
        let text = shown(&names, &["a\u{1b}[31m\u{202e}long name of a service", "1.5 GiB"], 30);
        let lines = [
            "                         mean_",
            "                      present_",
            "service                  bytes",
            "a\\x1b[31m\\u{202e}lo…   1.5 GiB",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_table_that_cannot_fit_is_blocks() {
        let names: Vec<(String, bool)> = (0..9).map(|nth| (format!("figure_{nth}"), true)).collect();
        let names: Vec<(&str, bool)> = names.iter().map(|(name, figures)| (&**name, *figures)).collect();
        let text = shown(&names, &["123,456"; 9], 60);
        assert_eq!(text.lines().count(), 10, "{text}");
        assert!(text.starts_with("row 1\n  figure_0  123,456\n"), "{text}");
    }
}
