//! Why an input cannot be read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

/// An input cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {}{}", path.display(), hint(problem))]
pub struct InputError {
    /// The input.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub problem: Problem,
}

impl InputError {
    pub(crate) fn new(path: &Path, problem: impl Into<Problem>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

/// The reason for which an input cannot be read.
#[derive(Debug, Error)]
pub enum Problem {
    /// The path is that of a directory.
    #[error("it is a directory")]
    Directory,
    /// The path is that of a pipe, a device or a socket. The text says which.
    #[error("it is {0} and not a regular file")]
    NotAFile(&'static str),
    /// The input has more bytes than the limit.
    #[error("it has more than {0} bytes, which is the limit for such a file")]
    TooLarge(u64),
    /// The input is not UTF-8 from this byte on.
    #[error("it is not text in UTF-8: byte {0} is wrong")]
    NotText(usize),
    /// Nothing came through the pipe for this time.
    #[error("nothing came through the pipe for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// A read in the background has not answered within this time.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    NoAnswer(Duration),
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for Problem {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// How to fix it.
fn hint(problem: &Problem) -> &'static str {
    match problem {
        Problem::Directory | Problem::NotAFile(_) => " (give a regular file)",
        Problem::TooLarge(_) | Problem::NotText(_) => " (give another file)",
        Problem::Silent(_) => " (start its writer first, or give a regular file)",
        Problem::NoAnswer(_) => " (is it on a file system whose server is gone? give a local file)",
        Problem::System(error) => match error.kind() {
            io::ErrorKind::NotFound => " (check the name)",
            io::ErrorKind::PermissionDenied => " (read it as its owner, or let this user read it)",
            _ => "",
        },
    }
}
