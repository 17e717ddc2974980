//! Files in a directory such as `/run/isotherm` that say what a run does to the machine. The run holds a lock on its
//! file (`flock(2)`), which the kernel releases when the run ends, and removes the file before.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A file after an attempt to lock it.
#[derive(Debug)]
pub enum OwnedFile {
    /// It is locked until it is closed. It may be the file of a run that was killed.
    Locked(File),
    /// A run that lives holds the lock.
    Held(File),
}

/// Opens a file, and locks it if no run holds it. Makes the file, for its owner alone, and its directory, if they are
/// not there.
///
/// # Errors
/// If the file cannot be made, opened or locked.
#[allow(clippy::disallowed_methods, reason = "makes the directory of the file, and the file")]
pub fn lock_owned(path: &Path) -> io::Result<OwnedFile> {
    loop {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        }
        let mut options = File::options();
        let file = match options.read(true).append(true).create(true).mode(0o600).open(path) {
            // A run that ended just now has removed the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(OwnedFile::Held(file)),
            Err(error) => return Err(error.into()),
        }
        // An owner removes the file before it releases the lock, so the locked file may be a removed one.
        let inode = |metadata: io::Result<fs::Metadata>| metadata.map(|metadata| metadata.ino()).ok();
        if inode(fs::metadata(path)) == inode(file.metadata()) {
            return Ok(OwnedFile::Locked(file));
        }
    }
}

/// Removes a file that this run has locked, and its directory if that is empty. What cannot be removed stays.
#[allow(clippy::disallowed_methods, reason = "removes the file and its directory")]
pub fn remove_owned(path: &Path) {
    let _ = fs::remove_file(path);
    path.parent().into_iter().for_each(|directory| drop(fs::remove_dir(directory)));
}
