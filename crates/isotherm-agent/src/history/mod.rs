//! The history of a group: recordings one after another in a directory of its own, at three levels of detail.
//!
//! `seconds-*.rec` have each snapshot, `minutes-*.rec` one for each minute, `hours-*.rec` one for each hour. The number
//! in a name is the start, in milliseconds since the Unix epoch. Each is a whole recording, which the commands of
//! isotherm read. A run writes the newest file of seconds ([`HistoryWriter`]). [`maintain`] makes the others, and
//! removes what is too old. Nothing but the names says what there is, so that a crash leaves nothing to repair.

mod keep;
mod read;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use keep::maintain;
pub use read::{HistoryError, Kept, history_by_minute, open};
pub use write::HistoryWriter;

/// How much detail a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Seconds,
    Minutes,
    Hours,
}

impl Level {
    const ALL: [Self; 3] = [Self::Seconds, Self::Minutes, Self::Hours];

    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }
}

/// A file of a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    level: Level,
    /// In milliseconds since the Unix epoch.
    start: u64,
    path: PathBuf,
    bytes: u64,
}

/// The path of a file.
fn path(directory: &Path, level: Level, start: u64) -> PathBuf {
    directory.join(format!("{}-{start:013}.rec", level.name()))
}

/// The files in the directory of a group, by level and start. Other files are left out.
fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let parsed = name.to_str().and_then(|name| name.strip_suffix(".rec")?.split_once('-'));
        let Some((level, start)) = parsed else { continue };
        let level = Level::ALL.into_iter().find(|known| known.name() == level);
        // It may have been removed meanwhile.
        if let (Some(level), Ok(start), Ok(metadata)) = (level, start.parse(), entry.metadata()) {
            found.push(Segment { level, start, path: entry.path(), bytes: metadata.len() });
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;
