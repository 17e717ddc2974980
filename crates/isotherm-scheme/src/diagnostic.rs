//! Errors in a scheme file, each with its position.

use std::fmt;

/// A position in a text. Lines and columns are counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// One error in a scheme file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The position of the error. None if the error concerns the whole file.
    pub position: Option<Position>,
    /// What was found, what was expected, and how to fix it, in one line.
    pub message: String,
}

impl Diagnostic {
    /// An error at `position`.
    pub fn new(position: Position, message: impl Into<String>) -> Self {
        Self { position: Some(position), message: message.into() }
    }
}

/// The errors in a scheme file.
///
/// As the error of a [`Result`] it holds at least one. Its text has one line for each, `FILE:LINE:COLUMN: MESSAGE`, as
/// compilers write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    file: String,
    list: Vec<Diagnostic>,
}

/// Diagnostics that are shown. One mistake early in a file can cause many.
const MOST_SHOWN: usize = 20;

impl Diagnostics {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), list: Vec::new() }
    }

    pub(crate) fn of_file(file: &str, message: String) -> Self {
        Self { file: file.to_owned(), list: vec![Diagnostic { position: None, message }] }
    }

    /// Adds an error.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.list.push(diagnostic);
    }

    /// Adds an error, and returns `None` in place of the value that could not be read.
    pub fn fail<T>(&mut self, position: Position, message: impl Into<String>) -> Option<T> {
        self.push(Diagnostic::new(position, message));
        None
    }

    /// Returns `value` if there is no error.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self.sorted()) }
    }

    /// Whether there is no error.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The errors in the order of their positions, each once.
    pub(crate) fn sorted(mut self) -> Self {
        self.list.sort_by_key(|diagnostic| diagnostic.position);
        self.list.dedup();
        self
    }

    /// The errors, in the order of their positions.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Diagnostic { position, message }) in self.list.iter().take(MOST_SHOWN).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            match position {
                Some(Position { line, column }) => write!(f, "{}:{line}:{column}: {message}", self.file)?,
                None => write!(f, "{}: {message}", self.file)?,
            }
        }
        match self.list.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n{}: {more} more errors", self.file),
        }
    }
}

impl std::error::Error for Diagnostics {}
