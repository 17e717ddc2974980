//! Reads schemes from text, and describes schemes in words. `docs/schemes.md` documents the language.
//!
//! A scheme file has one of two forms, recognised by how the file begins: YAML with all that a scheme can have, or
//! one line for each scheme, as in the DAMON papers. For any text, [`parse`] returns either schemes or
//! [`Diagnostics`] with a line and a column for each error. It never panics.
//!
//! A crate that reads a further form in YAML or JSON uses [`Document`] and the parts in [`form`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod common;
mod describe;
mod diagnostic;
mod document;
mod fields;
pub mod form;
mod free;
mod lines;
mod message;
mod tree;
mod typed;
mod value;
mod yaml;

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::path::Path;

use isotherm_core::scheme::Scheme;
use isotherm_input::{Input, Problem};

pub use describe::{describe, describe_condition};
pub use diagnostic::{Diagnostic, Diagnostics, Position};
pub use document::Document;
pub use free::{FreeSchemes, Parameter};

/// The JSON Schema of the YAML form, for editors and other programs.
pub const JSON_SCHEMA: &str = include_str!("../schema/schemes.json");

/// The most bytes that are read of a file. A scheme file has a few kilobytes.
const MAX_SIZE: u64 = 1 << 20;

/// Reads the schemes in a file.
///
/// # Errors
/// As [`read_text`] and [`parse`].
pub fn read(path: &Path) -> Result<Vec<Scheme>, Diagnostics> {
    parse(&path.display().to_string(), &read_text(path)?)
}

/// Reads the text of a scheme file, which may be a pipe.
///
/// # Errors
/// If the file cannot be read, has more than 1 MiB, or is not UTF-8; if it is a device or a directory; if it is a pipe
/// through which nothing comes for some seconds.
pub fn read_text(path: &Path) -> Result<String, Diagnostics> {
    Input::new(path).limited_to(MAX_SIZE).or_pipe().text().map_err(|error| {
        let message = match error.problem {
            Problem::TooLarge(limit) => {
                format!("has more than {limit} bytes, more than any scheme file; give another file")
            }
            Problem::NotText(_) => "is not text in UTF-8; give a scheme file".into(),
            problem @ (Problem::Directory | Problem::NotAFile(_)) => {
                format!("cannot be read: {problem}; give a scheme file")
            }
            problem @ Problem::Silent(_) => {
                format!("cannot be read: {problem}; start its writer first, or give a scheme file")
            }
            problem => format!("cannot be read: {problem}"),
        };
        Diagnostics::of_file(&path.display().to_string(), message)
    })
}

/// Reads the schemes in `text`. `file` is the name of the file in messages.
///
/// # Errors
/// All errors in the text, in the order of their positions.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scheme>, Diagnostics> {
    Document::parse(file, text)?.schemes()
}
