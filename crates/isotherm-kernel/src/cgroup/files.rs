//! The files of one cgroup, as the kernel has them or as a test makes them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, openat};

/// The files of one cgroup. Each is read and written by its name.
pub trait CgroupFiles: fmt::Debug + Send {
    /// The contents of a file.
    ///
    /// # Errors
    /// Those of the system. `ENODEV` and `ENOENT` mean that the cgroup was removed, or has no such file.
    fn read(&self, name: &str) -> io::Result<String>;

    /// Writes a text to a file by one call of write(2).
    ///
    /// # Errors
    /// Those of the system.
    fn write(&self, name: &str, text: &str) -> io::Result<()>;

    /// The inode number of the directory, which no other cgroup of the hierarchy has, before or later.
    ///
    /// # Errors
    /// Those of the system.
    fn inode(&self) -> io::Result<u64>;
}

/// The directory of a cgroup. It is held open, so that a cgroup that is made later at the same path is another one.
#[derive(Debug)]
pub struct CgroupDirectory(OwnedFd);

impl CgroupDirectory {
    /// Opens the directory.
    ///
    /// # Errors
    /// If there is none.
    #[allow(clippy::disallowed_methods, reason = "opens a directory below /sys/fs/cgroup")]
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Whether it has a file of this name that can be opened for writing. Nothing is written.
    ///
    /// # Errors
    /// Why not.
    pub fn can_write(&self, name: &str) -> io::Result<()> {
        self.open_file(name, OFlags::WRONLY).map(|_| ())
    }

    #[allow(clippy::disallowed_methods, reason = "opens a file below /sys/fs/cgroup, and creates none")]
    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

impl CgroupFiles for CgroupDirectory {
    fn read(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        self.open_file(name, OFlags::RDONLY)?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        // A made file may be longer than the text.
        let mut file = self.open_file(name, OFlags::WRONLY | OFlags::TRUNC)?;
        // A second call after a signal would ask for all of it again.
        file.write(text.as_bytes()).map(|_| ())
    }

    fn inode(&self) -> io::Result<u64> {
        Ok(fstat(&self.0)?.st_ino)
    }
}
