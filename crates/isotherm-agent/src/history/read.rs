//! Reads a history, or a part of it, as one recording.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_record::{JoinError, Joined, RecordError, Recording};
use thiserror::Error;

use super::{Level, Segment, segments};

/// Why a history cannot be read.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// No file is of this time.
    #[error("there is no history of this time")]
    Nothing,
    /// The directory cannot be read.
    #[error("the history in {path} cannot be read")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The files cannot be read as one.
    #[error("the files of the history cannot be read as one; ask for a shorter time")]
    Join(#[from] JoinError),
}

/// What is kept of a time.
#[derive(Debug)]
pub struct Kept {
    /// The recordings.
    pub recordings: Joined,
    /// The time, since the start of the recordings.
    pub time: Range<Duration>,
}

/// What is kept in the directory of a group of the time after `from` up to `now`, both in milliseconds since the Unix
/// epoch. Of each time it is the finest level that there is.
///
/// # Errors
/// If there is nothing, or it cannot be read.
pub fn open(directory: &Path, from: u64, now: u64) -> Result<Kept, HistoryError> {
    let segments = match segments(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(HistoryError::Nothing),
        segments => segments.map_err(|source| HistoryError::Directory { path: directory.into(), source })?,
    };
    let mut recordings = Vec::new();
    for segment in chosen(&segments, from, now) {
        match Recording::open(&segment.path) {
            Ok(recording) => recordings.push(recording),
            // Of a file that is being begun there is nothing to read yet.
            Err(_) if segment.bytes == 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
    if recordings.is_empty() {
        return Err(HistoryError::Nothing);
    }
    let recordings = Joined::new(recordings)?;
    let zero = recordings.recordings().first().map_or(0, |first| first.header().started_unix_ns / 1_000_000);
    let since = |time: u64| Duration::from_millis(time.saturating_sub(zero));
    Ok(Kept { time: since(from)..since(now).saturating_add(Duration::from_secs(1)), recordings })
}

/// The recordings of each group below `directory`, by the minute, or in seconds where there are no minutes yet, which
/// take longer to read.
///
/// # Errors
/// If a directory cannot be read.
pub fn history_by_minute(directory: &Path) -> io::Result<Vec<(String, Vec<PathBuf>)>> {
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        if !entry.path().is_dir() {
            continue;
        }
        let segments = segments(&entry.path())?;
        let minutes: HashSet<u64> =
            segments.iter().filter(|of| of.level == Level::Minutes).map(|of| of.start).collect();
        let wanted = segments.into_iter().filter(|of| match of.level {
            Level::Seconds => of.bytes > 0 && !minutes.contains(&of.start),
            Level::Minutes => true,
            Level::Hours => false,
        });
        found.push((entry.file_name().to_string_lossy().into_owned(), wanted.map(|of| of.path).collect()));
    }
    found.sort();
    Ok(found)
}

/// The files of a time: the finest level that covers each part of it.
fn chosen(segments: &[Segment], from: u64, now: u64) -> Vec<&Segment> {
    let mut found = Vec::new();
    let mut covered = now;
    for level in Level::ALL {
        if covered <= from {
            break;
        }
        let of_level: Vec<&Segment> = segments.iter().filter(|segment| segment.level == level).collect();
        let ends = of_level.iter().skip(1).map(|next| next.start).chain([now]);
        let in_time: Vec<&Segment> = of_level
            .iter()
            .zip(ends)
            .filter(|(segment, end)| segment.start < covered && *end > from)
            .map(|(segment, _)| *segment)
            .collect();
        covered = in_time.first().map_or(covered, |first| first.start.min(covered));
        found.extend(in_time);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_its_finest_level() {
        let segment = |level, start| Segment { level, start, path: format!("{start}").into(), bytes: 1 };
        let all = [
            segment(Level::Seconds, 700),
            segment(Level::Seconds, 800),
            segment(Level::Minutes, 300),
            segment(Level::Minutes, 500),
            segment(Level::Minutes, 700),
            segment(Level::Hours, 0),
            segment(Level::Hours, 300),
        ];
        let of = |from| chosen(&all, from, 900).iter().map(|of| (of.level, of.start)).collect::<Vec<_>>();
        assert_eq!(of(850), [(Level::Seconds, 800)]);
        assert_eq!(of(600), [(Level::Seconds, 700), (Level::Seconds, 800), (Level::Minutes, 500)]);
        assert_eq!(of(0).last(), Some(&(Level::Hours, 0)));
        assert_eq!(of(0).len(), 5);
    }
}
