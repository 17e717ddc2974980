//! Reading and writing the small files of sysfs, with errors that say which file it was.
//!
//! The kernel never waits for the lock of DAMON's administration: who comes while another holds it is told that it is busy (EBUSY).
//! A kdamond itself takes that lock now and then, for an instant. So what is busy is tried again for a while.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::DamonError;

/// The content of a file without the line's end.
pub(super) fn read(path: &Path) -> Result<String, DamonError> {
    let content =
        patiently(|| fs::read_to_string(path)).map_err(|source| DamonError::Read { path: path.into(), source })?;
    Ok(content.trim().to_owned())
}

/// A file that holds one number.
pub(super) fn read_number<N: std::str::FromStr>(path: &Path) -> Result<N, DamonError> {
    let content = read(path)?;
    content.parse().map_err(|_| DamonError::Number { path: path.into(), content })
}

/// Writes a value to a file that exists, in one write.
///
/// Only for what a [`Claim`](super::claim::Claim) holds: whoever calls this must have one.
pub(super) fn write(path: &Path, value: &str) -> Result<(), DamonError> {
    // Sysfs knows no truncation and ignores it; a made tree needs it.
    let put = || File::options().write(true).truncate(true).open(path)?.write_all(value.as_bytes());
    patiently(put).map_err(|source| DamonError::Write { path: path.into(), value: value.into(), source })
}

/// Does it again while the kernel says that it is busy, a second at most.
fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
    act()
}
