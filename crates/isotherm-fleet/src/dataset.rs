//! A dataset: a folder with the rows of many hosts and days.
//!
//! The files of a host and day are in `date=YYYY-MM-DD/host=ID`: `quarter-NN.parquet` for each quarter of an hour, from
//! 00 to 95, until [`Dataset::compact`] makes `day.parquet` of them. No two files have rows of the same quarter, so
//! that an engine that reads all `*.parquet` counts nothing twice. While a day is compacted, an engine can miss rows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, NaiveDate};

use crate::error::{FileProblem, FleetError};
use crate::file::{self, About, Opened};
use crate::row::Row;

/// How many seconds a quarter of an hour has.
pub(crate) const QUARTER: i64 = 900;
const DAY: i64 = 86_400;

const DAY_FILE: &str = "day.parquet";
/// A day that is whole, but whose parts are not removed yet. Engines do not read it.
const NEW_DAY: &str = "day.parquet.new";

/// A folder with the rows of many hosts.
#[derive(Clone, Debug)]
pub struct Dataset {
    root: PathBuf,
}

/// What a compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// How many days of hosts have one file now that had several.
    pub days: u64,
    /// How many files these have taken the place of.
    pub files: u64,
    /// How many files were removed because another one has their rows.
    pub twice: u64,
}

/// A quarter of an hour of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quarter {
    pub(crate) host: String,
    /// Since the Unix epoch, in quarters.
    pub(crate) number: i64,
}

impl Quarter {
    /// The start, in seconds since the Unix epoch.
    pub(crate) fn start(&self) -> i64 {
        self.number * QUARTER
    }

    pub(crate) fn date(&self) -> String {
        date_of(self.start())
    }

    /// The number within the day.
    fn of_day(&self) -> u8 {
        (self.start().rem_euclid(DAY) / QUARTER) as u8
    }

    fn about(&self) -> About {
        About { host: self.host.clone(), date: self.date(), quarters: BTreeSet::from([self.of_day()]) }
    }
}

/// The day, in UTC, of a time in seconds since the Unix epoch, such as `2026-11-29`.
pub fn date_of(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0).map_or_else(String::new, |time| time.date_naive().to_string())
}

