//! Files `memory.idle_page_stats`, which the kernel threads kstaled and kidled make in cgroups: how much memory of a
//! cgroup has been idle for how long. Agents such as Koordinator's koordlet read them.
//!
//! The kernels that have them are those of Google and Alibaba. The format is that of kidled, version 1.0: six lines of
//! facts, eight of comment, and 17 rows with the bytes by age. isotherm does not tell the rows apart, so that all is in
//! the first one; readers add them up.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use isotherm_core::chain;
use isotherm_core::survey::{PageSums, WINDOWS};
use isotherm_output::Output;

use crate::cgroups;
use crate::daemon::Daemon;
use crate::view;

const NAME: &str = "memory.idle_page_stats";

/// The unit of ages.
const PERIOD: Duration = Duration::from_secs(60);

/// The rows: memory that is clean or dirty; anonymous (swap) or of files; evictable or not; inactive or active.
const ROWS: [&str; 17] = [
    "csei", "dsei", "cfei", "dfei", "csui", "dsui", "cfui", "dfui", "csea", "dsea", "cfea", "dfea", "csua", "dsua",
    "cfua", "dfua", "slab",
];

const COMMENT: &str = "#
# Written by isotherm, which does not tell these apart: all is in the row csei.
#   c clean, d dirty
#   s swap, f file
#   e evictable, u unevictable
#   i inactive, a active
# Bytes by the time for which they have been idle, in scan periods:
";

/// Writes the file of each cgroup that has watched processes, and of each above it, below `directory`, and removes
/// those of cgroups that have none any more.
///
/// # Errors
/// What cannot be written.
pub fn write(daemon: &Daemon, directory: &Path) -> Result<(), String> {
    let mut by_path: BTreeMap<String, Idle> = BTreeMap::new();
    for (_, group) in daemon.groups.all() {
        let known = group.hub.known();
        let Some(watched) = known.survey.as_ref().map(|record| record.survey.time) else { continue };
        for (path, sums) in cgroups::sums(&known) {
            // Those outside of the own namespace, whose paths begin with `..`, have no place below the directory.
            if Path::new(&path).components().any(|part| part == Component::ParentDir) {
                continue;
            }
            let idle = Idle::new(&sums, watched);
            let best = by_path.entry(path).or_default();
            // Several groups may have some of the processes of a cgroup. The one with the most counts.
            if idle.present >= best.present {
                *best = idle;
            }
        }
    }
    let mut all: BTreeMap<PathBuf, Idle> = BTreeMap::new();
    for (path, idle) in &by_path {
        for above in Path::new(path.trim_matches('/')).ancestors() {
            all.entry(directory.join(above)).or_default().add(idle);
        }
    }
    for (at, idle) in &all {
        let made = fs::create_dir_all(at);
        made.map_err(|error| format!("{} cannot be made: {error}", at.display()))?;
        let written = Output::new(&at.join(NAME)).readable_by_all().create();
        let written = written.and_then(|file| file.write_whole(|out| out.write_all(idle.text().as_bytes())));
        written.map_err(|error| format!("idle memory cannot be written: {}", chain(&error)))?;
    }
    remove_others(directory, &all);
    Ok(())
}

/// Removes the files of cgroups that are not among `all`, and directories that are empty then.
#[expect(clippy::disallowed_methods, reason = "removes files and directories of the kind that it makes")]
fn remove_others(directory: &Path, all: &BTreeMap<PathBuf, Idle>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_others(&path, all);
            if !all.contains_key(&path) {
                // What cannot be removed is somebody else's.
                let _ = fs::remove_file(path.join(NAME));
                let _ = fs::remove_dir(&path);
            }
        }
    }
}

/// The idle memory of a cgroup by age.
#[derive(Clone, Debug, Default, PartialEq)]
struct Idle {
    present: u64,
    periods: u64,
    /// Bytes that are idle for at least the time of [`ages`], and less than the next one.
    bytes: Vec<u64>,
}

/// The ages that are told apart, and the windows that they are.
fn ages() -> impl Iterator<Item = (usize, u64)> {
    let places = WINDOWS.iter().enumerate().filter(|(_, window)| **window >= PERIOD);
    places.map(|(place, window)| (place, window.as_secs() / PERIOD.as_secs()))
}

