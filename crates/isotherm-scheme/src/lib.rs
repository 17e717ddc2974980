//! The language of isotherm's schemes (`docs/schemes.md`).
//!
//! Three forms are read, told apart by what a file begins with: isotherm's own YAML with everything that a scheme can have,
//! the lines of the DAMON papers, and the JSON of damo. Whatever a file holds, [`parse`] either makes schemes of it or
//! says at which line and column which word is wrong, what was expected there, and never panics.

mod complaint;
mod damo;
mod describe;
mod fields;
mod lines;
mod parts;
mod tree;
mod units;
mod yaml;

use std::path::Path;

use isotherm_core::scheme::Scheme;

pub use complaint::{Complaint, Complaints, Place};
pub use describe::describe;

/// The JSON Schema of the YAML form, for editors and other programs.
pub const JSON_SCHEMA: &str = include_str!("../schema/schemes.json");

/// No scheme file is larger; what is larger is something else.
const LARGEST: u64 = 1 << 20;

/// Reads the schemes in a file.
///
/// # Errors
/// If it cannot be read, or if anything in it is wrong: all that is found wrong is told.
pub fn read(path: &Path) -> Result<Vec<Scheme>, Complaints> {
    let file = path.display().to_string();
    let unreadable = |why: String| Complaints::of_file(&file, why);
    let size = std::fs::metadata(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?.len();
    if size > LARGEST {
        return Err(unreadable(format!("has {size} bytes; a scheme file is smaller, so this must be another file")));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| unreadable("is no text in UTF-8; a scheme file is YAML, damo's JSON or lines".into()))?;
    parse(&file, &text)
}

/// Reads the schemes in `text`; `file` is what errors call it.
///
/// # Errors
/// All that is found wrong, in the order of lines.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scheme>, Complaints> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut complaints = Complaints::new(file);
    let schemes = if lines::are_lines(text) {
        lines::schemes(text, &mut complaints)
    } else {
        match tree::tree(text) {
            Ok(root) if damo::is_damos(&root) => damo::schemes(&root, &mut complaints),
            Ok(root) => yaml::schemes(&root, &mut complaints),
            Err(complaint) => {
                complaints.push(complaint);
                Vec::new()
            }
        }
    };
    complaints.or(schemes)
}
