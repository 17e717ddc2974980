//! Reads and writes the small files of sysfs. Errors contain the path of the file.
//!
//! DAMON's sysfs interface does not wait for its lock: a call fails with `EBUSY` while another one holds the lock. A
//! kdamond also takes this lock for short times. So a call that fails with `EBUSY` is repeated for up to one second.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::DamonError;

/// Reads a file. Leading and trailing white space is removed.
pub(super) fn read(path: &Path) -> Result<String, DamonError> {
    let content = retry_while_busy(|| fs::read_to_string(path))
        .map_err(|source| DamonError::Read { path: path.into(), source })?;
    Ok(content.trim().to_owned())
}

/// Reads a file that contains one number.
pub(super) fn read_number<N: std::str::FromStr>(path: &Path) -> Result<N, DamonError> {
    let content = read(path)?;
    content.parse().map_err(|_| DamonError::Number { path: path.into(), content })
}

/// Writes a value to an existing file, with one write.
///
/// The caller must have a [`Claim`](super::claim::Claim) on the file.
#[allow(clippy::disallowed_methods, reason = "writes below /sys/kernel/mm/damon")]
pub(super) fn write(path: &Path, value: &str) -> Result<(), DamonError> {
    // sysfs ignores the truncation. The plain files of the tests need it.
    let put = || File::options().write(true).truncate(true).open(path)?.write_all(value.as_bytes());
    retry_while_busy(put).map_err(|source| DamonError::Write { path: path.into(), value: value.into(), source })
}

/// Repeats `act` while it fails with `EBUSY`, for up to one second.
fn retry_while_busy<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
    act()
}
