//! Why the memory of a cgroup cannot be acted on.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::NoHierarchy;

/// Why the memory of a cgroup cannot be acted on, and how to fix it.
#[derive(Debug, Error)]
pub enum NoMemoryCgroup {
    /// No hierarchy accounts memory.
    #[error(transparent)]
    NoHierarchy(#[from] NoHierarchy),
    /// The hierarchy that accounts memory is of version 1.
    #[error(
        "memory is accounted by cgroups of version 1 here, which have neither memory.reclaim nor memory.high (boot \
         with systemd.unified_cgroup_hierarchy=1, or with cgroup_no_v1=memory; the actions pageout and cold work \
         without cgroups)"
    )]
    Version1,
    /// The hierarchy is not mounted.
    #[error("the cgroup hierarchy of version 2 is not mounted (`{command}`)")]
    NotMounted {
        /// The command that mounts it.
        command: &'static str,
    },
    /// The kernel does not have the file.
    #[error("there is no {path} (use Linux 5.19 or later; the actions pageout and cold work without it)")]
    NoReclaim {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file cannot be opened for writing.
    #[error(
        "{path} cannot be opened for writing (run isotherm as root; in a container, mount the host's /sys/fs/cgroup \
         with write access)"
    )]
    NotWritable {
        /// The path of the file.
        path: PathBuf,
        /// The error of openat(2).
        source: io::Error,
    },
    /// The processes are not selected by their cgroup.
    #[error(
        "the action acts on whole cgroups, and the processes are not selected by their cgroup (select them by \
         --cgroup, --unit or --container; in the daemon by cgroup, unit or container)"
    )]
    NotSelected,
    /// The selection leaves out processes that may be in the same cgroup.
    #[error(
        "the action acts on whole cgroups, and the selection leaves out processes by {0}, which may be in them (leave \
         out cgroups, units or containers instead)"
    )]
    LeavesOut(&'static str),
    /// The cgroup of a process is not among the selected ones.
    #[error("the cgroup {path} is not among the selected ones")]
    OtherCgroup {
        /// The path of the cgroup.
        path: String,
    },
    /// The cgroup was removed, or the process has ended.
    #[error("the cgroup {path} is not there any more")]
    Gone {
        /// The path of the cgroup.
        path: String,
    },
    /// Neither the cgroup nor one above it accounts memory on its own.
    #[error(
        "the cgroup {path} does not account its memory (turn the controller on: write +memory to \
         cgroup.subtree_control of the cgroup above it)"
    )]
    NoController {
        /// The path of the cgroup.
        path: String,
    },
}
