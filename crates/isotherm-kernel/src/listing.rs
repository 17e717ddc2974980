//! The processes of the machine.

use std::path::Path;

use crate::names::stat_field;

/// What stands for `/`. Processes are opened by pidfds, which no made tree has.
pub(crate) const ROOT: &str = "/";

/// The number of the field of `stat` with the ID of the parent.
const PARENT: usize = 4;

/// The IDs of all processes of the machine. It opens none of them, which would take ten times as long.
pub(crate) fn process_ids(root: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The ID of the parent of a process.
pub(crate) fn parent(root: &Path, pid: u32) -> Option<u32> {
    stat_field(&root.join("proc"), pid, PARENT)?.parse().ok()
}