impl Idle {
    /// The idle memory of `sums`, of which accesses are known for the time `watched`.
    fn new(sums: &PageSums, watched: Duration) -> Self {
        // What was not accessed in a shorter time may be older.
        let idle = |(place, _)| if WINDOWS[place] > watched { 0 } else { view::Memory::idle(sums, sums.within[place]) };
        let at_least: Vec<u64> = ages().map(idle).collect();
        let next = at_least.iter().skip(1).chain([&0]);
        let bytes = at_least.iter().zip(next).map(|(bytes, older)| bytes.saturating_sub(*older)).collect();
        Self { present: sums.figures.present, periods: watched.as_secs() / PERIOD.as_secs(), bytes }
    }

    fn add(&mut self, other: &Self) {
        self.bytes.resize(other.bytes.len(), 0);
        self.bytes.iter_mut().zip(&other.bytes).for_each(|(sum, bytes)| *sum += bytes);
        self.periods = self.periods.max(other.periods);
        self.present += other.present;
    }

    /// The contents of a file. Readers count its lines, and the last one has no end.
    fn text(&self) -> String {
        let ages: Vec<String> = ages().map(|(_, age)| age.to_string()).collect();
        let mut text = format!(
            "# version: 1.0\n# page_scans: {}\n# slab_scans: 0\n# scan_period_in_seconds: {}\n# use_hierarchy: 1\n\
             # buckets: {}\n{COMMENT}#     ",
            self.periods,
            PERIOD.as_secs(),
            ages.join(",")
        );
        for (at, age) in ages.iter().enumerate() {
            let next = ages.get(at + 1).map_or("+inf", |next| next);
            text += &format!(" {:>14}", format!("[{age},{next})"));
        }
        for row in ROWS {
            text += &format!("\n  {row:<4}");
            for bytes in &self.bytes {
                text += &format!(" {:>14}", if row == ROWS[0] { *bytes } else { 0 });
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::Figures;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn sums() -> PageSums {
        let figures = Figures { present: 100 * MIB, touched: MIB, unobservable: 10 * MIB, ..Figures::default() };
        // 10 MiB more in each longer window.
        let within = std::array::from_fn(|place| (place as u64).saturating_sub(5) * 10 * MIB);
        PageSums { within, ..PageSums::of(figures) }
    }

    #[test]
    fn bytes_are_by_the_time_that_they_are_idle_as_far_as_it_is_known() {
        assert_eq!(Idle::new(&sums(), Duration::from_secs(4000)).bytes, [10, 10, 10, 10, 10, 40].map(|n| n * MIB));
        assert_eq!(Idle::new(&sums(), Duration::from_secs(130)).bytes, [10, 80, 0, 0, 0, 0].map(|n| n * MIB));
        assert_eq!(Idle::new(&sums(), Duration::from_secs(30)).bytes, [0; 6]);
    }

    #[test]
    fn the_text_is_what_readers_of_kidled_expect() {
        let mut idle = Idle::new(&sums(), Duration::from_secs(4000));
        idle.add(&idle.clone());
        let text = idle.text();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines.len(), 31, "{text}");
        let facts: Vec<&str> = lines[..6]
            .iter()
            .filter_map(|line| line.strip_prefix("# ")?.split_once(": "))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(facts, ["1.0", "66", "0", "60", "1", "1,2,5,10,30,60"]);
        assert!(lines[6..14].iter().all(|line| line.starts_with('#')), "{text}");
        let row = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let bytes = [20, 20, 20, 20, 20, 80].map(|n| (n * MIB).to_string());
        assert_eq!(row(lines[14]), [&["csei".to_owned()][..], &bytes].concat());
        let names: Vec<String> = lines[14..].iter().map(|line| row(line)[0].clone()).collect();
        assert_eq!(names, ROWS);
        let total: u64 =
            lines[14..].iter().flat_map(|line| row(line)[1..].to_vec()).map(|n| n.parse::<u64>().unwrap_or(0)).sum();
        assert_eq!(total, 180 * MIB);
    }
}
