//! The language of isotherm's schemes (`docs/schemes.md`).
//!
//! Two forms are read, told apart by what a file begins with: isotherm's own YAML with everything that a scheme can have,
//! and the lines of the DAMON papers. Whatever a file holds, [`parse`] either makes schemes of it or says at which line and
//! column which word is wrong, what was expected there, and never panics.
//!
//! A reader of another form that is YAML or JSON takes a [`Document`] and the parts in [`form`].

mod complaint;
mod describe;
mod document;
mod fields;
pub mod form;
mod lines;
mod parts;
mod tree;
pub mod units;
mod yaml;

use std::path::Path;

use isotherm_core::scheme::Scheme;

pub use complaint::{Complaint, Complaints, Place};
pub use describe::describe;
pub use document::Document;

/// The JSON Schema of the YAML form, for editors and other programs.
pub const JSON_SCHEMA: &str = include_str!("../schema/schemes.json");

/// No scheme file is larger; what is larger is something else.
const LARGEST: u64 = 1 << 20;

/// Reads the schemes in a file.
///
/// # Errors
/// If it cannot be read, or if anything in it is wrong: all that is found wrong is told.
pub fn read(path: &Path) -> Result<Vec<Scheme>, Complaints> {
    parse(&path.display().to_string(), &read_text(path)?)
}

/// Reads the text of a scheme file.
///
/// # Errors
/// If it cannot be read, is larger than a scheme file is, or is no text.
pub fn read_text(path: &Path) -> Result<String, Complaints> {
    let unreadable = |why: String| Complaints::of_file(&path.display().to_string(), why);
    let size = std::fs::metadata(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?.len();
    if size > LARGEST {
        return Err(unreadable(format!("has {size} bytes; a scheme file is smaller, so this must be another file")));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    String::from_utf8(bytes)
        .map_err(|_| unreadable("is no text in UTF-8; a scheme file is YAML, damo's JSON or lines".into()))
}

/// Reads the schemes in `text`; `file` is what errors call it.
///
/// # Errors
/// All that is found wrong, in the order of lines.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scheme>, Complaints> {
    Document::parse(file, text)?.schemes()
}
