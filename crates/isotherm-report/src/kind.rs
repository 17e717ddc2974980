//! Kinds and formats of reports.

use std::path::Path;

use crate::extension::{UnknownExtension, format_of};
use crate::report::{REPORTS, Report};

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The access rate of all memory over time.
    Heatmap,
    /// The working set: percentiles, and over time.
    Wss,
    /// The regions of each snapshot.
    Regions,
    /// How much memory is hot, warm and cold, by mapping name.
    Summary,
    /// For how long memory has been idle.
    IdleTime,
    /// How many bytes are accessed how often.
    Temperature,
    /// What the monitoring cost.
    Overhead,
    /// What schemes did, and the memory in use.
    Schemes,
    /// Attributes, working sets and advice. Text and JSON only.
    Tune,
    /// All reports but `Tune` in one page.
    Html,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Heatmap,
        Self::Wss,
        Self::Regions,
        Self::Summary,
        Self::IdleTime,
        Self::Temperature,
        Self::Overhead,
        Self::Schemes,
        Self::Tune,
        Self::Html,
    ];

    /// Its row among the reports.
    pub(crate) fn report(self) -> &'static Report {
        // Each kind has one: a test holds it.
        REPORTS.iter().find(|report| report.kind == self).unwrap_or(&REPORTS[0])
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.report().name
    }

    /// The formats that it has.
    pub fn formats(self) -> &'static [Format] {
        self.report().formats
    }

    /// The format of this kind if none is chosen.
    pub fn default_format(self) -> Format {
        self.formats().first().copied().unwrap_or(Format::Text)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_a_report_with_a_format() {
        for kind in Kind::ALL {
            assert!(kind.report().kind == kind && !kind.formats().is_empty(), "{kind:?}");
        }
    }
}
