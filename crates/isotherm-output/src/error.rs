//! Why an output cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// An output cannot be written.
#[derive(Debug, Error)]
#[error("cannot write {}{}", path.display(), hint(refusal))]
pub struct OutputError {
    /// The output.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub refusal: Refusal,
}

impl OutputError {
    /// The error of an output at `path`.
    pub fn new(path: &Path, refusal: impl Into<Refusal>) -> Self {
        Self { path: path.into(), refusal: refusal.into() }
    }
}

/// The reason for which an output cannot be written.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The path is that of a directory.
    #[error("it is a directory")]
    Directory,
    /// Writing to a block device would destroy what is on it.
    #[error("it is a block device")]
    BlockDevice,
    /// A socket cannot be opened.
    #[error("it is a socket")]
    Socket,
    /// The output is one of the files that are read, by device and inode.
    #[error("it is an input of the same command")]
    Input,
    /// Keeping the previous file would replace one of the files that are read.
    #[error("what is there would be kept as {}, which is an input of the same command", .0.display())]
    KeptOverInput(PathBuf),
    /// The previous file cannot be kept, because there is a directory of that name.
    #[error("what is there would be kept as {}, which is a directory", .0.display())]
    KeptOverDirectory(PathBuf),
    /// Another process writes the output, or this one does so already.
    #[error("{}", held(holder))]
    Held {
        /// The process, if it is known: its ID, and its name where it is visible.
        holder: Option<(u32, String)>,
    },
    /// The path leads through a symbolic link of a user who is neither root nor the caller.
    #[error("{} is a symbolic link of user {owner}", link.display())]
    ForeignLink {
        /// The link.
        link: PathBuf,
        /// The user ID of its owner.
        owner: u32,
    },
    /// The path is that of a pipe of a user who is neither root nor the caller.
    #[error("it is a pipe of user {0}")]
    ForeignPipe(u32),
    /// The file to append to belongs to a user who is neither root nor the caller.
    #[error("it belongs to user {0}")]
    ForeignFile(u32),
    /// The lock belongs to another user and cannot be opened.
    #[error("the lock {} of user {owner} cannot be opened", lock.display())]
    ForeignLock {
        /// The file that is locked while the output is written.
        lock: PathBuf,
        /// The user ID of its owner.
        owner: u32,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// How to fix it.
fn hint(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Held { .. } => " (wait for its end, or name another file)",
        Refusal::ForeignLink { .. } => " (name the file itself)",
        Refusal::ForeignLock { .. } => " (name another file, or remove the lock if nobody writes)",
        Refusal::System(error) => match error.kind() {
            io::ErrorKind::NotFound => " (create its directory first, or name another file)",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (free some space, or name another file)",
            _ => " (name another file)",
        },
        _ => " (name another file)",
    }
}

fn held(holder: &Option<(u32, String)>) -> String {
    match holder {
        Some((pid, _)) if *pid == std::process::id() => "this command writes it already".into(),
        Some((pid, name)) if name.is_empty() => format!("process {pid} writes it"),
        Some((pid, name)) => format!("process {pid} ({name}) writes it"),
        None => "another process writes it".into(),
    }
}
