//! The claim on the kernel's DAMON: at most one run of isotherm uses it, and the next run knows what a killed one left.
//!
//! A kdamond outlives whoever started it. So a run writes down, in `/run/isotherm/damon.claim` and always before or right
//! after it acts, what it has made: the directory in sysfs, what is to run in it, the thread. The run holds a lock on that
//! file (`flock`), which ends with the run however it ends: whoever gets the lock and finds a claim knows that its owner is dead.
//!
//! What is cleaned up after a killed run is what is proven to be its own:
//!
//! - *The directory* is known by its inode number: the kernel makes a directory anew whenever someone sets the number of kdamonds, and
//!   gives each a number of its own. Where the run was killed in the instant between making and noting it, only a directory without any
//!   settings is removed.
//! - *The thread* is known by its process ID and start time. Where the run was killed between starting and noting it, the thread is
//!   known by what it watches: the very operations and targets that the claim names, in the very directory.
//!
//! What a look and an act cannot close, because sysfs has no lock: another program that sets the number of kdamonds, or takes over the
//! directory, between a check here and the write that follows it, microseconds later. The kernel itself refuses to remove a kdamond that runs.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::others::{Others, Seen};
use super::thread::Thread;
use super::{DamonError, Places, files};

/// The right to write below DAMON's administration. There is no other way to one than [`Claim::take`], which refuses
/// while anything is there that isotherm did not make.
#[derive(Debug)]
pub(super) struct Claim {
    places: Places,
    file: File,
    noted: Noted,
}

/// What a claim says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Noted {
    owner: Option<u32>,
    boot: Option<String>,
    directory: Option<u64>,
    runs: Option<String>,
    thread: Option<Thread>,
}

impl Claim {
    /// Claims the kernel's DAMON and makes one kdamond, off and without settings.
    ///
    /// Nothing in sysfs is written before it is sure that there is no kdamond, or only one that a killed run of isotherm left.
    ///
    /// # Errors
    /// [`DamonError::Busy`] if another uses DAMON, [`DamonError::Claimed`] if another isotherm does.
    pub(super) fn take(places: &Places) -> Result<Self, DamonError> {
        let others = look_again(places)?;
        if others.any() && !left_by_a_killed_run(places)? {
            return Err(DamonError::Busy(others));
        }
        let mut file = lock(places)?;
        let left = Noted::read(&mut file);
        if let Some(left) = left.filter(|left| left.boot == boot(places)) {
            clean_up(places, &left)?;
        }
        let others = look_again(places)?;
        if others.any() {
            // Nothing of ours is there: no claim is to be found by the next run either.
            remove(places, &file);
            return Err(DamonError::Busy(others));
        }
        file.set_len(0).map_err(|source| DamonError::Claim { path: places.claim(), source })?;
        let mut claim = Self { places: places.clone(), file, noted: Noted::default() };
        claim.noted = Noted { owner: Some(std::process::id()), boot: boot(places), ..Noted::default() };
        claim.append(&format!("owner {}\nboot {}\n", std::process::id(), boot(places).unwrap_or_default()))?;

        // From here on, dropping the claim takes back what was done.
        files::write(&places.nr_kdamonds(), "1")?;
        let directory = inode(&claim.directory())?;
        claim.noted.directory = Some(directory);
        claim.append(&format!("directory {directory}\n"))?;
        Ok(claim)
    }

    /// The kdamond's directory.
    pub(super) fn directory(&self) -> PathBuf {
        self.places.kdamond(0)
    }

    /// Whether the directory is still the one that was made: another program that sets the number of kdamonds replaces it.
    pub(super) fn holds(&self) -> bool {
        self.noted.directory.is_some() && inode(&self.directory()).ok() == self.noted.directory
    }

    /// Notes what is about to run: [`fingerprint`] of the settings. Before the kdamond is turned on.
    pub(super) fn note_what_runs(&mut self, operations: &str, targets: &[u32]) -> Result<(), DamonError> {
        let runs = fingerprint(operations, targets);
        self.append(&format!("runs {runs}\n"))?;
        self.noted.runs = Some(runs);
        Ok(())
    }

    /// Notes the thread that runs. Right after the kdamond was turned on.
    pub(super) fn note_thread(&mut self, thread: Thread) -> Result<(), DamonError> {
        self.append(&format!("thread {} {}\n", thread.pid, thread.started))?;
        self.noted.thread = Some(thread);
        Ok(())
    }

