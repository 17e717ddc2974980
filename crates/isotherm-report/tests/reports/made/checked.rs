//! Reports on made recordings. Those in JSON are checked against their schemas.

use isotherm_report::{Format, Kind, Options, Selection, Terminal, write};
use serde_json::Value;

use super::Made;
use super::valid::assert_valid;

pub fn report(kind: Kind, format: Format, source: &Made, options: &Options) -> String {
    let mut out = vec![];
    write(kind, format, source, &Selection::default(), options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The report as text, on a terminal of this width.
pub fn text(kind: Kind, source: &Made, columns: usize) -> String {
    let terminal = Terminal { columns, ..Terminal::default() };
    report(kind, Format::Text, source, &Options { terminal, ..Options::default() })
}

pub fn json_of(kind: Kind, source: &Made, options: &Options) -> Value {
    let out = report(kind, Format::Json, source, options);
    let value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_valid(kind.name(), &value);
    value
}
