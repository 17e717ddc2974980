//! What is wrong with a scheme file, and where.

use std::fmt;

/// A place in a text: line and column, both from 1 on, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where; nothing if it is about the file as a whole.
    pub place: Option<Place>,
    /// What was found there, what was expected, and what would mend it.
    pub message: String,
}

impl Complaint {
    /// Of what is wrong at `place`.
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place: Some(place), message: message.into() }
    }
}

/// All that is wrong with a scheme file: at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaints {
    file: String,
    all: Vec<Complaint>,
}

/// More than this is no use to anyone.
const MOST: usize = 20;

impl Complaints {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), all: Vec::new() }
    }

    pub(crate) fn of_file(file: &str, message: String) -> Self {
        Self { file: file.to_owned(), all: vec![Complaint { place: None, message }] }
    }

    pub(crate) fn one(file: &str, complaint: Complaint) -> Self {
        Self { file: file.to_owned(), all: vec![complaint] }
    }

    /// Complains.
    pub fn push(&mut self, complaint: Complaint) {
        self.all.push(complaint);
    }

    /// Complains, and has no value for the field.
    pub fn at<T>(&mut self, place: Place, message: impl Into<String>) -> Option<T> {
        self.push(Complaint::new(place, message));
        None
    }

    /// The value, if nothing was found wrong on the way to it.
    pub(crate) fn or<T>(mut self, value: T) -> Result<T, Self> {
        if self.all.is_empty() {
            return Ok(value);
        }
        self.all.sort_by_key(|complaint| complaint.place);
        self.all.dedup();
        Err(self)
    }

    /// Each thing that is wrong, in the order of lines.
    pub fn iter(&self) -> impl Iterator<Item = &Complaint> {
        self.all.iter()
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, complaint) in self.all.iter().take(MOST).enumerate() {
            if nth > 0 {
                writeln!(f)?;
            }
            match complaint.place {
                Some(place) => write!(f, "{}:{}:{}: {}", self.file, place.line, place.column, complaint.message)?,
                None => write!(f, "{}: {}", self.file, complaint.message)?,
            }
        }
        match self.all.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

impl std::error::Error for Complaints {}
