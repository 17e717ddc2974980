//! A dataset: the rows of many hosts and days, in a folder or on an object store.
//!
//! The files of a host and day are in `date=YYYY-MM-DD/host=ID`: `quarter-NN.parquet` for each quarter of an hour, from
//! 00 to 95, until [`Dataset::compact`] makes `day.parquet` of them. No two files have rows of the same quarter, so
//! that an engine that reads all `*.parquet` counts nothing twice. While a day is compacted, an engine can miss rows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate};

use crate::error::{FileProblem, FleetError};
use crate::file::{self, About, Opened};
use crate::row::Row;
use crate::store::{self, Entry, Folder, Store, Wanted};

/// How many seconds a quarter of an hour has.
pub(crate) const QUARTER: i64 = 900;
const DAY: i64 = 86_400;

const DAY_FILE: &str = "day.parquet";
/// A day that is whole, but whose parts are not removed yet. Engines do not read it.
const NEW_DAY: &str = "day.parquet.new";

/// A folder with the rows of many hosts, or a place on an object store.
#[derive(Clone, Debug)]
pub struct Dataset {
    root: PathBuf,
    store: Arc<dyn Store>,
}

/// What a dataset has.
#[derive(Debug, Default)]
pub struct Checked {
    /// The number of files that are right.
    pub files: u64,
    /// The number of hosts.
    pub hosts: u64,
    /// The number of days.
    pub days: u64,
    /// The number of rows.
    pub rows: u64,
    /// What is wrong with its files. Empty if nothing is.
    pub wrong: Vec<FleetError>,
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
    pub(crate) fn of_day(&self) -> u8 {
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
        Self { root: root.into(), store: Arc::new(Folder { root: root.into() }) }
    }

    /// The dataset in a folder, or at a URL such as `s3://bucket/prefix`. It need not exist.
    ///
    /// # Errors
    /// If the URL is wrong, or its store is not known, or the environment says something wrong of it.
    pub fn at(place: &Path) -> Result<Self, FleetError> {
        Ok(Self { root: place.into(), store: store::open(place)? })
    }

    /// The folder, or the URL.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The bucket of a dataset that is on an object store.
    #[cfg(all(feature = "query", feature = "object-store"))]
    pub(crate) fn bucket(&self) -> Option<Arc<dyn object_store::ObjectStore>> {
        self.store.bucket()
    }

    /// The quarters of a day of a host that are there.
    pub(crate) fn present(&self, date: &str, host: &str) -> Result<BTreeSet<u8>, FleetError> {
        let files = self.store.list(&folder(date, host))?;
        let mut quarters: BTreeSet<u8> =
            (0..96).filter(|nth| files.iter().any(|file| file_name(file) == quarter_file(*nth))).collect();
        let days: Vec<Entry> =
            files.into_iter().filter(|file| [DAY_FILE, NEW_DAY].contains(&file_name(file))).collect();
        for opened in self.opened(date, host, &days, Wanted::End) {
            quarters.extend(opened?.about.quarters);
        }
        Ok(quarters)
    }

    /// Writes a quarter of an hour. Returns whether it was not there.
    pub(crate) fn write(&self, quarter: &Quarter, rows: &[Row]) -> Result<bool, FleetError> {
        let name = format!("{}/{}", folder(&quarter.date(), &quarter.host), quarter_file(quarter.of_day()));
        file::write((&*self.store, &name), &quarter.about(), false, |writer| writer.rows(rows))
    }

    /// Writes a day that is not there.
    pub(crate) fn write_day(&self, host: &str, start: i64, rows: &[Row]) -> Result<(), FleetError> {
        let date = date_of(start);
        let name = format!("{}/{DAY_FILE}", folder(&date, host));
        let quarters = rows.iter().map(|row| (row.minute.rem_euclid(DAY) / QUARTER) as u8).collect();
        let about = About { host: host.into(), date, quarters };
        file::write((&*self.store, &name), &about, false, |writer| writer.rows(rows)).map(drop)
    }

