//! Makes the coarser levels of a history, and removes what is too old or too much.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{BoxError, chain};
use isotherm_record::{Joined, LEVEL_NEEDS, Recording, recording_at, write_level};

use super::{Level, Segment, path, segments};
use crate::config::HistorySettings;

const DAY: u64 = 24 * 3600 * 1000;

/// Brings the histories of all groups, each a directory below `directory`, in order. `now` is in milliseconds since the
/// Unix epoch. Returns how many bytes they have, and what failed.
pub fn maintain(directory: &Path, settings: &HistorySettings, now: u64) -> (u64, Vec<String>) {
    let mut failed = Vec::new();
    let mut all = Vec::new();
    let Ok(entries) = directory.read_dir() else { return (0, failed) };
    for group in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        if let Err(error) = coarsen(&group, now) {
            failed.push(format!("{}: {}", group.display(), chain(&*error)));
        }
        let Ok(mut of_group) = segments(&group) else { continue };
        let newest = of_group.iter().rposition(|segment| segment.level == Level::Seconds);
        let newest = newest.map(|nth| of_group.remove(nth));
        of_group.iter().for_each(|segment| remove_lock(&segment.path));
        let (old, kept): (Vec<Segment>, Vec<Segment>) =
            of_group.into_iter().partition(|segment| is_old(segment, settings, now));
        failed.extend(old.iter().filter_map(remove));
        // The newest file is being written. It counts, and stays.
        all.extend(kept.into_iter().map(|segment| (segment, true)));
        all.extend(newest.map(|segment| (segment, false)));
    }
    let mut bytes: u64 = all.iter().map(|(segment, _)| segment.bytes).sum();
    all.sort();
    for (segment, _) in all.iter().filter(|(_, may_go)| *may_go) {
        if bytes <= settings.size.0 {
            break;
        }
        match remove(segment) {
            Some(why) => failed.push(why),
            None => bytes -= segment.bytes,
        }
    }
    (bytes, failed)
}

fn is_old(segment: &Segment, settings: &HistorySettings, now: u64) -> bool {
    let (kept, longest) = match segment.level {
        Level::Seconds => (settings.seconds, Duration::from_secs(3600)),
        Level::Minutes => (settings.minutes, Duration::from_secs(3600)),
        Level::Hours => (settings.hours, Duration::from_secs(24 * 3600)),
    };
    segment.start.saturating_add((kept.0 + longest).as_millis() as u64) < now
}

#[expect(clippy::disallowed_methods, reason = "the history removes files that it has made")]
fn remove(segment: &Segment) -> Option<String> {
    let error = std::fs::remove_file(&segment.path).err()?;
    Some(format!("{} cannot be removed: {error}", segment.path.display()))
}

/// Removes the lock that a killed daemon has left beside a file that nobody writes any more.
#[expect(clippy::disallowed_methods, reason = "the history removes files that it has made")]
fn remove_lock(path: &Path) {
    if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
        // There is hardly ever one.
        let _ = std::fs::remove_file(path.with_file_name(format!(".{name}.isotherm-lock")));
    }
}

/// Makes the files of minutes and hours that are missing.
fn coarsen(group: &Path, now: u64) -> Result<(), BoxError> {
    let of = |level: Level| -> std::io::Result<Vec<Segment>> {
        Ok(segments(group)?.into_iter().filter(|segment| segment.level == level).collect())
    };
    let (mut seconds, minutes) = (of(Level::Seconds)?, of(Level::Minutes)?);
    // The newest one is being written.
    seconds.pop();
    for segment in seconds.iter().filter(|of| minutes.iter().all(|known| known.start != of.start)) {
        let output = path(group, Level::Minutes, segment.start);
        write(&[&segment.path], isotherm_record::Level::Minute, &output)?;
    }
    let (minutes, hours) = (of(Level::Minutes)?, of(Level::Hours)?);
    let mut days: Vec<u64> = minutes.iter().map(|segment| segment.start / DAY).collect();
    days.dedup();
    for day in days {
        let is_over = (day + 1) * DAY < now;
        if is_over && hours.iter().all(|known| known.start / DAY != day) {
            let files: Vec<&Path> =
                minutes.iter().filter(|of| of.start / DAY == day).map(|segment| &*segment.path).collect();
            let start = minutes.iter().find(|of| of.start / DAY == day).map_or(day * DAY, |segment| segment.start);
            write(&files, isotherm_record::Level::Hour, &path(group, Level::Hours, start))?;
        }
    }
    Ok(())
}

/// Writes one file of this level from several files. Damaged ones are left out.
fn write<P: AsRef<Path>>(files: &[P], level: isotherm_record::Level, output: &Path) -> Result<(), BoxError> {
    let open = |path: &P| Recording::open(path.as_ref()).ok().filter(|recording| recording.damage().is_empty());
    let recordings: Vec<Recording> = files.iter().filter_map(open).collect();
    if recordings.is_empty() {
        return Ok(());
    }
    let joined = Joined::new(recordings)?;
    let file = recording_at(output).create()?;
    Ok(write_level(joined.events(LEVEL_NEEDS), joined.header(), joined.contents(), level, file)?)
}
