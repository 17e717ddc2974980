//! A limit of the memory of a cgroup of version 2, as its files hold it.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A file of a cgroup that holds a limit, and that isotherm may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitFile {
    /// Above it, tasks have to reclaim before they go on.
    High,
    /// Below it, memory is reclaimed only if there is no other.
    Low,
}

impl LimitFile {
    /// All such files.
    pub const ALL: [Self; 2] = [Self::High, Self::Low];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "memory.high",
            Self::Low => "memory.low",
        }
    }

    /// The file of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.name() == name)
    }
}

/// A limit, in the form in which the files have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryLimit {
    /// So many bytes.
    Bytes(u64),
    /// No limit, `max`.
    Max,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        if text == "max" { Ok(Self::Max) } else { text.parse().map(Self::Bytes) }
    }
}
