//! The journal of limits that were changed: what another run of isotherm needs to give back what there was before.
//!
//! Each run that changes limits has a journal of its own in `/run/isotherm`, which is replaced whole before each
//! change. It has the values that isotherm may have written: the one that it knows to be in force, and the one that it
//! is about to write. So it is true whether the change was made or not. The run holds a lock on a file beside the
//! journal (`flock(2)`), which the kernel releases when the run ends. A process that gets the lock of a journal knows
//! that its owner was killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use isotherm_kernel::cgroup::{LimitFile, MemoryLimit};
use isotherm_kernel::{OwnedFile, lock_owned, remove_owned};

/// The directory of all journals. It is empty after the machine has started.
const DIRECTORY: &str = "run/isotherm";

/// Names: `limits.PID.NUMBER`, and the same with one of these endings for the lock and for the next version.
const PREFIX: &str = "limits.";
const LOCK: &str = ".lock";
const PART: &str = ".part";

/// The number of the next journal of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A limit that was changed, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// The cgroup, as a path from the root of the hierarchy.
    pub path: String,
    /// The inode number of its directory.
    pub inode: u64,
    /// The file.
    pub file: LimitFile,
    /// What the file had before.
    pub before: MemoryLimit,
    /// What isotherm has written last, and what it is about to write.
    pub ours: Vec<MemoryLimit>,
}

/// What a journal holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// The boot in which it was written.
    pub boot: String,
    pub limits: Vec<Noted>,
    /// Lines that cannot be understood.
    pub unreadable: Vec<String>,
}

impl Contents {
    fn parse(text: &str) -> Self {
        let mut contents = Self::default();
        for line in text.lines() {
            match (line.strip_prefix("boot "), Noted::parse(line)) {
                (Some(boot), _) => boot.clone_into(&mut contents.boot),
                (None, Some(noted)) => contents.limits.push(noted),
                (None, None) => contents.unreadable.push(line.into()),
            }
        }
        contents
    }
}

impl Noted {
    /// Reads a line such as `memory.high 4711 max 314572800,max /system.slice/a.service`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let file = LimitFile::named(words.next()?)?;
        let (inode, before) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let ours = words.next()?.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        let path = words.next().filter(|path| path.starts_with('/'))?.into();
        Some(Self { path, inode, file, before, ours })
    }

    fn line(&self) -> String {
        let ours: Vec<String> = self.ours.iter().map(ToString::to_string).collect();
        format!("{} {} {} {} {}\n", self.file.name(), self.inode, self.before, ours.join(","), self.path)
    }
}

/// The journal of a run. It is removed when it is dropped, unless something in it was not given back.
#[derive(Debug)]
pub(super) struct Journal {
    root: PathBuf,
    /// Its name in the directory.
    name: String,
    _lock: File,
    /// Whether it stays for another run to read.
    stays: bool,
}

impl Journal {
    /// A journal for this run, without contents.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn begin(root: &Path) -> io::Result<Self> {
        loop {
            let name = format!("{PREFIX}{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            // A journal of this name is that of a killed run with the same process ID.
            if let Some(lock) = lock(root, &name)?.filter(|_| !place(root, &name).exists()) {
                return Ok(Self { root: root.into(), name, _lock: lock, stays: false });
            }
        }
    }

    /// Replaces the contents. Afterwards, they are on the disk, if the directory is on one.
    ///
    /// # Errors
    /// If they cannot be written. The contents before are there still.
    #[allow(clippy::disallowed_methods, reason = "writes the journal in /run/isotherm, durably")]
    pub(super) fn write(&mut self, limits: impl IntoIterator<Item = Noted>) -> io::Result<()> {
        let mut text = format!("boot {}\n", boot(&self.root));
        let before = text.len();
        text.extend(limits.into_iter().map(|noted| noted.line()));
        let (path, part) = (place(&self.root, &self.name), place(&self.root, &format!("{}{PART}", self.name)));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(self.root.join(DIRECTORY))?.sync_all()?;
        self.stays = text.len() > before;
        Ok(())
    }

    /// Leaves it as a run does that is killed. The lock is released although a process that another test has just
    /// started may still have the file open.
    #[cfg(test)]
    pub(super) fn leave(mut self) {
        rustix::fs::flock(&self._lock, rustix::fs::FlockOperation::Unlock).expect("the lock is held");
        self.stays = true;
    }

    /// The process that has this file of this cgroup in another journal. `None` if none has.
    pub(super) fn other_owner(
        root: &Path,
        own: Option<&Self>,
        file: LimitFile,
        path: &str,
        inode: u64,
    ) -> Option<String> {
        names(root).into_iter().filter(|name| own.is_none_or(|own| own.name != *name)).find_map(|name| {
            let contents = Contents::parse(&fs::read_to_string(place(root, &name)).ok()?);
            let is_it = |noted: &Noted| noted.file == file && noted.path == path && noted.inode == inode;
            let is_held = contents.limits.iter().any(is_it);
            let owner = name.strip_prefix(PREFIX)?.split('.').next()?;
            (is_held && contents.boot == boot(root)).then(|| owner.to_owned())
        })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.stays {
            remove(&self.root, &self.name);
        }
    }
}

