//! What all kinds of measurements have in common: how runs are made, and where their results go.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::run::Runner;
use crate::settings::Settings;
use crate::{EvalError, Machine, MayChange};

/// How runs are made, and where their results go.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The directory of the results.
    pub directory: PathBuf,
    /// Whether it may have runs, which are used.
    pub resume: bool,
    /// The size of the work of each program, in per cent of the usual. Commands have it in `$SCALE`.
    pub scale: u32,
    /// Settings of the machine that may be changed.
    pub may_change: MayChange,
    /// The program isotherm, and its version.
    pub isotherm: (PathBuf, String),
    /// Further options of `isotherm record` and `isotherm run`.
    pub options: Vec<String>,
    /// A tree of PARSEC. Commands have it in `$PARSEC`.
    pub parsec: Option<PathBuf>,
    /// How long a command may take.
    pub timeout: Duration,
}

impl RunOptions {
    /// The environment variables of commands of a suite, whose directory is given.
    pub(crate) fn variables(&self, suite: &Path, machine: &Machine) -> Result<Vec<(String, String)>, EvalError> {
        let mut variables = vec![
            ("SUITE".into(), suite.display().to_string()),
            ("ISOTHERM".into(), self.isotherm.0.display().to_string()),
            ("SCALE".into(), self.scale.to_string()),
            ("CPUS".into(), machine.cpus.to_string()),
            ("MEMORY_MIB".into(), (machine.memory >> 20).to_string()),
        ];
        if let Some(parsec) = &self.parsec {
            let parsec = std::path::absolute(parsec).map_err(EvalError::system("no current directory"))?;
            variables.push(("PARSEC".into(), parsec.display().to_string()));
        }
        Ok(variables)
    }

    /// Changes the settings of the machine that may be changed.
    pub(crate) fn settings(&self, machine: &Machine) -> Result<Settings, EvalError> {
        Settings::begin(self.may_change, machine.swap, machine.memory)
    }

    /// What makes the runs. Programs ask for huge pages themselves.
    pub(crate) fn runner<'a>(&'a self, variables: &'a [(String, String)], stop: &'a AtomicBool) -> Runner<'a> {
        Runner {
            isotherm: &self.isotherm.0,
            options: &self.options,
            variables,
            sets_huge_pages: false,
            timeout: self.timeout,
            stop,
        }
    }
}