    /// Turns the kdamond off, removes it, and gives the claim back. What is not ours any more is left alone.
    pub(super) fn release(&mut self) -> Result<(), DamonError> {
        let done = clean_up(&self.places, &self.noted);
        if done.is_ok() {
            remove(&self.places, &self.file);
            self.noted = Noted::default();
        }
        done
    }

    /// A line goes into the file by one write, so that a killed run leaves it whole or without its end.
    fn append(&mut self, lines: &str) -> Result<(), DamonError> {
        let written = self.file.write_all(lines.as_bytes());
        written.map_err(|source| DamonError::Claim { path: self.places.claim(), source })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.noted != Noted::default() {
            // Nobody is left to be told; the claim stays where it failed, for the next run.
            let _ = self.release();
        }
    }
}

impl Noted {
    /// What the file says, as far as its lines are whole; nothing if it says nothing.
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

    /// Whether what is in sysfs is what was noted.
    fn owns(&self, places: &Places, seen: &Seen) -> bool {
        let same_directory = match self.directory {
            Some(directory) => inode(&places.kdamond(0)).ok() == Some(directory),
            // Killed before it was noted: then nothing was set up in it.
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

/// Undoes what was noted, as far as it is there and still the same.
fn clean_up(places: &Places, noted: &Noted) -> Result<(), DamonError> {
    if files::read_number::<u32>(&places.nr_kdamonds())? != 1 {
        return Ok(());
    }
    let seen = Seen::read(places, 0);
    if !noted.owns(places, &seen) {
        return Ok(());
    }
    if seen.state != "off" {
        let state = places.kdamond(0).join("state");
        let off = files::write(&state, "off");
        // One that has ended by itself meanwhile cannot be turned off, and need not be.
        if files::read(&state)? != "off" {
            return off;
        }
    }
    files::write(&places.nr_kdamonds(), "0")
}

/// Whether all that is there was left by a run of isotherm that was killed. Nothing is written.
///
/// # Errors
/// [`DamonError::Claimed`] if the run lives.
pub(super) fn left_by_a_killed_run(places: &Places) -> Result<bool, DamonError> {
    let path = places.claim();
    let Ok(mut file) = File::open(&path) else {
        return Ok(false);
    };
    let noted = Noted::read(&mut file);
    if flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
        return Err(DamonError::Claimed { owner: noted.and_then(|noted| noted.owner), path });
    }
    let one = files::read_number::<u32>(&places.nr_kdamonds())? == 1;
    let ours = |noted: Noted| noted.boot == boot(places) && noted.owns(places, &Seen::read(places, 0));
    Ok(one && noted.is_some_and(ours))
}

/// What tells one use of DAMON from another: operations and targets.
fn fingerprint(operations: &str, targets: &[u32]) -> String {
    let targets: String = targets.iter().map(|target| format!(" {target}")).collect();
    operations.to_owned() + &targets
}

/// Looks for others, patiently where there is nothing but a thread: one that was just turned off is listed for a moment longer.
fn look_again(places: &Places) -> Result<Others, DamonError> {
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

/// Opens and locks the claim's file, making it if need be.
fn lock(places: &Places) -> Result<File, DamonError> {
    let path = places.claim();
    let failed = |source| DamonError::Claim { path: path.clone(), source };
    loop {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&places.run).map_err(failed)?;
        let mut options = File::options();
        let file = match options.read(true).append(true).create(true).mode(0o600).open(&path) {
            // Its directory went with the claim of a run that ended just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(failed)?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut file = file;
                return Err(DamonError::Claimed { owner: Noted::read(&mut file).and_then(|noted| noted.owner), path });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // The owner removes the file before the lock ends: this may be the lock of a file that is no more.
        if inode(&path).ok() == file.metadata().ok().map(|metadata| metadata.ino()) {
            return Ok(file);
        }
    }
}

/// Removes the claim's file, which is locked, and its directory if nothing else is in it.
fn remove(places: &Places, _locked: &File) {
    // What cannot be removed is an empty claim at worst: the next run finds nothing of its owner in sysfs.
    let _ = fs::remove_file(places.claim());
    let _ = fs::remove_dir(&places.run);
}

/// What identifies the time from one boot to the next.
fn boot(places: &Places) -> Option<String> {
    files::read(&places.proc.join("sys/kernel/random/boot_id")).ok()
}

fn inode(path: &Path) -> Result<u64, DamonError> {
    let metadata = fs::metadata(path).map_err(|source| DamonError::Read { path: path.into(), source })?;
    Ok(metadata.ino())
}
