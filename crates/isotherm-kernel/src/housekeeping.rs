//! Reads which processors are for housekeeping: those that are not reserved for other work.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

use crate::scheduling::MOST_CPUS;

const CPUS: &str = "sys/devices/system/cpu";

/// Why the housekeeping processors are not known.
#[derive(Debug, Error)]
pub enum HousekeepingError {
    /// A file cannot be read.
    #[error("{path} cannot be read, so that the housekeeping processors are not known")]
    File {
        /// Its path.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// A file has other contents than the kernel's documentation says.
    #[error("{path} cannot be understood: {text:?}")]
    Contents {
        /// Its path.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
    /// No processor is left.
    #[error("all processors are isolated or nohz_full, so that none is for housekeeping; name processors by number")]
    None,
}

/// The processors that are online and neither isolated (`isolcpus`) nor free of the timer tick (`nohz_full`), in
/// ascending order (Linux `Documentation/ABI/stable/sysfs-devices-system-cpu`). `root` stands for `/`. A kernel without
/// one of the features has no such processor.
///
/// # Errors
/// If a file cannot be read or understood, or no processor is left.
pub fn housekeeping_cpus(root: &Path) -> Result<Vec<usize>, HousekeepingError> {
    let directory = root.join(CPUS);
    let mut cpus = list(&directory.join("online"))?.ok_or_else(|| HousekeepingError::File {
        path: directory.join("online"),
        source: ErrorKind::NotFound.into(),
    })?;
    for kept in ["isolated", "nohz_full"] {
        let kept = list(&directory.join(kept))?.unwrap_or_default();
        cpus.retain(|cpu| !kept.contains(cpu));
    }
    if cpus.is_empty() { Err(HousekeepingError::None) } else { Ok(cpus.into_iter().collect()) }
}

/// The numbers in a file such as `0-1,3`. `None` if there is no such file.
fn list(path: &Path) -> Result<Option<BTreeSet<usize>>, HousekeepingError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|source| HousekeepingError::File { path: path.into(), source })?,
    };
    // The kernel writes this for an empty set where nohz_full was not asked for.
    let listed = text.trim().trim_start_matches("(null)");
    let number = |text: &str| text.parse().ok().filter(|cpu| *cpu < MOST_CPUS);
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(number(first)?..=number(last)?)
    };
    let ranges: Option<Vec<_>> = listed.split(',').filter(|part| !part.is_empty()).map(range).collect();
    let ranges = ranges.ok_or_else(|| HousekeepingError::Contents { path: path.into(), text: listed.into() })?;
    Ok(Some(ranges.into_iter().flatten().collect()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    /// What a tree with these files says.
    fn of(files: &[(&str, &str)]) -> Result<Vec<usize>, String> {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(CPUS);
        fs::create_dir_all(&directory).unwrap();
        files.iter().for_each(|(name, text)| fs::write(directory.join(name), text).unwrap());
        housekeeping_cpus(root.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn isolated_and_tickless_processors_are_left_out() {
        let all = ("online", "0-7,10\n");
        assert_eq!(of(&[all, ("isolated", "2-3\n"), ("nohz_full", "3,6-7\n")]).unwrap(), [0, 1, 4, 5, 10]);
        assert_eq!(of(&[all, ("isolated", "\n"), ("nohz_full", " (null)\n")]).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 10]);
        assert_eq!(of(&[("online", "0\n")]).unwrap(), [0], "a kernel without both");
    }

    #[test]
    fn what_cannot_be_said_is_an_error() {
        assert!(of(&[]).unwrap_err().contains("online cannot be read"));
        assert!(of(&[("online", "0-1\n"), ("isolated", "0-1\n")]).unwrap_err().contains("none is for housekeeping"));
        for wrong in ["0-", "a", "1-99999999999", "-"] {
            let error = of(&[("online", "0-1\n"), ("isolated", wrong)]).unwrap_err();
            assert!(error.contains("isolated cannot be understood"), "{error}");
        }
    }
}
