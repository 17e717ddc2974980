//! The file `FILE.kdamonds` that damo writes next to a recording: the parameters of the run, with the process IDs of
//! the targets.
//!
//! Versions of damo from about 2.6 write it. A recording can be imported without it, but its targets then have no
//! process IDs.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use isotherm_input::{Input, Problem};
use serde::Deserialize;

use super::scalar::{Bytes, Count};

/// The most bytes that are read. The file has a few kilobytes.
const MAX_SIZE: u64 = 4 << 20;

/// One of the kernel's monitoring threads.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Kdamond {
    pub(super) contexts: Vec<Context>,
}

/// A set of targets with common parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    /// `vaddr`, `fvaddr` or `paddr`.
    ops: Option<String>,
    targets: Vec<SidecarTarget>,
    pub(super) nr_regions: Option<Bounds>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SidecarTarget {
    pid: Option<Count>,
}

/// Bounds of the number of regions.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Bounds {
    pub(super) min: Bytes,
    pub(super) max: Bytes,
}

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
    PhysicalMemory,
    /// The memory of the process with this ID.
    Process(u32),
}

impl Context {
    /// What the target with this index is. Without an index, what all targets together are. None if that is unknown.
    pub(super) fn target(&self, index: Option<u64>) -> Option<TargetKind> {
        if self.ops.as_deref() == Some("paddr") {
            return Some(TargetKind::PhysicalMemory);
        }
        let target = match (index, self.targets.as_slice()) {
            (Some(index), targets) => targets.get(usize::try_from(index).ok()?)?,
            (None, [only]) => only,
            (None, _) => return None,
        };
        u32::try_from(target.pid?.0).ok().filter(|&pid| pid > 0).map(TargetKind::Process)
    }
}

/// Reads the file that belongs to the recording `path`. Returns no kdamonds if there is no such file.
///
/// # Errors
/// A note for the user, who does without the file.
pub(super) fn read(path: &Path) -> Result<Vec<Kdamond>, String> {
    let path = path_of(path);
    let ignored = |cause: &dyn Display| format!("{} is ignored, because it cannot be read: {cause}", path.display());
    let bytes = match Input::new(&path).limited_to(MAX_SIZE).bytes() {
        Ok(bytes) => bytes,
        Err(error) => match error.problem {
            Problem::System(source) if source.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            problem => return Err(ignored(&problem)),
        },
    };
    serde_json::from_slice(&bytes).map_err(|error| ignored(&error))
}

/// The path of the file that belongs to the recording `path`.
pub(super) fn path_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".kdamonds");
    name.into()
}
