//! Reading and writing the small files of sysfs, with errors that say which file it was.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::DamonError;

/// The content of a file without the line's end.
pub(super) fn read(path: &Path) -> Result<String, DamonError> {
    let content = fs::read_to_string(path).map_err(|source| DamonError::Read { path: path.into(), source })?;
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
    put(path, value).map_err(|source| DamonError::Write { path: path.into(), value: value.into(), source })
}

/// The same, for whom the kernel's plain word is enough.
pub(super) fn put(path: &Path, value: &str) -> io::Result<()> {
    // Sysfs knows no truncation and ignores it; a made tree needs it.
    File::options().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}
