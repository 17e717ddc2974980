//! The formats of reports.

use std::path::Path;

use crate::extension::{UnknownExtension, format_of};

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, fitted to the terminal.
    Text,
    /// For programs.
    Json,
    /// Pixel graphics.
    Png,
    /// Vector graphics.
    Svg,
    /// The page with all reports, for every kind that has pictures.
    Html,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Text, Self::Json, Self::Png, Self::Svg, Self::Html];

    /// The format that the extension of a file's name selects. None if the name has no extension.
    ///
    /// # Errors
    /// If the extension selects no format.
    pub fn of_file(path: &Path) -> Result<Option<Self>, UnknownExtension> {
        let extensions: [&[&str]; 5] = [&["txt", "text"], &["json", "jsonl"], &["png"], &["svg"], &["html", "htm"]];
        let formats: Vec<_> = Self::ALL.into_iter().zip(extensions).collect();
        format_of(path, &formats)
    }

    /// What it is for.
    pub fn about(self) -> &'static str {
        match self {
            Self::Text => "Fitted to the terminal",
            Self::Json => "For programs (docs/reports.md)",
            Self::Png => "Pixel graphics",
            Self::Svg => "Vector graphics",
            Self::Html => "A page that needs no network",
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Png => "png",
            Self::Svg => "svg",
            Self::Html => "html",
        }
    }

    /// Whether the format is binary, and not for a terminal.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Png)
    }
}
