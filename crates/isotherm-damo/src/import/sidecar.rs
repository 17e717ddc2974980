//! What damo writes beside a recording: `FILE.kdamonds`, the parameters, in which the targets' process IDs are.
//!
//! damo writes it since 2.6 or before; a recording without one is as good, but its targets have no process IDs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::scalar::{Bytes, Count};

/// The most of it that is read, in bytes; damo's own is a few thousand.
const MAX_SIZE: u64 = 64 << 20;

/// One of the kernel's monitors.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Kdamond {
    pub(super) contexts: Vec<Context>,
}

/// One set of targets and parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    /// `vaddr`, `fvaddr` or `paddr`.
    ops: Option<String>,
    targets: Vec<Target>,
    pub(super) nr_regions: Option<Bounds>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Target {
    pid: Option<Count>,
}

/// Of the number of regions.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Bounds {
    pub(super) min: Bytes,
    pub(super) max: Bytes,
}

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Physical memory.
    Physical,
    /// The memory of a process.
    Process(u32),
}

impl Context {
    /// What the target of this index is, or what all of them are together; nothing if that is not told.
    pub(super) fn place(&self, target: Option<u64>) -> Option<Place> {
        if self.ops.as_deref() == Some("paddr") {
            return Some(Place::Physical);
        }
        let target = match target {
            Some(index) => self.targets.get(usize::try_from(index).ok()?)?,
            None if self.targets.len() == 1 => self.targets.first()?,
            None => return None,
        };
        u32::try_from(target.pid?.0).ok().filter(|&pid| pid > 0).map(Place::Process)
    }
}

/// Where it is.
pub(super) fn path_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".kdamonds");
    name.into()
}

/// Reads what lies beside `path`: nothing if there is none.
///
/// # Errors
/// Why it cannot be read, for the user to be told; a recording can do without.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Kdamond>>, String> {
    let path = path_of(path);
    let cannot = |why: &dyn std::fmt::Display| format!("{} was left out, it cannot be read: {why}", path.display());
    // Opening a pipe would wait for its writer.
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(&error)),
        Ok(kind) if !kind.is_file() => return Err(cannot(&"it is not a regular file")),
        Ok(_) => {}
    }
    let file = File::open(&path).map_err(|error| cannot(&error))?;
    let kdamonds = serde_json::from_reader(BufReader::new(file.take(MAX_SIZE)));
    kdamonds.map(Some).map_err(|error| cannot(&error))
}
