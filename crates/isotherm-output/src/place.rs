//! A name in a directory that is held open.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};
use rustix::io::{Errno, Result};

/// Only the owner may read and write.
pub(crate) const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// A name in a directory. The directory is open, so that it stays the same whatever happens to its path.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
    /// The path of the directory, for messages.
    pub(crate) shown: PathBuf,
}

impl Place {
    /// Another name in the same directory.
    pub(crate) fn named(&self, name: OsString) -> Result<Self> {
        Ok(Self { directory: rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?, name, shown: self.shown.clone() })
    }

    /// The name that the previous file is kept under.
    pub(crate) fn old(&self) -> Result<Self> {
        self.named(with(&self.name, "", ".old"))
    }

    /// The hidden name of a file of isotherm beside this one.
    pub(crate) fn beside(&self, what: &str) -> Result<Self> {
        self.named(with(&self.name, ".", what))
    }

    /// The path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.shown.join(&self.name)
    }

    /// What is there. A symbolic link is not followed.
    pub(crate) fn stat(&self) -> Result<Option<Stat>> {
        absent(statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// Creates a file that only its owner can read. There must be none.
    pub(crate) fn create(&self, access: OFlags) -> Result<File> {
        self.open(access | OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens what is there. A symbolic link is not followed.
    pub(crate) fn open(&self, access: OFlags) -> Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &self.name, flags, OWNER_ONLY)?.into())
    }

    /// Whether the name is that of this open file.
    pub(crate) fn is(&self, file: &File) -> Result<bool> {
        let id = |stat: Stat| (stat.st_dev, stat.st_ino);
        Ok(self.stat()?.map(id) == Some(id(fstat(file)?)))
    }

    /// Removes what is there, if anything is.
    pub(crate) fn remove(&self) -> Result<()> {
        absent(unlinkat(&self.directory, &self.name, AtFlags::empty())).map(|_| ())
    }
}

/// `None` if there is no such file.
fn absent<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn with(name: &OsStr, before: &str, after: &str) -> OsString {
    let mut all = OsString::from(before);
    all.push(name);
    all.push(after);
    all
}
