//! Claims the kernel's DAMON. At most one run of isotherm uses it, and the next run cleans up after a killed one.
//!
//! A kdamond keeps running when the process that started it ends. So a run writes to `/run/isotherm/damon.claim` what
//! it makes: the directory in sysfs, the settings, and the thread. It writes each line just before or just after the
//! step. The run holds a lock on the file (`flock(2)`), which the kernel releases when the run ends. A process that
//! gets the lock and finds a claim knows that the owner has ended.
//!
//! After a killed run, only what is known to belong to that run is removed:
//!
//! - *The directory* is identified by its inode number. The kernel makes a new directory, with a new inode number,
//!   whenever the number of kdamonds is set. If the run was killed before it noted the directory, the directory is
//!   removed only if it has no settings.
//! - *The thread* is identified by its process ID and start time. If the run was killed before it noted the thread, the
//!   thread is identified by the operations and the targets in the claim, in the same directory.
//!
//! sysfs has no lock, so one race remains: between a check and the next write, a few microseconds later, another
//! program can set the number of kdamonds or take over the directory. The kernel refuses to remove a running kdamond.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_kernel::{OwnedFile, lock_owned, remove_owned};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::others::{Others, Seen};
use super::thread::Thread;
use super::{DamonError, DamonPaths, files};

/// The right to write to DAMON's sysfs files. Only [`Claim::take`] makes one, and it fails while DAMON is in use by
/// anyone else.
#[derive(Debug)]
pub(super) struct Claim {
    places: DamonPaths,
    file: File,
    noted: Noted,
}

/// The content of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Noted {
    owner: Option<u32>,
    boot: Option<String>,
    directory: Option<u64>,
    runs: Option<String>,
    thread: Option<Thread>,
}

impl Claim {
    /// Claims the kernel's DAMON and makes one kdamond, which is off and has no settings.
    ///
    /// Nothing is written to sysfs until it is certain that there is no kdamond, or only one of a killed run of
    /// isotherm.
    ///
    /// # Errors
    /// Returns [`DamonError::Busy`] if another program uses DAMON, and [`DamonError::Claimed`] if another run of
    /// isotherm does.
    pub(super) fn take(places: &DamonPaths) -> Result<Self, DamonError> {
        let others = look_for_others(places)?;
        if others.any() && !left_by_a_killed_run(places)? {
            return Err(DamonError::Busy(others));
        }
        let mut file = lock(places)?;
        let left = Noted::read(&mut file);
        if let Some(left) = left.filter(|left| left.boot == boot(places)) {
            clean_up(places, &left)?;
        }
        let others = look_for_others(places)?;
        if others.any() {
            // This run has made nothing, so the next run must not find a claim. One that stays is ignored by it.
            remove_owned(&places.claim());
            return Err(DamonError::Busy(others));
        }
        file.set_len(0).map_err(|source| DamonError::Claim { path: places.claim(), source })?;
        let mut claim = Self { places: places.clone(), file, noted: Noted::default() };
        claim.noted = Noted { owner: Some(std::process::id()), boot: boot(places), ..Noted::default() };
        claim.append(&format!("owner {}\nboot {}\n", std::process::id(), boot(places).unwrap_or_default()))?;

        // From here on, dropping the claim undoes the steps.
        files::write(&places.nr_kdamonds(), "1")?;
        let directory = inode(&claim.directory())?;
        claim.noted.directory = Some(directory);
        claim.append(&format!("directory {directory}\n"))?;
        Ok(claim)
    }

    /// The directory of the kdamond.
    pub(super) fn directory(&self) -> PathBuf {
        self.places.kdamond(0)
    }

    /// Whether the directory is still the one that this run made. It is replaced when the number of kdamonds is set.
    pub(super) fn holds(&self) -> bool {
        self.noted.directory.is_some() && inode(&self.directory()).ok() == self.noted.directory
    }

    /// Notes the [`fingerprint`] of the settings. Call this before the kdamond is turned on.
    pub(super) fn note_what_runs(&mut self, operations: &str, targets: &[u32]) -> Result<(), DamonError> {
        let runs = fingerprint(operations, targets);
        self.append(&format!("runs {runs}\n"))?;
        self.noted.runs = Some(runs);
        Ok(())
    }

    /// Notes the thread. Call this just after the kdamond was turned on.
    pub(super) fn note_thread(&mut self, thread: Thread) -> Result<(), DamonError> {
        self.append(&format!("thread {} {}\n", thread.pid, thread.started))?;
        self.noted.thread = Some(thread);
        Ok(())
    }

    /// Turns the kdamond off, removes it, and releases the claim. A kdamond that another program has replaced stays.
    pub(super) fn release(&mut self) -> Result<(), DamonError> {
        let done = clean_up(&self.places, &self.noted);
        if done.is_ok() {
            remove_owned(&self.places.claim());
            self.noted = Noted::default();
        }
        done
    }

    /// Appends lines with one write. If the run is killed meanwhile, only the last line can be incomplete.
    fn append(&mut self, lines: &str) -> Result<(), DamonError> {
        let written = self.file.write_all(lines.as_bytes());
        written.map_err(|source| DamonError::Claim { path: self.places.claim(), source })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.noted != Noted::default() {
            // An error cannot be reported here. The claim stays, and the next run tries again.
            let _ = self.release();
        }
    }
}

