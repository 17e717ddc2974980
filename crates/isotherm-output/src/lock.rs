//! The lock that keeps two writers from one output.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{FileType, FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::Refusal;
use crate::place::Place;

/// The longest process ID, and a line feed.
const MOST_DIGITS: u64 = 11;

/// The lock of an output: a file beside it that is locked by flock(2) and holds the process ID of the writer. Dropping
/// the lock removes the file. A lock whose holder was killed is not locked any more, and the next one replaces it.
#[derive(Debug)]
pub(crate) struct Lock {
    place: Place,
    file: File,
}

impl Lock {
    /// Takes the lock of the output at `place`.
    ///
    /// # Errors
    /// [`Refusal::Held`] if another process holds it.
    pub(crate) fn take(output: &Place) -> Result<Self, Refusal> {
        let place = output.beside(".isotherm-lock")?;
        // Another process may create or remove a lock between any two steps. Each round ends with a file that is
        // locked and has the name.
        loop {
            match place.create(OFlags::WRONLY) {
                Ok(file) => match hold(&file, &place) {
                    Ok(true) => return Ok(Self { place, file }),
                    Ok(false) => {}
                    Err(error) => {
                        drop(Self { place, file });
                        return Err(error);
                    }
                },
                Err(Errno::EXIST) => replace(&place)?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is still locked. If somebody has removed it meanwhile, a new one is not removed.
        if self.place.is(&self.file).unwrap_or(false) {
            let _ = self.place.remove();
        }
    }
}

/// Writes to a new file who holds it, and locks it. Returns whether it is a lock now: who found it before it was locked
/// takes it for one whose holder was killed.
fn hold(mut file: &File, place: &Place) -> Result<bool, Refusal> {
    writeln!(file, "{}", std::process::id())?;
    Ok(lock(file)? && place.is(file)?)
}

/// Removes the lock at `place` if its holder was killed.
fn replace(place: &Place) -> Result<(), Refusal> {
    let Some(stat) = place.stat()? else { return Ok(()) };
    // Only a regular file can be the lock of a writer.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(place.remove()?);
    }
    // What is not regular by now must not keep the caller waiting.
    let mut file = match place.open(OFlags::RDONLY | OFlags::NONBLOCK) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
        Err(Errno::ACCESS) => return Err(Refusal::ForeignLock { lock: place.path(), owner: stat.st_uid }),
        opened => opened?,
    };
    if !lock(&file)? {
        return Err(Refusal::Held { holder: holder(&mut file) });
    }
    if place.is(&file)? {
        place.remove()?;
    }
    Ok(())
}

/// Locks a file without waiting. Returns whether it is locked now. A file system without locks lets everybody have
/// them.
fn lock(file: &File) -> Result<bool, Refusal> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The process ID and the name of the process that holds a lock.
fn holder(file: &mut File) -> Option<(u32, String)> {
    let mut text = String::new();
    file.take(MOST_DIGITS).read_to_string(&mut text).ok()?;
    let pid = text.trim_end().parse().ok()?;
    // A process in another namespace has no entry, and this ID means nothing here.
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    // A process may give itself any name.
    Some((pid, name.chars().filter(|c| !c.is_control()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::{Named, walk};

    fn place(directory: &std::path::Path) -> Place {
        let Named::File(place, _) = walk(&directory.join("x")).unwrap() else { panic!("it is a file") };
        place
    }

    #[test]
    fn a_lock_is_taken_once_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        let first = Lock::take(&place).unwrap();
        let Refusal::Held { holder: Some((pid, _)) } = Lock::take(&place).unwrap_err() else { panic!("it is held") };
        assert_eq!(pid, std::process::id());
        drop(first);
        drop(Lock::take(&place).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_has_the_name_of_a_lock_and_is_none_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        let path = directory.path().join(".x.isotherm-lock");
        let other = directory.path().join("other");
        std::fs::write(&other, "other").unwrap();
        std::fs::write(&path, "4711\n").unwrap();
        drop(Lock::take(&place).unwrap());
        std::os::unix::fs::symlink(&other, &path).unwrap();
        drop(Lock::take(&place).unwrap());
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, crate::place::OWNER_ONLY).unwrap();
        drop(Lock::take(&place).unwrap());
        std::fs::hard_link(&other, &path).unwrap();
        drop(Lock::take(&place).unwrap());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "other");
        std::fs::create_dir(&path).unwrap();
        assert!(Lock::take(&place).is_err());
    }

    #[test]
    fn of_many_takers_at_once_one_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        // A lock that was left by a holder that was killed.
        std::fs::write(directory.path().join(".x.isotherm-lock"), "4711\n").unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let place = place(directory.path());
                    for _ in 0..200 {
                        let Ok(_lock) = Lock::take(&place) else { continue };
                        let order = std::sync::atomic::Ordering::SeqCst;
                        assert_eq!(inside.fetch_add(1, order), 0, "two have it");
                        taken.fetch_add(1, order);
                        inside.fetch_sub(1, order);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
