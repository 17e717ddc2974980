//! Tables, as all programs of this crate print them.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

/// A table with these columns. The first `left` columns are aligned to the left, the others to the right.
pub fn table(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header).add_rows(rows);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Formats a share from 0 to 1; `-` if there is none.
pub fn share(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{share:.3}"))
}

/// Formats the longest time until hot memory was found, or how often it was not found.
pub fn found_in(found: &[Option<f64>]) -> String {
    match found.iter().map(|found| found.unwrap_or(f64::INFINITY)).reduce(f64::max) {
        Some(s) if s.is_finite() => format!("{s:.2} s"),
        Some(_) => format!("{} of {} never", found.iter().filter(|f| f.is_none()).count(), found.len()),
        None => "-".into(),
    }
}