/// The journal of a killed run. No other process reads it meanwhile.
#[derive(Debug)]
pub(super) struct LeftJournal {
    root: PathBuf,
    name: String,
    _lock: File,
    pub(super) contents: Contents,
}

impl LeftJournal {
    /// The journals that killed runs have left, and why others cannot be read.
    pub(super) fn all(root: &Path) -> (Vec<Self>, Vec<String>) {
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        for name in names(root) {
            let read = lock(root, &name).and_then(|lock| {
                let Some(lock) = lock else { return Ok(()) };
                let contents = match fs::read_to_string(place(root, &name)) {
                    Ok(text) => Contents::parse(&text),
                    // Nothing was written to it yet, or another process has just read it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Contents::default(),
                    Err(error) => return Err(error),
                };
                found.push(Self { root: root.into(), name: name.clone(), _lock: lock, contents });
                Ok(())
            });
            lost.extend(read.err().map(|error| format!("{}: {error}", place(root, &name).display())));
        }
        (found, lost)
    }

    /// Its path.
    pub(super) fn path(&self) -> PathBuf {
        place(&self.root, &self.name)
    }

    /// Whether it was written since the machine has started.
    pub(super) fn is_of_this_boot(&self) -> bool {
        self.contents.boot == boot(&self.root)
    }

    /// Removes it.
    pub(super) fn remove(self) {
        remove(&self.root, &self.name);
    }
}

/// The path of a file in the directory of journals.
fn place(root: &Path, name: &str) -> PathBuf {
    root.join(DIRECTORY).join(name)
}

/// The names of all journals, of those that have only a lock, too.
fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(DIRECTORY)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with(PREFIX))
        .map(|name| [LOCK, PART].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(&name).to_owned()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Locks a journal. `None` if another process, or another part of this one, holds the lock.
fn lock(root: &Path, name: &str) -> io::Result<Option<File>> {
    Ok(match lock_owned(&place(root, &format!("{name}{LOCK}")))? {
        OwnedFile::Locked(file) => Some(file),
        OwnedFile::Held(_) => None,
    })
}

/// Removes a journal whose lock is held, and the directory if it is empty.
#[allow(clippy::disallowed_methods, reason = "removes a journal in /run/isotherm")]
fn remove(root: &Path, name: &str) {
    // The lock goes last. What stays is read by the next run, and gives back nothing that is not as it was written.
    for end in [PART, ""] {
        let _ = fs::remove_file(place(root, &format!("{name}{end}")));
    }
    remove_owned(&place(root, &format!("{name}{LOCK}")));
}

/// The ID of this boot. Empty if the kernel gives none.
fn boot(root: &Path) -> String {
    let id = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default();
    id.trim().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn noted(path: &str, ours: &[MemoryLimit]) -> Noted {
        let (file, before) = (LimitFile::High, MemoryLimit::Max);
        Noted { path: path.into(), inode: 7, file, before, ours: ours.into() }
    }

    #[test]
    fn what_is_noted_is_read_again_only_after_its_owner_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(root.path()).unwrap();
        let limits = [
            noted("/a b.slice", &[MemoryLimit::Bytes(4096)]),
            noted("/c", &[MemoryLimit::Max, MemoryLimit::Bytes(8192)]),
        ];
        journal.write(limits.clone()).unwrap();
        assert!(LeftJournal::all(root.path()).0.is_empty(), "its owner lives");
        let mine = std::process::id().to_string();
        assert_eq!(Journal::other_owner(root.path(), None, LimitFile::High, "/c", 7), Some(mine));
        assert_eq!(Journal::other_owner(root.path(), Some(&journal), LimitFile::High, "/c", 7), None);
        assert_eq!(Journal::other_owner(root.path(), None, LimitFile::Low, "/c", 7), None, "another file");
        assert_eq!(
            Journal::other_owner(root.path(), None, LimitFile::High, "/c", 8),
            None,
            "a cgroup that was made again"
        );
        drop(journal);
        let (left, lost) = LeftJournal::all(root.path());
        assert_eq!((left.len(), lost.len()), (1, 0));
        assert_eq!((&left[0].contents.limits[..], left[0].is_of_this_boot()), (&limits[..], true));
        assert!(LeftJournal::all(root.path()).0.is_empty(), "one process reads it");
        left.into_iter().for_each(LeftJournal::remove);
        assert!(!root.path().join(DIRECTORY).exists());
    }

    #[test]
    fn a_journal_in_which_nothing_is_left_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(root.path()).unwrap();
        journal.write([noted("/a", &[MemoryLimit::Max])]).unwrap();
        let other = Journal::begin(root.path()).unwrap();
        journal.write([]).unwrap();
        drop(journal);
        assert_eq!(names(root.path()), std::slice::from_ref(&other.name));
        drop(other);
        assert!(!root.path().join(DIRECTORY).exists());
    }

    #[test]
    fn a_line_that_is_none_is_kept_for_the_user() {
        let text =
            "boot b\nmemory.high 7 max 4096 /a\nmemory.max 7 max 4096 /a\nmemory.high 7 max 4096 a\nmemory.high\n";
        let contents = Contents::parse(text);
        assert_eq!((contents.boot.as_str(), contents.limits.len(), contents.unreadable.len()), ("b", 1, 3));
        assert_eq!(contents.limits[0], noted("/a", &[MemoryLimit::Bytes(4096)]));
    }
}
