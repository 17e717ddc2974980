//! The description of columns for the documentation.

use super::{Table, Value};

/// The columns of a table and of the tables in it, as rows of a Markdown table.
#[derive(Debug, Default)]
pub(crate) struct Description {
    lines: Vec<String>,
    /// The tables that have been described, each with the path of its column.
    tables: Vec<(&'static str, String)>,
}

impl Description {
    /// Describes a column.
    pub(crate) fn column<T: Value>(&mut self, path: &str, name: &str, doc: &str) {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let null = if T::OPTIONAL { ", or null" } else { "" };
        let doc = doc.trim();
        self.lines.push(format!("| `{path}` | {}{null} | {doc} |", T::type_name()));
        T::describe(&path, self);
    }

    /// Describes the columns of a table. If the table has been described before, this refers to that description.
    pub(crate) fn table(&mut self, path: &str, table: &'static str, columns: impl FnOnce(&mut Self)) {
        match self.tables.iter().find(|(known, _)| *known == table) {
            Some((_, first)) => {
                if let Some(line) = self.lines.last_mut() {
                    let cut = line.trim_end_matches(" |").len();
                    line.truncate(cut);
                    line.push_str(&format!("; a struct as `{first}` |"));
                }
            }
            None => {
                self.tables.push((table, path.to_owned()));
                columns(self);
            }
        }
    }

    /// The description of a table: one row for each column.
    pub(crate) fn of<T: Table>() -> String {
        let mut description = Self::default();
        T::describe("", &mut description);
        description.lines.join("\n")
    }
}