impl Noted {
    /// Parses the complete lines of the file. Returns `None` if it has no valid line.
    fn read(file: &mut File) -> Option<Self> {
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let mut noted = Self::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "owner" => noted.owner = value.parse().ok(),
                "boot" => noted.boot = Some(value.into()).filter(|boot: &String| !boot.is_empty()),
                "directory" => noted.directory = value.parse().ok(),
                "runs" => noted.runs = Some(value.into()),
                "thread" => {
                    let numbers = value.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                    noted.thread = numbers.map(|(pid, started)| Thread { pid, started });
                }
                _ => {}
            }
        }
        (noted != Self::default()).then_some(noted)
    }

    /// The kdamond in sysfs, if it is the noted one.
    fn find(&self, places: &DamonPaths) -> Option<Seen> {
        loop {
            let seen = Seen::read(places, 0);
            if self.owns(places, &seen) {
                return Some(seen);
            }
            // A kdamond ends by itself after its last target. If it does so between the reading of its state and of its
            // thread, it looks like that of another program.
            if files::read(&places.kdamond(0).join("state")).is_ok_and(|state| state != seen.state) {
                continue;
            }
            return None;
        }
    }

    /// Whether this kdamond, which was read from sysfs, is the noted one.
    fn owns(&self, places: &DamonPaths, seen: &Seen) -> bool {
        let same_directory = match self.directory {
            Some(directory) => inode(&places.kdamond(0)).ok() == Some(directory),
            // The run was killed before it noted the directory, so the directory has no settings yet.
            None => seen.state == "off" && seen.operations.is_none(),
        };
        same_directory
            && match (seen.state.as_str(), self.thread, &self.runs) {
                ("off", ..) => true,
                (_, Some(thread), _) => seen.pid == Some(thread.pid) && thread.lives(&places.proc),
                (_, None, Some(runs)) => {
                    *runs == fingerprint(seen.operations.as_deref().unwrap_or_default(), &seen.targets)
                }
                (_, None, None) => false,
            }
    }
}

/// Turns the noted kdamond off and removes it, if it still exists.
fn clean_up(places: &DamonPaths, noted: &Noted) -> Result<(), DamonError> {
    if files::read_number::<u32>(&places.nr_kdamonds())? != 1 {
        return Ok(());
    }
    let Some(seen) = noted.find(places) else { return Ok(()) };
    if seen.state != "off" {
        let state = places.kdamond(0).join("state");
        let off = files::write(&state, "off");
        // Turning off fails if the kdamond has ended by itself meanwhile. That is not an error.
        if files::read(&state)? != "off" {
            return off;
        }
    }
    files::write(&places.nr_kdamonds(), "0")
}

/// Whether the only kdamond belongs to a killed run of isotherm. Writes nothing.
///
/// # Errors
/// Returns [`DamonError::Claimed`] if the run still exists.
pub(super) fn left_by_a_killed_run(places: &DamonPaths) -> Result<bool, DamonError> {
    let path = places.claim();
    let Ok(mut file) = File::open(&path) else {
        return Ok(false);
    };
    let noted = Noted::read(&mut file);
    if flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
        return Err(DamonError::Claimed { owner: noted.and_then(|noted| noted.owner), path });
    }
    let one = files::read_number::<u32>(&places.nr_kdamonds())? == 1;
    let ours = |noted: Noted| noted.boot == boot(places) && noted.find(places).is_some();
    Ok(one && noted.is_some_and(ours))
}

/// The operations and the targets, which identify the settings of a run.
fn fingerprint(operations: &str, targets: &[u32]) -> String {
    let targets: String = targets.iter().map(|target| format!(" {target}")).collect();
    operations.to_owned() + &targets
}

/// Looks for other users. If it finds only a thread, it tries again for up to 200 ms, because the thread of a kdamond
/// that was just turned off is listed for a moment longer.
fn look_for_others(places: &DamonPaths) -> Result<Others, DamonError> {
    const TRIES: u32 = 10;
    let mut others = Others::look(places)?;
    for _ in 0..TRIES {
        if others.threads.is_empty() || !others.kdamonds.is_empty() || !others.modules.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        others = Others::look(places)?;
    }
    Ok(others)
}

/// Opens and locks the file of the claim. Makes it if it does not exist.
fn lock(places: &DamonPaths) -> Result<File, DamonError> {
    let path = places.claim();
    match lock_owned(&path) {
        Ok(OwnedFile::Locked(file)) => Ok(file),
        Ok(OwnedFile::Held(mut file)) => {
            let owner = Noted::read(&mut file).and_then(|noted| noted.owner);
            Err(DamonError::Claimed { owner, path })
        }
        Err(source) => Err(DamonError::Claim { path, source }),
    }
}

/// The boot ID, which differs from boot to boot.
fn boot(places: &DamonPaths) -> Option<String> {
    files::read(&places.proc.join("sys/kernel/random/boot_id")).ok()
}

/// The inode number of a file.
fn inode(path: &Path) -> Result<u64, DamonError> {
    let metadata = fs::metadata(path).map_err(|source| DamonError::Read { path: path.into(), source })?;
    Ok(metadata.ino())
}