impl Dataset {
    /// The dataset in this folder, which need not exist.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn folder(&self, date: &str, host: &str) -> PathBuf {
        self.root.join(format!("date={date}")).join(format!("host={host}"))
    }

    /// Whether a quarter of an hour is there.
    pub(crate) fn has(&self, quarter: &Quarter) -> Result<bool, FleetError> {
        let folder = self.folder(&quarter.date(), &quarter.host);
        if folder.join(quarter_file(quarter.of_day())).exists() {
            return Ok(true);
        }
        for name in [DAY_FILE, NEW_DAY] {
            let path = folder.join(name);
            if path.exists()
                && open_in(&path, &quarter.date(), &quarter.host)?.about.quarters.contains(&quarter.of_day())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes a quarter of an hour.
    pub(crate) fn write(&self, quarter: &Quarter, rows: &[Row]) -> Result<(), FleetError> {
        let folder = self.made(&quarter.date(), &quarter.host)?;
        file::write(&folder.join(quarter_file(quarter.of_day())), &quarter.about(), |writer| writer.rows(rows))
    }

    /// Writes a day that is not there.
    pub(crate) fn write_day(&self, host: &str, start: i64, rows: &[Row]) -> Result<(), FleetError> {
        let date = date_of(start);
        let folder = self.made(&date, host)?;
        let quarters = rows.iter().map(|row| (row.minute.rem_euclid(DAY) / QUARTER) as u8).collect();
        file::write(&folder.join(DAY_FILE), &About { host: host.into(), date, quarters }, |writer| writer.rows(rows))
    }

    fn made(&self, date: &str, host: &str) -> Result<PathBuf, FleetError> {
        let folder = self.folder(date, host);
        let made = fs::create_dir_all(&folder);
        made.map_err(|source| FleetError::Directory { path: folder.clone(), source })?;
        Ok(folder)
    }

    /// Makes one file of those of each host and day, for days before `before`, such as `2026-11-29`.
    ///
    /// It can be ended at any moment, and goes on where it was.
    ///
    /// # Errors
    /// If a file is not what its name says, or something cannot be read or written. Nothing is lost then.
    pub fn compact(&self, before: &str) -> Result<Compacted, FleetError> {
        let mut done = Compacted::default();
        for (date, host) in self.days()?.into_iter().filter(|(date, _)| date.as_str() < before) {
            self.compact_day(&date, &host, &mut done)?;
        }
        Ok(done)
    }

    fn compact_day(&self, date: &str, host: &str, done: &mut Compacted) -> Result<(), FleetError> {
        let folder = self.folder(date, host);
        let (new, day) = (folder.join(NEW_DAY), folder.join(DAY_FILE));
        if new.exists() {
            let quarters = open_in(&new, date, host)?.about.quarters;
            done.files += self.replace(date, host, &quarters)?;
            done.days += 1;
        }
        let mut files = Vec::new();
        let mut quarters = BTreeSet::new();
        for path in self.files(date, host)? {
            let opened = open_in(&path, date, host)?;
            // The file of the day comes first.
            if opened.about.quarters.is_subset(&quarters) && !opened.about.quarters.is_empty() {
                remove(&path)?;
                done.twice += 1;
                continue;
            }
            if !opened.about.quarters.is_disjoint(&quarters) {
                return Err(FleetError::File { path, problem: FileProblem::Twice });
            }
            quarters.extend(&opened.about.quarters);
            files.push((path, opened));
        }
        if files.is_empty() || matches!(&files[..], [(path, _)] if *path == day) {
            return Ok(());
        }
        let about = About { host: host.into(), date: date.into(), quarters };
        file::write(&new, &about, |writer| files.into_iter().try_for_each(|(_, opened)| writer.copy(opened)))?;
        done.files += self.replace(date, host, &about.quarters)?;
        done.days += 1;
        Ok(())
    }

    /// Removes the files that the new file of a day has the rows of, and gives it its name. Returns how many there
    /// were.
    fn replace(&self, date: &str, host: &str, quarters: &BTreeSet<u8>) -> Result<u64, FleetError> {
        let folder = self.folder(date, host);
        let mut removed = 0;
        for path in self.files(date, host)? {
            if open_in(&path, date, host)?.about.quarters.is_subset(quarters) {
                remove(&path)?;
                removed += 1;
            }
        }
        let (new, day) = (folder.join(NEW_DAY), folder.join(DAY_FILE));
        #[expect(clippy::disallowed_methods, reason = "the dataset renames a file that it has made")]
        let renamed = fs::rename(&new, &day);
        renamed.map_err(|source| FleetError::Directory { path: folder, source })?;
        Ok(removed)
    }

    /// The days of hosts, in order.
    pub(crate) fn days(&self) -> Result<Vec<(String, String)>, FleetError> {
        let mut found = Vec::new();
        for date in names(&self.root)? {
            let Some(day) = date.strip_prefix("date=") else { continue };
            if day.parse::<NaiveDate>().is_err() {
                continue;
            }
            for host in names(&self.root.join(&date))? {
                found.extend(host.strip_prefix("host=").map(|host| (day.to_owned(), host.to_owned())));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The files of a host and day that engines read, that of the day first.
    fn files(&self, date: &str, host: &str) -> Result<Vec<PathBuf>, FleetError> {
        let folder = self.folder(date, host);
        let mut found = names(&folder)?;
        found.retain(|name| name.ends_with(".parquet") && !name.starts_with(['.', '_']));
        found.sort();
        let known = |name: &String| name == DAY_FILE || (0..96).any(|nth| *name == quarter_file(nth));
        match found.iter().find(|name| !known(name)) {
            Some(name) => Err(FleetError::File { path: folder.join(name), problem: FileProblem::Foreign }),
            None => Ok(found.into_iter().map(|name| folder.join(name)).collect()),
        }
    }

    /// What is wrong with the files of the dataset, by their names and what their ends say. Empty if nothing is.
    ///
    /// # Errors
    /// If a folder cannot be read, or there is no row at all.
    pub fn check(&self) -> Result<Vec<FleetError>, FleetError> {
        let days = self.days()?;
        if days.is_empty() {
            return Err(FleetError::Empty { path: self.root.clone() });
        }
        let mut wrong = Vec::new();
        for (date, host) in days {
            let mut quarters = BTreeSet::new();
            let files = self.files(&date, &host).unwrap_or_else(|error| {
                wrong.push(error);
                Vec::new()
            });
            for path in files {
                match open_in(&path, &date, &host) {
                    Ok(Opened { about, .. }) => {
                        if !quarters.is_disjoint(&about.quarters) {
                            wrong.push(FleetError::File { path, problem: FileProblem::Twice });
                        }
                        quarters.extend(about.quarters);
                    }
                    Err(error) => wrong.push(error),
                }
            }
        }
        Ok(wrong)
    }
}

fn quarter_file(quarter: u8) -> String {
    format!("quarter-{quarter:02}.parquet")
}

/// Opens a file, which must be of this day and host.
fn open_in(path: &Path, date: &str, host: &str) -> Result<Opened, FleetError> {
    let opened = file::open(path)?;
    if (&*opened.about.date, &*opened.about.host) != (date, host) {
        let shown = |text: &str| isotherm_core::sanitise(text).into_owned();
        let problem = FileProblem::Misplaced { host: shown(&opened.about.host), date: shown(&opened.about.date) };
        return Err(FleetError::File { path: path.into(), problem });
    }
    Ok(opened)
}

/// The names in a folder. Other ones than UTF-8 are left out.
fn names(folder: &Path) -> Result<Vec<String>, FleetError> {
    let wrong = |source| FleetError::Directory { path: folder.into(), source };
    let entries = folder.read_dir().map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut names: Vec<String> = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

#[expect(clippy::disallowed_methods, reason = "the dataset removes files that it has made")]
fn remove(path: &Path) -> Result<(), FleetError> {
    fs::remove_file(path).map_err(|source| FleetError::Remove { path: path.into(), source })
}
