//! Programs under memory pressure: each runs in a cgroup that is limited to a share of its memory, without isotherm and
//! with schemes that act on it.
//!
//! The share is that of the most memory that the program has without a limit, page cache included. Each run has a
//! cgroup of its own, so that no memory is charged to it from a run before. It is removed after the run.

mod course;
mod result;
mod store;
mod table;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

pub use result::{PressureResult, PressureRow};

use crate::{Configuration, EvalError, Progress, RunOptions, Suite};

/// What isotherm does while a program runs under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PressureScheme {
    /// It does not run.
    None,
    /// It locks hot memory, and unlocks memory that has become idle.
    MLock,
    /// It reads reclaimed memory in that is near to hot memory.
    WillNeed,
    /// It reclaims idle memory, so that there is less for the kernel to reclaim.
    Prcl,
}

impl PressureScheme {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 4] = [Self::None, Self::MLock, Self::WillNeed, Self::Prcl];

    /// The name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MLock => "mlock",
            Self::WillNeed => "willneed",
            Self::Prcl => "prcl",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// The scheme file that is part of isotherm.
    const fn shipped(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::MLock => Some(include_str!("../../../../schemes/mlock.yaml")),
            Self::WillNeed => Some(include_str!("../../../../schemes/willneed.yaml")),
            Self::Prcl => Some(include_str!("../../../../schemes/prcl.yaml")),
        }
    }

    /// The configuration of a run: isotherm acts by the schemes of a file, or does not run.
    const fn configuration(self) -> Configuration {
        match self {
            Self::None => Configuration::Orig,
            Self::MLock | Self::WillNeed | Self::Prcl => Configuration::Prcl,
        }
    }
}

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PressureCase {
    /// The limit of its memory, in per cent of the most that it has without a limit. `None`: no limit.
    pub limit: Option<u32>,
    /// What isotherm does.
    pub scheme: PressureScheme,
}

impl PressureCase {
    /// Without a limit and without isotherm.
    pub const FREE: Self = Self { limit: None, scheme: PressureScheme::None };

    /// Its name in progress and tables: `50 % mlock`.
    fn name(self) -> String {
        match self.limit {
            None => "without limit".into(),
            Some(limit) => format!("{limit} % {}", self.scheme.name()),
        }
    }
}

/// What to run under pressure, and how.
#[derive(Clone, Debug)]
pub struct PressureOptions {
    /// The programs.
    pub suite: Suite,
    /// The names of those that run; all if empty.
    pub only: Vec<String>,
    /// The limits, in per cent of the most memory that a program has without a limit.
    pub limits: Vec<u32>,
    /// What isotherm does. Runs without it are made in any case.
    pub schemes: Vec<PressureScheme>,
    /// Scheme files in place of those that are part of isotherm.
    pub files: Vec<(PressureScheme, PathBuf)>,
    /// The path of the cgroup below which cgroups are made.
    pub parent: String,
    /// Runs of each workload in each case.
    pub runs: u32,
    /// How runs are made, and where their results go.
    pub how: RunOptions,
}

impl PressureOptions {
    /// The cases of each round: without a limit, and for each limit without and with the schemes.
    fn cases(&self) -> Vec<PressureCase> {
        let mut limits = self.limits.clone();
        limits.sort_unstable_by(|a, b| b.cmp(a));
        limits.dedup();
        let mut schemes = self.schemes.clone();
        schemes.push(PressureScheme::None);
        schemes.sort_unstable();
        schemes.dedup();
        let of = |limit: u32| schemes.iter().map(move |&scheme| PressureCase { limit: Some(limit), scheme });
        std::iter::once(PressureCase::FREE).chain(limits.into_iter().flat_map(of)).collect()
    }
}

/// Makes the runs that are not in the results yet, and compares all of them. Ends early when `stop` is set.
///
/// # Errors
/// If nothing can be run, or the results cannot be written. A run that fails is no error: it is part of the results,
/// and made again by the next call that resumes.
pub fn pressure(
    options: &PressureOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<PressureResult, EvalError> {
    course::run(options, stop, tell)
}