    /// Makes one file of those of each host and day, for days before `before`, such as `2026-11-29`.
    ///
    /// It can be ended at any moment, and goes on where it was.
    ///
    /// # Errors
    /// If a file is not what its name says, or something cannot be read or written. Nothing is lost then. If somebody
    /// else compacts the dataset.
    pub fn compact(&self, before: &str) -> Result<Compacted, FleetError> {
        let mut done = Compacted::default();
        let days = self.days()?;
        let is_due = |date: &str, files: &[Entry]| {
            let is_part = |name: &str| name == NEW_DAY || (name != DAY_FILE && is_read(name));
            date < before && files.iter().any(|file| is_part(file_name(file)))
        };
        let mut due = days.iter().filter(|((date, _), files)| is_due(date, files)).peekable();
        if due.peek().is_none() {
            return Ok(done);
        }
        let mut claim = self.store.claim()?;
        for ((date, host), _) in due {
            claim.renew()?;
            self.compact_day(date, host, &mut done)?;
        }
        Ok(done)
    }

    fn compact_day(&self, date: &str, host: &str, done: &mut Compacted) -> Result<(), FleetError> {
        let files = self.store.list(&folder(date, host))?;
        let new: Vec<Entry> = files.into_iter().filter(|file| file_name(file) == NEW_DAY).collect();
        for opened in self.opened(date, host, &new, Wanted::End) {
            done.files += self.replace(date, host, &opened?.about.quarters)?;
            done.days += 1;
        }
        let mut parts = Vec::new();
        let mut quarters = BTreeSet::new();
        let files = self.files(date, host)?;
        for (opened, file) in self.opened(date, host, &files, Wanted::All).into_iter().zip(&files) {
            let opened = opened?;
            // The file of the day comes first.
            if opened.about.quarters.is_subset(&quarters) && !opened.about.quarters.is_empty() {
                self.store.remove(&[&file.name])?;
                done.twice += 1;
                continue;
            }
            if !opened.about.quarters.is_disjoint(&quarters) {
                return Err(self.twice(file));
            }
            quarters.extend(&opened.about.quarters);
            parts.push((file, opened));
        }
        if parts.is_empty() || matches!(&parts[..], [(file, _)] if file_name(file) == DAY_FILE) {
            return Ok(());
        }
        let about = About { host: host.into(), date: date.into(), quarters };
        let name = format!("{}/{NEW_DAY}", folder(date, host));
        file::write((&*self.store, &name), &about, true, |writer| {
            parts.into_iter().try_for_each(|(_, opened)| writer.copy(opened))
        })?;
        done.files += self.replace(date, host, &about.quarters)?;
        done.days += 1;
        Ok(())
    }

    /// Removes the files that the new file of a day has the rows of, and gives it its name. Returns how many there
    /// were.
    fn replace(&self, date: &str, host: &str, quarters: &BTreeSet<u8>) -> Result<u64, FleetError> {
        let files = self.files(date, host)?;
        let mut old = Vec::new();
        for (opened, file) in self.opened(date, host, &files, Wanted::End).into_iter().zip(&files) {
            if opened?.about.quarters.is_subset(quarters) {
                old.push(&*file.name);
            }
        }
        self.store.remove(&old)?;
        let folder = folder(date, host);
        self.store.rename(&format!("{folder}/{NEW_DAY}"), &format!("{folder}/{DAY_FILE}"))?;
        Ok(old.len() as u64)
    }

    /// The files by day and host, in order.
    pub(crate) fn days(&self) -> Result<BTreeMap<(String, String), Vec<Entry>>, FleetError> {
        let mut found: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
        for file in self.store.list("")? {
            let mut parts = file.name.split('/');
            let date = parts.next().and_then(|name| name.strip_prefix("date="));
            let host = parts.next().and_then(|name| name.strip_prefix("host="));
            if let (Some(date), Some(host)) = (date.filter(|date| date.parse::<NaiveDate>().is_ok()), host) {
                found.entry((date.into(), host.into())).or_default().push(file);
            }
        }
        Ok(found)
    }

    /// The files of a host and day that engines read, that of the day first.
    fn files(&self, date: &str, host: &str) -> Result<Vec<Entry>, FleetError> {
        self.known(self.store.list(&folder(date, host))?)
    }

    /// The files among these that engines read, in order. A file that isotherm has not written is an error.
    fn known(&self, mut files: Vec<Entry>) -> Result<Vec<Entry>, FleetError> {
        files.retain(|file| is_read(file_name(file)));
        files.sort();
        let known =
            |file: &Entry| file_name(file) == DAY_FILE || (0..96).any(|nth| file_name(file) == quarter_file(nth));
        match files.iter().find(|file| !known(file)) {
            Some(file) => Err(self.wrong(file, FileProblem::Foreign)),
            None => Ok(files),
        }
    }

    fn wrong(&self, file: &Entry, problem: FileProblem) -> FleetError {
        FleetError::File { path: self.store.shown(&file.name), problem }
    }

    fn twice(&self, file: &Entry) -> FleetError {
        self.wrong(file, FileProblem::Twice)
    }

    /// Opens files, which must be of this day and host.
    fn opened(&self, date: &str, host: &str, files: &[Entry], wanted: Wanted) -> Vec<Result<Opened, FleetError>> {
        let check = |(source, file): (Result<_, FleetError>, &Entry)| {
            let opened = file::open(&self.store.shown(&file.name), source?)?;
            if (&*opened.about.date, &*opened.about.host) == (date, host) {
                return Ok(opened);
            }
            let shown = |text: &str| isotherm_core::sanitise(text).into_owned();
            let problem = FileProblem::Misplaced { host: shown(&opened.about.host), date: shown(&opened.about.date) };
            Err(self.wrong(file, problem))
        };
        self.store.open(files, wanted).into_iter().zip(files).map(check).collect()
    }

    /// Looks at the names of all files of the dataset, and at what their ends say, or reads them `whole`.
    ///
    /// # Errors
    /// If a folder cannot be read, or there is no row at all.
    pub fn check(&self, whole: bool) -> Result<Checked, FleetError> {
        let wanted = if whole { Wanted::All } else { Wanted::End };
        let mut found = Checked::default();
        let mut hosts = BTreeSet::new();
        let mut dates = BTreeSet::new();
        for ((date, host), files) in self.days()? {
            let mut quarters = BTreeSet::new();
            let files = self.known(files).unwrap_or_else(|error| {
                found.wrong.push(error);
                Vec::new()
            });
            for (opened, file) in self.opened(&date, &host, &files, wanted).into_iter().zip(&files) {
                let read = |opened: Opened| {
                    let known = (opened.about.clone(), opened.rows);
                    if whole { opened.read().map(|()| known) } else { Ok(known) }
                };
                match opened.and_then(read) {
                    Ok((about, rows)) => {
                        if !quarters.is_disjoint(&about.quarters) {
                            found.wrong.push(self.twice(file));
                        }
                        quarters.extend(about.quarters);
                        found.files += 1;
                        found.rows += rows;
                    }
                    Err(error) => found.wrong.push(error),
                }
            }
            hosts.insert(host);
            dates.insert(date);
        }
        if dates.is_empty() {
            return Err(FleetError::Empty { path: self.root.clone() });
        }
        (found.hosts, found.days) = (hosts.len() as u64, dates.len() as u64);
        Ok(found)
    }
}

/// The folder of a host and day.
pub(crate) fn folder(date: &str, host: &str) -> String {
    format!("date={date}/host={host}")
}

fn file_name(file: &Entry) -> &str {
    file.name.rsplit('/').next().unwrap_or_default()
}

/// Whether engines read a file of this name.
fn is_read(name: &str) -> bool {
    name.ends_with(".parquet") && !name.starts_with(['.', '_'])
}

fn quarter_file(quarter: u8) -> String {
    format!("quarter-{quarter:02}.parquet")
}
